"""What we import is declared, the package's page has no broken links, and the sdist holds what its tests read."""

import ast
import importlib.util
import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DISTRIBUTIONS = {
    "mlflow": "mlflow-skinny", "opentelemetry": "opentelemetry-api", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip
UNDECLARED = {"triton"}  # comes with the builds of torch that can use it


def imported(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.partition(".")[0]


def test_every_import_is_a_declared_dependency():
    lines = PROJECT["dependencies"] + [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    known = sys.stdlib_module_names | UNDECLARED | {"abalone"}
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in (ROOT / "src" / "abalone").rglob("*.py")
        for name in set(imported(file)) - known
        if canonicalize_name(DISTRIBUTIONS.get(name, name)) not in declared
    }
    assert missing == set()


@pytest.fixture(scope="module")
def package_page():
    spec = importlib.util.spec_from_file_location("package_page", ROOT / "tools" / "package_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.package_page


def targets(page):
    return re.findall(r"(?:\]\(|(?:src|srcset|href)=\")([^)\s\"]+)", page)


@pytest.mark.parametrize("repository", [None, "https://example.org/abalone"])
def test_page_of_the_package_has_no_relative_links(package_page, repository):
    assert any(not target.startswith("https:") for target in targets(README))
    page = package_page(README, repository)
    assert [target for target in targets(page) if not target.startswith(("https:", "#"))] == []
    assert re.findall(r"^#+ .*", page, re.MULTILINE) == re.findall(r"^#+ .*", README, re.MULTILINE)
    assert len(targets(page)) == (0 if repository is None else len(targets(README)))


PASSAGE = """One.

<img src="docs/a.png" width="640" alt="A (small) picture">

*Above, a; below,
b.*

*Two* and [three](docs/three.md#four), [docs/five.md](docs/five.md), [six](https://example.org/6).
![b](docs/b.png)
"""


def test_page_without_a_repository_names_files_and_has_no_pictures(package_page):
    start, _, note = package_page(PASSAGE).partition("\n\nFile names")
    assert start == "One.\n\n*Two* and three (`docs/three.md`), `docs/five.md`, [six](https://example.org/6)."
    assert note


def test_page_with_a_repository_links_to_it(package_page):
    page = package_page(PASSAGE, "https://r.org")
    assert targets(page) == [
        "https://r.org/raw/HEAD/docs/a.png",
        "https://r.org/blob/HEAD/docs/three.md#four",
        "https://r.org/blob/HEAD/docs/five.md",
        "https://example.org/6",
        "https://r.org/raw/HEAD/docs/b.png",
    ]
    assert "*Above, a; below,\nb.*" in page


def test_sdist_holds_what_its_tests_read():
    patterns = [*SETTINGS["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "/pyproject.toml"]
    path = re.compile(r'(?:ROOT|parents\[\d\]) / "([^"/]+)"')
    files = [file for folder in ROOT.glob("tests*") for file in folder.rglob("*.py")]
    read = {name for file in files for name in path.findall(file.read_text(encoding="utf-8"))} - {"build"}
    assert {"CONTRIBUTING.md", "docs", "tools"} <= read
    assert {name for name in read if not any(fnmatch(f"/{name}", pattern) for pattern in patterns)} == set()
