"""What of a corpus is kept for tables."""

import json

import pytest
from made_up_runs import corpus

from abalone.config import Config
from abalone.reproduce.corpus_card import CORPUS, CorpusCard

LARGE, SMALL = Config(batch_size=16, queue_size=32), Config(batch_size=4, queue_size=8)


def test_positives_of_one_batch_and_queue_are_not_those_of_another(tmp_path):
    cards = [CorpusCard.of(corpus(), base) for base in (LARGE, SMALL)]
    assert cards[0].positives != cards[1].positives
    for card in [*cards, cards[0]]:
        card.save(tmp_path)
    assert CorpusCard.load(tmp_path, LARGE).positives == cards[0].positives
    assert CorpusCard.load(tmp_path, SMALL).positives == cards[1].positives
    assert len(json.loads((tmp_path / CORPUS).read_text())["positives"]) == 2


def test_positives_that_nobody_counted_are_unknown(tmp_path):
    CorpusCard.of(corpus(), LARGE).save(tmp_path)
    unknown = CorpusCard.load(tmp_path, SMALL).positives
    assert {value for kind in unknown.values() for row in kind.values() for value in row} == {None}


@pytest.mark.parametrize("then", [None, LARGE])
def test_a_card_of_an_older_version_has_the_positives_of_the_defaults(tmp_path, then):
    new = CorpusCard.of(corpus(), Config())
    new.save(tmp_path)
    stored = json.loads((tmp_path / CORPUS).read_text())
    (tmp_path / CORPUS).write_text(json.dumps({**stored, "positives": dict(new.positives)}))
    if then is not None:
        CorpusCard.of(corpus(), then).save(tmp_path)
    assert CorpusCard.load(tmp_path).positives == new.positives
