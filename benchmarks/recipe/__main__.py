"""What the recipe gives: contenders over several seeds, cross-fitted alike, experts mixed in, test scored once.

`python -m benchmarks.recipe train --output DIR …` trains what DIR has no logits of yet; with `--jobs 8`, eight
processes share the work, which fills a GPU. `python -m benchmarks.recipe score --output DIR …` mixes in experts, fits
decisions out of fold, scores test, and writes tables, pictures and `summary.json` for each corpus; with `--no-test` it
stops at the out-of-fold scores, which are what contenders are chosen by.
"""

import sys
from argparse import ArgumentParser
from pathlib import Path

from benchmarks.recipe.corpora import NAMES, read_corpus
from benchmarks.recipe.report import report
from benchmarks.recipe.scores import Bench
from benchmarks.recipe.train import ENCODER, FROZEN, SEEDS, logits_file, runs, train_all
from benchmarks.sharing import run_side_by_side


def main() -> None:
    """Train, or score what is trained."""
    parser = ArgumentParser("python -m benchmarks.recipe", description=__doc__)
    parser.add_argument("step", choices=("train", "score"))
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--corpus", choices=NAMES, nargs="+", default=list(NAMES), help="these corpora alone")
    parser.add_argument("--contender", nargs="+", help="these contenders alone")
    parser.add_argument("--encoder", default=ENCODER)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of whole corpora")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds after which no training begins")
    parser.add_argument("--jobs", type=int, default=1, help="processes that train side by side")
    parser.add_argument("--no-test", action="store_true", help="score what is known out of fold, and nothing else")
    asked = parser.parse_args()
    paths = {"reuters": asked.reuters, "arxiv54": asked.arxiv54}
    wanted = [
        run
        for run in runs(asked.seeds)
        if run.corpus in asked.corpus and (asked.contender is None or run.contender in asked.contender)
    ]
    if asked.step == "train" and asked.jobs > 1:
        alone = [*sys.argv[1:], "--jobs", "1"]  # the last one counts
        run_side_by_side(asked.jobs, "benchmarks.recipe", alone)
    elif asked.step == "train":
        train_all(asked.output, paths, asked.encoder, asked.deadline, wanted)
    else:
        trained = [run for run in wanted if logits_file(asked.output, run).exists()]
        if not trained:
            parser.error(f"{asked.output} has no logits of these corpora and contenders: run `train` first")
        for name, frozen in dict.fromkeys((run.corpus, run.contender == FROZEN) for run in trained):
            corpus = read_corpus(name, paths[name.partition("-")[0]])
            own = [run for run in trained if (run.corpus, run.contender == FROZEN) == (name, frozen)]
            report(Bench(corpus, asked.output, own), test=not asked.no_test)


if __name__ == "__main__":
    main()
