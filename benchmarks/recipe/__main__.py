"""What each part of the recipe gives: contenders over several seeds, experts mixed in, thresholds tuned.

`python -m benchmarks.recipe DATA --output DIR` trains what DIR has no logits of yet, then scores everything in it and
writes `recipe.json`, `recipe.md` and `recipe.png`. With `--contender` it only trains, so that several can run side by
side on one GPU.
"""

from argparse import ArgumentParser
from pathlib import Path

from abalone.data.load import load_corpus
from benchmarks.recipe.report import report
from benchmarks.recipe.scores import Bench
from benchmarks.recipe.train import CONTENDERS, logits_file, read_words, train, words_file


def main() -> None:
    parser = ArgumentParser("python -m benchmarks.recipe", description=__doc__)
    parser.add_argument("data", help="a corpus, as for `abalone train`")
    parser.add_argument("--path", help="where the files of a benchmark lie")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--contender", choices=CONTENDERS, help="train this one, and score nothing")
    parser.add_argument("--score-only", action="store_true", help="train nothing; score what is complete")
    asked = parser.parse_args()
    corpus = load_corpus(asked.data, path=asked.path)
    if not asked.score_only:
        for seed in asked.seeds:
            for contender in (asked.contender,) if asked.contender else CONTENDERS:
                if not logits_file(asked.output, contender, seed).exists():
                    train(contender, seed, corpus, asked.encoder, asked.output)
    if asked.contender is None:
        if not words_file(asked.output).exists():
            read_words(corpus, asked.output)
        report(Bench(corpus, asked.output, asked.seeds))


if __name__ == "__main__":
    main()
