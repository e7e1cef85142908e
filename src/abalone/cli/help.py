"""How `--help` looks: no Python types, and paragraphs that wrap to the terminal."""

from typing import Any

from typer.core import TyperCommand


class Command(TyperCommand):
    """A command whose help shows no Python types, and breaks lines only where the terminal ends."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = unwrapped(self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` among them."""
        return without_types(super().get_params(ctx))


def without_types(parameters: list[Any]) -> list[Any]:
    """Show no Python type, such as `<bool>` or `<path>`, beside flags and arguments."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = lambda ctx: None  # its name says what it is
        elif parameter.metavar is None and getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def unwrapped(text: str) -> str:
    r"""Undo line breaks within paragraphs.

    Example:
        >>> unwrapped("One\n    line.\n\n    Another paragraph.")
        'One line.\n\nAnother paragraph.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
