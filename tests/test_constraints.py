"""The pins install: on every platform, Python version and build of torch we support, from the wheels' own metadata."""

import json
import tomllib
import zipfile
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture(scope="module")
def tools():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        yield


@pytest.fixture(scope="module")
def check(tools):
    import check_constraints

    return check_constraints


@pytest.fixture(scope="module")
def ours(check):
    return (
        tomllib.loads(check.PROJECT.read_text(encoding="utf-8"))["project"],
        check.read_pins(check.CONSTRAINTS.read_text(encoding="utf-8")),
        json.loads(check.TABLE.read_text(encoding="utf-8")),
    )


def test_pins_resolve_on_every_machine(check, ours):
    assert check.problems_of(*ours) == []


def test_triton_other_than_torch_wants_is_told(check, ours):
    project, pins, table = ours
    table = {**table, "triton": {**table["triton"], "version": "3.9.0"}}
    (problem,) = check.problems_of(project, {**pins, "triton": "3.9.0"}, table)
    assert problem.startswith("torch wants triton==3.7.1: pinned is 3.9.0 (linux-x86_64, Python 3.11, torch from pypi")


@pytest.mark.parametrize(("platform", "torch", "cuda"), [
    ("linux-x86_64", "pypi", True),
    ("linux-aarch64", "pypi", True),
    ("linux-x86_64", "cpu", False),
    ("macos-arm64", "pypi", False),
])  # fmt: skip
def test_only_cuda_builds_of_torch_bring_triton_and_nvidia_libraries(check, ours, platform, torch, cuda):
    project, pins, table = ours
    chosen, problems = check.resolve(check.Machine(platform, "3.12", torch), check.wanted(project), pins, table)
    assert problems == []
    assert chosen["torch"] == pins["torch"]
    assert ("triton" in chosen) == cuda
    assert any(name.startswith("nvidia-") for name in chosen) == cuda


def wheel(version, *requires, python="", wheels="all"):
    build = {"local": "", "wheels": wheels, "requires-python": python, "requires": list(requires)}
    return {"version": version, "builds": [build]}


@pytest.mark.parametrize(
    ("pins", "table", "problem"),
    [
        ({"a": "2"}, {"a": wheel("2")}, "abalone-mltc wants a<2: pinned is 2"),
        ({"a": "1"}, {"a": wheel("1", "b")}, "a wants b: no pin"),
        ({"a": "1"}, {"a": wheel("1", "b>=1"), "b": wheel("3")}, "a wants b>=1: no pin, and no == fixes its version"),
        ({"a": "1"}, {"a": wheel("1", "b==1"), "b": wheel("3")}, "a wants b==1: recorded is 3"),
        ({"a": "1", "b": "1"}, {"a": wheel("1", "b")}, "a wants b: not recorded; run `make constraints`"),
        ({"a": "1"}, {"a": wheel("1", wheels=["linux-x86_64 3.11"])}, "a 1 has no wheel"),
        ({"a": "1"}, {"a": wheel("1", python="<3.12")}, "a 1 requires Python <3.12"),
        (
            {"a": "1"},
            {"a": wheel("0.9")},
            "a: pinned is 1, recorded are the requirements of 0.9; run",
        ),
        ({"a": "1", "c": "1"}, {"a": wheel("1"), "c": wheel("1")}, "c: pinned, but nothing requires it"),
    ],
)
def test_what_keeps_pip_from_installing_is_named(check, pins, table, problem):
    project = {
        "name": "abalone-mltc",
        "classifiers": ["Programming Language :: Python :: 3.12"],
        "dependencies": ["a<2"],
        "optional-dependencies": {"dev": []},
    }
    (found,) = check.problems_of(project, pins, table)
    assert found.startswith(problem)


def test_requirements_of_other_platforms_and_extras_do_not_count(check):
    requires = ["b; sys_platform == 'win32'", "c; extra == 'more'", "d; python_version < '3.11'"]
    machine = check.Machine("linux-x86_64", "3.12")
    plain = [check.Requirement("a")]
    assert check.resolve(machine, plain, {"a": "1"}, {"a": wheel("1", *requires)}) == ({"a": "1"}, [])
    _, problems = check.resolve(machine, [check.Requirement("a[more]")], {"a": "1"}, {"a": wheel("1", *requires)})
    assert problems == ["a wants c: no pin"]


def save_wheel(folder, name, tags, *lines):
    version = name.partition("-")[2]
    file = folder / f"{name}-{tags}.whl"
    with zipfile.ZipFile(file, "w") as archive:
        metadata = "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines, "", "Text."])
        archive.writestr(f"{name.partition('+')[0]}.dist-info/METADATA", metadata)
    return file


def test_requirements_are_recorded_by_build_from_the_index_that_pip_knows(tools, tmp_path, monkeypatch):
    import record_requirements
    from packaging.specifiers import SpecifierSet

    files = [
        save_wheel(tmp_path, "a-0.9", "py3-none-any", "Requires-Dist: old"),
        save_wheel(tmp_path, "a-1.0", "cp312-cp312-manylinux_2_28_x86_64", "Requires-Dist: b", "Requires-Dist: b"),
        save_wheel(tmp_path, "a-1.0", "cp312-cp312-win_amd64", "Requires-Dist: windows"),
        save_wheel(tmp_path, "a-1.0", "py3-none-any", "Requires-Python: >=3.9", "Requires-Dist: c>=1"),
    ]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "index.html").write_text("".join(f'<a href="../{file.name}#sha256=0">' for file in files))
    (tmp_path / "cpu").mkdir()
    save_wheel(tmp_path / "cpu", "a-1.0+cpu", "cp311-cp311-linux_x86_64")
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "cpu"))
    found = record_requirements.record("a", SpecifierSet("<2"))
    assert found["version"] == "1.0"
    pure, compiled, cpu = sorted(found["builds"], key=lambda build: (build["local"], -len(build["wheels"])))
    assert (pure["requires-python"], pure["requires"], len(pure["wheels"])) == (">=3.9", ["c>=1"], 11)
    assert (compiled["requires"], compiled["wheels"]) == (["b"], ["linux-x86_64 3.12"])
    assert (cpu["local"], cpu["requires"], cpu["wheels"]) == ("cpu", [], ["linux-x86_64 3.11"])
