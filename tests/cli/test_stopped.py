"""`abalone train` told to stop by a scheduler or a person: what it says, its status, and that it goes on."""

import os
import signal
from functools import partial

import pytest

from striking import Work, start, unfinished
from train_command import reached
from victims import assert_same_model, train, undisturbed, workshop

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name != "posix", reason="signals")]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with workshop(tmp_path_factory.mktemp("workshop")) as folder:
        undisturbed(train(folder, folder / "expected"), folder)
        yield folder


def told_at_step(step: int, number: int, work: Work) -> None:
    """What the process does: as if told from outside, and never too late, as that would be on a busy machine."""
    from abalone.encoder.fast.optimizer import FusedAdamW

    update, steps = FusedAdamW.step, iter(range(1000))

    def told(self: FusedAdamW) -> None:
        update(self)
        if next(steps) == step:
            os.kill(os.getpid(), number)

    FusedAdamW.step = told
    work()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_saves_says_how_to_go_on_and_goes_on(number, status, shop, tmp_path):
    output, stage = tmp_path / "model", tmp_path / "model.training" / "pretraining"
    checkpoint = stage / "resume.safetensors"
    process = start(partial(told_at_step, 3, number, train(shop, output)), shop / "log")
    process.join()
    told = (shop / "log").read_text()
    assert process.exitcode == status, told
    assert reached(checkpoint) == 4
    stopped = f"Pre-training stopped after step 4; it can go on from {stage}"
    assert told.endswith(f"{stopped}\n  To continue, run the same command with --resume.\n")
    assert "Traceback" not in told
    assert unfinished(tmp_path) == []
    assert not output.exists()
    undisturbed(train(shop, output, "--resume"), shop)
    assert_same_model(output, shop / "expected")
