"""What `abalone train` does and says where training would take hours: no GPU, much to read."""

import pytest
import torch

import tiny
from abalone import AbaloneClassifier
from abalone.cli import train
from abalone.config import Config
from abalone.data.corpus import Corpus, Split
from abalone.recipes import recipe
from abalone.training import open_settings
from abalone.training.estimate import Estimate
from abalone.training.run import enter_folder
from train_command import DOCUMENTS, SETTINGS, run

HOURS = Estimate(7 * 3600.0, "2 CPU cores", gpu=False, trains=True, fast_seconds=360.0)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return tiny.workshop(tmp_path_factory.mktemp("workshop"), DOCUMENTS, SETTINGS)


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)


class TrainedError(Exception):
    """Stands where training would begin."""


@pytest.fixture
def begun(monkeypatch) -> list[Config]:
    """The settings that training would begin with."""
    settings: list[Config] = []

    def fit_corpus(self: AbaloneClassifier, *_: object, **__: object) -> None:
        settings.append(self._config())
        raise TrainedError

    monkeypatch.setattr(AbaloneClassifier, "fit_corpus", fit_corpus)
    return settings


def train_with(workshop, tmp_path, *options):
    return run("train", workshop / "papers.jsonl", "-o", tmp_path / "model", *options)


def test_few_documents_are_trained_on_as_the_default_recipe_has_it(workshop, tmp_path, begun):
    train_with(workshop, tmp_path)
    assert begun == [recipe()]


def test_many_characters_without_a_gpu_mean_the_recipe_fast_and_a_note(workshop, tmp_path, begun, monkeypatch):
    monkeypatch.setattr(open_settings, "CPU_CHARACTERS", 100)
    result = train_with(workshop, tmp_path, "--seed", "3")
    assert begun == [recipe("fast", seed=3)]
    assert "no GPU" in result.stderr
    assert "--recipe rare trains it" in result.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--recipe", "rare"), recipe()),
        (("--epochs", "2"), recipe(epochs=2)),
        (("--objective", "bce"), recipe(objective="bce")),
    ],
)
def test_what_a_person_asks_for_is_done(options, expected, workshop, tmp_path, begun, monkeypatch):
    monkeypatch.setattr(open_settings, "CPU_CHARACTERS", 100)
    train_with(workshop, tmp_path, *options)
    assert begun == [expected]


def test_a_gpu_trains_the_default(workshop, tmp_path, begun, monkeypatch):
    monkeypatch.setattr(open_settings, "CPU_CHARACTERS", 100)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    train_with(workshop, tmp_path)
    assert begun == [recipe()]


@pytest.mark.parametrize("name", ["rare", "fast"])
@pytest.mark.parametrize("limit", [100, 10**9])
def test_a_run_goes_on_as_it_began(name, limit, tmp_path, monkeypatch):
    """With a GPU, say, that is not there any more."""
    monkeypatch.setattr(open_settings, "CPU_CHARACTERS", limit)
    texts, labels = tiny.corpus(20)
    corpus = Corpus(Split(texts, labels), Split(texts, labels), Split(texts, labels), tuple("abcde"))
    enter_folder(tmp_path / "model.training", recipe(name), corpus, resume=False)
    assert open_settings.settings_for_cpu(recipe(), corpus, tmp_path / "model") == (recipe(name), False)


def test_long_texts_count_only_as_far_as_they_are_read():
    texts, labels = ["x" * 10_000, "y" * 30], tiny.corpus(2)[1]
    corpus = Corpus(Split(texts, labels), Split(texts, labels), Split(texts, labels), tuple("abcde"))
    assert open_settings._characters(corpus, 1500) == 1530


class TestAsking:
    @pytest.fixture
    def terminal(self, monkeypatch):
        monkeypatch.setattr(train, "_in_terminal", lambda: True)

    @pytest.fixture
    def asked(self, monkeypatch) -> list[str]:
        questions: list[str] = []
        monkeypatch.setattr(train.typer, "confirm", lambda question, **_: questions.append(question))
        return questions

    @pytest.mark.usefixtures("terminal")
    def test_a_person_in_a_terminal_is_asked_before_hours_of_work(self, asked, capsys):
        train._tell_time(HOURS, ask=True)
        expected = "No GPU found: training takes about 7 h on 2 CPU cores; --recipe fast takes about 6 min."
        assert capsys.readouterr().err.strip() == expected
        assert asked == ["Train anyway?"]

    @pytest.mark.usefixtures("terminal")
    def test_yes_and_less_than_an_hour_are_not_asked_about(self, asked, capsys):
        train._tell_time(HOURS, ask=False)
        train._tell_time(Estimate(2400.0, "2 CPU cores", gpu=False, trains=True, fast_seconds=60.0), ask=True)
        assert asked == []
        assert capsys.readouterr().err.count("No GPU found") == 2

    def test_nobody_is_asked_in_a_pipe(self, asked, capsys):  # which the streams of a test are
        train._tell_time(HOURS, ask=True)
        assert asked == []
        assert "No GPU found" in capsys.readouterr().err

    def test_a_short_run_says_its_time_in_one_line(self, capsys):
        train._tell_time(Estimate(95.0, "NVIDIA H200", gpu=True, trains=True, fast_seconds=9.0), ask=True)
        assert capsys.readouterr().err == "training on NVIDIA H200: about 100 s\n"

    def test_no_leaves_nothing_behind(self, workshop, tmp_path, monkeypatch):
        def fit_corpus(self: AbaloneClassifier, corpus: Corpus, *, run_folder, **_: object) -> None:
            enter_folder(run_folder, self._config(), corpus, resume=False)
            raise train.typer.Abort

        monkeypatch.setattr(AbaloneClassifier, "fit_corpus", fit_corpus)
        result = train_with(workshop, tmp_path)
        assert result.exit_code == 1
        assert list(tmp_path.iterdir()) == []
