"""What is struck: training, saving a model folder, exporting. A few times in the tests, many times in the fuzzing."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

import tiny
from abalone.files.atomic import PARTIAL
from abalone.training.checkpoint import check_tensors
from abalone.training.run import ANSWERS, FOLD, STAGES
from striking import Struck, Work, abalone, start, strike, unfinished

SETTINGS = {
    "objective": "msc",
    "lexical": False,
    "max_length": 16,
    "queue_size": 16,
    "projection_dim": 8,
    "epochs": 2,
    "folds": 0,
    "finetune_epochs": 2,
    "batch_size": 8,
    "learning_rate": 2e-3,
    "head_learning_rate": 2e-3,
    "precision": "fp32",
    "device": "cpu",
    "checkpoint_seconds": 0,  # as many writes as there can be
}
# Without the lexical expert: beside it a tiny encoder has no say, and no model would be trained after the folds.
CROSS_FITTED = ("--objective", "msc+0.3*zlpr", "--folds", "2", "--neighbours", "--learn-names")
KILLS_A_RUN = 6  # then it may end; else the early steps would be struck most


@contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder with a corpus, an encoder and settings, and the cache in it too."""
    texts, labels = tiny.corpus(60)
    names = [[f"topic {j}" for j in np.flatnonzero(row)] for row in labels.toarray()]
    tiny.write_jsonl(folder / "papers.jsonl", texts, names, ["train"] * 40 + ["val"] * 20)
    encoder = tiny.save_encoder(folder / "encoder", layers=1)
    (folder / "config.yaml").write_text(yaml.safe_dump({"encoder": encoder, **SETTINGS}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        yield folder


def undisturbed(work: Work, folder: Path) -> float:
    """Do it once, and tell how many seconds it took."""
    log = folder / "log"
    begun = time.monotonic()
    process = start(work, log)
    process.join()
    assert process.exitcode == 0, log.read_text()
    return time.monotonic() - begun


def train(shop: Path, output: Path, *options: str) -> Work:
    return abalone("train", shop / "papers.jsonl", "-o", output, "--config", shop / "config.yaml", *options)


def strike_training(shop: Path, kills: int, seed: int, *options: str) -> Struck:
    """Strike `abalone train`, over and over; it must end each time with the model of an undisturbed run."""
    random, total = Random(seed), Struck()
    expected = shop / "undisturbed" / "model"
    # Shorter than it takes: whoever goes on has less to do, and most strikes should come before the end.
    within = 0.7 * undisturbed(train(shop, expected, *options), shop)
    for number in count():
        if total.kills == kills:
            break
        place = shop / f"struck-{number}"
        output = place / "model"
        if random.random() < 0.5:
            shutil.copytree(expected, output)  # an older model, which must stay until there is a new one
        if random.random() < 0.5:
            shutil.rmtree(shop / "cache", ignore_errors=True)
        struck = strike(
            train(shop, output, *options),
            train(shop, output, "--resume", *options),
            place,
            random,
            kills=min(KILLS_A_RUN, kills - total.kills),
            within=within,
            after_kill=NothingIsLost(output.with_name("model.training")),
        )
        assert struck.status == 0, struck.told
        assert_same_model(output, expected)
        assert [path.name for path in place.iterdir()] == ["model"]
        assert unfinished(shop / "cache") == []
        total.kills += struck.kills
        total.in_a_write += struck.in_a_write
    return total


class NothingIsLost:
    """Called now and then, it finds a run never earlier than the time before."""

    def __init__(self, run_folder: Path) -> None:
        self.run_folder, self.before = run_folder, (0, 0, 0)

    def __call__(self) -> None:
        if (self.run_folder / "run.json").exists():  # not yet begun, or done and being removed
            reached = self._reached()
            assert reached >= self.before, "what was saved is gone"
            self.before = reached

    def _reached(self) -> tuple[int, int, int]:
        """The folds that are done, and of the model after these the latest stage that was saved, and its steps."""
        done = len(list(self.run_folder.glob(FOLD.format("*") + ANSWERS)))
        of_fold = self.run_folder / FOLD.format(done + 1)
        model = of_fold if of_fold.exists() else self.run_folder
        for number, stage in reversed(list(enumerate(STAGES, 1))):
            for name in ("resume.safetensors", "resume-before.safetensors"):
                if (model / stage / name).exists():
                    return done, number, check_tensors(model / stage / name)["standing"]["step"]
        return done, 0, 0


def assert_same_model(folder: Path, expected: Path) -> None:
    """To the last bit, but for how many seconds an epoch took."""
    contents = [_content(folder), _content(expected)]
    assert contents[0].keys() == contents[1].keys()
    for name in contents[0]:
        assert contents[0][name] == contents[1][name], name


def _content(folder: Path) -> dict[str, Any]:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files["SHA256SUMS"]
    about = json.loads(files.pop("abalone.json"))
    for epochs in about["story"]["history"].values():
        for epoch in epochs:
            del epoch["seconds"]
    return {**files, "abalone.json": about}


def strike_saving(shop: Path, kills: int, seed: int) -> Struck:
    """Strike a process that writes two models in turn to the same folder; one of them is always there."""
    random = Random(seed)
    models = [shop / f"model-{number}" for number in (1, 2)]
    for number, model in enumerate(models):
        undisturbed(train(shop, model, "--epochs", "0", "--seed", str(number)), shop)
    target = shop / "saved" / "model"
    undisturbed(partial(save_in_turn, models, target, 1), shop)
    wanted = [_content(model) for model in models]

    def one_of_them_is_there() -> None:
        assert _content(target) in wanted

    work = partial(save_in_turn, models, target, 1_000_000)
    struck = strike(
        work,
        work,
        target.parent,
        random,
        kills=kills,
        within=2.0,
        last=partial(save_in_turn, models, target, 1),
        after_kill=one_of_them_is_there,
    )
    assert struck.status == 0, struck.told
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    return struck


def save_in_turn(models: list[Path], target: Path, times: int) -> None:
    """What the process does."""
    from abalone.inference.folder import load, save

    predictors = [load(model) for model in models]
    for number in range(times):
        save(predictors[number % 2], target)


def strike_export(shop: Path, kills: int, seed: int, *, graph_again: bool = True) -> Struck:
    """Strike `abalone export`; the file is the old one or the new one, and in the end the new one.

    Building the graph takes seconds in which nothing is written; without `graph_again` it is built once.
    """
    random, total = Random(seed), Struck()
    model = shop / "model-to-export"
    undisturbed(train(shop, model, "--epochs", "0"), shop)
    expected = shop / "undisturbed.onnx"
    within = undisturbed(abalone("export", model, "-o", expected), shop)
    if not graph_again:
        within = undisturbed(partial(export_with_graph_of, expected, model, shop / "timed.onnx"), shop)
    old = b"an older file"
    for number in count():
        if total.kills == kills:
            break
        output = shop / f"exported-{number}" / "model.onnx"
        output.parent.mkdir()
        output.write_bytes(old)

        def old_or_new(output: Path = output) -> None:
            assert output.read_bytes() in (old, expected.read_bytes())

        work = (
            abalone("export", model, "-o", output)
            if graph_again
            else partial(export_with_graph_of, expected, model, output)
        )
        struck = strike(
            work,
            work,
            output.parent,
            random,
            kills=min(KILLS_A_RUN, kills - total.kills),
            within=within,
            after_kill=old_or_new,
        )
        assert struck.status == 0, struck.told
        assert output.read_bytes() == expected.read_bytes()
        assert not [path for path in output.parent.iterdir() if path.name.endswith(PARTIAL)]
        total.kills += struck.kills
        total.in_a_write += struck.in_a_write
    return total


def export_with_graph_of(earlier: Path, model: Path, output: Path) -> None:
    """What the process does: check and write what another export of the model has built."""
    from abalone.inference import export
    from abalone.inference.folder import load

    content = earlier.read_bytes()
    export._file_content = lambda *_: content
    export.export(load(model, device="cpu"), output)
