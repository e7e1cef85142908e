"""The raw XML of RCV1: one news item a file, in folders or zips."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from abalone.data.archives import read_zip
from abalone.data.benchmarks.release import is_id
from abalone.files.errors import DataError

TOPIC_CODES = ".//codes[@class='bip:topics:1.0']/code[@code]"
REGION_CODES = ".//codes[@class='bip:countries:1.0']/code"


class NewsItem(NamedTuple):
    """One news item, as far as RCV1-v2 needs it."""

    document: int
    text: str  # headline and paragraphs
    topics: list[str]  # as they were coded, without their ancestors
    has_region: bool
    path: Path


def xml_files(place: Path) -> list[Path]:
    """The XML files and zips at `place`, in a fixed order."""
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    return [file for file in files if file.suffix.lower() in {".xml", ".zip"} and file.is_file()]


def read_news(files: list[Path]) -> Iterator[NewsItem | None]:
    """The news items of XML files and zips; `None` for an XML file that holds something else."""
    for path, content in _contents(files):
        try:
            item = ElementTree.fromstring(content)
        except ElementTree.ParseError as error:
            raise DataError(f"not well-formed XML ({error})", path=path, line=error.position[0]) from error
        except (LookupError, ValueError) as error:  # an encoding that Python does not know, or not here
            raise DataError(f"not readable XML ({error})", path=path) from error
        if item.tag != "newsitem":
            yield None
            continue
        document = item.get("itemid", "")
        if not is_id(document):
            raise DataError(f"the news item has the itemid {document!r}", path=path)
        heading = item.findtext("headline") or item.findtext("title") or ""
        paragraphs = ("".join(paragraph.itertext()) for paragraph in item.iterfind("text/p"))
        yield NewsItem(
            document=int(document),
            text="\n".join(part.strip() for part in (heading, *paragraphs)).strip(),
            topics=[code.attrib["code"] for code in item.iterfind(TOPIC_CODES)],
            has_region=item.find(REGION_CODES) is not None,
            path=path,
        )


def ancestors(topic: str) -> list[str]:
    """The topics above `topic`, which its code spells out: C1511 lies under C151, C15 and CCAT.

    >>> ancestors("C1511"), ancestors("GSPO"), ancestors("MCAT")
    (['C151', 'C15', 'CCAT'], ['GCAT'], [])
    """
    root = f"{topic[:1]}CAT"
    if topic == root or not topic.startswith(("C", "E", "G", "M")):
        return []
    numbered = topic[1:].isdecimal()
    return [*(topic[:length] for length in range(len(topic) - 1, 2, -1) if numbered), root]


def _contents(files: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """Name and content of every XML file; zips are read without unpacking them."""
    for file in files:
        if file.suffix.lower() == ".xml":
            try:
                yield file, file.read_bytes()
            except OSError as error:
                raise DataError(f"cannot be read: {error.strerror}", path=file) from error
            continue
        for member, content in read_zip(file, ".xml"):
            yield file / member, content
