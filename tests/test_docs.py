"""The Python of the README and of the docs runs as it stands. (Blocks marked `py` need files that nobody bundles.)"""

import json
import re
from pathlib import Path

import pytest

import tiny

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks():
    for page in PAGES:
        for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
            indent, code = match.groups()
            yield pytest.param(re.sub(rf"^{indent}", "", code, flags=re.MULTILINE), id=f"{page.name} {number + 1}")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What a reader of the page has at hand: own texts and labels, and here a small encoder by the default's name."""
    import abalone.model.encoder
    from abalone.losses import comparison, contrastive, kernel

    folder = tiny.save_encoder(tmp_path / "encoder")
    monkeypatch.setattr(abalone.model.encoder, "packaged_encoder", lambda name: folder)
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    texts, matrix = tiny.corpus(120)
    labels = [[f"topic {j}" for j in row.nonzero()[0]] for row in matrix.toarray()]
    rows = [{"text": text, "labels": given} for text, given in zip(texts, labels, strict=True)]
    (tmp_path / "papers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    helpers = {**vars(comparison), **vars(contrastive), **vars(kernel)}
    return {**helpers, "texts": texts, "labels": labels, "test_texts": texts[:20], "test_labels": labels[:20]}


def test_there_are_examples():
    assert len(list(blocks())) >= 4


@pytest.mark.parametrize("code", list(blocks()))
@pytest.mark.filterwarnings("ignore:.*reads at most 64 tokens", "ignore:.*does not beat tf-idf alone")
def test_an_example_runs(code, names):
    exec(compile(code, "example", "exec"), names)
