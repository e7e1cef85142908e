"""The results file and the corpus card outlive kills, versions and machines."""

import json
from dataclasses import replace

import pytest
from made_up_runs import card, corpus, finish, record

from abalone.config import Config
from abalone.reproduce.grid import Grid, Run
from abalone.reproduce.results import CORPUS, RESULTS, CorpusCard, Results, read_records
from abalone.reproduce.view import View

RUN, OTHER = Run("L_MSC", Config()), Run("L_MSC", Config(seed=1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / RESULTS


def test_appended_record_is_read_back(path):
    results = Results(path, "corpus")
    assert results.get(RUN) is None
    finish(results, RUN, 0.75)
    again = Results(path, "corpus")
    assert again.validation_micro_f1(RUN) == 0.75
    assert again.get(RUN) == results.get(RUN)
    assert again.get(OTHER) is None
    assert len(Results(path, "another corpus")) == 0


@pytest.mark.parametrize("left", [1, 40, -1])
def test_unfinished_line_is_left_out_and_replaced(path, left):
    results = Results(path, "corpus")
    finish(results, RUN)
    whole = path.read_bytes()
    finish(results, OTHER)
    half = path.read_bytes()[len(whole) :][:left]
    path.write_bytes(whole + half)
    with pytest.warns(UserWarning, match="last line is not finished"):
        again = Results(path, "corpus")
    assert again.get(RUN) is not None
    assert again.get(OTHER) is None
    finish(again, OTHER)
    assert [r["seed"] for r in read_records(path)] == [0, 1]
    assert path.read_bytes().startswith(whole)


def test_file_with_only_an_unfinished_line_is_empty(path):
    path.write_bytes(b'{"row": "L_M')
    with pytest.warns(UserWarning, match="not finished"):
        results = Results(path, "corpus")
    finish(results, RUN)
    assert len(read_records(path)) == 1


@pytest.mark.parametrize("line", ["{not json}", "[1]", '{"row": "L_MSC"}', "[" * 5000, '{"seed": ' + "9" * 5000 + "}"])
def test_line_that_is_no_record_is_an_error_with_its_number(path, line):
    finish(Results(path, "corpus"), RUN)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=r"results\.jsonl:2: not the result"):
        Results(path, "corpus")


def test_checksum_finds_a_changed_number(path):
    results = Results(path, "corpus")
    finish(results, RUN, 0.75)
    finish(results, OTHER, 0.515625)
    whole = path.read_text()
    path.write_text(whole.replace("0.515625", "0.615625"))
    with pytest.raises(ValueError, match=r"results\.jsonl:2: this result is damaged: its checksum does not match"):
        Results(path, "corpus")
    spaced = "".join(json.dumps(json.loads(line), separators=(",", ":")) + "\n" for line in whole.splitlines())
    path.write_text(spaced)  # another tool may write it otherwise
    assert Results(path, "corpus").validation_micro_f1(OTHER) == 0.515625
    changed = [json.loads(line) for line in whole.replace("0.515625", "0.615625").splitlines()]
    for changed_record in changed:  # a person's own change, or an older version's
        del changed_record["checksum"]
    path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    assert Results(path, "corpus").validation_micro_f1(OTHER) == 0.615625


def test_results_of_an_older_version_are_found(path):
    stored = record(RUN, "corpus")
    del stored["config"]["max_chunks"]  # came later, with the default as what was done before
    stored["config"]["a_setting_that_is_gone"] = 3
    path.write_text(json.dumps(stored) + "\n")
    assert Results(path, "corpus").get(RUN) is not None
    assert Results(path, "corpus").get(Run("L_MSC", Config(max_chunks=2))) is None


def test_results_are_found_whatever_the_device_and_the_encoders_folder(path, tmp_path):
    encoder = tmp_path / "some-encoder"
    encoder.mkdir()
    finish(Results(path, "corpus"), Run("L_MSC", Config(encoder="some-encoder", device="cpu")))
    results = Results(path, "corpus")
    assert results.get(Run("L_MSC", Config(encoder=str(encoder)))) is not None
    assert results.get(Run("L_MSC", Config(encoder="/elsewhere/some-encoder"))) is not None
    assert results.get(Run("L_MSC", Config(encoder="hub/some-encoder"))) is None


def test_an_encoder_whose_folder_is_gone_is_found_by_its_last_part(path):
    results = Results(path, "corpus")
    finish(results, Run("L_MSC", Config(encoder="bert")))
    assert results.stored_encoder("models/bert") == "bert"
    assert results.stored_encoder("models/roberta") == "models/roberta"
    finish(results, Run("L_MSC", Config(encoder="models/bert")))
    assert results.stored_encoder("models/bert") == "models/bert"


def test_another_encoder_of_the_same_name_is_refused(path):
    results = Results(path, "corpus")
    results.append(RUN, {**record(RUN, "corpus"), "encoder_fingerprint": "a"})
    finish(results, OTHER)  # of an older version, which did not say
    again = Results(path, "corpus")
    again.refuse_other_encoder(RUN.config.encoder, "a")
    again.refuse_other_encoder("another", "b")
    with pytest.raises(
        ValueError, match=r"has results of another encoder that is called all-MiniLM.*Rename the folder"
    ):
        again.refuse_other_encoder(f"/elsewhere/{RUN.config.encoder}", "b")


def test_the_nearest_result_says_which_settings_keep_it_from_being_found(path):
    results = Results(path, "corpus")
    for run in (Run("L_MSC", Config(max_length=64)), Run("L_Base", Config(dropout=0.2, clip=2, max_length=64))):
        finish(results, run)
    assert results.nearest([Run("L_MSC", Config(encoder="/x/bert", max_length=64, device="cpu"))]) == {
        "encoder": ("all-MiniLM-L6-v2", "bert")
    }
    assert results.nearest([RUN, OTHER, Run("L_Base", Config(dropout=0.2))]) == {"max_length": (64, 300)}
    assert results.nearest([Run("L_BCE", Config())]) == {}


def test_results_depend_on_the_pre_training(path):
    results = Results(path, "corpus")
    config = Config(objective="bce", epochs=5)
    started = Run("L_MSC-FT", config, Config(learning_rate=2e-5))
    finish(results, started)
    assert results.get(Run("L_BCE", config)) is None
    assert results.get(Run("L_MSC-FT", config, Config(learning_rate=5e-5))) is None
    assert results.get(started) is not None


def test_nan_is_never_written(path):
    results = Results(path, "corpus")
    broken = {**record(RUN, "corpus"), "seconds": float("nan")}
    with pytest.raises(ValueError, match="JSON"):
        results.append(RUN, broken)
    assert not path.exists()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"config": "x"}, r"it\['config'\] is str"),
        ({"corpus": []}, r"it\['corpus'\] is list"),
        ({"scores": {"validation": {}, "test": {}}}, r"it\['scores'\]\['validation'\] has no 'half'"),
        ({"seconds": None}, r"it\['seconds'\] is NoneType"),
        ({"encoder_fingerprint": 3}, r"it\['encoder_fingerprint'\] is int"),
        (
            {"clustering": {"proportions": [1], "documents": [1], "silhouette": [1], "davies_bouldin": [1]}},
            "proportions",
        ),
        ({"forces": {"attraction": [], "repulsion": ["x"]}}, r"it\['forces'\]\['repulsion'\]\[0\] is str"),
    ],
)
def test_record_of_wrong_shape_is_an_error_with_its_number(path, change, told):
    path.write_text(json.dumps({**record(RUN, "corpus"), **change}) + "\n")
    with pytest.raises(ValueError, match=rf"results\.jsonl:1: not the result.* \({told}|{told}.*remove the line"):
        Results(path, "corpus")


