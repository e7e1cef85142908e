"""The README and the docs are true: their Python runs, their commands exist, their links lead somewhere.

Blocks marked `python` run from the top of a page to its end; those marked `py` need files that nobody bundles.
"""

import ast
import doctest
import json
import re
from pathlib import Path

import pytest
import typer.main

import tiny

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "abalone"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks(page, *kinds):
    """Line and code of each block of these kinds."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        indent, kind, code = match.groups()
        if kind in kinds:
            yield text.count("\n", 0, match.start()) + 1, re.sub(rf"^{indent}", "", code, flags=re.MULTILINE)


def run_page(page, names):
    for line, code in blocks(page, "python"):
        exec(compile("\n" * line + code, str(page), "exec"), names)  # an error then names the line of the page


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What a reader of the page has at hand: own texts and labels, and here a small encoder by the default's name."""
    import abalone.encoder.load
    from abalone.losses import LOSSES

    folder = tiny.save_encoder(tmp_path / "encoder")
    monkeypatch.setattr(abalone.encoder.load, "packaged_encoder", lambda name: folder)
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    texts, matrix = tiny.corpus(120)
    labels = [[f"topic {j}" for j in row.nonzero()[0]] for row in matrix.toarray()]
    rows = [{"text": text, "labels": given} for text, given in zip(texts, labels, strict=True)]
    (tmp_path / "papers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    known = dict(LOSSES)
    yield {"texts": texts, "labels": labels, "test_texts": texts[:20], "test_labels": labels[:20]}
    LOSSES.clear()  # a page may have added one
    LOSSES.update(known)


def test_there_are_examples():
    assert sum(len(list(blocks(page, "python"))) for page in PAGES) >= 10


@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page, "python"))], ids=lambda page: page.name)
@pytest.mark.filterwarnings(
    "ignore:.*reads at most 64 tokens", "ignore:.*(does not beat tf-idf|adds nothing to words) alone"
)
def test_a_page_runs(page, names):
    run_page(page, names)


@pytest.mark.filterwarnings("ignore:.*reads at most 64 tokens")
def test_the_loss_that_is_added_equals_its_reference(names, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "losses")
    from cases import awkward, sets
    from reference import cosine, log_sum_exp

    def queue_lists(case):
        return ((), ()) if case.queue is None else (case.queue[0].tolist(), sets(case.queue[1]))

    names |= {"cosine": cosine, "log_sum_exp": log_sum_exp, "sets": sets, "queue_lists": queue_lists}
    run_page(ROOT / "docs" / "adding-a-loss.md", names)
    ((ours, expected),) = names["PAIRS"].values()
    for case in awkward().values():
        assert ours(case).item() == pytest.approx(expected(case), rel=1e-6, abs=1e-12)
    example = doctest.DocTestParser().get_doctest(names["AnySharedLoss"].__doc__, names, "AnySharedLoss", None, 0)
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


# What each command line of the docs may say.


@pytest.fixture(scope="module")
def commands():
    """The options of each command, by its name."""
    from abalone.cli import app

    group = typer.main.get_command(app)
    return {
        name: {"--help"}
        | {word for parameter in command.params for word in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


def test_there_is_a_section_for_every_command(commands):
    titles = re.findall(r"^## (.+)$", (ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(titles) == set(commands)


def test_options_in_a_commands_section_are_its_own(commands):
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for title, section in re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE):
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", section))
        assert named, title
        assert named <= commands[title], f"{title}: {named - commands[title]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_examples_exist(page, commands):
    for line, code in blocks(page, "bash", "console", ""):
        for name, rest in re.findall(r"(?:^|[|$;] ?|^\$ )abalone ([a-z]+)([^|\n#]*)", code, re.MULTILINE):
            assert name in commands, f"{page.name}:{line}: abalone {name}"
            unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", rest)) - commands[name]
            assert not unknown, f"{page.name}:{line}: abalone {name} {unknown}"


# Links.


def anchors(page):
    """What GitHub makes of the page's headings."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"(?:\]\(|src=\")([^)\s\"]+)", text):
        if re.match(r"https?:", target):
            continue
        path, _, anchor = target.partition("#")
        place = page.parent / path if path else page
        assert place.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(place), f"{page.name}: {target}"


# Which way imports go, as docs/architecture.md says.

LAYERS = [
    {"config", "recipes", "device", "distributed", "errors", "launch", "progress"},
    {"files"},
    {"data"},
    {"losses"},
    {"evaluation"},
    {"encoder"},
    {"inference"},
    {"training"},
    {"classifier"},
    {"report"},
    {"serving"},
    {"reproduce"},
    {"cli", "demo", "__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
BRIDGE = Path("losses/sentence_transformers.py")  # stands on `encoder`, and nothing stands on it


def imported(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("abalone."):
            yield node.module.split(".")[1]


def test_imports_go_one_way():
    wrong = []
    for file in SOURCE.rglob("*.py"):
        relative = file.relative_to(SOURCE)
        package = relative.parts[0].removesuffix(".py")
        if relative == BRIDGE or package == "__init__":
            continue
        allowed = {"losses"} if package == "losses" else {name for name in RANK if RANK[name] <= RANK[package]}
        wrong += [f"{relative} imports {name}" for name in sorted(set(imported(file)) - allowed)]
    assert wrong == []


def test_nothing_stands_on_the_bridge():
    name = "abalone.losses.sentence_transformers"
    assert [file for file in SOURCE.rglob("*.py") if name in file.read_text(encoding="utf-8")] == []


def test_only_its_command_imports_reproduce():
    own = {*(SOURCE / "reproduce").rglob("*.py"), SOURCE / "cli" / "reproduce.py"}
    wrong = [file for file in set(SOURCE.rglob("*.py")) - own if "abalone.reproduce" in file.read_text("utf-8")]
    assert wrong == []
