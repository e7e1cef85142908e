"""The pins install: on every platform, Python version and build of torch we support, from the wheels' own metadata."""

import importlib.util
import json
import sys
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "check_constraints.py"


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check_constraints", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_constraints"] = module  # a dataclass asks for its module by name
    spec.loader.exec_module(module)
    yield module
    del sys.modules["check_constraints"]


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
