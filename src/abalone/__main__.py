"""`python -m abalone` is the command `abalone`."""

from abalone.cli import app

if __name__ == "__main__":
    app(prog_name="abalone")
