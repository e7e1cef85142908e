"""Record what the wheels of the pins require: `make constraints` writes tools/requirements.json.

The metadata is read from the wheels on the package index that pip is configured to use, a few kilobytes of each; a
version that is recorded already is not read again (delete the table to read all). torch's CPU build comes from another
index or folder of wheels, which pip must be told of: PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS.
"""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import url2pathname

from check_constraints import (
    CONSTRAINTS,
    PLATFORMS,
    PROJECT,
    PYTHONS,
    TABLE,
    TORCH_BUILDS,
    Machine,
    Table,
    machines,
    problems_of,
    read_pins,
    walk,
    wanted,
)
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

GLIBC = 39  # minor version of the newest Linux that we ask wheels for: Ubuntu 24.04
MACOS = (15, 0)
PLACES = [Machine(platform, python) for platform in PLATFORMS for python in PYTHONS]


class Remote(io.RawIOBase):
    """Read a file on a server by ranges, so that only the needed parts travel."""

    def __init__(self, url: str) -> None:
        self.url, self.position = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
            self.size = int(answer.headers["Content-Length"])

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move, as a file does."""
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer from the position on."""
        last = min(self.position + len(buffer), self.size) - 1
        if last < self.position:
            return 0
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={self.position}-{last}"})
        with urllib.request.urlopen(request) as answer:
            if answer.status != 206:
                raise OSError(f"{self.url}: the server sends no part of a file, only the whole")
            part = answer.read()
        buffer[: len(part)] = part
        self.position += len(part)
        return len(part)


@cache
def pip_setting(name: str) -> list[str]:
    """Return the words of a setting of pip, from the environment or its files."""
    from_environment = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if from_environment is not None:
        return from_environment.split()
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", f"global.{name}"], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@cache
def indexes() -> list[str]:
    """Return the package indexes that pip asks."""
    main = pip_setting("index-url")
    if not main:
        from pip._internal.models.index import PyPI

        main = [PyPI.simple_url]
    return main + pip_setting("extra-index-url")


def wheels_of(name: str) -> dict[str, str]:
    """Return where the wheels of a package are, by file name."""
    found: dict[str, str] = {}
    for folder in pip_setting("find-links"):
        if Path(folder).is_dir():
            found |= {path.name: path.absolute().as_uri() for path in Path(folder).glob("*.whl")}
    for index in reversed(indexes()):  # the first index wins
        page = f"{index.rstrip('/')}/{name}/" + ("index.html" if index.startswith("file:") else "")
        try:
            with urllib.request.urlopen(page) as answer:
                text = answer.read().decode()
        except OSError as error:
            if index == indexes()[0]:
                raise OSError(f"{page}: {error}") from error
            continue
        links = (urldefrag(urljoin(page, unescape(link))).url for link in re.findall(r'href="([^"]+)"', text))
        found |= {unquote(link.rsplit("/", 1)[1]): link for link in links if link.endswith(".whl")}
    return found


@cache
def tag_ranks(machine: Machine) -> dict[Tag, int]:
    """Return the tags of the wheels that a machine takes, from 0 for the best."""
    major, minor = map(int, machine.python.split("."))
    kind = machine.platform.partition("-")[2]
    if machine.platform.startswith("macos"):
        platforms = list(mac_platforms(MACOS, kind))
    else:
        legacy = {17: "2014", 12: "2010", 5: "1"}
        platforms = []
        for glibc in range(GLIBC, 4, -1):
            platforms += [f"manylinux_2_{glibc}_{kind}"]
            platforms += [f"manylinux{legacy[glibc]}_{kind}"] if glibc in legacy else []
        platforms += [f"linux_{kind}"]
    version = (major, minor)
    tags = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, interpreter=f"cp{major}{minor}", platforms=platforms),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


def read_metadata(url: str) -> tuple[str, tuple[str, ...]]:
    """Return the Python versions and the packages that a wheel requires."""
    local = url.startswith("file:")
    with zipfile.ZipFile(
        url2pathname(urlsplit(url).path) if local else io.BufferedReader(Remote(url), 1 << 16)
    ) as wheel:
        (name,) = (name for name in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        headers = HeaderParser().parsestr(wheel.read(name).decode())
    # torch's wheels for macOS name Triton several times
    return headers["Requires-Python"] or "", tuple(dict.fromkeys(headers.get_all("Requires-Dist", [])))


def record(name: str, allowed: SpecifierSet) -> dict[str, Any]:
    """Return what the wheels of a package require, those of the newest version that is allowed."""
    files: dict[Version, list[tuple[str, frozenset[Tag]]]] = {}
    for file, url in wheels_of(name).items():
        try:
            distribution, version, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:  # of old releases
            continue
        if distribution == name and version in allowed:
            files.setdefault(version, []).append((url, tags))
    newest = max(files, default=Version("0")).public
    builds: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for version, wheels in sorted(files.items()):
        if version.public != newest:
            continue
        read: dict[str, tuple[str, tuple[str, ...]]] = {}
        for machine in PLACES:
            ranks = tag_ranks(machine)
            fitting = [
                (min(ranks[tag] for tag in tags if tag in ranks), url) for url, tags in wheels if tags & ranks.keys()
            ]
            if fitting:
                _, url = min(fitting)
                read[url] = read.get(url) or read_metadata(url)
                builds.setdefault((version.local or "", *read[url]), []).append(machine.place)
    if not builds:
        raise LookupError(f"{name}{allowed}: the index has no wheel for any platform that we support")
    return {
        "version": newest,
        "builds": [
            {
                "local": local,
                "wheels": "all" if len(places) == len(PLACES) else places,
                "requires-python": python,
                "requires": list(requires),
            }
            for (local, python, requires), places in builds.items()
        ],
    }


def specifiers(project: Mapping[str, Any], table: Table) -> dict[str, SpecifierSet]:
    """Return the versions of each package that all who want it allow, on all machines."""
    allowed: dict[str, SpecifierSet] = {}
    for machine in machines(project):
        for _, requirement in walk(machine, wanted(project), table):
            name = canonicalize_name(requirement.name)
            allowed[name] = allowed.get(name, SpecifierSet()) & requirement.specifier
    return allowed


def main() -> None:
    """Renew the table."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    pins = read_pins(CONSTRAINTS.read_text(encoding="utf-8"))
    pinned = {name: SpecifierSet(f"=={version}") for name, version in pins.items()}
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    allowed = specifiers(project, table) | pinned
    with ThreadPoolExecutor(16) as pool:
        # Reading the wheels of one package shows which others it wants.
        while missing := [name for name in allowed if name not in table or table[name]["version"] not in allowed[name]]:
            table |= zip(missing, pool.map(record, missing, [allowed[name] for name in missing]), strict=True)
            allowed = specifiers(project, table) | pinned
    if {build["local"] for build in table["torch"]["builds"]} != set(TORCH_BUILDS.values()):
        sys.exit("torch's CPU build was not found: set PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to where its wheels are")
    table = {name: table[name] for name in sorted(allowed)}
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{TABLE.name}: what {len(table)} packages require")
    if problems := problems_of(project, pins, table):
        sys.exit("\n".join(f"constraints.txt: {problem}" for problem in problems))


if __name__ == "__main__":
    main()
