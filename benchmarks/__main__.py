"""`python -m benchmarks` runs every part but `growth` and `soak`, `python -m benchmarks losses data` runs some."""

from argparse import ArgumentParser
from importlib import import_module

PARTS = ("losses", "probe", "data", "tokens", "pretraining", "prediction", "export", "serve", "scale")
ASKED = ("growth", "soak")  # a picture of the documentation, and minutes of one thing: only if they are asked for


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks", description="What things cost, beside a plain way.")
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; all by default. And: {', '.join(ASKED)}"
    )
    asked = parser.parse_args().parts
    if unknown := [part for part in asked if part not in PARTS + ASKED]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS + ASKED)}")
    for part in asked or PARTS:
        import_module(f"benchmarks.{part}").main()


if __name__ == "__main__":
    main()
