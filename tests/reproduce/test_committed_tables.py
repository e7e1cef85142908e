"""The tables under docs/results are what the commands beside them make of the stored results."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from abalone.cli import app

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"


def documented_commands() -> dict[str, list[str]]:
    """The arguments of each `abalone reproduce` in docs/results/README.md, by the folder it writes to."""
    page = (RESULTS / "README.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (rows,) = re.findall(r"^ROWS='(.+)'$", page, re.MULTILINE)
    commands = [shlex.split(line.replace("$ROWS", rows)) for line in re.findall("^abalone reproduce .+", page, re.M)]
    return {Path(words[words.index("--output") + 1]).name: words[1:] for words in commands}


def test_every_folder_of_the_papers_tables_has_its_command():
    assert set(documented_commands()) == {file.parent.name for file in RESULTS.glob("*/results.jsonl")}


@pytest.mark.parametrize("name", sorted(documented_commands()))
def test_stored_results_give_the_committed_tables_byte_for_byte(name, tmp_path, monkeypatch):
    for file in ("results.jsonl", "corpus.json"):
        shutil.copy(RESULTS / name / file, tmp_path)
    words = documented_commands()[name]
    words[words.index("--output") + 1] = str(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*words, "--print-only"])
    assert result.exit_code == 0, result.output
    made = {file.name: file.read_bytes() for file in tmp_path.glob("*.md")}
    committed = {file.name: file.read_bytes() for file in (RESULTS / name).glob("*.md")}
    assert made.keys() == committed.keys()
    assert [file for file in made if made[file] != committed[file]] == []
