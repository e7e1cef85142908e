"""Bulk prediction: millions of texts in constant memory, to files in a folder that an interrupted run goes on from."""

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abalone.data.hashes import add_texts, sha256
from abalone.data.rows import Row, texts_and_ids, with_ids
from abalone.errors import InputError, readable, spelled
from abalone.files.atomic import LOCK, alone_in, remove_abandoned, written_whole
from abalone.inference.answers import Answer, Form, Wanted, answers, part_writer, require, windows
from abalone.progress import whole

if TYPE_CHECKING:
    from abalone.distributed import Ranks
    from abalone.inference.predictor import Predictor

PART_SIZE = 10_000  # texts; what a killed run has to do again at most
MANIFEST = "manifest.json"
FORMAT = "abalone-predictions-1"

Write = Callable[[list[Row], list[Answer]], None]
"""Function that takes some rows and their answers."""


def predict_in_parts(
    classifier: "Predictor",
    texts: Iterable[str | Row],
    folder: str | Path,
    *,
    wanted: Wanted | None = None,
    part_size: int = PART_SIZE,
    form: Form = "jsonl",
    resume: bool = False,
    identity: dict[str, Any] | None = None,
    ranks: "Ranks | None" = None,
    total: int | None = None,
) -> int:
    """Answer texts to files `part-00000.jsonl` … in `folder`, each of which is whole or absent.

    A run that goes on passes over the texts that are answered, sees that they are the same, and ends with the same
    bytes as one that was not interrupted.

    Args:
        classifier: a `Predictor` or an `OnnxModel`.
        texts: read as they are needed; about a window of some thousand is in memory. The answer to a
            `Row` has the id of the row, if there is one.
        folder: where the parts go; new, empty, or with `resume` the same as before. It is locked until all is
            answered: a second process is refused with an `InUseError`.
        wanted: what an answer tells.
        part_size: texts in a part.
        form: of the parts: `jsonl`, or `parquet`.
        resume: go on after the last whole part, if there is any.
        identity: what else must be the same to go on, such as `model_checksum(…)`.
        ranks: processes that all call this with the same texts, and share the encoding as their `Predictor` does; the
            main one writes.
        total: how many texts there are, where it is known: for the bar.

    Returns:
        How many texts the folder answers.
    """
    if part_size < 1:
        raise InputError(f"part_size must be at least 1, got {part_size}")
    wanted = wanted or Wanted()
    options = {"probabilities": wanted.probabilities, "top": wanted.top, "part_size": part_size}
    rows = (Row(text) if isinstance(text, str) else text for text in texts)
    place, rest = Path(folder), iter(rows)
    begun: list[Parts] = []  # one, in the process that writes
    with ExitStack() as held:

        def begin() -> int:
            if place.is_file():
                raise FileExistsError(f"{place} exists and holds no predictions: give another folder")
            held.enter_context(alone_in(place))
            parts = Parts.enter(place, form, {**(identity or {}), **options}, resume=resume)
            parts.pass_over(rest)
            begun.append(parts)
            return parts.documents

        answered = begin() if ranks is None else ranks.from_main(begin)
        parts = begun[0] if begun else None
        unanswered = _beyond(rest, parts, part_size) if parts is not None else islice(rest, answered, None)
        bar = held.enter_context(whole("Predicting", total))
        for first in unanswered:  # so that no part is without a text
            with nullcontext() if parts is None else parts.next_part() as write:
                for window in windows(chain([first], islice(unanswered, part_size - 1))):
                    bar.reach(answered)
                    answered += len(window)
                    scores = classifier.scores([row.text for row in window])
                    if write is not None:
                        given = answers(scores, classifier.decision, classifier.label_names, wanted)
                        write(window, list(with_ids(window, given)))
        if parts is not None and not parts.complete:
            parts.finish()
    return answered


