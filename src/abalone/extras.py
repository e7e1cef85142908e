"""How to install the libraries that only some commands need, for the messages that name one."""


def install_hint(extra: str = "") -> str:
    """Return the command that installs ABALONE with an extra.

    >>> install_hint("serve")
    "run pip install '.[serve]' in a clone of ABALONE"
    """
    what = f"'.[{extra}]'" if extra else "."
    return f"run pip install {what} in a clone of ABALONE"
