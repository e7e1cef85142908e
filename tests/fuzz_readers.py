"""Fuzzing the readers: a user's own files, the published corpora, and what lies in the cache."""

import gzip
import io
import json
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import made_up_rcv1
import pyarrow
import pyarrow.parquet
import zstandard
from handmade import COMPRESS, ROWS, WRITE, as_csv, as_dataset
from hypothesis import strategies as st

from abalone.data.bad_rows import usable
from abalone.data.benchmarks import BENCHMARKS
from abalone.data.benchmarks.reuters import SGML
from abalone.data.load import load_corpus
from abalone.data.rows import TextColumns
from abalone.data.store import ArrayWriter, MappedTexts, TextWriter, arrays_once
from abalone.data.tokens import FORMAT, _mapped
from abalone.data.unlabelled import read_unlabelled
from abalone.errors import DataError
from fuzzing import Target, only_clear_errors
from mutations import mutated

Numbers = random.Random
Files = Mapping[str, bytes]  # by name within a folder

DOCUMENTS = [{"id": i, **ROWS[i % 5], "text": f"document {i} {ROWS[i % 5]['text']}", "share": i / 7} for i in range(20)]
UNPACK = {".gz": gzip.decompress, ".xz": lzma.decompress, ".zst": zstandard.decompress}
# Labels in all the ways that people write them.
WRITTEN = [{**row, "labels": (row["labels"], str(row["labels"]), 7, None)[i % 4]} for i, row in enumerate(DOCUMENTS)]


# What is damaged


def parquet() -> bytes:
    """The rows in several row groups, with a dictionary and a list column."""
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(DOCUMENTS), stream, row_group_size=7)
    return stream.getvalue()