@dataclass(frozen=True)
class Part:
    """A file of answers, as the manifest lists it.

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
    """The parts in a folder: each whole or absent, and a manifest with the texts they answer.

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
        """Begin this job in `folder`, or resume the very same one; the caller is `alone_in` it, so it exists."""
        require(form)
        parts = cls(folder, form, {**job, "form": form})
        manifest = folder / MANIFEST
        if manifest.is_file():
            if not resume:
                raise FileExistsError(
                    f"{folder} holds predictions: continue with {spelled('resume', True)}, or give another folder"
                )
            parts._go_on(_read_manifest(manifest))
        elif any(not _is_ours(file) for file in folder.iterdir()):
            raise FileExistsError(f"{folder} exists and holds no predictions: give another folder")
        else:
            parts._write_manifest()
        remove_abandoned(folder)  # of a run that was killed
        return parts

    @property
    def documents(self) -> int:
        """Return the number of texts that are answered."""
        return sum(part.documents for part in self.done)

    def pass_over(self, rows: Iterator[Row]) -> None:
        """Skip the texts that are answered; raise `ValueError` if they are others."""
        for part in self.done:
            if checksum(islice(rows, part.documents)) != part.texts:
                raise InputError(
                    f"{self.folder} holds answers to other texts than these: {part.name} differs. "
                    "Give the texts it was started with, or another folder"
                )

    @contextmanager
    def next_part(self) -> Iterator[Write]:
        """Write one more part: there, and in the manifest, when the context ends well, or not at all."""
        path = self.folder / f"part-{len(self.done):05d}.{self.form}"
        digest, documents = hashlib.sha256(), 0
        with written_whole(path) as file, part_writer(file, self.form) as write_answers:

            def write(rows: list[Row], answers: list[Answer]) -> None:
                nonlocal documents
                documents += len(answers)
                add_texts(digest, texts_and_ids(rows))
                write_answers(answers)

            yield write
        # A part that is not in the manifest yet when the process is killed is made again, to the same bytes.
        self.done.append(Part(path.name, documents, digest.hexdigest(), sha256(path)))
        self._write_manifest()

    def finish(self) -> None:
        """Record in the manifest that no more parts will come."""
        self.complete = True
        self._write_manifest()

    def _go_on(self, stored: Mapping[str, Any]) -> None:
        differing = [
            f"{name} was {_shown(stored['job'].get(name))} and is {_shown(value)}"
            for name, value in self.job.items()
            if stored["job"].get(name) != value
        ]
        if differing:
            raise InputError(
                f"{self.folder} was started with other settings: {'; '.join(differing)}. "
                "Use the same settings, or give another folder"
            )
        self.done, self.complete = stored["parts"], stored["complete"]
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
    """Return the SHA-256 of some texts in order, and of their ids."""
    digest = hashlib.sha256()
    add_texts(digest, texts_and_ids(rows))
    return digest.hexdigest()


def _is_ours(file: Path) -> bool:
    """Tell whether a file is the lock, or a temporary file of a part or the manifest."""
    return file.name == LOCK or file.name.startswith((".part-", f".{MANIFEST}."))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] == FORMAT:
            return {
                "job": dict(stored["job"]),
                "complete": stored["complete"],
                "parts": [Part(**part) for part in stored["parts"]],
            }
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = readable(f"{type(error).__name__}: {error}")
        raise InputError(f"{path} is damaged ({reason}): give another folder") from None
    raise InputError(f"{path} has format {stored['format']}, and this version reads {FORMAT}: give another folder")


def _shown(value: object) -> str:
    """Return a value for a message; of a checksum the beginning, which is enough to tell it from another."""
    return f"{value[:8]}…" if isinstance(value, str) and len(value) == 64 else repr(value)


def _beyond(rest: Iterator[Row], parts: Parts, part_size: int) -> Iterator[Row]:
    """Yield the texts after those that are answered; raise `ValueError` for one more if the parts are complete."""
    ended = parts.complete or (bool(parts.done) and parts.done[-1].documents < part_size)
    for row in rest:
        if ended:
            raise InputError(
                f"{parts.folder} holds answers to other texts: it ends after {parts.documents:,}, and here are more. "
                "Give the texts it was started with, or another folder"
            )
        yield row


def model_checksum(model: Path) -> str:
    """Return the SHA-256 of an ONNX file, or of the files of a model folder with their names."""
    if model.is_file():
        return sha256(model)
    digest = hashlib.sha256()
    for file in sorted(path for path in model.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(model).as_posix()}\0{sha256(file)}\0".encode())
    return digest.hexdigest()
