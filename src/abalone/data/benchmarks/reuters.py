"""Reuters-21578: the ModApte split over its 90 topics that have a training and a test document."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from abalone.data.benchmarks import Release, exact_split
from abalone.data.corpus import Corpus, build_corpus
from abalone.data.documents import Documents
from abalone.data.streams import open_text, read_tar
from abalone.errors import DataError

RELEASE = Release(
    name="reuters",
    publisher="the UCI Machine Learning Repository (Reuters-21578, Distribution 1.0, by David D. Lewis)",
    files="reut2-000.sgm to reut2-021.sgm, or the tar archive that holds them",
    licence="free for research; not to be redistributed with other software",
)
SGML = [f"reut2-{number:03d}.sgm" for number in range(22)]
STORIES = 21_578
ARCHIVES = (".tar", ".tar.xz", ".tar.gz", ".tgz")
SPLIT_OF = {"TRAIN": "train", "TEST": "test"}  # of the attribute LEWISSPLIT
VALIDATION_SHARE, SEED = 0.1, 0

ATTRIBUTE = re.compile(r'(\w{1,20})="([^"]{0,200})"')
# Not `html.unescape`: it also expands HTML names without a semicolon, which the DTD does not know.
ENTITY = re.compile(r"&(?:#(\d{1,9})|(lt|gt|amp|quot));")
NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Element(NamedTuple):
    """`<TAG attributes>content</TAG>`, and where it starts and ends."""

    attributes: str
    content: str
    start: int
    end: int


class Story(NamedTuple):
    """One `<REUTERS>` element, as far as the ModApte split needs it."""

    split: str  # TRAIN, TEST or NOT-USED
    indexed: bool  # whether a person looked for topics, even if none applied
    topics: list[str]
    text: str


def load(path: Path | None = None) -> Corpus:
    """Read ModApte from the 22 SGML files in a folder, or from the tar archive, which is not unpacked.

    7,770 training and 3,019 test documents; a stratified tenth of the training documents is the validation
    split, as the published split has none.
    """
    place = RELEASE.place(path)
    modapte = Documents()
    outside = 0
    for name, content in _sgml_files(place):
        for story in read_stories(content, name):
            if story.indexed and story.split in SPLIT_OF:
                modapte.add(story.text, story.topics, SPLIT_OF[story.split])
            else:
                outside += 1
    documents = _with_topics_of_both(modapte)
    topics, labels = documents.label_matrix()
    if not topics:
        raise DataError("no topic has both a training and a test document", path=place)
    without = len(modapte.texts) - len(documents.texts)
    notes = [
        f"{outside} documents are outside the ModApte split.",
        f"{without} ModApte documents carry none of the {len(topics)} topics and are left out.",
    ]
    if (total := len(modapte.texts) + outside) != STORIES:
        notes.append(f"{total} stories were read; the whole of Reuters-21578 has {STORIES}.")

    rows = documents.rows()
    kept, held_out = exact_split(labels[rows["train"]], (1 - VALIDATION_SHARE, VALIDATION_SHARE), SEED)
    return build_corpus(
        documents.texts,
        labels,
        topics,
        {"train": rows["train"][kept], "validation": rows["train"][held_out], "test": rows["test"]},
        name="reuters",
        provenance=RELEASE.provenance(
            preparation="title and body, entities decoded, control characters removed; "
            f"topics with a training and a test document ({len(topics)})",
            split=f"ModApte; validation is a stratified {VALIDATION_SHARE:.0%} of its training documents "
            "(our choice: the published split has none)",
            seed=SEED,
            path=str(place),
        ),
        notes=notes,
    )


def read_stories(content: str, file: str | Path) -> Iterator[Story]:
    """Read the stories of one SGML file; `file` is named where the content is damaged."""
    end = 0
    for record in elements(content, "REUTERS"):
        attributes = dict(ATTRIBUTE.findall(record.attributes))
        topics, text = first(record.content, "TOPICS"), first(record.content, "TEXT")
        # An element that runs into the next one has lost its end.
        if topics is None or text is None or "<REUTERS" in record.content:
            raise _damaged(content, record.start, record.attributes, file)
        yield Story(
            split=attributes.get("LEWISSPLIT", ""),
            indexed=attributes.get("TOPICS") == "YES",
            topics=[decode(topic.content) for topic in elements(topics.content, "D")],
            text=story_text(text.attributes, text.content),
        )
        end = record.end
    start = content.find("<REUTERS", end)
    if start < 0 and end:
        start = len(content) - len(content[end:].lstrip())
    if 0 <= start < len(content):
        raise _damaged(content, start, content[start:].partition(">")[0], file)


def elements(content: str, tag: str) -> Iterator[Element]:
    """Yield the elements of that name, one after the other.

    Looking forward only: a pattern would look through to the end again from every tag that is never closed.
    """
    position = 0
    while (start := content.find(f"<{tag}", position)) >= 0:
        position = inside = start + len(tag) + 1
        if content[inside : inside + 1].isalnum():
            continue  # the name goes on, so it is another one
        opened = content.find(">", inside)
        closed = content.find(f"</{tag}>", opened)
        if opened < 0 or closed < 0:
            return
        position = closed + len(tag) + 3
        yield Element(content[inside:opened], content[opened + 1 : closed], start, position)


def first(content: str, tag: str) -> Element | None:
    """Return the first element of that name, if there is one."""
    return next(elements(content, tag), None)


def story_text(attributes: str, content: str) -> str:
    """Return title and body of a `<TEXT>`; a BRIEF has no body, an UNPROC no structure at all."""
    if 'TYPE="UNPROC"' in attributes:
        return decode(content).strip()
    parts = (first(content, tag) for tag in ("TITLE", "BODY"))
    return "\n".join(decode(part.content).strip() for part in parts if part is not None)


def decode(text: str) -> str:
    """Resolve entities, then drop the control characters that framed the story on the wire."""
    return CONTROL.sub("", ENTITY.sub(lambda match: NAMED[match[2]] if match[2] else _character(int(match[1])), text))


def _character(number: int) -> str:
    """Return the character of that number; the replacement character where there is none."""
    return chr(number) if number < 0xD800 or 0xDFFF < number <= 0x10FFFF else "\ufffd"


def _damaged(content: str, position: int, attributes: str, file: str | Path) -> DataError:
    newid = dict(ATTRIBUTE.findall(attributes)).get("NEWID", "?")
    line = content.count("\n", 0, position) + 1
    reason = f"story NEWID={newid} has no end, no <TOPICS> or no <TEXT>"
    return DataError(reason, path=file, line=line, hint="The file is cut short or damaged: download it again.")


def _with_topics_of_both(modapte: Documents) -> Documents:
    """Return the documents with a topic that training and test both have, and those of their topics alone."""
    found: dict[str | None, set[str]] = {split: set() for split in SPLIT_OF.values()}
    for split, topics in zip(modapte.splits, modapte.labels, strict=True):
        found[split].update(topics)
    shared = set.intersection(*found.values())
    documents = Documents()
    for text, topics, split in zip(modapte.texts, modapte.labels, modapte.splits, strict=True):
        if carried := [topic for topic in topics if topic in shared]:
            documents.add(text, carried, split)
    return documents


def _sgml_files(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield name and content of the 22 files, in order."""
    if place.is_dir() and (place / SGML[0]).exists():
        if absent := [name for name in SGML if not (place / name).is_file()]:
            raise RELEASE.missing(place, f"missing: {', '.join(absent)}")
        for name in SGML:
            with open_text(place / name, encoding="latin-1") as file:
                content = file.read()
            yield place / name, content
        return
    archives = sorted(place.iterdir()) if place.is_dir() else [place]
    archive = next((file for file in archives if file.name.endswith(ARCHIVES)), None)
    if archive is None:
        raise RELEASE.missing(place, "there are no SGML files and no tar archive here")
    contents = read_tar(archive, SGML)
    if absent := [name for name in SGML if name not in contents]:
        raise RELEASE.missing(archive, f"missing in the archive: {', '.join(absent)}")
    for name in SGML:
        yield archive / name, contents[name].decode("latin-1")
