"""What parts of a run cost: by a clock of the test, whatever the machine at hand does."""

import dataclasses
import functools
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

import tiny
from abalone.data.corpus import Corpus, Split
from abalone.evaluation.crossfit_probe import CrossFitProbe
from abalone.training import estimate
from abalone.training.estimate import COUNTED_CHARACTER, PARALLEL, SAMPLE, Costs, measure_slowness
from abalone.training.open_settings import HELD_OUT

LABELS = tuple(f"topic {j}" for j in range(5))


def corpus_of(documents: int) -> Corpus:
    texts, labels = tiny.corpus(documents)
    nothing = Split([], labels[:0])
    return Corpus(Split(texts, labels), nothing, nothing, LABELS)


class TwoLooks:
    """A clock that is looked at twice, some seconds apart."""

    def __init__(self, seconds: float) -> None:
        self.times = iter([100.0, 100.0 + seconds])

    def __call__(self) -> float:
        return next(self.times)


@pytest.mark.parametrize("documents", [SAMPLE - 50, 3 * SAMPLE])
def test_slowness_is_the_time_that_counting_takes_beside_what_it_took_elsewhere(documents):
    corpus = corpus_of(documents)
    texts = corpus.train.texts[:: max(documents // SAMPLE, 1)]
    elsewhere = COUNTED_CHARACTER * sum(map(len, texts))
    assert measure_slowness(corpus, TwoLooks(3 * elsewhere)) == pytest.approx(3)


COSTS = Costs(token=1.0, measured=True, slowness=1.0, cores=4, on_cpu=True, width=384, characters=1000.0)


def test_a_slower_processor_takes_longer_for_all_that_it_fits():
    slow, corpus = dataclasses.replace(COSTS, slowness=2.0), corpus_of(100)
    for part in (
        lambda costs: costs.counted,
        lambda costs: costs.words(corpus),
        lambda costs: costs.grid_probe(corpus),
        lambda costs: costs.probe(corpus, 5),
        lambda costs: costs.decision(corpus, 100, 2),
    ):
        assert part(slow) == pytest.approx(2 * part(COSTS))


def test_settings_of_cross_fitted_probes_share_the_time_of_fitting_them(monkeypatch):
    corpus, settings = corpus_of(100), CrossFitProbe().settings
    each = COSTS.probe(corpus, 5)
    for some in (settings[:1], settings[:2]):
        monkeypatch.setattr(estimate, "CrossFitProbe", functools.partial(CrossFitProbe, settings=some))
        assert len(some) * COSTS.probe(corpus, 5) == pytest.approx(len(settings) * each)


def test_cores_share_what_is_worth_sharing():
    alone, corpus = dataclasses.replace(COSTS, cores=1), corpus_of(100)
    assert COSTS.counted == alone.counted  # in one thread anyway
    assert COSTS.decision(corpus, 100, 2) == alone.decision(corpus, 100, 2)
    assert alone.probe(corpus, 5) == pytest.approx(4 * COSTS.probe(corpus, 5))
    assert alone.words(corpus) == COSTS.words(corpus)
    long = dataclasses.replace(COSTS, characters=2 * PARALLEL / (100 * len(LABELS)))
    assert dataclasses.replace(long, cores=1).words(corpus) == pytest.approx(4 * long.words(corpus))


def corpus_of_size(documents: int, labels: int) -> Corpus:
    """A corpus of which only the size counts."""
    train, nothing = (Split([""] * size, csr_array((size, labels), dtype=np.int32)) for size in (documents, 0))
    return Corpus(train, nothing, nothing, tuple(f"topic {j}" for j in range(labels)))


def test_probes_with_every_setting_cost_by_documents_and_labels():
    cost = COSTS.grid_probe(corpus_of_size(100, 5))
    assert COSTS.grid_probe(corpus_of_size(300, 5)) == pytest.approx(3 * cost)
    assert COSTS.grid_probe(corpus_of_size(100, 10)) == pytest.approx(2 * cost)


@pytest.mark.parametrize(("folds", "share"), [(1, 1 - HELD_OUT), (2, 1 / 2), (5, 4 / 5)])
def test_probes_of_a_fold_cost_by_the_documents_outside_it(folds, share):
    corpus = corpus_of_size(20_000, 5)  # of few documents, all have the least number of steps
    assert COSTS.probe(corpus, folds) == pytest.approx(share / (9 / 10) * COSTS.probe(corpus, 10))


def test_time_of_fast_is_that_of_reading_the_first_tokens_and_of_fitting_the_rest():
    corpus = corpus_of(100)
    run = SimpleNamespace(train=SimpleNamespace(lengths=np.full(100, 300)), validation=None)
    told = COSTS.fast(run, corpus, depth=6)
    read = 100 * 128 * 6 * COSTS.token
    assert told > read
    assert dataclasses.replace(COSTS, token=2.0).fast(run, corpus, depth=6) == pytest.approx(told + read)
    assert dataclasses.replace(COSTS, slowness=2.0).fast(run, corpus, depth=6) == pytest.approx(2 * told - read)
