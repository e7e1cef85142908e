"""What comes from files does not command the terminal, and streams that are closed are told of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_predict import WithStdin
from typer.testing import CliRunner, Result

from abalone import AbaloneClassifier
from abalone.cli import app
from abalone.errors import DataError
from patience import PATIENCE

HOSTILE = "a\nerror: all is lost\x9b31m\u202e"
TEXTS = [f"{'w1' if number % 2 else 'w2'} document {number}" for number in range(60)]
LABELS = [[HOSTILE] if number % 2 else ["b"] for number in range(60)]

pytestmark = pytest.mark.filterwarnings("ignore:no document carries more than one label")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Data and a model whose labels have such names."""
    place = tmp_path_factory.mktemp("hostile")
    rows = [{"text": text, "labels": labels} for text, labels in zip(TEXTS, LABELS, strict=True)]
    (place / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (place / "texts.txt").write_text("\n".join(TEXTS[:2]))
    AbaloneClassifier("words").fit(TEXTS, LABELS).save_pretrained(place / "model")
    return place


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def harmless(output: str) -> bool:
    """Nothing a terminal would obey, and no line that passes for an error."""
    return output.replace("\n", "").isprintable() and not any(line.startswith("error:") for line in output.splitlines())


@pytest.mark.parametrize(
    "command",
    [
        "stats {0}/data.jsonl",
        "stats {0}/data.jsonl --json",
        "evaluate {0}/model {0}/data.jsonl --split all",
        "evaluate {0}/model {0}/data.jsonl --split all --json",
        "predict {0}/model {0}/texts.txt",
        "predict {0}/model {0}/texts.txt --probabilities",
    ],
)
def test_name_of_a_label_commands_no_terminal(command, folder):
    result = run(*command.format(folder).split())
    assert result.exit_code == 0, result.stderr
    assert "lost" in result.stdout
    assert harmless(result.stdout)
    assert harmless(result.stderr)


def test_note_or_error_that_quotes_a_name_is_one_message(folder, tmp_path, monkeypatch):
    (tmp_path / "few.jsonl").write_text('{"text": "w2 another", "labels": ["b"]}\n')
    noted = run("evaluate", folder / "model", tmp_path / "few.jsonl").stderr
    assert "error: all is lost" in noted
    assert harmless(noted)

    def refuse(*_: object, **__: object) -> None:
        raise DataError(f"no label {HOSTILE}", hint=f"Labels: {HOSTILE}")

    monkeypatch.setattr("abalone.data.load.load_corpus", refuse)
    told = run("stats", folder / "data.jsonl").stderr
    assert [line for line in told.splitlines() if not line.startswith("  ")] == ["error: no label a"]


def test_json_lines_lose_nothing_of_a_name(folder, tmp_path):
    shown = run("predict", folder / "model", folder / "texts.txt")
    assert [json.loads(line)["labels"] for line in shown.stdout.splitlines()] == [["b"], [HOSTILE]]
    assert run("predict", folder / "model", folder / "texts.txt", "-o", tmp_path / "answers").exit_code == 0
    assert (tmp_path / "answers" / "part-00000.jsonl").read_text() == shown.stdout


def test_csv_is_escaped_in_a_terminal_and_data_elsewhere(folder, monkeypatch):
    words = ("predict", folder / "model", folder / "texts.txt", "--format", "csv")
    assert HOSTILE in run(*words).stdout

    class Terminal(WithStdin):
        def __init__(self) -> None:
            super().__init__(sys.stdin)

        @property
        def stdout(self) -> object:
            monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
            return sys.stdout

        @stdout.setter
        def stdout(self, _: object) -> None: ...

    monkeypatch.setattr("abalone.cli.predict.sys", Terminal())
    shown = run(*words).stdout
    assert shown.splitlines() == ["labels", "b", "a\\nerror: all is lost\\x9b31m\\u202e"]


@pytest.mark.skipif(sys.platform == "win32", reason="shell")
def test_closed_standard_output_is_an_error_and_closed_input_is_empty(folder):
    def status(redirected: str) -> tuple[int, str]:
        command = f"exec {sys.executable} -m abalone predict {folder / 'model'} - {redirected}"
        done = subprocess.run(
            command, shell=True, input="w1\n", capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return done.returncode, done.stderr

    told = "error: standard output is closed: let it go to a file, or to /dev/null if you do not need it\n"
    assert status(">&-") == (2, told)
    assert status(">&- 2>&-") == (2, "")
    assert status("<&-") == (0, "note: standard input contains no text: 0 texts answered.\n")
    assert status("2>&-") == (0, "")
