"""The checkpoints of a stage: two are kept, each with the epochs it knew of, and the good one is found."""

import resource
import threading
from concurrent import futures
from pathlib import Path

import pytest
import torch

from abalone.training import checkpoint
from abalone.training.checkpoint import BEFORE, RESUME, Checkpoints, has_checkpoint, load_tensors
from patience import PATIENCE


def weights(number: float) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((10,), float(number))}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def folder(tmp_path):
    """After step 30: epoch 1 was the best when step 20 was saved, epochs 2 and 3 are now; epoch 4 is too young."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(weights(10), {"step": 10}, [])
    checkpoints.keep(1, weights(1), {1})
    checkpoints.write(weights(20), {"step": 20}, {1})
    checkpoints.keep(2, weights(2), {1, 2})
    checkpoints.keep(3, weights(3), {2, 3})
    checkpoints.write(weights(30), {"step": 30}, {2, 3})
    checkpoints.keep(4, weights(4), {2, 4})
    return tmp_path


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_two_are_kept_with_the_epochs_that_either_needs(folder):
    assert names(folder) == {RESUME, BEFORE, *(f"epoch-{epoch}.safetensors" for epoch in (1, 2, 3))}
    tensors, notes = Checkpoints(folder).read()
    assert (notes["step"], notes["epochs"]) == (30, [2, 3])
    assert torch.equal(tensors["weight"], weights(30)["weight"])
    assert torch.equal(Checkpoints(folder).epoch(3)["weight"], weights(3)["weight"])


def test_an_epoch_that_was_the_best_for_a_while_is_never_written(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for epoch in range(1, 6):
        checkpoints.keep(epoch, weights(epoch), {epoch})
    checkpoints.write(weights(0), {}, {5})
    assert names(tmp_path) == {RESUME, "epoch-5.safetensors"}


def test_a_kept_epoch_is_as_it_was_then(tmp_path):
    checkpoints, state = Checkpoints(tmp_path), weights(1)
    checkpoints.keep(1, state, {1})
    state["weight"].fill_(2.0)
    checkpoints.write(state, {}, {1})
    assert torch.equal(checkpoints.epoch(1)["weight"], weights(1)["weight"])


@pytest.mark.parametrize("victim", [RESUME, "epoch-2.safetensors", "epoch-3.safetensors"])
@pytest.mark.parametrize("how", [damage, lambda path: path.write_bytes(b""), Path.unlink])
def test_the_one_before_is_used_and_what_is_wrong_is_told(victim, how, folder):
    how(folder / victim)
    content = {path: path.read_bytes() for path in folder.iterdir()}
    checkpoints = Checkpoints(folder)
    if (victim, how) == (RESUME, Path.unlink):  # as between the two names
        tensors, notes = checkpoints.read()
    else:
        told = (
            rf"the checkpoint {folder / victim} is damaged \(.+\); going on from the one before it, {folder / BEFORE}"
        )
        with pytest.warns(UserWarning, match=told):
            tensors, notes = checkpoints.read()
    assert (notes["step"], notes["epochs"]) == (20, [1])
    assert torch.equal(tensors["weight"], weights(20)["weight"])
    assert {path: path.read_bytes() for path in folder.iterdir()} == content  # others may be reading too

    # The next one takes the place of the damaged one, not of the good one.
    checkpoints.keep(2, weights(2.5), {1, 2})
    checkpoints.write(weights(25), {"step": 25}, {1, 2})
    assert names(folder) == {RESUME, BEFORE, "epoch-1.safetensors", "epoch-2.safetensors"}
    assert [load_tensors(folder / name)[1]["step"] for name in (RESUME, BEFORE)] == [25, 20]
    assert torch.equal(Checkpoints(folder).epoch(2)["weight"], weights(2.5)["weight"])
    checkpoints.write(weights(35), {"step": 35}, {2})
    assert [load_tensors(folder / name)[1]["step"] for name in (RESUME, BEFORE)] == [35, 25]


def test_a_good_one_does_not_care_about_the_one_before(folder):
    damage(folder / BEFORE)
    damage(folder / "epoch-1.safetensors")
    assert Checkpoints(folder).read()[1]["step"] == 30


def test_with_no_good_one_it_says_what_is_wrong_and_what_to_do(folder):
    damage(folder / RESUME)
    damage(folder / "epoch-1.safetensors")
    with pytest.raises(ValueError, match=rf"{RESUME} is damaged .*epoch-1.* is damaged .*; remove the folder {folder}"):
        Checkpoints(folder).read()
    (folder / RESUME).write_bytes((folder / "epoch-3.safetensors").read_bytes())  # whole, but no checkpoint
    with pytest.raises(ValueError, match="it is something else"):
        Checkpoints(folder).read()


def test_has_checkpoint(folder, tmp_path):
    assert has_checkpoint(folder)
    (folder / RESUME).unlink()
    assert has_checkpoint(folder)
    (folder / BEFORE).unlink()
    assert not has_checkpoint(folder)
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        Checkpoints(folder).read()


@pytest.fixture
def full_disk():
    """A limit on file size fails in the middle of writing, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("too_large", ["state", "epoch"])
def test_a_full_disk_leaves_both(too_large, folder):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    checkpoints = Checkpoints(folder)
    checkpoints.read()
    large = {"weight": torch.zeros(10_000)}
    checkpoints.keep(5, large if too_large == "epoch" else weights(5), {5})
    told = r"no checkpoint could be written \(File too large\); the last good one stays\. Make room, and go on with res"
    with pytest.raises(OSError, match=told) as failure:
        checkpoints.write(large if too_large == "state" else weights(40), {"step": 40}, {5})
    assert failure.value.filename.endswith("epoch-5.safetensors" if too_large == "epoch" else RESUME)
    after = {path: path.read_bytes() for path in folder.iterdir()}
    after.pop(folder / "epoch-5.safetensors", None)  # whole, and the next one to be written removes it
    assert after == before


