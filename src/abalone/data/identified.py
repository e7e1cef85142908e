"""Texts that carry the id of their row past everything that takes texts, to the answers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from reprlib import repr as short

from abalone.data.columns import is_blank
from abalone.data.documents import text_of
from abalone.data.tables import half_character


class Identified(str):
    """A text to whatever reads it, so that only who reads rows and who writes answers knows of ids.

    Args:
        text: the text.
        row_id: of its row.

    Example:
        >>> list(with_ids([Identified("w1", 7), "w2"], [{"labels": ["a"]}, {"labels": []}]))
        [{'id': 7, 'labels': ['a']}, {'labels': []}]
    """

    __slots__ = ("row_id",)
    row_id: str | int

    def __new__(cls, text: str, row_id: str | int) -> "Identified":
        """A text cannot be changed after it is made, so that `__init__` would be too late."""
        made = super().__new__(cls, text)
        made.row_id = row_id
        return made


class NoTextError(ValueError):
    """A row that has an id and no text; `row_id` is the id."""

    def __init__(self, reason: str, row_id: str | int) -> None:
        super().__init__(reason)
        self.row_id = row_id


def identified_text(values: Mapping[str, object], columns: Sequence[str], id_column: str | None) -> str:
    """The text of a row, with the row's id where a column for it is named."""
    if id_column is None:
        return text_of(values, columns)
    row_id = values.get(id_column)
    if is_blank(row_id):
        raise ValueError(f"no id in column {id_column!r}")
    if isinstance(row_id, bool) or not isinstance(row_id, str | int):
        raise ValueError(
            f"the id in column {id_column!r} is not a string or integer but {type(row_id).__name__}: {short(row_id)}"
        )
    if isinstance(row_id, str) and (reason := half_character(row_id)):
        raise ValueError(f"the id {reason}")
    try:
        return Identified(text_of(values, columns), row_id)
    except ValueError as error:
        raise NoTextError(str(error), row_id) from None


def with_ids(texts: Iterable[str], answers: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    """The answers to texts, each with the id that its text carries, if any."""
    for text, answer in zip(texts, answers, strict=True):
        yield {"id": text.row_id, **answer} if isinstance(text, Identified) else answer


def and_their_ids(texts: Iterable[str]) -> Iterator[str]:
    """Each text and the id it carries, if any, for a checksum: the same texts under other ids are others."""
    for text in texts:
        yield text
        if isinstance(text, Identified):
            yield repr(text.row_id)
