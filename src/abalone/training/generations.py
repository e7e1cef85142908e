"""The checkpoints of a stage: where it stands, where it stood before, and the weights of its best epochs."""

import warnings
from collections.abc import Collection, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from torch import Tensor

from abalone.files.atomic import PARTIAL
from abalone.training.checkpoint import DamagedError, check_tensors, load_tensors, save_tensors
from abalone.training.snapshot import Snapshot

RESUME = "resume.safetensors"  # all that is needed to go on
BEFORE = "resume-before.safetensors"  # the same of the time before, should that one be damaged
EPOCH = "epoch-{}.safetensors"  # what a finished model is made from, after so many epochs


def has_checkpoint(folder: Path) -> bool:
    """Whether a stage has been saved in `folder`."""
    return any((folder / name).exists() for name in (RESUME, BEFORE))


def holds_something_else(folder: Path) -> bool:
    """Whether what is at that name is not, or not only, the checkpoints of a stage."""
    if not folder.is_dir():
        return folder.exists()
    ours = (RESUME, BEFORE, EPOCH.format("*"), f".*{PARTIAL}")
    return not all(any(fnmatch(path.name, name) for name in ours) for path in folder.iterdir())


class Checkpoints:
    """Writes and reads the checkpoints in a folder.

    A checkpoint names the epochs whose weights it needs. An epoch's file is written before the first checkpoint that
    names it, and removed when neither of the two that are kept does: whichever of them a run goes on from, it finds
    the epochs it knew of, and no others.

    Weights wait in main memory until then. An epoch may take seconds, and the best of 80 epochs is often the latest:
    writing each would cost more than it. What a crash loses is made again, since the run then goes on from before.

    Reading changes nothing on the disk, so that several processes may read at once; one of them writes.

    Args:
        folder: where they are.
        beside: write in a thread, from a copy in main memory, while training goes on: for training on a GPU, which
            would stand still for seconds. The copy takes the file's size, rounded up to 2ⁿ. On a CPU neither it nor
            the thread would be free: there the file is written from the tensors themselves, in the time it takes.
    """

    def __init__(self, folder: Path, *, beside: bool = False) -> None:
        self.folder = folder
        self._writer = futures.ThreadPoolExecutor(1, "checkpoint") if beside else None
        self._writing: futures.Future[None] | None = None
        self._state = Snapshot()  # what is being written beside training
        self._waiting: dict[int, Snapshot] = {}
        self._leaving: dict[int, Snapshot] = {}  # epochs that are being written, or could not be
        self._free: list[Snapshot] = []  # whose memory the next epochs use again
        self._latest_epochs: set[int] = set()  # that the checkpoint we stand on needs
        self._latest_is_damaged = False

    def keep(self, epoch: int, state: Mapping[str, Tensor], wanted: Collection[int]) -> None:
        """Keep a copy of these tensors as they are now; of the epochs that wait, forget those not `wanted` any more."""
        if self._writing is not None and self._writing.done():
            self.wait()
        self._free += [self._waiting.pop(waiting) for waiting in self._waiting.keys() - set(wanted)]
        snapshot = self._free.pop() if self._free else Snapshot()
        snapshot.take(state)
        self._waiting[epoch] = snapshot

    def write(self, state: Mapping[str, Tensor], notes: Mapping[str, Any], epochs: Collection[int]) -> None:
        """Write where the run stands, with the epochs that it needs; what is there now becomes the one before.

        Beside training it returns when the state is copied; whether it could be written `wait` tells, or the next call.
        """
        self.wait()
        waiting = self._leaving | self._waiting
        self._leaving = {epoch: waiting.pop(epoch) for epoch in sorted(waiting.keys() & set(epochs))}
        self._waiting = {}
        self._free += waiting.values()
        # Copies are waited for here: the thread must ask nothing of a GPU on which this one may be recording.
        kept = {epoch: snapshot.tensors() for epoch, snapshot in self._leaving.items()}
        notes = {**notes, "epochs": sorted(epochs)}
        if self._writer is None:
            self._write(state, notes, kept)
            self._set_free()
        else:
            self._state.take(state)
            self._writing = self._writer.submit(self._write, self._state.tensors(), notes, kept)

    def wait(self) -> None:
        """Go on when nothing is being written any more; an error if it could not be."""
        if self._writing is not None:
            futures.wait([self._writing])  # if this is interrupted, it can be waited for again
            done, self._writing = self._writing, None
            done.result()
            self._set_free()

    @contextmanager
    def completed_at_the_end(self) -> Iterator[None]:
        """Nobody leaves this block, however it ends, while something is being written."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # there is an error already
                self.wait()
            raise
        self.wait()

    def _write(
        self, state: Mapping[str, Tensor], notes: Mapping[str, Any], kept: Mapping[int, Mapping[str, Tensor]]
    ) -> None:
        try:
            for epoch, weights in kept.items():
                save_tensors(self._file_of(epoch), weights, {"epoch": epoch})
            save_tensors(
                self.folder / RESUME,
                state,
                notes,
                keep_as=None if self._latest_is_damaged else self.folder / BEFORE,
            )
        except OSError as error:
            left = "the last good one stays" if has_checkpoint(self.folder) else "nothing was saved before"
            reason = f"no checkpoint could be written ({error.strerror or error}); {left}. Make room, and go on with "
            raise OSError(error.errno, reason + "resume=True.", error.filename) from error
        self._latest_is_damaged = False
        needed = {EPOCH.format(epoch) for epoch in self._latest_epochs | set(notes["epochs"])}
        self._latest_epochs = set(notes["epochs"])
        for file in self.folder.glob(EPOCH.format("*")):
            if file.name not in needed:
                file.unlink(missing_ok=True)

    def _set_free(self) -> None:
        self._free += self._leaving.values()
        self._leaving = {}

    def read(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The latest checkpoint that is whole, with all epochs it needs; tells of one that is not."""
        self.wait()
        wrong: list[DamagedError] = []
        for name in (RESUME, BEFORE):
            if not (self.folder / name).exists():
                continue  # killed in the moment between the two names: the other one is whole
            try:
                tensors, notes = load_tensors(self.folder / name)
                if "epochs" not in notes:
                    raise DamagedError(self.folder / name, "it is something else")
                for epoch in notes["epochs"]:
                    self._check(epoch)
            except DamagedError as error:
                wrong.append(error)
                continue
            if wrong:
                warnings.warn(f"{wrong[0]}; going on from the one before it, {self.folder / name}", stacklevel=4)
            self._latest_epochs, self._latest_is_damaged = set(notes["epochs"]), bool(wrong)
            return tensors, notes
        reasons = ", and ".join(map(str, wrong)) or f"there is no checkpoint in {self.folder}"
        raise ValueError(f"{reasons}; remove the folder {self.folder} to do this stage again")

    def epoch(self, epoch: int) -> dict[str, Tensor]:
        """The weights after so many epochs, which the latest checkpoint needs."""
        self.wait()
        return load_tensors(self._file_of(epoch))[0]

    def _check(self, epoch: int) -> None:
        if not self._file_of(epoch).exists():
            raise DamagedError(self._file_of(epoch), "it is gone")
        check_tensors(self._file_of(epoch))

    def _file_of(self, epoch: int) -> Path:
        return self.folder / EPOCH.format(epoch)
