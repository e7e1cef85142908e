import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from abalone import __version__
from abalone.cli import app
from abalone.config import Config
from abalone.data.corpus import gini
from abalone.errors import DataError, InputError, spelled
from patience import PATIENCE


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Sixty documents: `common` on all, `[rare]` on one in ten."""
    rows = [
        {
            "text": f"document number {i}",
            "labels": ["common", *(["[rare]"] if i % 10 == 0 else [])],
            "split": ("train", "train", "train", "val", "test")[i // 12],
        }
        for i in range(60)
    ]
    file = tmp_path / "papers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def loading(monkeypatch: pytest.MonkeyPatch, raises: BaseException) -> None:
    def load_corpus(*_: object, **__: object) -> None:
        raise raises

    monkeypatch.setattr("abalone.data.load.load_corpus", load_corpus)


def test_stats_prints_table_tail_and_names(data: Path) -> None:
    result = run("stats", data)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    table = [line.split() for line in lines]
    assert ["corpus", "train", "val", "test", "labels", "labels/doc", "words/doc"] in table
    assert ["papers", "36", "12", "12", "2", "1.10", "3"] in table
    assert ["36", "20", "4", "1", "0.40", "90%"] in table
    assert "labels: common (36), [rare] (4)" in lines
    assert any("█" in line for line in lines)
    assert "\x1b" not in result.stdout, "colour though it is no terminal"
    assert result.stderr == ""


def test_stats_as_json(data: Path) -> None:
    result = run("stats", data, "--json")
    stats = json.loads(result.stdout)
    assert (stats["name"], stats["train"], stats["validation"], stats["test"]) == ("papers", 36, 12, 12)
    assert stats["frequencies"] == {"common": 36, "[rare]": 4}
    assert {"notes", "unseen_labels", "provenance", "gini"} <= stats.keys()


def test_stats_draws_the_tail(data: Path, tmp_path: Path) -> None:
    result = run("stats", data, "--plot", tmp_path / "tail.svg")
    assert result.exit_code == 0, result.stderr
    assert "<svg" in (tmp_path / "tail.svg").read_text()


def test_a_picture_of_an_unknown_kind_is_refused_before_reading(tmp_path: Path) -> None:
    result = run("stats", tmp_path / "missing.jsonl", "--plot", tmp_path / "tail.gif")
    assert result.exit_code == 2
    assert "tail.gif" in result.stderr
    assert ".svg" in result.stderr


@pytest.mark.filterwarnings("always")
def test_options_reach_the_loader(tmp_path: Path) -> None:
    file = tmp_path / "own.csv"
    rows = "".join(f"t{i},word word,x+y,{('train', 'val', 'test')[i % 3]}\n" for i in range(9))
    file.write_text(f"head,main,marks,part\n{rows}bad row\n")
    columns = ("--text-column", "head", "--text-column", "main", "--label-column", "marks")
    refused = run("stats", file, *columns, "--split-column", "part", "--label-separator", "+")
    assert refused.exit_code == 2
    assert f"error: {file}:11: " in refused.stderr
    assert "--skip-bad-rows" in refused.stderr

    result = run(
        "stats", file, *columns, "--split-column", "part", "--label-separator", "+", "--skip-bad-rows", "--json"
    )
    assert result.exit_code == 0, result.stderr
    stats = json.loads(result.stdout)
    assert stats["frequencies"] == {"x": 3, "y": 3}
    assert stats["words_per_document"] == 3
    assert "warning: Rows left out: 1" in result.stderr


@pytest.mark.filterwarnings("always")
def test_what_the_notes_say_is_not_said_twice(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    rows = [{"text": "a", "labels": ["x"], "split": "train"}] * 9 + [{"text": "b", "labels": ["z"], "split": "test"}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("stats", file)
    assert result.exit_code == 0, result.stderr
    assert any(line.startswith("note: ") and "z" in line for line in result.stdout.splitlines())
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (
            DataError("bad label", path="a.csv", line=3, hint="Remove it."),
            "error: a.csv:3: bad label\n  Remove it.\n",
        ),
        (InputError("bad label"), "error: bad label\n"),
        (DataError("bad text_column='b'", path="text_column=1/a"), "error: text_column=1/a: bad text_column='b'\n"),
        (FileNotFoundError(2, "Gone", "h/path=1/a.csv"), "error: h/path=1/a.csv: Gone\n"),
        (FileNotFoundError(2, "Gone", "path=1.csv"), "error: path=1.csv: Gone\n"),
        (FileNotFoundError(2, "No such file or directory", "b.csv"), "error: b.csv: No such file or directory\n"),
        (OSError(28, "No space left on device"), "error: No space left on device\n"),
        (ImportError("pip install '.[data]'"), "error: pip install '.[data]'\n"),
        (MemoryError(), "error: out of memory: use smaller batches or fewer documents\n"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: 5 bytes\nand the stack"),
            "error: out of memory (DefaultCPUAllocator: can't allocate memory: 5 bytes): "
            "use smaller batches or fewer documents\n",
        ),
    ],
)
def test_mistakes_end_in_a_message_and_status_2(
    raised: BaseException, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading(monkeypatch, raised)
    result = run("stats", "anything")
    assert (result.exit_code, result.stderr, result.stdout) == (2, told, "")


def test_messages_of_the_library_name_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def load_corpus(*_: object, **__: object) -> None:
        hint = f"Give {spelled('text_column', 'a b')} or {spelled('skip_bad_rows', True)}, not {spelled('seed')}"
        raise DataError("bad label", path="seed=1/path=2", hint=hint)

    monkeypatch.setattr("abalone.data.load.load_corpus", load_corpus)
    told = "error: seed=1/path=2: bad label\n  Give --text-column 'a b' or --skip-bad-rows, not seed=\n"
    assert run("stats", "anything").stderr == told  # `stats` has no --seed


def test_other_runtime_errors_are_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    loading(monkeypatch, RuntimeError("shapes do not match"))
    assert isinstance(run("stats", "anything").exception, RuntimeError)


@pytest.mark.filterwarnings("always")
def test_nothing_from_a_file_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    label, file = "\x1b[31mred\x07", tmp_path / "own.jsonl"
    rows = [{"text": "a", "labels": [label], "split": split} for split in ("train", "val", "test")] * 3
    file.write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"text": "b", "labels": [f"{label} too"], "split": "test"}])
    )
    for options in ((), ("--json",), ("--text-column", label), ("--split-column", "x" * 10**5)):
        result = run("stats", file, *options)
        assert not {"\x1b", "\x07"} & set(result.stdout + result.stderr), options
        assert len(result.stderr) < 3000
    assert "\\x1b[31mred\\x07 (3)" in run("stats", file).stdout


def test_a_setting_that_our_code_refuses_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abalone.data.load.load_corpus", lambda *_, **__: Config(epochs=-1))
    result = run("stats", "anything")
    assert (result.exit_code, result.stderr) == (2, "error: epochs must be at least 0, got -1\n")


@pytest.mark.parametrize(
    "bug",
    [
        lambda *_, **__: np.zeros(3).reshape(2),
        lambda *_, **__: gini(np.array(["x"])),  # numpy raises it from a line of ours
    ],
)
def test_a_value_error_of_another_library_is_a_bug(bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abalone.data.load.load_corpus", bug)
    assert isinstance(run("stats", "anything").exception, ValueError)


def load_too_many(*_: object, **__: object) -> None:
    raise InputError("too many")


def load_misread(*_: object, **__: object) -> None:
    raise InputError("too many: " + str(int("x")))


def test_a_mistake_is_told_from_a_conversion_on_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abalone.data.load.load_corpus", load_too_many)
    result = run("stats", "anything")
    assert (result.exit_code, result.stderr) == (2, "error: too many\n")
    assert isinstance(result.exception, SystemExit)
    monkeypatch.setattr("abalone.data.load.load_corpus", load_misread)
    bug = run("stats", "anything").exception
    assert isinstance(bug, ValueError)
    assert not isinstance(bug, InputError)


def test_a_loss_that_refuses_a_setting_is_a_mistake(data: Path, tmp_path: Path) -> None:
    for objective in ("bcee", "msc+ten*bce"):  # of `losses`, which raises ValueError
        result = run("train", data, "-o", tmp_path / "model", "--objective", objective)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: "), result.stderr
        assert objective.partition("*")[0] in result.stderr


def test_bugs_are_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    loading(monkeypatch, ZeroDivisionError())
    assert isinstance(run("stats", "anything").exception, ZeroDivisionError)


def test_interrupted_in_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    loading(monkeypatch, KeyboardInterrupt())
    result = run("stats", "anything")
    assert (result.exit_code, result.stderr.strip()) == (130, "interrupted")


@pytest.mark.skipif(os.name != "posix", reason="signals and named pipes")
def test_ctrl_c_at_a_terminal(tmp_path: Path) -> None:
    pipe = tmp_path / "never.jsonl"
    os.mkfifo(pipe)  # opening it for reading waits until someone writes: the command hangs in the middle of its work
    process = subprocess.Popen([sys.executable, "-m", "abalone", "stats", str(pipe)], stderr=subprocess.PIPE)
    with pipe.open("w"):  # returns once the command has opened it as well
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE)
    assert (process.returncode, told.strip()) == (130, b"interrupted")


@pytest.mark.filterwarnings("always")
def test_warnings_are_one_line(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    from abalone.data import load

    original = load.load_corpus

    def load_corpus(*arguments: object, **options: object) -> object:
        warnings.warn("something\n  to know", stacklevel=2)
        return original(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("abalone.data.load.load_corpus", load_corpus)
    before = warnings.showwarning
    result = run("stats", data)
    assert (result.exit_code, result.stderr) == (0, "warning: something to know\n")
    assert warnings.showwarning is before


def test_wrong_usage_is_status_2() -> None:
    assert run("stats").exit_code == 2
    assert run("stats", "data", "--no-such-option").exit_code == 2
    assert run("no-such-command").exit_code == 2


def test_version() -> None:
    assert run("--version").stdout == f"abalone {__version__}\n"


def test_help_is_quick_and_names_the_commands() -> None:
    script = (
        "import sys; from abalone.cli import app\n"
        "try: app(['--help'])\n"
        "finally: print(sorted({'torch', 'transformers', 'scipy', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "stats" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is no error elsewhere")
@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_fits_the_terminal_and_shows_no_python_types(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for command in ("evaluate", "train", "report", "serve", "export", "reproduce", "stats"):
        shown = run(command, "--help").stdout
        assert max(map(len, shown.splitlines())) <= int(columns)
        assert "…" not in shown  # no name is cut short
        assert not re.search(r"<(bool|str|path|int|list)", shown), command


def test_paragraphs_of_help_break_only_at_the_edge_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("export", "--help").stdout.splitlines()
    first = next(n for n, line in enumerate(lines) if "`abalone predict`, `evaluate`" in line)
    assert all(len(line.rstrip()) > 60 for line in lines[first : first + 3])


def test_a_reader_that_stops_early_is_no_error(data: Path) -> None:
    command = f"{sys.executable} -m abalone stats {data} --json | true"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_terminal_without_unicode(data: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "abalone", "stats", str(data)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert b"####" in done.stdout
    assert done.stdout.isascii()
