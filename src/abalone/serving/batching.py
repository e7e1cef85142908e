"""Dynamic batching: texts of concurrent requests go through the model together, in the one thread that owns it."""

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

log = logging.getLogger("abalone.serving")

Item = TypeVar("Item")
Result = TypeVar("Result")

BATCH_ITEMS = 64
BATCH_CHARACTERS = 100_000  # about what two cores encode in a second: nobody waits much longer for their turn
WINDOW = 0.004  # seconds to wait for company, where there was some in the batch before
ROOM = 2048  # items that may wait before newcomers are sent away
FEW = 16  # items of a request: a quarter of the room is kept for such
SMOOTHING = 0.2  # how much the last batch counts in the estimated time an item takes
RECHECK = 5.0  # seconds after which a model that failed its check is tried again


class Busy(Exception):  # noqa: N818  # no fault: try again
    """Raised where there is no room for more texts, or the server is stopping.

    Args:
        reason: for the client.
        retry_after: seconds after which it may be worth trying again.
    """

    def __init__(self, reason: str, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class Crash(Exception):  # noqa: N818  # what happened, not who is to blame
    """Raised where the model raised something that is no `Exception`, such as the panic of a library in Rust."""


class Job(Generic[Item, Result]):
    """The items of one request, and the results so far."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.taken = 0  # how many have gone into a batch
        self.results: dict[int, Result] = {}
        self._loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[list[Result]] = self._loop.create_future()

    def put(self, place: int, result: Result) -> None:
        """Store one answer; the last one completes the job."""
        self.results[place] = result
        if len(self.results) == len(self.items):
            self._tell(lambda: self.answer.set_result([self.results[place] for place in range(len(self.items))]))

    def fail(self, error: Exception) -> None:
        """End the job with an error."""
        self._tell(lambda: self.answer.set_exception(error))

    def _tell(self, settle: Callable[[], None]) -> None:
        def unless_gone() -> None:
            if not self.answer.done():  # a client that has hung up has cancelled it
                settle()

        with suppress(RuntimeError):  # the loop has been closed: nobody is waiting any more
            self._loop.call_soon_threadsafe(unless_gone)


class Batcher(Generic[Item, Result]):
    """Queue that collects the items of concurrent jobs into batches for one worker thread.

    Items are taken from the waiting jobs in turn, one each, so that a long list does not hold up a single text. A lone
    client never waits for company: the window opens only after a batch that served more than one job, as then the same
    clients are about to ask again. Jobs whose client has gone are dropped.

    Args:
        run: answers a list of items in order; called in the worker thread only.
        size: characters of an item, which stand for the time it takes.
        observe: told the items and seconds of every batch.
        room: items that may wait.
        check: an item that a sound model answers; it is asked after a crash, which may have left the model broken.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Result]],
        size: Callable[[Item], int],
        *,
        observe: Callable[[int, float], None] = lambda items, seconds: None,
        room: int = ROOM,
        check: Item | None = None,
    ) -> None:
        self._run, self._size, self._observe, self._room, self._check = run, size, observe, room, check
        self._jobs: deque[Job[Item, Result]] = deque()  # those with items that no batch has taken yet
        self._waiting = 0  # such items
        self._changed = threading.Condition()
        self._closing = False
        self._company = False
        self._seconds_per_item = 0.0
        self._sound = True
        self._busy_since: float | None = None
        # A daemon, so that a second Ctrl-C ends the process even in the middle of a batch.
        self._worker = threading.Thread(target=self._keep_working, name="abalone-model", daemon=True)
        self._worker.start()

    @property
    def waiting(self) -> int:
        """Return the number of items that wait for their turn."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Tell whether jobs are taken."""
        return self._worker.is_alive() and not self._closing

    @property
    def sound(self) -> bool:
        """Tell whether the model answered its check after the last crash."""
        return self._sound

    @property
    def busy_seconds(self) -> float:
        """Return the seconds that the current batch has taken so far."""
        since = self._busy_since
        return 0.0 if since is None else time.perf_counter() - since

    async def submit(self, items: Sequence[Item]) -> list[Result]:
        """Return the results of `items`, in order; raises `Busy` where they cannot be taken now."""
        if not items:
            return []
        job: Job[Item, Result] = Job(items)
        with self._changed:
            if not self.alive:
                raise Busy("the server is stopping", retry_after=5)
            # Ten minutes of 64 clients, with a long list now and then, had no room for 700 of 72,958 single texts.
            kept = self._room // 4 if len(items) > FEW and self._waiting else 0
            if self._waiting + len(items) > self._room - kept:
                raise Busy(f"{self._waiting} texts are waiting already", self._seconds_left())
            self._jobs.append(job)
            self._waiting += len(items)
            self._changed.notify()
        try:
            return await job.answer
        finally:
            self._forget(job)

    @property
    def ended(self) -> bool:
        """Tell whether the worker has ended."""
        return not self._worker.is_alive()

    def close(self, seconds: float | None = None) -> None:
        """Answer what waits, then end the worker; return after so many seconds even if it has not ended."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._worker.join(seconds)

    def _keep_working(self) -> None:
        while True:
            try:
                return self._work()
            except BaseException:  # nobody else looks after this thread, and without it nothing is answered
                log.exception("the model's thread failed; it starts again")
                self._busy_since = None

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if batch:
                self._busy_since = started = time.perf_counter()
                self._answer(batch)
                seconds = time.perf_counter() - started
                self._busy_since = None
                self._seconds_per_item += SMOOTHING * (seconds / len(batch) - self._seconds_per_item)
                self._observe(len(batch), seconds)
            elif self._closing:
                return
            if not self._sound:
                self._sound = self._passes_check()

    def _next_batch(self) -> list[tuple[Job[Item, Result], int]]:
        """Return places in jobs to answer together; none once closed and done, or when another check is due."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closing, timeout=None if self._sound else RECHECK)
            if self._company:
                self._changed.wait_for(lambda: self._waiting >= BATCH_ITEMS or self._closing, timeout=WINDOW)
            batch: list[tuple[Job[Item, Result], int]] = []
            characters = 0
            while self._jobs and len(batch) < BATCH_ITEMS and characters < BATCH_CHARACTERS:
                job = self._jobs.popleft()
                batch.append((job, job.taken))
                characters += self._size(job.items[job.taken])
                job.taken += 1
                if job.taken < len(job.items):
                    self._jobs.append(job)
            self._waiting -= len(batch)
            self._company = len({id(job) for job, _ in batch}) > 1
            return batch

    def _answer(self, batch: list[tuple[Job[Item, Result], int]]) -> None:
        try:
            results = self._run([job.items[place] for job, place in batch])
            answered = list(zip(batch, results, strict=True))
        except BaseException as error:  # one that got out would end the thread, and the server with it
            if not isinstance(error, Exception):
                self._sound = False
            jobs = {id(job): job for job, _ in batch}
            if len(jobs) == 1:
                job = batch[0][0]
                self._forget(job)
                job.fail(error if isinstance(error, Exception) else _crash(error))
            else:  # only the job that the model fails on is to fail
                for job in jobs.values():
                    self._answer([part for part in batch if part[0] is job])
            return
        for (job, place), result in answered:
            job.put(place, result)

    def _passes_check(self) -> bool:
        if self._check is None:
            return True
        try:
            self._run([self._check])
        except BaseException:
            log.exception("the model crashed, and fails at a short text since; it is tried again every %g s", RECHECK)
            return False
        return True

    def _forget(self, job: Job[Item, Result]) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._waiting -= len(job.items) - job.taken

    def _seconds_left(self) -> int:
        return min(max(math.ceil(self._waiting * self._seconds_per_item), 1), 60)


def _crash(error: BaseException) -> Crash:
    # As it is, it would go through every `except Exception` on its way to the client.
    crash = Crash(f"the model raised {type(error).__name__}: {error}")
    crash.__cause__ = error
    return crash
