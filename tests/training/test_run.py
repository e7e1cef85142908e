"""A run's settings, and a run folder that somebody has edited or damaged, or uses for something else."""

from dataclasses import replace
from types import SimpleNamespace

import made_up_runs
import pytest

from abalone.config import Config
from abalone.files.atomic import PARTIAL
from abalone.losses import loss_spec
from abalone.training.checkpoint import BEFORE, EPOCH, RESUME
from abalone.training.run import (
    IDENTITY,
    STAGES,
    TrainingRun,
    enter_folder,
    fingerprint,
    holds_run,
    refuse_other_documents,
)

DAMAGED = [b"", b"{", b"[]", b'{"fingerprint": 3, "settings": {}}', b"\xff", b"[" * 5000, b"9" * 5000]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_identity_is_told(tmp_path, content):
    corpus = made_up_runs.corpus()
    enter_folder(tmp_path, Config(), corpus, resume=False)
    enter_folder(tmp_path, Config(), corpus, resume=True)
    (tmp_path / IDENTITY).write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json is damaged, so the run cannot be identified: start again"):
        enter_folder(tmp_path, Config(), corpus, resume=True)


def test_a_run_is_known_by_its_documents_and_settings(tmp_path):
    assert not holds_run(tmp_path, Config(), made_up_runs.corpus())
    enter_folder(tmp_path, Config(), made_up_runs.corpus(), resume=False)
    assert holds_run(tmp_path, Config(device="cpu"), made_up_runs.corpus())
    assert not holds_run(tmp_path, Config(seed=1), made_up_runs.corpus())
    assert not holds_run(tmp_path, Config(), made_up_runs.corpus(60))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_run_is_known_by_the_labels_of_its_documents(split, tmp_path):
    corpus = made_up_runs.corpus()
    enter_folder(tmp_path, Config(), corpus, resume=False)
    of_split = getattr(corpus, split)
    moved = replace(of_split, labels=of_split.labels[::-1])  # as many of each as before
    relabelled = replace(corpus, **{split: moved})
    assert not holds_run(tmp_path, Config(), relabelled)
    with pytest.raises(ValueError, match=r"cannot resume the run in .*: the documents or labels are others"):
        enter_folder(tmp_path, Config(), relabelled, resume=True)
    assert holds_run(tmp_path, Config(), corpus)


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_identity_is_no_run(tmp_path, content):
    (tmp_path / IDENTITY).write_bytes(content)
    assert not holds_run(tmp_path, Config(), made_up_runs.corpus())


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("identity", [None, b"{}"])  # whose name another program may use too
@pytest.mark.parametrize("resume", [False, True])
def test_what_is_somebody_elses_is_never_removed(tmp_path, stage, identity, resume):
    precious = tmp_path / stage / "years.csv"
    precious.parent.mkdir()
    precious.write_text("of work")
    if identity is not None:
        (tmp_path / IDENTITY).write_bytes(identity)
    with pytest.raises((FileExistsError, ValueError), match=r"holds something else|start again"):
        enter_folder(tmp_path, Config(), made_up_runs.corpus(), resume=resume)
    assert precious.read_text() == "of work"
    assert (tmp_path / IDENTITY).exists() == (identity is not None)


def test_a_file_with_the_name_of_a_stage_is_told(tmp_path):
    (tmp_path / "training").touch()
    with pytest.raises(FileExistsError, match="training, where checkpoints go, holds something else"):
        enter_folder(tmp_path, Config(), made_up_runs.corpus(), resume=False)


def test_what_an_earlier_run_has_left_is_removed(tmp_path):
    left = [tmp_path / "training" / name for name in (RESUME, BEFORE, EPOCH.format(3), f".{RESUME}.0a{PARTIAL}")]
    left[0].parent.mkdir()
    for file in left:
        file.touch()
    for name in ("log.txt", "fold-1.safetensors"):  # what a fold's finished model said: of other documents now
        (tmp_path / name).touch()
    enter_folder(tmp_path, Config(), made_up_runs.corpus(), resume=False)
    assert {path.name for path in tmp_path.iterdir()} == {IDENTITY, "log.txt"}


@pytest.mark.parametrize(
    ("loss", "asked", "schedule"),
    [
        ("msc", None, "cosine"),
        ("mulcon+bce", None, "cosine"),
        ("bce", None, "linear"),
        ("msc", "linear", "linear"),
        ("bce", "cosine", "cosine"),
    ],
)
def test_pointwise_losses_train_on_a_line_and_others_on_a_cosine_unless_asked(loss, asked, schedule, tmp_path):
    config = Config(epochs=1, learning_rate=1e-3, schedule=asked)
    run = TrainingRun(config, train=None, validation=None, runtime=None, folder=tmp_path)
    assert run.plan(SimpleNamespace(spec=loss_spec(loss))).schedule == schedule


class Second:
    """The second of two processes, which hears what the main one was given."""

    count, index = 2, 1

    def __init__(self, of_main):
        self.of_main = of_main

    def from_main(self, _):
        return self.of_main


def test_a_process_with_other_documents_or_settings_than_the_main_one_is_refused():
    corpus = made_up_runs.corpus()
    second = Second(fingerprint(Config(), corpus))
    refuse_other_documents(second, Config(), corpus)
    for config, documents in ((Config(seed=1), corpus), (Config(), made_up_runs.corpus(60))):
        with pytest.raises(ValueError, match="process 1 was given other documents, labels or settings than the main"):
            refuse_other_documents(second, config, documents)
