"""Fuzzing: where cases come from, and what must hold for every one of them.

Any bytes give a result or a clear error: never another error, never a hang, never memory without end. A case follows
from its name alone (`FUZZ_CASE=name pytest …` repeats one), so that what a night has found can be looked at by day.
"""

import os
import random
import resource
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis.strategies import SearchStrategy

from abalone.cli.app import is_mistake
from patience import PATIENCE

LONGEST = 3000  # characters of a message that a person would still read
MEMORY = 3 << 30  # bytes that the cases of a target may need beyond what the process has
DISTINCT = 8  # kinds of failure that are shown, before a target gives up

Numbers = random.Random
Check = Callable[[Any, Path], None]


@dataclass(frozen=True)
class Target:
    """Something that takes input from outside.

    Args:
        check: holds one case to the property; it is given random numbers (or a value) and a folder of its own.
        small: cases in `make test`.
        share: how many of the cases of `make fuzz` it gets, relative to the others.
        values: what is checked are values of this strategy, in place of what `check` makes of random numbers.
        seconds: of CPU time that a case may take.
        prepare: makes what the cases begin from, such as a model that they damage; its time is not theirs.
    """

    check: Check
    small: int
    share: float = 1.0
    values: SearchStrategy[Any] | None = None
    seconds: float = 10.0
    prepare: Callable[[], object] = lambda: None


class Hang(BaseException):
    """A case took too long. No `Exception`, so that no handler takes it for an error of the data."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hang` in whatever needs more CPU time, or does not end at all.

    CPU time is this process's own, whatever else the machine is busy with. What waits needs none: a deadlock is found
    by the clock, after `PATIENCE`.
    """

    def stop(number: int, frame: object) -> None:
        raise Hang(f"still running after {seconds:g} s of CPU time" if number == signal.SIGPROF else "stuck: it waits")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE)}
    before = {number: signal.signal(number, stop) for number in timers}
    try:
        for timer, limit in timers.values():
            signal.setitimer(timer, limit)
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def memory_limit(extra: int = MEMORY) -> Iterator[None]:
    """Let an allocation fail that would take the process `extra` bytes beyond what it has mapped now."""
    status = Path("/proc/self/statm")
    if not status.exists():  # no Linux: nothing to measure by
        yield
        return
    limits = resource.getrlimit(resource.RLIMIT_AS)
    mapped = int(status.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + extra, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextmanager
def only_clear_errors(*kinds: type[Exception], about: str = "") -> Iterator[None]:
    """Swallow an error of these kinds whose message a person can use; let everything else through.

    Args:
        kinds: by default whatever the command line would show as a person's mistake.
        about: what the message has to name, for example the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        if isinstance(error, MemoryError) or not (isinstance(error, kinds) if kinds else is_mistake(error)):
            raise
        assert_clear(str(error), about)


def assert_clear(message: str, about: str = "") -> None:
    """A message has words, an end, and no character that a terminal would obey."""
    assert message.strip(), "an empty message"
    assert len(message) <= LONGEST, f"a message of {len(message)} characters: {message[:200]!r} …"
    obeyed = [character for character in message if ord(character) < 32 and character not in "\n\t"]
    assert not obeyed, f"control characters in the message: {message!r}"
    assert about in message, f"the message does not name {about!r}: {message!r}"


def run_cases(name: str, target: Target, cases: int, folder: Path, seed: int = 0) -> int:
    """Hold a target to the property this many times; returns how many cases there were.

    Failures are gathered, one for each place in the code, so that a night finds more than its first.
    """
    asked = os.environ.get("FUZZ_CASE")
    if asked and not asked.startswith(f"{name}:"):
        return 0
    target.prepare()
    with memory_limit():
        if target.values is not None:
            return _run_values(target, cases, folder, seed)
        failures: dict[str, str] = {}
        wanted = [asked] if asked else [f"{name}:{seed}:{number}" for number in range(cases)]
        for number, case in enumerate(wanted):
            try:
                _one(target, random.Random(case), folder / str(number))
            except (Exception, Hang) as error:
                trace = traceback.format_exc()
                failures.setdefault(_place(error), f"FUZZ_CASE={case}\n{trace[:2500] + trace[-1500:]}")
                if len(failures) == DISTINCT:
                    break
    assert not failures, f"{len(failures)} kinds of failure:\n" + "\n\n".join(failures.values())
    return len(wanted)


def _run_values(target: Target, cases: int, folder: Path, seed: int) -> int:
    assert target.values is not None
    done = 0

    @hypothesis_seed(seed)
    @settings(max_examples=cases, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(target.values)
    def each(value: Any) -> None:
        nonlocal done
        done += 1
        try:
            _one(target, value, folder / str(done))
        except Hang as hang:
            raise AssertionError(str(hang)) from None

    each()
    return done


def _one(target: Target, value: Any, place: Path) -> None:
    place.mkdir(parents=True)
    try:
        with time_limit(target.seconds):
            target.check(value, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _place(error: BaseException) -> str:
    """What tells one failure from another: the kind of error, and the line of ours that it came through."""
    cause = error.__context__ or error
    ours = [frame for frame in traceback.extract_tb(cause.__traceback__) if "/src/abalone/" in frame.filename]
    return f"{type(cause).__name__} {[(frame.filename, frame.lineno) for frame in ours[-1:]]}"
