"""Runs of the tests on a tree with a bug, in processes with a limit of CPU time; and the functions that tests call."""

import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from tempfile import mkdtemp
from types import FrameType
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "mutants"
PACKAGES = ("losses", "training", "evaluation", "files", "data", "inference", "serving")
# What only a GPU runs, or Triton's interpreter (`make test-kernels`).
LEFT_OUT = ("kernels.py", "encoder/fast/graph.py")
# Seconds of CPU time, which does not depend on what else the machine does: of all tests of a mutant; and of one test,
# beside a multiple of what it takes without a bug.
ENOUGH, LIMIT, SLOWER = 40, 15, 5
# Seconds of the clock in which all of a mutant's processes need hardly any CPU time, in ticks: it waits for what never
# comes, and looks now and then whether it has.
STUCK, HARDLY_ANY = 60, 300

Piece = TypeVar("Piece")
Calls = dict[str, list[int]]  # by file, the first lines of functions


@dataclass(frozen=True)
class Test:
    """The CPU seconds of a test, and the functions it calls."""

    name: str
    seconds: float
    calls: Calls

    @property
    def file(self) -> str:
        """Return the file it is in."""
        return self.name.partition("::")[0]


class Recorder:
    """A plugin of pytest that records the `Test`s that pass."""

    def __init__(self, root: Path) -> None:
        self.root, self.found, self.failed = f"{root}/", list[Test](), set[str]()
        self._calls = set[tuple[str, int]]()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run a test and record the functions it enters."""
        allow(40 * LIMIT)
        self._calls.clear()
        before = sum(os.times()[:4])
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            calls: Calls = {}
            for file, line in sorted(self._calls):
                if file.startswith(f"{self.root}src/"):
                    calls.setdefault(file.removeprefix(self.root), []).append(line)
            if item.nodeid not in self.failed:
                self.found.append(Test(item.nodeid, round(sum(os.times()[:4]) - before, 2), calls))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out tests that fail without a bug."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        self._calls.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))


class Limits:
    """A plugin of pytest that ends the process where a test takes much more CPU time than it should."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = seconds

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Extend the limit before each test."""
        allow(LIMIT + SLOWER * self.seconds.get(item.nodeid, LIMIT))


def allow(seconds: float) -> None:
    """End this process if it takes so much more CPU time."""
    limit = int(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


class Tree:
    """A copy of the tree, in which tests run in processes of their own, one at a time."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root.with_suffix(".log")
        self.scratch = Path(mkdtemp(prefix="abalone-mutants-"))
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
        shutil.rmtree(root, ignore_errors=True)
        for file in filter(None, files):
            if (ROOT / file).is_file():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, root / file)
        self.pid, self._used, self._seen = 0, 0.0, 0.0
        self._further: tuple[Sequence[str], object] | None = None

    def start(
        self,
        arguments: Sequence[str],
        plugin: object,
        after: Callable[[], object] = lambda: None,
        further: Sequence[str] = (),
    ) -> None:
        """Run pytest, and then, if all is well, again with `further` arguments.

        The process has the large libraries already, but nothing of ours.
        """
        self._further = (further, plugin) if further else None
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        self._used, self._seen = 0.0, time.monotonic()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            return
        code: int = pytest.ExitCode.INTERNAL_ERROR
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.chdir(self.root)
            log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
                os.dup2(file, stream)
            os.environ |= {
                "PYTHONPATH": str(self.root / "src"),  # of processes that tests start
                "TMPDIR": str(self.scratch),
                "HYPOTHESIS_STORAGE_DIRECTORY": str(self.scratch / "hypothesis"),
            }
            sys.path[:0] = [str(self.root / "src")]
            allow(4 * LIMIT)  # until the first test
            options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=no", "--assert=plain", "-m", "not slow"]
            code = pytest.main([*options, "--hypothesis-seed=0", *arguments], plugins=[plugin])
            after()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def outcome(self) -> str | None:
        """Return None while the tests run, then `survived`, or the failure or limit that ended them."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        processes = dict(_processes(self.pid))
        if not pid:
            used = sum(processes.values())
            if used - self._used > HARDLY_ANY:
                self._used, self._seen = used, time.monotonic()
            if time.monotonic() - self._seen < STUCK:
                return None
            self.stop()
            return "waits without end"
        _end(processes)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return "takes too long" if number == signal.SIGXCPU else str(signal.strsignal(number))
        code = os.waitstatus_to_exitcode(status)
        if code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            if self._further is None:
                return "survived"
            self.start(*self._further)
            return None
        said = self.log.read_text(encoding="utf-8", errors="replace")
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
        return failed[1] if failed else f"exit status {code}"

    def stop(self) -> None:
        """Kill the processes that still run here."""
        _end({self.pid, *dict(_processes(self.pid))})
        os.waitpid(self.pid, 0)

    def remove(self) -> None:
        """Remove the copy."""
        for folder in (self.root, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)

    def plant(self, file: str, content: bytes) -> None:
        """Write a module, and remove the stale bytecode."""
        (self.root / file).write_bytes(content)
        Path(cache_from_source(str(self.root / file))).unlink(missing_ok=True)


def _processes(session: int) -> Iterator[tuple[int, float]]:
    """Yield the running processes of a session, and the CPU time of each with its children, in ticks."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            yield int(path.parent.name), sum(map(float, fields[11:15]))