def arrow(form: Callable[[io.BytesIO, pyarrow.Schema], Any]) -> bytes:
    """The rows in several batches, as Arrow writes them to a file or a stream."""
    stream, table = io.BytesIO(), pyarrow.Table.from_pylist(DOCUMENTS)
    with form(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return stream.getvalue()


def written_by(write: Callable[[Path], object]) -> Files:
    """What a function leaves in a folder."""
    with TemporaryDirectory() as folder:
        write(Path(folder))
        found = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def story(number: int, topic: str, split: str) -> str:
    """One element of Reuters-21578; the words are made up."""
    return (
        f'<REUTERS TOPICS="YES" LEWISSPLIT="{split}" NEWID="{number}">\n<TOPICS><D>{topic}</D></TOPICS>\n'
        f"<TEXT>&#2;\n<TITLE>STORY {number} &lt;A></TITLE>\n<BODY>Words.\n&#3;</BODY></TEXT>\n</REUTERS>\n"
    )


@cache
def reuters() -> Files:
    """The 22 files, the first with stories."""
    stories = [story(i, ("earn", "rye")[i % 2], "TRAIN" if i < 20 else "TEST") for i in range(26)]
    return {SGML[0]: "".join(stories).encode(), **dict.fromkeys(SGML[1:], b'<!DOCTYPE lewis SYSTEM "lewis.dtd">\n')}


@cache
def own_files() -> dict[str, Files]:
    """One file of every format, plain and packed."""
    plain = {f"own{suffix}": write(DOCUMENTS) for suffix, write in WRITE.items()}
    plain |= {f"written{suffix}": WRITE[suffix](WRITTEN) for suffix in (".json", ".jsonl")}
    plain["written.csv"] = plain["own.csv"].replace(b"b;a", b"\"['b', 'a']\"").replace(b"c;a", b"[1]")
    plain["tuples.csv"] = plain["own.csv"].replace(b"b;a", b"\"('b', 'a')\"").replace(b"c;a", b"\"{'c', 'a'}\"")
    plain["wide.csv"] = "".join(f"{i},text {i % 7},{i % 2},{'01 '[i % 3]},TRUE\n" for i in range(20)).encode()
    plain["wide.csv"] = b"id,Comment Text,joy,sad,Joy\n" + plain["wide.csv"]
    plain["utf-16.csv"] = plain["own.csv"].decode().encode("utf-16")
    packed = {f"{name}{suffix}": COMPRESS[suffix](plain[name]) for name in plain for suffix in (".gz", ".xz", ".zst")}
    files = {**plain, **packed, "own.parquet": parquet(), "own.txt": b"a line\n\n" + plain["own.jsonl"]}
    files |= {"own.arrow": arrow(pyarrow.ipc.new_file), "own.feather": arrow(pyarrow.ipc.new_stream)}
    return {name: {name: content} for name, content in files.items()}


@cache
def own_folders() -> dict[str, Files]:
    """Folders with splits, shards, and a saved dataset."""
    lines = WRITE[".jsonl"](DOCUMENTS)
    return {
        "splits": {"train.csv": as_csv(DOCUMENTS), "dev.jsonl": lines, "test.jsonl.gz": COMPRESS[".gz"](lines)},
        "shards": {f"train-0000{i}-of-00002.parquet": parquet() for i in range(2)},
        "dataset": written_by(
            lambda folder: as_dataset([{name: row[name] for name in ROWS[0]} for row in DOCUMENTS]).save_to_disk(folder)
        ),
    }


@cache
def published() -> dict[str, Files]:
    """A small one of each published corpus, by the name of its reader and its form."""
    texts = "".join(f"abstract {i}\n" for i in range(30)).encode()
    labels = b"".join((b"cs.it math.it\n", b"cs.ai\n")[i % 2 :][:1][0] for i in range(30))
    bits = "".join(f"{'10' if i % 2 else '01'}\tabstract {i}\n" for i in range(30)).encode()
    columns = b"id,abstract,a,b\n" + b"".join(f"{i},text {i},{i % 2},1\n".encode() for i in range(30))
    acts = [{"title": "An Act", "body": "No.", "labels": ["A"], "data_type": kind} for kind in ("train", "dev", "test")]
    papers = b'{"id": "1", "title": "t", "text": "abstract", "labels": ["a"]}\n' * 3
    return {
        "aapd sgm": {f"{kind}_{part}": content for part in ("train", "val", "test")
                     for kind, content in (("text", texts), ("label", labels))},
        "aapd hedwig": {f"aapd_{part}.tsv": bits for part in ("train", "dev", "test")},
        "aapd csv": {"aapd.csv": columns},
        "uklex": {"uk-lex69.jsonl": b"".join(json.dumps(act).encode() + b"\n" for act in acts)},
        "arxiv": {name: COMPRESS[".xz"](papers) for name in ("train.jsonl.xz", "val.jsonl.xz", "test.jsonl.xz")},
        "reuters": reuters(),
        "reuters tar": {"r.tar": archive(reuters(), "w")},
        "reuters tar.xz": {"r.tar.xz": archive(reuters(), "w:xz")},
        "rcv1 tokens": written_by(made_up_rcv1.write_tokens),
        "rcv1 xml": written_by(made_up_rcv1.write_xml),
        "rcv1 zip": {"news.zip": zipped(written_by(made_up_rcv1.write_xml))},
    }  # fmt: skip


def archive(files: Files, mode: str) -> bytes:
    """A tar of these files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"reuters/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def zipped(files: Files) -> bytes:
    """A zip of these files."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # without the time of day
    return stream.getvalue()


def hostile_tar(numbers: Numbers) -> bytes:
    """A tar that has a link, a device, a way out or the like where a file should be."""
    stream = io.BytesIO()
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, b"Z")
    ways = ("../" * 9 + "etc/", "/etc/", "reuters/../", "C:\\", "", "./" * 50)
    hit = numbers.sample(range(len(SGML)), numbers.choice((1, 2, 22)))
    with tarfile.open(fileobj=stream, mode=numbers.choice(("w", "w:gz", "w:xz"))) as tar:
        for place, (name, content) in enumerate(reuters().items()):
            member = tarfile.TarInfo(f"reuters/{name}")
            member.size = len(content)
            if place in hit:
                member.name = numbers.choice(ways) + name
                member.type = numbers.choice((tarfile.REGTYPE, *kinds))
                member.linkname = numbers.choice((name, "/etc/passwd", "../../x", "", f"reuters/{name}"))
                member.size = len(content) if member.type == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(content) if member.size else None)
    return stream.getvalue()


def hostile_zip(numbers: Numbers) -> bytes:
    """A zip with a way out, a promise of another size, a password, or a method that nobody knows."""
    content = bytearray(
        zipped({numbers.choice(("../../a.xml", "/etc/a.xml", "a.xml")): made_up_rcv1.newsitem(2286, ["C15"])})
    )
    directory = content.rindex(b"PK\x01\x02")
    for _ in range(numbers.randint(1, 4)):  # flags, method, checksum and sizes stand in the first bytes of both headers
        place = numbers.choice((directory, 0)) + numbers.randint(6, 28)
        content[place] = numbers.choice((0, 1, 8, 9, 12, 14, 93, 99, 255))
    return bytes(content)


def put(files: Files, place: Path) -> None:
    """Write the files below `place`."""
    for name, content in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)