def test_records_of_other_labels_are_refused(path):
    stored = card()
    results = Results(path, stored.fingerprint)
    finish(results, RUN)
    View(stored, Grid(), Config(), results)
    fewer = replace(stored, label_names=stored.label_names[:-1])
    with pytest.raises(ValueError, match="forces of 6 labels, not 5"):
        View(fewer, Grid(), Config(), results)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"positives": {}}, "has no 'base'"),
        ({"label_names": ["a"]}, "not one value for each of the 1 labels"),
        ({"statistics": {"frequencies": [1] * 6}}, "it has no "),
        ({"published": "another"}, "the paper has no corpus 'another'"),
        ({"name": 3}, r"it\['name'\] is int"),
    ],
)
def test_damaged_corpus_card_is_refused_with_the_reason(tmp_path, change, told):
    card().save(tmp_path)
    stored = json.loads((tmp_path / CORPUS).read_text())
    assert CorpusCard.load(tmp_path).fingerprint == stored["fingerprint"]
    (tmp_path / CORPUS).write_text(json.dumps({**stored, **change}))
    with pytest.raises(ValueError, match=rf"corpus\.json is damaged \(.*{told}"):
        CorpusCard.load(tmp_path)


LARGE, SMALL = Config(batch_size=16, queue_size=32), Config(batch_size=4, queue_size=8)


def test_positives_are_kept_for_each_batch_and_queue_size(tmp_path):
    cards = [CorpusCard.of(corpus(), base) for base in (LARGE, SMALL)]
    assert cards[0].positives != cards[1].positives
    for each in [*cards, cards[0]]:
        each.save(tmp_path)
    assert CorpusCard.load(tmp_path, LARGE).positives == cards[0].positives
    assert CorpusCard.load(tmp_path, SMALL).positives == cards[1].positives
    assert len(json.loads((tmp_path / CORPUS).read_text())["positives"]) == 2


def test_positives_of_other_sizes_are_unknown(tmp_path):
    CorpusCard.of(corpus(), LARGE).save(tmp_path)
    unknown = CorpusCard.load(tmp_path, SMALL).positives
    assert {value for kind in unknown.values() for row in kind.values() for value in row} == {None}


@pytest.mark.parametrize("then", [None, LARGE])
def test_card_of_an_older_version_has_the_positives_of_the_default_sizes(tmp_path, then):
    new = CorpusCard.of(corpus(), Config())
    new.save(tmp_path)
    stored = json.loads((tmp_path / CORPUS).read_text())
    (tmp_path / CORPUS).write_text(json.dumps({**stored, "positives": dict(new.positives)}))
    if then is not None:
        CorpusCard.of(corpus(), then).save(tmp_path)
    assert CorpusCard.load(tmp_path).positives == new.positives
