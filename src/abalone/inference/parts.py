"""A folder of answers in parts: each part whole or absent, and a manifest that says what they answer."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from abalone.data.rows import Row, texts_and_ids
from abalone.files.atomic import remove_abandoned, written_whole
from abalone.files.checksums import add_texts, sha256
from abalone.files.errors import readable
from abalone.files.locks import LOCK
from abalone.inference.answers import Answer
from abalone.inference.part_files import Form, open_writer, require

MANIFEST = "manifest.json"
FORMAT = "abalone-predictions-1"

Write = Callable[[list[Row], list[Answer]], None]
"""Takes some texts and their answers."""


@dataclass(frozen=True)
class Part:
    """One file of answers.

    Args:
        name: of the file.
        documents: how many it answers.
        texts: checksum of these, and of their ids.
        sha256: of the file.
    """

    name: str
    documents: int
    texts: str
    sha256: str


@dataclass
class Parts:
    """The answers in `folder`, as far as they go.

    Args:
        folder: theirs alone.
        form: of the files.
        job: what decides the answers beside the texts: model, options, size of a part.
        done: the parts that are whole, in order.
        complete: whether there are no more to come.
    """

    folder: Path
    form: Form
    job: Mapping[str, Any]
    done: list[Part] = field(default_factory=list)
    complete: bool = False

    @classmethod
    def enter(cls, folder: Path, form: Form, job: Mapping[str, Any], *, resume: bool) -> "Parts":
        """Make `folder` this job's: begin it, or go on with the very same one; the caller is `alone_in` it."""
        require(form)
        parts = cls(folder, form, {**job, "form": form})
        manifest = folder / MANIFEST
        if manifest.is_file():
            if not resume:
                raise FileExistsError(f"{folder} holds predictions: continue with resume=True, or give another folder")
            parts._go_on(_read_manifest(manifest))
        elif folder.exists() and any(not _is_ours(file) for file in folder.iterdir()):
            raise FileExistsError(f"{folder} exists and holds no predictions: give another folder")
        else:
            folder.mkdir(parents=True, exist_ok=True)
            parts._write_manifest()
        remove_abandoned(folder)  # of a run that was killed
        return parts

    @property
    def documents(self) -> int:
        """How many are answered."""
        return sum(part.documents for part in self.done)

    def pass_over(self, rows: Iterator[Row]) -> None:
        """Take the texts that are answered off the front, and see that they are the ones."""
        for part in self.done:
            if checksum(islice(rows, part.documents)) != part.texts:
                raise ValueError(
                    f"{self.folder} holds answers to other texts than these: {part.name} differs. "
                    "Give the texts it was started with, or another folder"
                )

    @contextmanager
    def next_part(self) -> Iterator[Write]:
        """Write one more part: there, and in the manifest, when the context ends well, or not at all."""
        path = self.folder / f"part-{len(self.done):05d}.{self.form}"
        digest, documents = hashlib.sha256(), 0
        with written_whole(path) as file:
            writer = open_writer(file, self.form)

            def write(rows: list[Row], answers: list[Answer]) -> None:
                nonlocal documents
                documents += len(answers)
                add_texts(digest, texts_and_ids(rows))
                writer.write(answers)

            yield write
            writer.close()
        # A part that is not in the manifest yet when the process is killed is made again, to the same bytes.
        self.done.append(Part(path.name, documents, digest.hexdigest(), sha256(path)))
        self._write_manifest()

    def finish(self) -> None:
        """Say that this is all."""
        self.complete = True
        self._write_manifest()

    def _go_on(self, stored: Mapping[str, Any]) -> None:
        differing = [
            f"{name} was {_shown(stored['job'].get(name))} and is {_shown(value)}"
            for name, value in self.job.items()
            if stored["job"].get(name) != value
        ]
        if differing:
            raise ValueError(
                f"{self.folder} was started with other settings: {'; '.join(differing)}. "
                "Use the same settings, or give another folder"
            )
        self.done, self.complete = [Part(**part) for part in stored["parts"]], stored["complete"]
        for number, part in enumerate(self.done):
            path = self.folder / part.name
            if not path.is_file() or sha256(path) != part.sha256:
                warnings.warn(
                    f"{path} is missing or damaged: this part and all that follow are predicted again", stacklevel=5
                )
                self.done, self.complete = self.done[:number], False
                break

    def _write_manifest(self) -> None:
        content = {
            "format": FORMAT,
            "complete": self.complete,
            "documents": self.documents,
            "job": self.job,
            "parts": [asdict(part) for part in self.done],
        }
        with written_whole(self.folder / MANIFEST) as file:
            file.write(f"{json.dumps(content, indent=1, ensure_ascii=False)}\n".encode())


def checksum(rows: Iterable[Row]) -> str:
    """Of some texts in order, and of their ids."""
    digest = hashlib.sha256()
    add_texts(digest, texts_and_ids(rows))
    return digest.hexdigest()


def _is_ours(file: Path) -> bool:
    """Whether it is the lock, or a temporary file of a part or the manifest."""
    return file.name == LOCK or file.name.startswith((".part-", f".{MANIFEST}."))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] == FORMAT:
            return {"job": dict(stored["job"]), "complete": stored["complete"], "parts": _parts(stored["parts"])}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = readable(f"{type(error).__name__}: {error}")
        raise ValueError(f"{path} is damaged ({reason}): give another folder") from None
    raise ValueError(f"{path} has format {stored['format']}, and this version reads {FORMAT}: give another folder")


def _parts(stored: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [asdict(Part(**part)) for part in stored]


def _shown(value: object) -> str:
    """A value for a message; of a checksum the beginning is enough to tell it from another."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else repr(value)
