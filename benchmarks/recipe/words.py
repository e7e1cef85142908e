"""What pieces of words add to the lexical expert, on documents that judge and were not trained on.

A line per pool and draw: micro-F1, macro-F1 and macro-F1 of the rarest third, with words and pairs alone and with
pieces; and how many times the entries and the processor time of fitting become. No test document is read.
"""

import time
from argparse import ArgumentParser

import numpy as np
from scipy.sparse import csr_array

from abalone.evaluation.calibration import PlattScaling
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.tfidf import TermCounts
from benchmarks.recipe.pools import Pool, joined
from benchmarks.recipe.screen import METRICS, Pools, Run, crosswise, load

POOLS = {
    "reuters": ("reuters", "reuters-8shot", "reuters-16shot", "reuters-500"),
    "arxiv54": ("arxiv54-8shot", "arxiv54-16shot", "arxiv54-500", "arxiv54-2000", "arxiv54-8000", "arxiv54"),
}


def judged(pool: Pool, texts: list[str], labels: csr_array, with_pieces: bool) -> tuple[dict[str, float], float, float]:
    """Return scores in percent, tf-idf entries a document, and the processor time of fitting in seconds."""
    rows = np.concatenate([pool.train, pool.judged])
    train, others = np.arange(len(pool.train)), np.arange(len(pool.train), len(rows))
    counts = TermCounts.of([texts[row] for row in rows], with_pieces=with_pieces)
    model = LexicalModel(jobs=1)
    started = time.process_time()
    model.fit_counts(counts, train, labels[pool.train])
    seconds = time.process_time() - started
    entries = counts.fitted(train, model.min_df, model.max_features)[1].nnz / len(train)
    decisions, truth = model.decisions_of(counts, others), labels[pool.judged]
    varied = ~model.constant
    link = PlattScaling.fitted(decisions[:, varied], truth.toarray()[:, varied] == 1, model.log_odds[varied])
    logits = np.where(varied, link.logits(decisions, model.log_odds), model.log_odds).astype(np.float32)
    frequencies = np.asarray(labels[pool.train].sum(axis=0)).ravel()
    return crosswise(logits, {}, truth, frequencies), entries, seconds


def main() -> None:
    """Print the table."""
    parser = ArgumentParser("python -m benchmarks.recipe.words", description=__doc__)
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--seeds", type=int, default=3, help="draws of subsamples and few shots")
    asked = parser.parse_args()
    print("| pool | draw | words | with pieces | entries | fitting |\n|---|--:|---|---|--:|--:|")
    for base, names in POOLS.items():
        texts, labels = joined(load(base, getattr(asked, base)))
        every = Pools({base: labels})
        for run in (Run(name, "", 0, seed) for name in names for seed in range(asked.seeds if "-" in name else 1)):
            plain, pieced = (judged(every[run], texts, labels, with_pieces) for with_pieces in (False, True))
            cells = [
                " / ".join(f"{scores.get(metric, np.nan):.1f}" for metric in METRICS) for scores, *_ in (plain, pieced)
            ]
            times = [f"×{now / before:.1f}" for before, now in zip(plain[1:], pieced[1:], strict=True)]
            print("|", " | ".join([run.pool, str(run.seed), *cells, *times]), "|", flush=True)


if __name__ == "__main__":
    main()
