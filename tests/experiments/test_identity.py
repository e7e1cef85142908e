"""What makes two runs the same, and what of a corpus is kept for tables."""

import json

import pytest
from made_up_runs import corpus

from abalone.config import Config
from abalone.experiments.identity import CORPUS, CorpusCard, encoder_name, portable, run_key

LARGE, SMALL = Config(batch_size=16, queue_size=32), Config(batch_size=4, queue_size=8)


def test_a_folder_is_called_by_its_last_part_and_a_hub_name_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "models" / "bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert encoder_name("models/bert") == encoder_name("./models/bert/") == encoder_name("/gone/bert") == "bert"
    assert encoder_name("user/bert") == "user/bert"
    monkeypatch.chdir(tmp_path / "models" / "bert")
    assert encoder_name(".") == "bert"
    assert encoder_name("..") == "models"


def test_a_link_keeps_its_name(tmp_path):
    (tmp_path / "version-3").mkdir()
    (tmp_path / "bert").symlink_to(tmp_path / "version-3")
    assert encoder_name(str(tmp_path / "bert")) == "bert"


def test_stored_names_mean_the_same_in_every_folder(tmp_path, monkeypatch):
    before = run_key(portable(Config(encoder="user/bert")), None, "corpus")
    stored = portable(Config(encoder="user/bert"))
    (tmp_path / "user" / "bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run_key(stored, None, "corpus") == before


def test_a_whole_number_is_the_same_setting_with_or_without_a_dot():
    def key(**settings: object) -> str:
        return run_key(portable(Config.from_dict(settings)), None, "corpus")

    assert key(dropout=0) == key(dropout=0.0) != key()
    assert key(clip=1) == key(clip=1.0) == key()
    damaged = portable(Config()) | {"dropout": 10**400}
    assert run_key(damaged, None, "corpus") != key()


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