def put_damaged(files: Files, place: Path, numbers: Numbers) -> None:
    """Write the files below `place`, some of them damaged, gone, or something that is no file."""
    put(files, place)
    for name in numbers.sample(sorted(files), min(len(files), numbers.choice((1, 1, 1, 2)))):
        file = place / name
        match numbers.randrange(12):
            case 0:
                file.unlink()
                if numbers.random() < 0.5:
                    file.mkdir()
            case 1:
                file.unlink()
                file.symlink_to(numbers.choice((file.name, "nowhere", "..", "/dev/null", "/etc/hostname")))
            case 2:
                file.rename(
                    file.with_name(
                        numbers.choice(("ä\udcff", "test.json", "x" * 200, "-o", "a b.csv", file.name.upper()))
                    )
                )
            case _:
                file.write_bytes(unpacked_and_mutated(name, files[name], numbers, [*files.values()]))


def unpacked_and_mutated(name: str, content: bytes, numbers: Numbers, others: list[bytes]) -> bytes:
    """Damage to what is packed, as often as to the packing."""
    kind = Path(name).suffix
    if kind not in UNPACK or ".tar" in name or numbers.random() < 0.4:
        return mutated(content, numbers, others)
    return COMPRESS[kind](mutated(UNPACK[kind](content), numbers))


# What must hold


def read_own(path: Path, numbers: Numbers, about: str = "") -> None:
    """Read a user's own data in every way there is."""
    options: dict[str, Any] = {}
    if numbers.random() < 0.3:
        columns = ("text", "labels", "split", "nope", "", "TEXT", ["text", "split"], ["labels"], ["nope"], [])
        options["text_column"] = numbers.choice((*columns, None))
        options["label_column"] = numbers.choice((*columns, None))
        options["label_separator"] = numbers.choice((None, "", " ", ";", "\0", "\udcff"))
    if numbers.random() < 0.3:
        options["merge_case"], options["drop_duplicates"] = numbers.random() < 0.5, numbers.random() < 0.5
        options["encoding"] = numbers.choice((None, "utf-16", "cp1252", "shift_jis", "utf-7", "nope", "\0"))
    # As data that is large is read, now and then: by way of the cache.
    large = patch("abalone.data.load.IN_MEMORY", -1 if numbers.random() < 0.15 else 2**40)
    cache_folder = patch.dict(os.environ, ABALONE_CACHE=str(path.with_name("cache-of-the-case")))
    with large, cache_folder, only_clear_errors(DataError, about=about):
        load_corpus(path, skip_bad_rows=numbers.random() < 0.5 and path.with_name("left-out.jsonl"), **options)
    with only_clear_errors(DataError, about=about):
        named, trained = (numbers.choice((None, None, ["text"], ["text", "split"], ["nope"])) for _ in range(2))
        ids = numbers.choice((None, None, None, "text", "split", "labels"))
        for row in usable(read_unlabelled(path, TextColumns(named, trained or (), ids), options.get("encoding"))):
            row.text.encode()


def check_own_file(numbers: Numbers, place: Path) -> None:
    """One damaged file."""
    name = numbers.choice(sorted(own_files()))
    put_damaged(own_files()[name], place / "in", numbers)
    for path in (place / "in").iterdir():
        read_own(path, numbers)


def check_parquet(numbers: Numbers, place: Path) -> None:
    """A damaged Parquet or Arrow file: its own target, as most of the formats are text."""
    put_damaged(own_files()[numbers.choice(("own.parquet", "own.arrow", "own.feather"))], place, numbers)
    for path in place.iterdir():
        read_own(path, numbers)


def check_own_folder(numbers: Numbers, place: Path) -> None:
    """A folder with something wrong in it."""
    put_damaged(own_folders()[numbers.choice(sorted(own_folders()))], place / "own", numbers)
    read_own(place / "own", numbers)


def check_published(numbers: Numbers, place: Path) -> None:
    """A published corpus with something wrong in it."""
    name = numbers.choice(sorted(published()))
    put_damaged(published()[name], place / "files", numbers)
    read_published(name.split()[0], place)


def check_archive(numbers: Numbers, place: Path) -> None:
    """An archive that somebody made with intent."""
    name, content = numbers.choice((("reuters", hostile_tar), ("rcv1", hostile_zip)))
    put({"a.tar" if name == "reuters" else "a.zip": content(numbers)}, place / "files")
    read_published(name, place)


