"""`python -m benchmarks` runs every part but `growth` and `soak`; `python -m benchmarks losses data` runs some."""

from argparse import ArgumentParser
from importlib import import_module

PARTS = ("losses", "probe", "data", "tokens", "pretraining", "prediction", "export", "serve", "scale")
ON_REQUEST = ("growth", "soak")  # a figure of the documentation, and ten minutes under load: only when named


def main() -> None:
    parser = ArgumentParser(prog="python -m benchmarks", description="Speed and memory, beside a plain implementation.")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="part",
        help=f"any of {', '.join(PARTS)}; all by default. And: {', '.join(ON_REQUEST)}",
    )
    asked = parser.parse_args().parts
    if unknown := [part for part in asked if part not in PARTS + ON_REQUEST]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS + ON_REQUEST)}")
    for part in asked or PARTS:
        import_module(f"benchmarks.{part}").main()


if __name__ == "__main__":
    main()
