"""Fuzzing what the library has written itself and a person may have edited: settings, results, checkpoints."""

import json
import random
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import made_up_runs
import torch
import yaml
from hypothesis import strategies as st

from abalone.config import Config
from abalone.recipes import read_settings
from abalone.reproduce.grid import TABLES, Grid, chosen_experiments, wanted_runs
from abalone.reproduce.results import CORPUS, RESULTS, CorpusCard, Results
from abalone.reproduce.tables import (
    ablation_details,
    ablation_tables,
    clustering_table,
    comparison_tables,
    datasets_table,
    imbalance_tables,
    representation_table,
)
from abalone.reproduce.view import View
from abalone.training.checkpoint import load_tensors, save_tensors
from abalone.training.run import IDENTITY, enter_folder
from fuzzing import Target, only_clear_errors
from mutations import mutated

Numbers = random.Random

# Settings

texts = st.text(st.characters(exclude_categories=()), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.sampled_from(["5e-5", "msc", "cls", "10**9", "fast"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
settings = st.dictionaries(st.sampled_from(["recipe", *Config().to_dict()]) | texts, values, max_size=4)
BOMB = b"a: &a [x, x]\n" + b"".join(
    b"b%d: &b%d [*%s, *%s]\n" % (i, i, *([b"a" if i == 0 else b"b%d" % (i - 1)] * 2)) for i in range(60)
)


def check_settings(given: dict[str, object], place: Path) -> None:
    """Any values for any settings, from Python and from a file."""
    with only_clear_errors():
        Config.from_dict(given)
    file = place / "settings.yaml"
    file.write_bytes(yaml.safe_dump(given, allow_unicode=True).encode("utf-8", "surrogatepass"))
    for read in (Config.from_yaml, read_settings):
        with only_clear_errors(about=file.name):
            read(file)


def check_yaml(numbers: Numbers, place: Path) -> None:
    """A damaged file of settings."""
    file = place / "settings.yaml"
    content = yaml.safe_dump(Config().to_dict()).encode()
    seeds = (
        content,
        BOMB,
        b"batch_size: &x\n  - *x\n",
        b"batch_size: !!int '0x_'\nseed: 190:20:30\n",
        b"? [a]\n: 1\n",
        b"recipe: fast\n",
    )
    file.write_bytes(mutated(numbers.choice((content, *seeds)), numbers, seeds))
    for read in (Config.from_yaml, read_settings):
        with only_clear_errors(about=file.name):
            read(file)


# Results

GRID = Grid(
    seeds=(0,), temperatures=(0.1,), learning_rates=(5e-5,), epochs=2, baseline_epochs=(2,), finetune_epochs=(1,)
)


@cache
def stored() -> dict[str, bytes]:
    """A folder of results of every row of every table."""
    with TemporaryDirectory() as place:
        card = made_up_runs.card()
        card.save(Path(place))
        results = Results(Path(place) / RESULTS, card.fingerprint)
        for _ in range(2):  # what fine-tuning starts from is known after the first round
            for run in wanted_runs(chosen_experiments(TABLES, None), GRID, Config(), results):
                if results.get(run) is None:
                    made_up_runs.finish(results, run)
        return {name: (Path(place) / name).read_bytes() for name in (RESULTS, CORPUS)}


def check_results(numbers: Numbers, place: Path) -> None:
    """Damaged results: every table that `--print-only` makes of them."""
    name = numbers.choice((RESULTS, RESULTS, RESULTS, CORPUS))
    files = {**stored(), name: damaged_lines(stored()[name], numbers)}
    for file, content in files.items():
        (place / file).write_bytes(content)
    with only_clear_errors():
        card = CorpusCard.load(place)
        results = Results(place / RESULTS, card.fingerprint)
        view = View(card, GRID, Config(), results)
        datasets_table(view)
        by_name = {experiment.name: experiment for experiment in chosen_experiments(TABLES, None)}
        ablation_tables(view, by_name["ablation"])
        ablation_details(view, by_name["ablation"])
        comparison_tables(view, by_name["comparison"])
        representation_table(view, by_name["representation"])
        clustering_table(view, by_name["representation"])
        imbalance_tables(view, by_name["imbalance"])


def damaged_lines(content: bytes, numbers: Numbers) -> bytes:
    """One line damaged, at the level of bytes or of what is in it."""
    lines = content.splitlines(keepends=True)
    place = numbers.randrange(len(lines))
    if numbers.random() < 0.5 or not lines[place].startswith(b'{"'):
        lines[place] = mutated(lines[place], numbers)
    else:
        record = json.loads(lines[place])
        replace_something(record, numbers)
        lines[place] = json.dumps(record).encode() + b"\n"
    return b"".join(lines)


def replace_something(record: dict[str, object], numbers: Numbers) -> None:
    """Another value, of another kind, somewhere in a JSON object; or none at all."""
    inside: object = record
    while True:
        keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))  # type: ignore[arg-type]
        if not keys:
            return
        key = numbers.choice(keys)
        deeper = inside[key]  # type: ignore[index]
        if isinstance(deeper, dict | list) and deeper and numbers.random() < 0.7:
            inside = deeper
            continue
        if numbers.random() < 0.3:
            del inside[key]  # type: ignore[attr-defined]
        else:
            inside[key] = numbers.choice((None, [], {}, "", "x", -1, 10**400, 1.5, True, [None], {"": 0}, "\ud800"))  # type: ignore[index]
        return


# Checkpoints


@cache
def checkpoint() -> bytes:
    """A small one."""
    with TemporaryDirectory() as place:
        save_tensors(Path(place) / "c.safetensors", {"a": torch.zeros(3), "b.c": torch.ones(2, 2)}, {"epoch": 1})
        return (Path(place) / "c.safetensors").read_bytes()


def check_checkpoint(numbers: Numbers, place: Path) -> None:
    """A damaged checkpoint is refused by name."""
    (place / "c.safetensors").write_bytes(mutated(checkpoint(), numbers))
    with only_clear_errors(about="c.safetensors"):
        load_tensors(place / "c.safetensors")


def check_run_folder(numbers: Numbers, place: Path) -> None:
    """A run folder whose identity is damaged."""
    corpus = made_up_runs.corpus()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        enter_folder(place / "run", Config(), corpus, resume=False)
    file = place / "run" / IDENTITY
    content = file.read_bytes()
    if numbers.random() < 0.5:
        content = mutated(content, numbers)
    else:
        record = json.loads(content)
        replace_something(record, numbers)
        content = json.dumps(record).encode()
    file.write_bytes(content)
    with only_clear_errors(about="run"):
        enter_folder(place / "run", Config(), corpus, resume=True)


TARGETS = {
    "settings/values": Target(check_settings, small=20, share=1, values=settings),
    "settings/yaml": Target(check_yaml, small=15, share=1, seconds=60),
    "results": Target(check_results, small=15, share=1, prepare=stored),
    "checkpoints": Target(check_checkpoint, small=10, share=0.6, prepare=checkpoint),
    "run folders": Target(check_run_folder, small=5, share=0.4),
}
