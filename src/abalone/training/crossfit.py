"""Cross-fitting: each document is judged by a model that has not seen it, so all of them can teach the decision.

The documents are divided into folds. The model of a fold is trained on the other folds and asked about this one; what
it said is kept in a file, which a later attempt at the same run reads instead of training again.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from abalone.device import reading_precision
from abalone.evaluation.blocks import Scores, stacked
from abalone.evaluation.knn import NearestNeighbours
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.link import Link
from abalone.evaluation.votes import vote_logits_in_blocks
from abalone.model.feed import Feed, FeedRows, embed
from abalone.model.heads import LinearHead
from abalone.progress import overall
from abalone.ranks import Ranks
from abalone.timetable import spoken
from abalone.training.checkpoint import DamagedError, load_tensors, save_tensors
from abalone.training.estimate import skip_fold
from abalone.training.folds import Fold
from abalone.training.run import ANSWERS, FOLD, TrainingRun
from abalone.training.stages import Start, train_copy
from abalone.training.words import Words, cross_fit_words

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Answers:
    """What the model of a fold says of the documents held out from it.

    A linear layer and embeddings rather than logits: where documents and labels are many, all logits would not fit.

    Args:
        head: the layer.
        embeddings: [n, h], of the held-out documents.
        shares: [n, L], of the labels among the nearest training documents of the fold.
        lexical: the lexical expert of the fold; how its decisions become logits is fitted to all folds together.
    """

    head: LinearHead
    embeddings: np.ndarray
    shares: csr_array | None = None
    lexical: LexicalModel | None = None

    def save(self, path: Path) -> None:
        """Write them to a file, whole or not at all."""
        tensors = {"embeddings": torch.from_numpy(self.embeddings)}
        tensors |= {f"head.{name}": value for name, value in self.head.state().items()}
        if self.shares is not None:
            for name in ("data", "indices", "indptr"):
                tensors[f"shares.{name}"] = torch.from_numpy(getattr(self.shares, name))
        if self.lexical is not None:
            for name, content in self.lexical.contents().items():
                tensors[f"lexical.{name}"] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        save_tensors(path, tensors, {"labels": self.head.num_labels})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Answers":
        """What `save` wrote."""
        embeddings = tensors["embeddings"].numpy()
        head = LinearHead(tensors["head.weight"], tensors["head.bias"])
        shares = lexical = None
        if "shares.data" in tensors:
            parts = tuple(tensors[f"shares.{name}"].numpy() for name in ("data", "indices", "indptr"))
            shares = csr_array(parts, shape=(len(embeddings), head.num_labels))
        if contents := {
            name.removeprefix("lexical."): tensor.numpy().tobytes()
            for name, tensor in tensors.items()
            if name.startswith("lexical.")
        }:
            lexical = LexicalModel.from_contents(contents)
        return cls(head, embeddings, shares, lexical)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """What the models of all folds say of the documents held out from them, in the order of folds.

    Args:
        logits: of the classifiers, [n, L].
        experts: of the experts, by name, [n, L] each.
        link: how the decisions of the lexical experts became logits.
    """

    logits: Scores
    experts: dict[str, Scores]
    link: Link | None


def kept_answers(path: Path, ranks: Ranks) -> Answers | None:
    """Return what an earlier attempt has left of a fold; none where it left nothing, or the file is damaged."""

    def read() -> tuple[dict[str, Tensor], bool]:
        try:
            return (load_tensors(path)[0], True) if path.exists() else ({}, False)
        except DamagedError as error:
            log.warning("%s; this fold is trained again", error)
            return {}, False

    tensors, there = ranks.read_by_main(read)
    return Answers.from_tensors(tensors) if there else None


def cross_fit(run: TrainingRun, start: Start, documents: Feed, words: Words | None, folds: Sequence[Fold]) -> CrossFit:
    """Train a model for each fold, and ask it about the documents held out.

    Args:
        run: of the whole; `run.train` are all documents as the trained layers read them.
        start: what every training begins with.
        documents: all of them, as tokens.
        words: the same as texts, where the lexical expert is wanted.
        folds: which documents are held out from each.
    """
    answers = []
    for fold in folds:
        name = f"Fold {fold.number} of {len(folds)}"
        file = run.folder / (FOLD.format(fold.number) + ANSWERS)
        kept = kept_answers(file, run.ranks) if run.resume else None
        if kept is None:
            own = replace(
                run, train=FeedRows(run.train, fold.train), folder=run.folder / FOLD.format(fold.number), fold=name
            )
            kept = _ask(own, start, documents, words, fold)
            if run.ranks.main:
                kept.save(file)
                shutil.rmtree(own.folder, ignore_errors=True)  # its checkpoints have served
                left = overall().left()
                log.info("%s is done%s", name, "" if left is None else f"; about {spoken(left)} left")
        else:
            skip_fold(run, fold, start.depth)
        answers.append(kept)
    logits = stacked([each.head.logits_in_blocks(each.embeddings) for each in answers])
    experts: dict[str, Scores] = {}
    link = None
    if words is not None:
        lexical = [each.lexical for each in answers if each.lexical is not None]
        experts["lexical"], link = cross_fit_words(words, lexical, folds)
    if run.config.neighbours:
        k = NearestNeighbours().k
        experts["neighbours"] = stacked([vote_logits_in_blocks(e.shares, k) for e in answers if e.shares is not None])
    return CrossFit(logits, experts, link)


def _ask(run: TrainingRun, start: Start, documents: Feed, words: Words | None, fold: Fold) -> Answers:
    """Train the model of one fold, and ask it about the documents held out."""
    trained = train_copy(run, start)
    device, half = run.accelerator.device, reading_precision(run.config.precision)

    def read(rows: np.ndarray) -> np.ndarray:
        part = FeedRows(documents, rows)
        return embed(trained.encoder, part, device, f"{run.fold}, encoding", half=half, ranks=run.ranks)

    embeddings, shares = read(fold.held_out), None
    if run.config.neighbours:
        neighbours = NearestNeighbours(half=True, device=str(device))
        shares = neighbours.fit(read(fold.train), documents.labels[fold.train]).shares(embeddings)
    assert trained.head is not None
    lexical = None if words is None else words.expert(fold.train)
    return Answers(trained.head.merged(), embeddings, shares, lexical)
