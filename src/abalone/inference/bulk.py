"""Millions of texts answered in constant memory, in order, in parts, so that a run that is killed can go on."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abalone.data.files import sha256
from abalone.data.identified import with_ids
from abalone.files.locks import alone_in
from abalone.inference.answers import Wanted, answers, windows
from abalone.inference.part_files import Form
from abalone.inference.parts import Parts
from abalone.progress import whole

if TYPE_CHECKING:
    from abalone.distributed import Ranks
    from abalone.inference.served import Classifier

PART_SIZE = 10_000  # texts; what a killed run has to do again at most


def predict_in_parts(
    classifier: "Classifier",
    texts: Iterable[str],
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
        texts: read as they are needed; about a window of some thousand is in memory. Answers to those that are
            `Identified` have their `id`.
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
        raise ValueError(f"part_size must be at least 1, got {part_size}")
    wanted = wanted or Wanted()
    options = {"probabilities": wanted.probabilities, "top": wanted.top, "part_size": part_size}
    place, rest = Path(folder), iter(texts)
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
                    scores = classifier.scores(window)
                    if write is not None:
                        given = answers(scores, classifier.decision, classifier.label_names, wanted)
                        write(window, list(with_ids(window, given)))
        if parts is not None and not parts.complete:
            parts.finish()
    return answered


def _beyond(rest: Iterator[str], parts: Parts, part_size: int) -> Iterator[str]:
    """The texts after those that are answered, of which there may be none if the parts say that they are all."""
    ended = parts.complete or (bool(parts.done) and parts.done[-1].documents < part_size)
    for text in rest:
        if ended:
            raise ValueError(
                f"{parts.folder} holds answers to other texts: it ends after {parts.documents:,}, and here are more. "
                "Give the texts it was started with, or another folder"
            )
        yield text


def model_checksum(model: Path) -> str:
    """Of an ONNX file, or of the files of a model folder, their names included."""
    if model.is_file():
        return sha256(model)
    digest = hashlib.sha256()
    for file in sorted(path for path in model.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(model).as_posix()}\0{sha256(file)}\0".encode())
    return digest.hexdigest()
