"""Plain text for LaTeX."""

_WRITTEN = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "^": r"\^{}",
    "~": r"\textasciitilde{}",
    # At the start of a row they would be arguments of what ended the row above.
    "[": "{[}",
    "*": "{*}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "–": "--",
    "…": r"\dots{}",
    "×": r"$\times$",
    "±": r"$\pm$",
    "−": "$-$",
    "≥": r"$\geq$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "³": "$^3$",
    "⁴": "$^4$",
    "β": r"$\beta$",
    "τ": r"$\tau$",
}


def escaped(text: str) -> str:
    """What shows as `text`, on one line.

    Example:
        >>> escaped("50 % of [a_b]")
        '50 \\\\% of {[}a\\\\_b]'
    """
    return "".join(_WRITTEN.get(character, character) for character in " ".join(text.splitlines()))
