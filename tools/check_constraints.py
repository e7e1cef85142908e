"""Check that pip can install the pins of constraints.txt: `python tools/check_constraints.py`, without a network.

An installation of `.[dev]` is resolved for each platform, Python version and build of torch that we support, from
tools/requirements.json: what the wheels of the pins require, as `make constraints` read it from the package index.
"""

import json
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
CONSTRAINTS = ROOT / "constraints.txt"
TABLE = ROOT / "tools" / "requirements.json"
RENEW = "run `make constraints`"

PLATFORMS = {
    "linux-x86_64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"},
    "linux-aarch64": {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "aarch64"},
    "macos-arm64": {"sys_platform": "darwin", "platform_system": "Darwin", "platform_machine": "arm64"},
}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# Local versions of torch: the one of plain PyPI (with CUDA on Linux), and that of an index with CPU builds.
TORCH_BUILDS = {"pypi": "", "cpu": "cpu"}

Table = Mapping[str, Mapping[str, Any]]
parsed = cache(Requirement)  # each line is met once per machine


@dataclass(frozen=True)
class Machine:
    """A platform, a Python version and a build of torch."""

    platform: str
    python: str
    torch: str = "pypi"

    def __str__(self) -> str:
        return f"{self.platform}, Python {self.python}, torch from {self.torch}"

    @property
    def place(self) -> str:
        """Return the name that requirements.json has for this machine's wheels."""
        return f"{self.platform} {self.python}"

    def markers(self, extra: str = "") -> dict[str, str]:
        """Return the environment markers of PEP 508; of a Python version the oldest, which needs most backports."""
        return PLATFORMS[self.platform] | {
            "os_name": "posix",
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_version": "",
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "extra": extra,
        }


def supported_pythons(project: Mapping[str, Any]) -> list[str]:
    """Return the Python versions that the classifiers promise."""
    prefix = "Programming Language :: Python :: 3."
    return ["3." + line.removeprefix(prefix) for line in project["classifiers"] if line.startswith(prefix)]


def machines(project: Mapping[str, Any]) -> Iterator[Machine]:
    """Yield every machine we support."""
    for platform in PLATFORMS:
        for python in supported_pythons(project):
            yield Machine(platform, python)
            if platform.startswith("linux"):  # elsewhere PyPI has CPU builds
                yield Machine(platform, python, "cpu")


def read_pins(text: str) -> dict[str, str]:
    """Return the version of each package in a constraints file.

    >>> read_pins("# why" + chr(10) + "PyYAML==6.0.3")
    {'pyyaml': '6.0.3'}
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {canonicalize_name(name): version for name, version in pairs}


def wanted(project: Mapping[str, Any], extra: str = "dev") -> list[Requirement]:
    """Return what `.[extra]` requires, our own extras within it spelled out."""
    found = [Requirement(line) for line in project["dependencies"]]
    extras = [extra]
    for name in extras:
        for line in project["optional-dependencies"][name]:
            requirement = Requirement(line)
            if requirement.name == project["name"]:
                extras += sorted(requirement.extras - set(extras))
            else:
                found.append(requirement)
    return found


def build_for(machine: Machine, name: str, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the record of the wheel that pip would take, or None where there is none."""
    local = TORCH_BUILDS[machine.torch] if name == "torch" else ""
    builds = [build for build in record["builds"] if build["local"] == local]
    # An index of CPU builds has them for every Linux; the metadata of one is known, and its markers tell the rest.
    covered = [build for build in builds if local or build["wheels"] == "all" or machine.place in build["wheels"]]
    return covered[0] if covered else None


def walk(machine: Machine, requirements: list[Requirement], table: Table) -> Iterator[tuple[str, Requirement]]:
    """Yield each requirement that holds on a machine, with the name of the package it comes from."""
    queue = [("abalone-mltc", requirement, "") for requirement in requirements]
    seen = set()
    for parent, requirement, extra in queue:
        if requirement.marker is not None and not requirement.marker.evaluate(machine.markers(extra)):
            continue
        yield parent, requirement
        name = canonicalize_name(requirement.name)
        build = build_for(machine, name, table[name]) if name in table else None
        for needed in ("", *sorted(requirement.extras)):
            if build is not None and (name, needed) not in seen:
                seen.add((name, needed))
                queue += [(name, parsed(line), needed) for line in build["requires"]]


def resolve(
    machine: Machine, requirements: list[Requirement], pins: Mapping[str, str], table: Table
) -> tuple[dict[str, str], list[str]]:
    """Return the versions that pip would install on a machine, and what is wrong with them."""
    chosen: dict[str, str] = {}
    problems: list[str] = []
    free: dict[str, str] = {}  # without a pin: who wants it
    fixed: set[str] = set()  # some requirement leaves no choice
    for parent, requirement in walk(machine, requirements, table):
        name = canonicalize_name(requirement.name)
        who = f"{parent} wants {requirement.name}{requirement.specifier}"
        if name not in table and name not in pins:
            problems.append(f"{who}: no pin")
            continue
        version = chosen[name] = pins[name] if name in pins else table[name]["version"]
        if name not in table:
            problems.append(f"{who}: not recorded; {RENEW}")
            continue
        if name not in pins:
            free.setdefault(name, who)
        if any(spec.operator == "==" for spec in requirement.specifier):
            fixed.add(name)
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{who}: {'pinned' if name in pins else 'recorded'} is {version}")
        build = build_for(machine, name, table[name])
        if build is None:
            problems.append(f"{name} {version} has no wheel")
        elif not SpecifierSet(build["requires-python"]).contains(f"{machine.python}.0"):
            problems.append(f"{name} {version} requires Python {build['requires-python']}")
    problems += [f"{who}: no pin, and no == fixes its version" for name, who in free.items() if name not in fixed]
    return chosen, list(dict.fromkeys(problems))


def problems_of(project: Mapping[str, Any], pins: Mapping[str, str], table: Table) -> list[str]:
    """Return what keeps pip from installing the pins on the machines we support, one line per problem."""
    stale = [
        f"{name}: pinned is {version}, recorded are the requirements of {table[name]['version']}; {RENEW}"
        for name, version in pins.items()
        if name in table and table[name]["version"] != version
    ]
    requirements = wanted(project)
    found: dict[str, list[str]] = {}
    installed: set[str] = set()
    for machine in machines(project):
        chosen, problems = resolve(machine, requirements, pins, table)
        installed |= set(chosen)
        for problem in problems:
            found.setdefault(problem, []).append(str(machine))
    conflicts = [
        f"{problem} ({where[0]}{f', and {len(where) - 1} more' if where[1:] else ''})"
        for problem, where in found.items()
    ]
    unused = [f"{name}: pinned, but nothing requires it; remove the pin" for name in pins if name not in installed]
    return stale + conflicts + unused


def main() -> None:
    """Print the problems and fail, or say what was resolved."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    pins = read_pins(CONSTRAINTS.read_text(encoding="utf-8"))
    problems = problems_of(project, pins, json.loads(TABLE.read_text(encoding="utf-8")))
    if problems:
        sys.exit("\n".join(f"constraints.txt: {problem}" for problem in problems))
    print(f"constraints.txt: {len(pins)} pins resolve on {len(list(machines(project)))} kinds of machine")


if __name__ == "__main__":
    main()