def test_epochs_that_wait_at_the_same_time_are_apart_and_memory_is_used_again(tmp_path):
    checkpoints, state = Checkpoints(tmp_path), weights(1)
    places = set()
    for epoch in range(1, 8):  # an odd epoch is the best by one measure, an even one by the other
        state["weight"].fill_(epoch)
        checkpoints.keep(epoch, state, {epoch - 1, epoch})
        places |= {snapshot.tensors()["weight"].data_ptr() for snapshot in checkpoints._waiting.values()}
    assert len(places) == 2
    checkpoints.write(state, {}, {6, 7})
    for epoch in (6, 7):
        assert torch.equal(checkpoints.epoch(epoch)["weight"], weights(epoch)["weight"])


class Gate:
    """Lets files be written only when it is opened, and counts how many were asked for."""

    def __init__(self, monkeypatch):
        self.opened, self.asked, save = threading.Event(), threading.Semaphore(0), checkpoint.save_tensors

        def saving(*arguments, **options):
            self.asked.release()
            assert self.opened.wait(PATIENCE)
            save(*arguments, **options)

        monkeypatch.setattr(checkpoint, "save_tensors", saving)


@pytest.fixture
def gate(monkeypatch):
    gate = Gate(monkeypatch)
    yield gate
    gate.opened.set()


def test_beside_training_what_is_written_is_as_it_was_then(gate, tmp_path):
    checkpoints, state = Checkpoints(tmp_path, beside=True), weights(10)
    checkpoints.keep(1, weights(1), {1})
    checkpoints.write(state, {"step": 10}, {1})
    state["weight"].fill_(20)
    checkpoints.keep(2, weights(2), {2})  # which does not take the memory of the first, though nobody waits for that
    assert gate.asked.acquire(timeout=PATIENCE)
    assert not has_checkpoint(tmp_path)
    gate.opened.set()
    tensors, notes = checkpoints.read()  # waits
    assert (notes["step"], notes["epochs"]) == (10, [1])
    assert torch.equal(tensors["weight"], weights(10)["weight"])
    assert torch.equal(checkpoints.epoch(1)["weight"], weights(1)["weight"])
    checkpoints.write(state, {"step": 20}, {2})
    assert torch.equal(checkpoints.epoch(2)["weight"], weights(2)["weight"])
    assert [load_tensors(tmp_path / name)[1]["step"] for name in (RESUME, BEFORE)] == [20, 10]


def test_beside_training_one_is_complete_before_the_next_is_begun(gate, tmp_path):
    checkpoints = Checkpoints(tmp_path, beside=True)
    checkpoints.write(weights(10), {"step": 10}, [])
    first = checkpoints._writing
    threading.Timer(0.1, gate.opened.set).start()
    checkpoints.write(weights(20), {"step": 20}, [])
    assert first.done()
    with checkpoints.completed_at_the_end():
        pass
    for name, step in ((RESUME, 20), (BEFORE, 10)):
        tensors, notes = load_tensors(tmp_path / name)
        assert notes["step"] == step
        assert torch.equal(tensors["weight"], weights(step)["weight"])  # neither took the other's memory


@pytest.mark.parametrize("how", ["wait", "write", "epoch", "read", "keep"])
def test_beside_training_a_full_disk_is_told_at_the_next_occasion(how, full_disk, tmp_path):
    checkpoints = Checkpoints(tmp_path, beside=True)
    checkpoints.write({"weight": torch.zeros(10_000)}, {"step": 40}, [])
    if how == "keep":  # which does not wait for it
        futures.wait([checkpoints._writing])
    calls = {
        "wait": checkpoints.wait,
        "write": lambda: checkpoints.write(weights(50), {}, []),
        "epoch": lambda: checkpoints.epoch(1),
        "read": checkpoints.read,
        "keep": lambda: checkpoints.keep(1, weights(1), {1}),
    }
    told = r"no checkpoint could be written \(File too large\); nothing was saved before\. Make room, and go on with"
    with pytest.raises(OSError, match=told) as failure:
        calls[how]()
    assert failure.value.filename == str(tmp_path / RESUME)
    checkpoints.wait()  # told once


@pytest.mark.parametrize("beside", [True, False])
def test_after_a_failure_the_next_one_has_the_epochs_it_needs(beside, monkeypatch, tmp_path):
    checkpoints, save = Checkpoints(tmp_path, beside=beside), checkpoint.save_tensors
    checkpoints.keep(1, weights(1), {1})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_tensors", lambda *_, **__: save(Path("/proc/none/at all"), {}, {}))
        with pytest.raises(OSError, match="no checkpoint could be written"):
            (checkpoints.write(weights(10), {}, {1}), checkpoints.wait())
    checkpoints.keep(2, weights(2), {1, 2})
    checkpoints.write(weights(20), {}, {1, 2})
    assert [checkpoints.epoch(epoch)["weight"][0] for epoch in (1, 2)] == [1, 2]


def test_an_error_of_training_goes_before_one_of_writing(full_disk, tmp_path):
    checkpoints = Checkpoints(tmp_path, beside=True)
    checkpoints.write({"weight": torch.zeros(10_000)}, {"step": 40}, [])
    with pytest.raises(ZeroDivisionError), checkpoints.completed_at_the_end():
        raise ZeroDivisionError
    assert names(tmp_path) == set()
