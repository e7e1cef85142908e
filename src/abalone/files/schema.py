"""JSON schemas: stored JSON checked against the shape that its readers rely on."""

from collections.abc import Mapping
from typing import Any

Shape = Any
"""A type; `NUMBER`; a tuple of shapes, one of which must fit; `[shape]`, a list of such; a dict of shapes by key.

A key that ends in `?` may be absent, and the key `*` stands for all others.
"""

NUMBER = object()
LARGEST = 1e15  # beyond it a number is damage, and could not be computed with


def misfit(value: Any, shape: Shape, place: str = "it") -> str | None:
    """Return what is wrong with `value`, for a message; None where it fits.

    Example:
        >>> misfit({"seconds": "5", "date": "today"}, {"seconds": NUMBER, "date": str})
        "it['seconds'] is str"
    """
    if shape is NUMBER:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST
    elif isinstance(shape, tuple):
        found = [misfit(value, one, place) for one in shape]
        return None if None in found else found[-1]
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is {type(value).__name__}"
        inside = (misfit(entry, shape[0], f"{place}[{number}]") for number, entry in enumerate(value))
        return next(filter(None, inside), None)
    elif isinstance(shape, dict):
        return _misfit_inside(value, shape, place)
    else:
        fits = (
            value is None if shape is None else isinstance(value, shape) and isinstance(value, bool) <= (shape is bool)
        )
    return None if fits else f"{place} is {type(value).__name__}"


def _misfit_inside(value: Any, shape: Mapping[str, Shape], place: str) -> str | None:
    if not isinstance(value, Mapping):
        return f"{place} is {type(value).__name__}"
    for key, inner in shape.items():
        name = key.removesuffix("?")
        if name == "*":
            others = [entry for own, entry in value.items() if own not in shape]
            wrong = next(filter(None, (misfit(entry, inner, f"{place}[…]") for entry in others)), None)
        elif name in value:
            wrong = misfit(value[name], inner, f"{place}[{name!r}]")
        else:
            wrong = None if key.endswith("?") else f"{place} has no {name!r}"
        if wrong:
            return wrong
    return None
