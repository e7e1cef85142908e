"""A disk that fills up: a clear word, status 2, the earlier files whole, and the same command goes on later.

A limit on the size of files fails in the middle of a write as a full disk does, but for the words.
"""

import resource
from functools import partial
from pathlib import Path

import pytest

from abalone.training.checkpoint import check_tensors
from striking import Work, start, unfinished
from victims import CROSS_FITTED, assert_same_model, train, undisturbed, workshop

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with workshop(tmp_path_factory.mktemp("workshop")) as folder:
        yield folder


@pytest.fixture(scope="module")
def expected(shop):
    undisturbed(train(shop, shop / "expected"), shop)
    return shop / "expected"


def limited(size: int, work: Work) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    work()


def limited_after(checkpoints: int, work: Work) -> None:
    """Room for so many checkpoints, and for no more."""
    from abalone.training import checkpoint

    save, written = checkpoint.save_tensors, iter(range(1000))

    def saving(*arguments: object, **options: object) -> None:
        if next(written) == checkpoints:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        save(*arguments, **options)

    checkpoint.save_tensors = saving
    work()


def refused(work: Work, shop: Path) -> str:
    process = start(work, shop / "log")
    process.join()
    told = (shop / "log").read_text()
    assert process.exitcode == 2, told
    assert "Traceback" not in told
    return told


@pytest.mark.parametrize("checkpoints", [0, 1, 9])
def test_in_training(checkpoints, shop, expected, tmp_path):
    output = tmp_path / "model"
    told = refused(partial(limited_after, checkpoints, train(shop, output)), shop)
    stage = tmp_path / "model.training" / "pretraining"
    kept = "the last good one stays" if checkpoints else "nothing was saved before"
    assert f"error: {stage}/" in told
    assert f": no checkpoint could be written (File too large); {kept}. Make room, and go on with --resume." in told
    assert unfinished(tmp_path) == []
    assert not output.exists()
    for file in stage.glob("*"):
        check_tensors(file)
    undisturbed(train(shop, output, "--resume"), shop)
    assert_same_model(output, expected)


def full_when_fold_is_done(fold: int, work: Work) -> None:
    """Run `work` on a disk that is full by the end of a fold."""
    from abalone.training import crossfit

    save, finished = crossfit.save_tensors, iter(range(1, 1000))

    def saving(*arguments: object, **options: object) -> None:
        if next(finished) == fold:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        save(*arguments, **options)

    crossfit.save_tensors = saving
    work()


@pytest.mark.parametrize("fold", [1, 2])
def test_full_disk_at_the_end_of_a_fold_costs_nothing_but_time(fold, shop, tmp_path):
    undisturbed(train(shop, tmp_path / "expected", *CROSS_FITTED), shop)
    place = tmp_path / "full"
    told = refused(partial(full_when_fold_is_done, fold, train(shop, place / "model", *CROSS_FITTED)), shop)
    kept = place / "model.training"
    assert f"error: {kept / f'fold-{fold}.safetensors'}: the predictions for this fold could not be written " in told
    assert "(File too large); its checkpoints stay. Make room, and go on with --resume." in told
    assert [path.name for path in sorted(kept.glob("fold-*.safetensors"))] == ["fold-1.safetensors"][: fold - 1]
    assert unfinished(place) == []
    undisturbed(train(shop, place / "model", "--resume", *CROSS_FITTED), shop)
    assert_same_model(place / "model", tmp_path / "expected")


@pytest.mark.parametrize("size", [3_000, 50_000])
def test_while_the_model_is_written(size, shop, tmp_path):
    output = tmp_path / "model"
    undisturbed(train(shop, output, "--epochs", "0", "--seed", "7"), shop)
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    told = refused(partial(limited, size, train(shop, output, "--epochs", "0")), shop)
    kept = f"training is finished and kept in {output}.training: free some space and add --resume"
    assert f"error: {output}: File too large; {kept}" in told
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.training"]
