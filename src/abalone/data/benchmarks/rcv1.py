"""RCV1-v2: Reuters news by topic, from the token files of LYRL2004 or from the raw XML.

Either form is read once, as a stream, into memory-mapped texts in the cache; later runs only open those.
D. D. Lewis, Y. Yang, T. G. Rose and F. Li, "RCV1: A New Benchmark Collection for Text Categorization
Research", JMLR 5, 2004.
"""

import json
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
from scipy.sparse import csr_array

from abalone.data.benchmarks import Release, exact_split, find_file, is_id, read_lines
from abalone.data.corpus import RARE, Corpus, build_corpus
from abalone.data.store import MappedTexts, Stored, TextWriter, arrays_once
from abalone.data.streams import read_zip
from abalone.errors import DataError, InputError
from abalone.files.cache import cache_entry, source_key
from abalone.files.schema import misfit
from abalone.progress import track

RELEASE = Release(
    name="rcv1",
    publisher=(
        "the online appendices 12 (tokens) and 8 (topics) of Lewis et al., JMLR 5, 2004, or the raw XML from "
        "NIST, which distributes it under an agreement"
    ),
    files=(
        "lyrl2004_tokens_train.dat, lyrl2004_tokens_test_pt0.dat to _pt3.dat and rcv1-v2.topics.qrels (plain or "
        "compressed), or the XML files in folders or zips"
    ),
    licence="Reuters; for research, under the agreement with NIST",
)
TOKENS = ["lyrl2004_tokens_train.dat", *(f"lyrl2004_tokens_test_pt{part}.dat" for part in range(4))]
QRELS = "rcv1-v2.topics.qrels"
TRAIN_IDS, TEST_IDS = (2286, 26150), (26151, 810596)
DOCUMENTS, TOPICS_KEPT = 804_414, 91
MINIMUM = RARE  # a topic stays if at least as many training documents carry it
VALIDATION_SHARE, SEED = 0.15, 0
LYRL2004, RAW_XML = "LYRL2004 tokens", "raw XML"  # the two forms
FORMAT = "abalone-rcv1-4"  # of what is written to the cache, to be raised with every change in it
TOPIC_CODES = ".//codes[@class='bip:topics:1.0']/code[@code]"
REGION_CODES = ".//codes[@class='bip:countries:1.0']/code"


def load(path: Path | None = None) -> Corpus:
    """Read RCV1-v2 as in the paper: topics with 30 training documents or more, 15 % of training for validation."""
    place = RELEASE.place(path)
    tokens, qrels = [find_file(place, name) for name in TOKENS], find_file(place, QRELS)
    if any(tokens):
        found = zip([*TOKENS, QRELS], [*tokens, qrels], strict=True)
        if absent := [name for name, file in found if file is None]:
            raise RELEASE.missing(place, f"missing: {', '.join(absent)}")
        form, sources = LYRL2004, [file for file in tokens if file]
    else:
        form, sources = RAW_XML, xml_files(place)
        if not sources:
            raise RELEASE.missing(place, "there are no token files and no XML files here")
    key = source_key([*sources, *([qrels] if qrels else [])], f"{FORMAT} {form}")
    store = cache_entry("texts", f"{key}.safetensors")
    return _prepare(arrays_once(store, FORMAT, partial(_build, form, sources, qrels, store)), form, place)


def _prepare(store: Stored, form: str, place: Path) -> Corpus:
    """Return the paper's corpus of the documents in `store`."""
    facts, texts, ids, labels = _open_store(store)
    by_id = np.argsort(ids, kind="stable")  # both forms give the same order, hence the same split
    train, test = (by_id[(first <= ids[by_id]) & (ids[by_id] <= last)] for first, last in (TRAIN_IDS, TEST_IDS))
    notes = list(facts["notes"])
    if outside := len(ids) - len(train) - len(test):
        notes.append(f"{outside} documents with ids outside {TRAIN_IDS[0]}–{TEST_IDS[1]} are left out.")

    frequency = labels[train].sum(axis=0)  # [L]
    kept = sorted(np.flatnonzero(frequency >= MINIMUM), key=lambda j: str(facts["topics"][j]))
    rare = sorted(facts["topics"][j] for j in np.flatnonzero(frequency < MINIMUM))
    if not kept:
        hint = "Is this the whole of RCV1-v2? It has 23,149 training documents."
        raise DataError(f"no topic has {MINIMUM} training documents ({len(train)} read)", path=place, hint=hint)
    if rare:
        notes.append(
            f"{len(rare)} topics with fewer than {MINIMUM} training documents are left out: {', '.join(rare)}."
        )
    if len(kept) != TOPICS_KEPT:
        notes.append(f"{len(kept)} topics are kept; the whole of RCV1-v2 has {TOPICS_KEPT}.")

    labels = csr_array(labels[:, kept])
    fit, held_out = exact_split(csr_array(labels[train]), (1 - VALIDATION_SHARE, VALIDATION_SHARE), SEED)
    return build_corpus(
        texts,
        labels,
        [facts["topics"][j] for j in kept],
        {"train": train[fit], "validation": train[held_out], "test": test},
        name="rcv1",
        provenance=RELEASE.provenance(
            form=form,
            preparation=f"topics with at least {MINIMUM} training documents",
            split=f"training ids {TRAIN_IDS[0]}–{TRAIN_IDS[1]}, test ids {TEST_IDS[0]}–{TEST_IDS[1]}; validation is a "
            f"stratified {VALIDATION_SHARE:.0%} of training (the paper gives no ids, so its split is not this one)",
            seed=SEED,
            path=str(place),
            cache=str(store.path),
        ),
        notes=notes,
    )