def read_published(name: str, place: Path) -> None:
    """The corpus in the folder `files` of `place`; nothing may come to lie beside it."""
    before = os.environ.get("ABALONE_CACHE")
    os.environ["ABALONE_CACHE"] = str(place / "cache")
    try:
        with only_clear_errors(DataError):
            corpus = BENCHMARKS[name](place / "files")
            for text in corpus.train.texts:
                text.encode()
    finally:
        os.environ.pop("ABALONE_CACHE") if before is None else os.environ.update(ABALONE_CACHE=before)
    assert {path.name for path in place.iterdir()} <= {"files", "cache"}


@cache
def cached_texts() -> Files:
    """What `TextWriter` leaves."""

    def write(folder: Path) -> None:
        with TextWriter(folder / "texts") as writer:
            for row in DOCUMENTS:
                writer.append(row["text"])

    return written_by(write)


def check_cached_texts(numbers: Numbers, place: Path) -> None:
    """Damage in the cache of texts."""
    put_damaged(cached_texts(), place, numbers)
    with only_clear_errors(DataError):
        texts = MappedTexts(place / "texts")
        for text in texts if len(texts) < 1000 else ():
            text.encode()


@cache
def cached_tokens() -> bytes:
    """What `tokenize` leaves."""
    import numpy as np

    def write(folder: Path) -> None:
        with ArrayWriter(folder / "t", FORMAT) as writer:
            writer.extend("ids", np.arange(5, dtype=np.uint16))
            writer.extend("offsets", np.array([0, 2, 5], np.int64))
            writer.facts |= {"prefix": "[1]", "suffix": "[2]"}

    return written_by(write)["t"]


def check_cached_tokens(numbers: Numbers, place: Path) -> None:
    """Damage in the cache of tokens: it is made again, whatever it is."""
    path = place / "t"
    path.write_bytes(mutated(cached_tokens(), numbers))
    with only_clear_errors():
        tokens = _mapped(arrays_once(path, FORMAT, lambda: path.write_bytes(cached_tokens())))
        for row in range(len(tokens)):
            tokens.document(row)


def check_published_cache(numbers: Numbers, place: Path) -> None:
    """Damage in the cache of a published corpus."""
    put(published()["rcv1 tokens"], place / "files")
    read_published("rcv1", place)
    file = next((place / "cache" / "texts").iterdir())
    file.write_bytes(mutated(file.read_bytes(), numbers))
    read_published("rcv1", place)


# Tables whose shape is right and whose content is anything

texts = st.text(st.characters(exclude_categories=()), max_size=30)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.sampled_from(["a;b", "['a' 'b']", "[[", "train"])
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
names = st.sampled_from(["text", "labels", "split", "Text", "label"]) | texts
tables = st.tuples(
    st.sampled_from([".jsonl", ".json", ".csv", ".tsv", ".parquet"]),
    st.lists(st.dictionaries(names, values, max_size=5), max_size=8),
    st.integers(0, 10**6),
)


def check_table(case: tuple[str, list[dict[str, object]], int], place: Path) -> None:
    """A table that was written by a correct program from any values at all."""
    suffix, rows, number = case
    file = place / f"own{suffix}"
    if suffix == ".parquet":
        try:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
        except (pyarrow.ArrowException, TypeError, ValueError, OverflowError):
            return  # Arrow has no type for these values
    elif suffix in (".csv", ".tsv"):
        columns = list(dict.fromkeys(name for row in rows for name in row))
        separator = "\t" if suffix == ".tsv" else ","
        quoted = [[f'"{str(row.get(name, "")).replace(chr(34), chr(34) * 2)}"' for name in columns] for row in rows]
        lines = [separator.join(line) for line in [[f'"{name}"' for name in columns], *quoted]]
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    else:
        text = json.dumps(rows) if suffix == ".json" else "\n".join(map(json.dumps, rows))
        file.write_text(text)
    read_own(file, random.Random(number), about="own")


TARGETS = {
    "readers/own files": Target(check_own_file, small=60, share=4, prepare=own_files),
    "readers/parquet and arrow": Target(check_parquet, small=20, share=1.5, prepare=own_files),
    "readers/own folders": Target(check_own_folder, small=20, share=1, prepare=own_folders),
    "readers/tables": Target(check_table, small=30, share=1, values=tables),
    "readers/published corpora": Target(check_published, small=40, share=2, prepare=published),
    "readers/archives": Target(check_archive, small=15, share=1),
    "readers/cached texts": Target(check_cached_texts, small=10, share=0.5, prepare=cached_texts),
    "readers/cached tokens": Target(check_cached_tokens, small=10, share=0.5, prepare=cached_tokens),
    "readers/cached corpus": Target(check_published_cache, small=5, share=0.3, prepare=published),
}
