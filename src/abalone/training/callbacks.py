"""Callbacks: code of the caller that is told of the steps and epochs of a training.

Example:
    >>> class Losses(Callback):
    ...     def __init__(self):
    ...         self.by_step = {}
    ...     def step(self, now):
    ...         self.by_step[now.step] = now.loss

    `AbaloneClassifier().fit(texts, labels, callbacks=[Losses()])` then fills `by_step`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Begun:
    """A training that begins.

    Args:
        settings: of `Config`, with epochs and folds as they were chosen.
        folder: where its checkpoints go.
        resumed: whether it goes on from there.
    """

    settings: Mapping[str, Any]
    folder: Path
    resumed: bool


@dataclass(frozen=True)
class Progress:
    """The numbers of a training after a step or an epoch.

    Args:
        stage: "pretraining", "training" or "finetuning".
        fold: the number of the fold whose model is trained, from 1; None for the model of all documents.
        epoch: from 1.
        step: optimiser steps in this stage, those before an interruption included.
        loss: mean over documents: of the epoch, or since the step that was told before.
        learning_rate: of the encoder.
        measures: after an epoch: `train_loss`, `seconds`, and scores on the validation documents, if any.
    """

    stage: str
    fold: int | None
    epoch: int
    step: int
    loss: float
    learning_rate: float
    measures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """A training that has ended.

    Args:
        scores: of the finished model, such as `validation/macro_f1` or `out of fold/macro_f1`; empty after an error.
        error: what stopped it, an exception of whatever kind; None where it succeeded.
    """

    scores: Mapping[str, float] = field(default_factory=dict)
    error: BaseException | None = None


class Callback:
    """Override the methods you need; each does nothing by itself.

    Of several processes that train together, only the main one calls them. An exception stops the training, which can
    be resumed from its last checkpoint as after any other error.
    """

    def begin(self, run: Begun) -> None:
        """Take note that a training begins; called once per `fit`."""

    def step(self, now: Progress) -> None:
        """Take note of an optimiser step: of every one on a CPU, of about two a second on a GPU.

        The loss is read from the GPU at that pace anyway. To read it after each step would slow the training down.
        """

    def epoch(self, now: Progress) -> None:
        """Take note of an epoch, after it was measured."""

    def end(self, run: Ended) -> None:
        """Take note that the training has ended, however it did; called once per `fit`."""


class Callbacks(Callback):
    """Several callbacks as one, in their order."""

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = tuple(callbacks)
        for callback in self._callbacks:
            if not isinstance(callback, Callback):
                raise TypeError(
                    f"callbacks must be instances of abalone.training.callbacks.Callback, got {callback!r:.200}"
                )

    def step(self, now: Progress) -> None:
        """Tell all of them."""
        for callback in self._callbacks:
            callback.step(now)

    def epoch(self, now: Progress) -> None:
        """Tell all of them."""
        for callback in self._callbacks:
            callback.epoch(now)

    @contextmanager
    def around(self, run: Begun) -> Iterator[dict[str, float]]:
        """Tell all of them when the block begins and when it ends; the scores are to be put into what it is given."""
        begun: list[Callback] = []
        scores: dict[str, float] = {}
        try:
            for callback in self._callbacks:
                callback.begin(run)
                begun.append(callback)
            yield scores
        except BaseException as error:
            for callback in begun:
                with suppress(Exception):  # there is a worse error to tell of
                    callback.end(Ended(error=error))
            raise
        for callback in begun:
            callback.end(Ended(scores))


NONE = Callbacks()