def _end(processes: Iterable[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


@dataclass(frozen=True)
class Tests:
    """All tests that pass, and the functions they call."""

    tests: Sequence[Test]

    @classmethod
    def recorded(cls, trees: Sequence[Tree]) -> "Tests":
        """Read the records of the test files, and run those without a record."""
        path = WORK / "tests.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        sources = hashlib.sha256(b"".join(file.read_bytes() for file in sorted((ROOT / "src").rglob("*.py"))))
        keys = {}
        for file in _test_files():
            digest = sources.copy()
            digest.update((ROOT / file).read_bytes())
            keys[file] = f"{file} {digest.hexdigest()[:16]}"
        waiting = [file for file, key in keys.items() if key not in known]
        for tree, file, _ in run_all(trees, waiting, _record):
            written = tree.scratch / "found.json"
            if not written.exists():
                raise RuntimeError(f"{file} cannot be run without any bug: see {tree.log}")
            found = json.loads(written.read_text())
            known[keys[file]] = found
            print(f"{file}: {len(found)} tests, {sum(test[1] for test in found):.1f} s", flush=True)
            path.write_text(json.dumps(known))
        path.write_text(json.dumps({key: known[key] for key in keys.values()}))
        return cls([Test(*test) for key in keys.values() for test in known[key]])

    def limits(self) -> Limits:
        """Return the plugin for what each test takes."""
        return Limits({test.name: test.seconds for test in self.tests})

    def of(self, file: str, function: int | None) -> list[str]:
        """Return the tests that run a function, or anything of a module; those of its own file of tests first."""
        module = Path(file)
        own = {file, f"tests/{module.parent.name}/test_{module.stem}.py", f"tests/data/test_{module.stem}.py"}
        found = [
            test for test in self.tests
            if file in test.calls and (function is None or function in test.calls[file])
        ]  # fmt: skip
        if not found or function is None:  # what a process calls that a test starts is not recorded
            dotted = ".".join(module.with_suffix("").parts[1:])
            near = own | {name for name in {test.file for test in self.tests} if dotted in (ROOT / name).read_text()}
            found += [test for test in self.tests if test.file in near and test not in found]
        files = {test.file: 0.0 for test in found}
        for test in found:
            files[test.file] += test.seconds
        left, kept = float(ENOUGH), list[str]()
        for test in sorted(found, key=lambda test: (test.file not in own, test.seconds)):
            if test.seconds <= left or not kept:
                left -= test.seconds
                kept.append(test.name)
        order = {test.name: (test.file not in own, files[test.file], test.file) for test in found}
        return sorted(kept, key=order.__getitem__) or [file]  # in which there are no tests


def _test_files() -> list[str]:
    """Return files of tests, and modules with examples in their docstrings."""
    of_packages = [path for package in PACKAGES for path in sorted((ROOT / "tests" / package).glob("test_*.py"))]
    above = [path for path in (ROOT / "tests" / f"test_{module.stem}.py" for module in modules()) if path.exists()]
    examples = [path for path in modules() if ">>> " in path.read_text()]
    return [path.relative_to(ROOT).as_posix() for path in (*of_packages, *above, *examples)]


def modules() -> list[Path]:
    """Return the modules in which bugs are planted."""
    found = [path for package in PACKAGES for path in sorted((ROOT / "src" / "abalone" / package).rglob("*.py"))]
    return [path for path in found if not path.as_posix().endswith(LEFT_OUT)]


def _record(tree: Tree, file: str) -> None:
    recorder = Recorder(tree.root)

    def write() -> None:
        found = [[test.name, test.seconds, test.calls] for test in recorder.found]
        (tree.scratch / "found.json").write_text(json.dumps(found))

    tree.start(["--maxfail=1000", file], recorder, write)


def run_all(
    trees: Sequence[Tree], work: Iterable[Piece], start: Callable[[Tree, Piece], None]
) -> Iterator[tuple[Tree, Piece, str]]:
    """Run everything, one piece per tree at a time, and yield each with its outcome as soon as it ends."""
    waiting, free = iter(work), [*trees]
    running: list[tuple[Tree, Piece]] = []
    try:
        while True:
            while free and (piece := next(waiting, None)) is not None:
                running.append((free.pop(), piece))
                start(*running[-1])
            if not running:
                return
            time.sleep(0.1)
            for tree, piece in [*running]:
                if (outcome := tree.outcome()) is not None:
                    running.remove((tree, piece))
                    yield tree, piece, outcome
                    free.append(tree)
    finally:
        for tree, _ in running:
            tree.stop()
