"""`abalone reproduce` on a tiny encoder: every table, from data to files, and again from stored results."""

import json
import os
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import tiny
from abalone.cli import app
from patience import PATIENCE
from train_command import starter

DOCUMENTS = {"train": 80, "val": 30, "test": 30}
SETTINGS = {
    "pooling": "mean",
    "max_length": 16,
    "queue_size": 16,
    "projection_dim": 16,
    "batch_size": 8,
    "head_learning_rate": 2e-3,
    "precision": "fp32",
    "device": "cpu",
    "checkpoint_seconds": 0,
}
SMALL = ["--epochs", "1", "--learning-rates", "2e-3", "--temperatures", "0.1", "--seeds", "0"]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a corpus, an encoder and a configuration."""
    return tiny.workshop(tmp_path_factory.mktemp("workshop"), DOCUMENTS, SETTINGS)


@pytest.fixture(autouse=True)
def cache(workshop, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(workshop / "cache"))


def words(workshop: Path, output: Path, table: str, *options: str) -> list[str]:
    config = str(workshop / "config.yaml")
    return ["reproduce", table, str(workshop / "papers.jsonl"), "-o", str(output), "--config", config, *options]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def records(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(workshop):
    """The output of every table at once."""
    output = workshop / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(workshop / "cache"))
        result = run(*words(workshop, output, "all", *SMALL))
    assert result.exit_code == 0, result.output
    return output, result


def test_every_table_from_data_to_files(whole):
    output, result = whole
    ablation = ["ablation", *(f"ablation-{what}" for what in ("thirds", "pairs", "pairs-thirds"))]
    last = ["comparison", "comparison-thirds", "representation", "clustering", "imbalance", "imbalance-labels"]
    for name in ["datasets", *ablation, *last]:
        for suffix in ("md", "csv", "tex"):
            assert (output / f"{name}.{suffix}").stat().st_size > 0
        assert (output / f"{name}.md").read_text() in result.stdout
    for picture in ("clustering.png", "imbalance.png"):
        assert (output / picture).read_bytes().startswith(b"\x89PNG")
    for name in ("ablation", "comparison", "representation"):
        text = (output / f"{name}.md").read_text()
        assert "0/1" not in text  # every row has its run
        assert "epochs of contrastive training 1 (the paper: 80)" in text


def test_record_has_scores_machine_and_versions(whole):
    stored = {record["row"]: record for record in records(whole[0])}
    assert len(stored) == len(records(whole[0])) == 15  # each row once, though four tables need some of them
    record = stored["L_MSC-FT"]
    assert record["starts_from"]["objective"] == "msc"
    assert record["config"]["objective"] == "bce"
    assert record["config"]["encoder"] == "encoder"  # its name, and not where it lies on this machine
    assert str(whole[0].parent) not in (whole[0] / "results.jsonl").read_text()
    for split in ("validation", "test"):
        for cut in ("half", "macro", "micro"):
            assert {"micro_f1", "macro_f1", "hamming_loss", "macro_f1_tail"} <= record["scores"][split][cut].keys()
    assert record["epochs_run"] == 1
    assert record["seconds"] > 0
    assert record["date"].startswith("20")
    assert record["machine"]["cpu"]
    assert {"torch", "transformers", "abalone"} <= record["versions"].keys()
    assert len(record["clustering"]["silhouette"]) == 10
    assert len(record["forces"]["attraction"]) == 5
    assert stored["tf-idf + SVM"]["scores"]["test"]["half"]["macro_f1"] > 0.5
    assert "clustering" not in stored["tf-idf + SVM"]


def test_the_same_command_trains_nothing_again(whole, workshop):
    output, first = whole
    before = (output / "results.jsonl").read_bytes()
    result = run(*words(workshop, output, "all", *SMALL))
    assert result.exit_code == 0
    assert (output / "results.jsonl").read_bytes() == before
    assert result.stdout == first.stdout


@pytest.mark.parametrize("form", ["markdown", "csv", "latex"])
def test_tables_are_printed_without_the_data(whole, workshop, form):
    output, _ = whole
    arguments = words(workshop, output, "ablation", *SMALL, "--print-only", "--format", form)
    arguments[2] = "gone.jsonl"
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    suffix = {"markdown": "md", "csv": "csv", "latex": "tex"}[form]
    assert (output / f"ablation.{suffix}").read_text() in result.stdout


def test_options_that_match_no_stored_run_are_refused_with_the_stored_ones(whole, workshop):
    result = run(*words(workshop, whole[0], "ablation", "--print-only", "--epochs", "7"))
    assert result.exit_code == 2
    assert "stored is: encoder, mean pooling, 0 epochs; encoder, mean pooling, 1 epochs" in result.stderr
    assert "the nearest has epochs 1, not 7; learning_rate 0.002, not 5e-05." in " ".join(result.stderr.split())


def test_refusal_names_the_setting_that_differs(whole, workshop, tmp_path):
    (tmp_path / "config.yaml").write_text((workshop / "config.yaml").read_text() + "dropout: 0.2\n")
    options = ["--config", str(tmp_path / "config.yaml"), "--print-only"]
    result = run(*words(workshop, whole[0], "ablation", *SMALL, *options))
    assert result.exit_code == 2
    assert "the nearest has dropout 0.1, not 0.2." in " ".join(result.stderr.split())


def test_tables_are_printed_without_the_encoder(whole, workshop, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # there is no folder of that name
    result = run(*words(workshop, whole[0], "ablation", *SMALL, "--print-only", "--encoder", "models/encoder"))
    assert result.exit_code == 0, result.output
    assert (whole[0] / "ablation.md").read_text() in whole[1].stdout


def test_positives_belong_to_the_batch_size_of_the_options(whole, workshop, tmp_path):
    (tmp_path / "config.yaml").write_text((workshop / "config.yaml").read_text().replace("size: 8", "size: 4"))
    assert "batch_size: 4" in (tmp_path / "config.yaml").read_text()
    options = ["--config", str(tmp_path / "config.yaml"), "--stop-after", "0"]
    other = run(*words(workshop, whole[0], "imbalance", *SMALL, *options))
    assert other.exit_code == 0, other.output
    result = run(*words(workshop, whole[0], "imbalance", *SMALL, "--print-only"))
    assert result.exit_code == 0, result.output
    assert result.stdout in whole[1].stdout
    heads = [next(line for line in told.stdout.splitlines() if line.startswith("| head")) for told in (result, other)]
    positives = [head.split("|")[3:7] for head in heads]  # and anchors without one
    assert positives[0] != positives[1]
    assert " – " not in positives[0] + positives[1]


@pytest.mark.slow
def test_another_encoder_of_the_same_name_is_refused_by_the_command(whole, workshop, tmp_path, monkeypatch):
    namesake = tiny.save_encoder(tmp_path / "elsewhere" / "encoder", seed=1)
    options = [*SMALL, "--rows", "MSC-FT", "--encoder", namesake]
    before = (whole[0] / "results.jsonl").read_bytes()
    refused = run(*words(workshop, whole[0], "comparison", *options))
    assert refused.exit_code == 2
    assert "has results of another encoder that is called encoder" in " ".join(refused.stderr.split())
    assert (whole[0] / "results.jsonl").read_bytes() == before
    outputs = [tmp_path / "same-cache", tmp_path / "own-cache"]
    for output in outputs:
        result = run(*words(workshop, output, "comparison", *options))
        assert result.exit_code == 0, result.output
        monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    (_, shared), (_, own) = map(records, outputs)
    assert shared["row"] == "L_MSC-FT"
    assert shared["scores"] == own["scores"]
    assert shared["encoder_fingerprint"] == own["encoder_fingerprint"]
    assert shared["encoder_fingerprint"] != records(whole[0])[0]["encoder_fingerprint"]


def test_rows_without_an_encoder_need_none(workshop, tmp_path):
    gone = ["--encoder", str(tmp_path / "gone")]
    assert run(*words(workshop, tmp_path / "out", "comparison", *SMALL, *gone, "--rows", "tf-idf")).exit_code == 0
    assert "encoder_fingerprint" not in records(tmp_path / "out")[0]
    assert run(*words(workshop, tmp_path / "out", "datasets", *SMALL, *gone)).exit_code == 0


def test_missing_encoder_is_refused_before_any_run(workshop, tmp_path):
    result = run(*words(workshop, tmp_path / "out", "ablation", *SMALL, "--encoder", str(tmp_path / "gone")))
    assert result.exit_code == 2
    assert "cannot load the encoder" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_two_jobs_give_the_same_results_as_one(whole, workshop, tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    rows = ["--rows", "MLM,MSC,MSC-FT,tf-idf"]
    result = run(*words(workshop, tmp_path / "out", "comparison", *SMALL, *rows, "--jobs", "2"))
    assert result.exit_code == 0, result.output
    alone = {record["row"]: record for record in records(whole[0])}
    together = {record["row"]: record for record in records(tmp_path / "out")}
    assert set(together) == {"L_MSC", "L_MSC-FT", "tf-idf + SVM"}
    for row, record in together.items():
        assert record["scores"] == alone[row]["scores"]
        assert record["jobs"] == 2
    assert "[3/3]" in result.stderr


@pytest.mark.slow
def test_killed_command_resumes(workshop, tmp_path, monkeypatch):
    options = [*SMALL, "--rows", "MSC", "--epochs", "6"]
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "whole-cache"))
    assert run(*words(workshop, tmp_path / "whole", "ablation", *options)).exit_code == 0
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    with starter() as start:  # ten steps are an epoch
        process = start(arguments=words(workshop, tmp_path / "out", "ablation", *options), killed_at=25)
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, told
    assert not (tmp_path / "out" / "results.jsonl").exists()
    result = run(*words(workshop, tmp_path / "out", "ablation", *options))
    assert result.exit_code == 0, result.output
    (resumed,) = records(tmp_path / "out")
    (uninterrupted,) = records(tmp_path / "whole")
    assert resumed["resumed"]
    assert not uninterrupted["resumed"]
    for measured in ("scores", "clustering", "forces", "epochs_run"):
        assert resumed[measured] == uninterrupted[measured]
    assert not list((tmp_path / "cache").glob("experiments/runs/*"))


def test_failed_run_is_reported_and_the_table_printed(workshop, tmp_path, monkeypatch):
    from abalone.training import pipeline

    fit = pipeline.fit

    def sometimes(config, *args, **kwargs):
        if config.objective == "base":
            raise ValueError("the loss is nan")
        return fit(config, *args, **kwargs)

    monkeypatch.setattr(pipeline, "fit", sometimes)
    result = run(*words(workshop, tmp_path / "out", "ablation", *SMALL, "--rows", "MLM,Base"))
    assert result.exit_code == 1
    assert "1 runs failed" in result.stderr
    assert "L_Base, τ=0.1, lr=0.002, epochs=1, seed 0: ValueError: the loss is nan" in result.stderr
    assert "| L_Base | – |" in result.stdout
    assert [record["row"] for record in records(tmp_path / "out")] == ["L_MLM"]


def test_stop_after_zero_minutes_trains_nothing(workshop, tmp_path):
    result = run(*words(workshop, tmp_path / "out", "ablation", *SMALL, "--stop-after", "0"))
    assert result.exit_code == 0, result.output
    assert "5 runs are left" in result.stderr
    assert not (tmp_path / "out" / "results.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seeds", "0,x"], "--seeds must be whole numbers separated by commas, got '0,x'"),
        (["--rows", "MCS"], "no row is called 'MCS'; did you mean 'L_MSC'?"),
        (["--rows", "BCE"], "has a row L_BCE"),
        (["--format", "html"], "no format is called 'html'"),
        (["--seeds", "1,1"], "seeds must be different values"),
        (["--pooling", "max"], "pooling must be one of cls, mean"),
    ],
)
def test_wrong_options_are_refused_before_any_run(workshop, tmp_path, options, message):
    result = run(*words(workshop, tmp_path / "out", "ablation", *options))
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "out").exists()


def test_unknown_tables_and_decided_settings(workshop, tmp_path):
    assert "no table is called 'abblation'" in run(*words(workshop, tmp_path / "out", "abblation")).stderr
    (tmp_path / "more.yaml").write_text("epochs: 3\n")
    arguments = words(workshop, tmp_path / "out", "ablation", "--config", str(tmp_path / "more.yaml"))
    assert "epochs: set by the rows and the grid" in run(*arguments).stderr


def test_a_corpus_without_a_test_split(workshop, tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "w1", "labels": ["a"]}\n' * 20)
    arguments = words(workshop, tmp_path / "out", "ablation", *SMALL)
    arguments[2] = str(tmp_path / "train.jsonl")
    lines = [json.dumps({"text": f"w{i}", "labels": ["a"], "split": s}) for s in ("train", "val") for i in range(20)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    result = run(*arguments)
    assert result.exit_code == 2
    assert "the test split of train is empty" in result.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_stopped_command_says_how_to_continue(number, status, workshop, tmp_path, monkeypatch):
    def told(*_: object, **__: object) -> None:
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr("abalone.reproduce.runner.run_experiments", told)
    result = run(*words(workshop, tmp_path / "out", "ablation", *SMALL))
    signal.signal(signal.SIGTERM, before)
    assert result.exit_code == status, result.output
    assert "stopped; run the same command again to continue" in result.stderr