def _open_store(store: Stored) -> tuple[dict[str, list[str]], MappedTexts, np.ndarray, csr_array]:
    """Return what `_build` wrote: facts, texts, ids [n] and labels [n, topics]."""
    try:
        facts = json.loads(store.arrays["facts"].tobytes())
        if wrong := misfit(facts, {"topics": [str], "notes": [str]}):
            raise InputError(wrong)
        texts, ids = MappedTexts(store), store.arrays["ids"]
        indices, bounds = store.arrays["labels"], store.arrays["bounds"]
        shape = (len(texts), len(facts["topics"]))
        labels = csr_array((np.ones(len(indices), dtype=np.int32), indices, bounds), shape=shape)
        labels.check_format(full_check=True)
        if ids.shape != (len(texts),):
            raise ValueError("the parts do not fit each other")
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:  # forged, since the checksums fit
        hint = "Delete the file; it will be rebuilt from the source."
        raise DataError(f"the prepared corpus is damaged ({error})", path=store.path, hint=hint) from error
    return facts, texts, ids, labels


class Record(NamedTuple):
    """One document, and where it was found."""

    document: int
    text: str
    path: Path
    line: int | None = None


class Topics:
    """Pairs of document and topic, packed: the published file has 2.6 million."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.documents, self.topics = array("q"), array("i")

    def add(self, document: int, topic: str) -> None:
        """Note that `document` carries `topic`."""
        self.documents.append(document)
        self.topics.append(self.names.setdefault(topic, len(self.names)))

    def matrix(self, ids: np.ndarray) -> tuple[csr_array, np.ndarray]:
        """Return the 0/1 matrix [ids, topics], and the documents named here that are not among `ids`."""
        documents, topics = np.array(self.documents, dtype=np.int64), np.array(self.topics, dtype=np.int32)
        order = np.argsort(ids, kind="stable")
        found = np.isin(documents, ids)
        rows = order[np.searchsorted(ids, documents[found], sorter=order)]
        shape = (len(ids), len(self.names))
        matrix = csr_array((np.ones(len(rows), dtype=np.int32), (rows, topics[found])), shape=shape)
        matrix.sum_duplicates()
        matrix.data[:] = 1  # a pair that is given twice counts once
        return matrix, np.unique(documents[~found])


def _build(form: str, sources: list[Path], qrels: Path | None, path: Path) -> None:
    """Stream the documents of `sources` to `path`: texts, ids, labels, and what a person should know."""
    topics = read_qrels(qrels) if qrels else Topics()
    open_ends: list[DataError] = []
    notes: list[str] = []
    if form == RAW_XML:
        records = _records_of_news(sources, topics, notes, judged=qrels is not None)
    else:
        records = (record for file in sources for record in read_tokens(file, open_ends))
    seen: dict[int, None] = {}  # in order
    empty = 0
    with TextWriter(path, FORMAT) as writer:
        for record in track(records, "Reading RCV1-v2", DOCUMENTS):
            if record.document in seen:
                reason = f"document {record.document} appears twice"
                raise DataError(reason, path=record.path, line=record.line)
            seen[record.document] = None
            empty += not record.text
            writer.append(record.text)
        ids = np.fromiter(seen, dtype=np.int64, count=len(seen))
        labels, absent = topics.matrix(ids)
        if absent.size:
            # A last record without its closing empty line is a cut only if something is missing after it.
            if open_ends:
                raise open_ends[0]
            notes.append(f"{absent.size} documents of the topics file have no text here (the first: {absent[0]}).")
        if bare := int((np.diff(labels.indptr) == 0).sum()):
            notes.append(f"{bare} documents have no line in the topics file.")
        if empty:
            notes.append(f"{empty} documents have no text.")
        facts = json.dumps({"topics": list(topics.names), "notes": notes}).encode()
        for name, values in (("ids", ids), ("labels", labels.indices), ("bounds", labels.indptr)):
            writer.extend(name, values)
        writer.extend("facts", np.frombuffer(facts, dtype=np.uint8))


def read_tokens(path: Path, open_ends: list[DataError]) -> Iterator[Record]:
    """Read the documents of a token file: `.I <id>`, `.W`, lines of tokens, an empty line.

    Args:
        path: the file.
        open_ends: takes the error for a last record without its empty line, which may yet be whole.
    """
    lines = read_lines(path, "latin-1")
    for start, line in lines:
        if not line.strip():
            continue
        mark, _, number = line.strip().partition(" ")
        if mark != ".I" or not is_id(number):
            raise DataError(f"expected '.I <id>', found {line.strip()[:40]!r}", path=path, line=start)
        document, tokens, closed = int(number), list[str](), False
        cut = DataError(
            f"the record of document {document} is cut short",
            path=path,
            line=start,
            hint="A record is '.I <id>', '.W', lines of tokens and an empty line. Download the file again.",
        )
        if next(lines, (0, ""))[1].strip() != ".W":
            raise cut
        for _, line in lines:
            if closed := not line.strip():
                break
            if line.startswith(".I "):
                raise cut
            tokens.append(line.strip())
        if not closed:
            if not tokens or not line.endswith("\n"):
                raise cut
            open_ends.append(cut)
        yield Record(document, " ".join(tokens), path, start)


def read_qrels(path: Path) -> Topics:
    """Read the pairs of a topics file with lines `TOPIC id 1`."""
    topics = Topics()
    for number, line in read_lines(path, "latin-1"):
        match line.split():
            case [topic, document, "1"] if is_id(document):
                topics.add(int(document), topic)
            case []:
                continue
            case _:
                raise DataError(f"expected 'TOPIC id 1', found {line.strip()[:40]!r}", path=path, line=number)
    return topics


def _records_of_news(files: list[Path], topics: Topics, notes: list[str], *, judged: bool) -> Iterator[Record]:
    """Read the documents of the raw XML.

    RCV1-v2 is the raw corpus less the documents without topic or region codes, with the ancestors of every
    topic added. The topics file has all that; without it the topics come from the XML by the same rules.

    Args:
        files: XML files and zips.
        topics: the topics file, or (not `judged`) empty, to be filled.
        notes: takes a sentence on each thing left out.
        judged: whether the topics file decides which documents belong.
    """
    members = set(topics.documents)
    left_out = regionless = other = 0
    for item in read_news(files):
        if item is None:
            other += 1
        elif item.document not in members if judged else not item.topics:
            left_out += 1
        else:
            if not judged:
                for topic in {relative for code in item.topics for relative in (code, *ancestors(code))}:
                    topics.add(item.document, topic)
                regionless += not item.has_region
            yield Record(item.document, item.text, item.path)
    why = f"are not in {QRELS}" if judged else "have no topic code"
    for count, finding in (
        (left_out, f"documents {why} and are left out, as in RCV1-v2."),
        (regionless, f"documents have no region code; RCV1-v2 has no such documents (add {QRELS} to leave them out)."),
        (other, "XML files are not news items."),
    ):
        if count:
            notes.append(f"{count} {finding}")


class NewsItem(NamedTuple):
    """One news item, as far as RCV1-v2 needs it."""

    document: int
    text: str  # headline and paragraphs
    topics: list[str]  # as they were coded, without their ancestors
    has_region: bool
    path: Path


def xml_files(place: Path) -> list[Path]:
    """Return the XML files and zips at `place`, in a fixed order."""
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    return [file for file in files if file.suffix.lower() in {".xml", ".zip"} and file.is_file()]


def read_news(files: list[Path]) -> Iterator[NewsItem | None]:
    """Read the news items of XML files and zips; yield `None` for an XML file that holds something else."""
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
    """Return the topics above `topic`, which its code spells out: C1511 lies under C151, C15 and CCAT.

    >>> ancestors("C1511"), ancestors("GSPO"), ancestors("MCAT")
    (['C151', 'C15', 'CCAT'], ['GCAT'], [])
    """
    root = f"{topic[:1]}CAT"
    if topic == root or not topic.startswith(("C", "E", "G", "M")):
        return []
    numbered = topic[1:].isdecimal()
    return [*(topic[:length] for length in range(len(topic) - 1, 2, -1) if numbered), root]


def _contents(files: list[Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield name and content of every XML file; zips are read without unpacking them."""
    for file in files:
        if file.suffix.lower() == ".xml":
            try:
                yield file, file.read_bytes()
            except OSError as error:
                raise DataError(f"cannot be read: {error.strerror}", path=file) from error
            continue
        for member, content in read_zip(file, ".xml"):
            yield file / member, content
