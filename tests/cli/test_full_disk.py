"""A disk that fills up: a clear word, status 2, the earlier files whole, and the same command goes on later.

A limit on the size of files fails in the middle of a write as a full disk does, but for the words.
"""

import resource
from functools import partial
from pathlib import Path

import pytest

from abalone.training.checkpoint import check_tensors
from striking import Work, start, unfinished
from victims import assert_same_model, train, undisturbed, workshop

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
    from abalone.training import generations

    save, written = generations.save_tensors, iter(range(1000))

    def saving(*arguments: object, **options: object) -> None:
        if next(written) == checkpoints:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        save(*arguments, **options)

    generations.save_tensors = saving
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
