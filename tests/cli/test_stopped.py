"""`abalone train` told to stop by a scheduler or a person: what it says, its status, and that it goes on."""

import os
import signal
import time

import pytest

from striking import start, unfinished
from train_command import reached
from victims import assert_same_model, train, undisturbed, workshop

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    with workshop(tmp_path_factory.mktemp("workshop")) as folder:
        undisturbed(train(folder, folder / "expected"), folder)
        yield folder


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_saves_says_how_to_go_on_and_goes_on(number, status, shop, tmp_path):
    output, stage = tmp_path / "model", tmp_path / "model.training" / "pretraining"
    checkpoint = stage / "resume.safetensors"
    process = start(train(shop, output), shop / "log")
    while reached(checkpoint) < 3:
        assert process.exitcode is None, (shop / "log").read_text()
        time.sleep(0.002)
    for _ in range(2):  # as `timeout` does
        os.kill(process.pid, number)
    process.join()
    told = (shop / "log").read_text()
    assert process.exitcode == status, told
    stopped = f"Pre-training stopped after step {reached(checkpoint)}; it can go on from {stage}"
    assert told.endswith(f"{stopped}\n  To continue, run the same command with --resume.\n")
    assert "Traceback" not in told
    assert unfinished(tmp_path) == []
    assert not output.exists()
    undisturbed(train(shop, output, "--resume"), shop)
    assert_same_model(output, shop / "expected")
