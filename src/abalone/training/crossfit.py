"""Cross-fitting: each document is scored by a model that has not seen it, so the decision can be fitted to all.

The documents are divided into folds. The model of a fold is trained on the other folds and asked about this one; what
it said is kept in a file, which a later attempt at the same run reads instead of training again.
"""

import functools
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
from abalone.distributed import Ranks
from abalone.encoder.feed import Feed, FeedRows, embed
from abalone.encoder.text_encoder import TextEncoder
from abalone.errors import spelled
from abalone.evaluation.calibration import PlattScaling
from abalone.evaluation.crossfit_probe import CrossFitProbe, choose_setting
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.matrices import Scores, stacked
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.evaluation.neighbours_in_numpy import vote_logits_in_blocks
from abalone.progress import overall, spoken
from abalone.training.checkpoint import DamagedError, load_tensors, save_tensors
from abalone.training.estimate import skip_fold
from abalone.training.folds import Fold
from abalone.training.run import ANSWERS, FOLD, TrainingRun
from abalone.training.stages import FITTING, Start, train_copy
from abalone.training.words import Words, cross_fit_words

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Answers:
    """Predictions of the model of a fold for the documents held out from it.

    Logits rather than a layer and embeddings: a product may round otherwise in another process, and a run that goes on
    has to come to the same bits.

    Args:
        logits: [S, n, L]; of the layer for logits, with S = 1, or of probes under each of S settings, of which all
            folds together choose one.
        shares: [n, L], of the labels among the nearest training documents of the fold.
        lexical: the lexical expert of the fold; how its decisions become logits is fitted to all folds together.
    """

    logits: np.ndarray
    shares: csr_array | None = None
    lexical: LexicalModel | None = None

    def save(self, path: Path) -> None:
        """Write them to a file, whole or not at all."""
        tensors = {"logits": torch.from_numpy(self.logits)}
        if self.shares is not None:
            for name in ("data", "indices", "indptr"):
                tensors[f"shares.{name}"] = torch.from_numpy(getattr(self.shares, name))
        if self.lexical is not None:
            for name, content in self.lexical.contents().items():
                tensors[f"lexical.{name}"] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
        try:
            save_tensors(path, tensors, {})
        except OSError as error:
            reason = f"the predictions for this fold could not be written ({error.strerror or error}); "
            advice = f"its checkpoints stay. Make room, and go on with {spelled('resume', True)}."
            raise OSError(error.errno, reason + advice, error.filename) from error

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "Answers":
        """Read what `save` wrote."""
        logits, shares, lexical = tensors["logits"].numpy(), None, None
        if "shares.data" in tensors:
            parts = tuple(tensors[f"shares.{name}"].numpy() for name in ("data", "indices", "indptr"))
            shares = csr_array(parts, shape=logits.shape[1:])
        if contents := {
            name.removeprefix("lexical."): tensor.numpy().tobytes()
            for name, tensor in tensors.items()
            if name.startswith("lexical.")
        }:
            lexical = LexicalModel.from_contents(contents)
        return cls(logits, shares, lexical)


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Predictions of the models of all folds for the documents held out from them, in the order of folds.

    Args:
        logits: of the classifiers, [n, L].
        experts: of the experts, by name, [n, L] each.
        link: how the decisions of the lexical experts became logits.
        setting: of the probes, where the objective has no layer of its own; else 0.
        embeddings: [N, h], of all that is trained on, in its own order, where the encoder is the same for every fold.
    """

    logits: np.ndarray
    experts: dict[str, Scores]
    link: PlattScaling | None
    setting: int
    embeddings: np.ndarray | None


def kept_answers(path: Path, ranks: Ranks) -> Answers | None:
    """Return what an earlier attempt has left of a fold; none where it left nothing, or the file is damaged."""

    def read() -> tuple[dict[str, Tensor], bool]:
        try:
            return (load_tensors(path)[0], True) if path.exists() else ({}, False)
        except DamagedError as error:
            log.warning("%s; this fold is trained again", error)
            return {}, False

    tensors, there = ranks.tensors_from_main(read)
    return Answers.from_tensors(tensors) if there else None


def cross_fit(
    run: TrainingRun,
    start: Start,
    documents: Feed,
    words: Words | None,
    folds: Sequence[Fold],
    learnable: csr_array,
) -> CrossFit:
    """Train a model for each fold, and ask it about the documents held out.

    Args:
        run: of the whole; `run.train` are all documents, and label names after them, as the trained layers read them.
        start: what every training begins with.
        documents: the same, as tokens.
        words: the same as texts, where the lexical expert is wanted.
        folds: which documents are held out from each.
        learnable: [n, L], the labels of these documents that their judges can know, in the order of folds.
    """
    frozen = None
    if run.config.epochs == 0:  # then it is the same encoder in every fold
        frozen = _read(run, start.whole(start.encoder), documents, np.arange(len(documents)))
    answers = []
    for fold in folds:
        file = run.folder / (FOLD.format(fold.number) + ANSWERS)
        kept = kept_answers(file, run.ranks) if run.resume else None
        if kept is None:
            place = run.folder / FOLD.format(fold.number)
            own = replace(run, train=FeedRows(run.train, fold.taught), folder=place, fold=fold.number)
            kept = _ask(own, start, documents, words, fold, frozen)
            if run.ranks.main:
                kept.save(file)
                shutil.rmtree(place, ignore_errors=True)  # its checkpoints have served
                left = overall().left()
                log.info("%s is done%s", own.fold_name, "" if left is None else f"; about {spoken(left)} left")
        else:
            skip_fold(run, fold, start.depth)
        answers.append(kept)
    logits = np.concatenate([each.logits for each in answers], axis=1)  # [S, n, L]
    setting = choose_setting(logits, learnable) if len(logits) > 1 else 0
    experts: dict[str, Scores] = {}
    link = None
    if words is not None:
        lexical = [each.lexical for each in answers if each.lexical is not None]
        experts["lexical"], link = cross_fit_words(words, lexical, folds)
    if run.config.neighbours:
        k = NearestNeighbours().k
        experts["neighbours"] = stacked([vote_logits_in_blocks(e.shares, k) for e in answers if e.shares is not None])
    return CrossFit(logits[setting].astype(np.float32), experts, link, setting, frozen)


def _ask(
    run: TrainingRun, start: Start, documents: Feed, words: Words | None, fold: Fold, frozen: np.ndarray | None
) -> Answers:
    """Train the model of one fold, and ask it about the documents held out."""
    trained = train_copy(run, start)
    read = functools.partial(_read, run, trained.encoder, documents) if frozen is None else frozen.__getitem__
    embeddings, shares = read(fold.held_out), None
    if run.config.neighbours or trained.head is None:
        taught, labels = read(fold.taught), documents.labels[fold.taught]
        if run.config.neighbours:
            neighbours = NearestNeighbours(fp16=True, device=str(run.runtime.device))
            known = len(fold.train)  # a label name is no neighbour that one could show
            shares = neighbours.fit(taught[:known], labels[:known]).shares(embeddings)
        if trained.head is None:
            overall().begin(f"{run.fold_name}, fitting probes")
            probe = probe_of(run)
            logits = probe.heldout_logits(taught, labels, embeddings)
            overall().done(FITTING, len(probe.settings))
    lexical = None if words is None else words.expert(fold.taught)
    if trained.head is not None:
        logits = trained.head.merged().logits(embeddings)[None]
    return Answers(logits, shares, lexical)


def probe_of(run: TrainingRun) -> CrossFitProbe:
    """Return the probe that is fitted where an objective leaves no layer for logits."""
    return CrossFitProbe(seed=run.config.seed, device=run.runtime.device)


def _read(run: TrainingRun, encoder: TextEncoder, documents: Feed, rows: np.ndarray) -> np.ndarray:
    device, precision = run.runtime.device, reading_precision(run.config.precision)
    what = "Encoding" if run.fold is None else f"{run.fold_name}, encoding"
    return embed(encoder, FeedRows(documents, rows), device, what, precision=precision, ranks=run.ranks)
