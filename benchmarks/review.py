"""How well `abalone review` finds wrong and missing labels, and what correcting them is worth.

    python -m benchmarks.review --output results --corpus reuters --reuters reuters21578.tar.xz

5 % of the label assignments of the training documents are removed, and as many are added at random; a label of n
documents is hit with a weight of 1/√n for each assignment, so rare labels suffer most. A model is cross-fitted on what
is left. Its suspects are compared with those of cleanlab 2.9, which is given the same out-of-fold probabilities
(`pip install cleanlab`; without it, with ranking by the probability alone): the average precision of finding the
removed labels among those not given, and the added ones among those given, over all labels and over the rarest third.

Then as many of the first suspects as labels were planted are looked up in the truth, and corrected where they are
wrong, and a model is trained again: macro-F1 on the test split with the true labels, with the planted errors, and
after the corrections. Writes `review.json` and `review.md`.
"""

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.metrics import average_precision_score

from abalone import AbaloneClassifier
from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import text_hashes
from abalone.evaluation.metrics import THIRDS, evaluate, label_thirds
from abalone.evaluation.out_of_fold import OutOfFold
from abalone.evaluation.review import find_suspects
from abalone.files.atomic import written_whole
from abalone.reproduce.task import machine, versions
from benchmarks.recipe.corpora import read_corpus

SHARE = 0.05  # of the assignments that are removed; as many are added
SPARED = 3  # a label of so few documents loses none: there would be nothing to learn it from
KINDS = ("missing", "missing, rarest third", "wrong", "wrong, rarest third")


def plant(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the labels [n, L] of bool with assignments removed, and as many added at random."""
    counts = labels.sum(axis=0)  # [L]
    weight = 1 / np.sqrt(counts.clip(min=1))
    number = round(SHARE * labels.sum())
    documents, columns = np.nonzero(labels)
    share = weight[columns] * (counts[columns] > SPARED)
    removed = random.choice(len(documents), number, replace=False, p=share / share.sum())
    planted = labels.copy()
    planted[documents[removed], columns[removed]] = False
    share = weight * counts
    added = 0
    while added < number:
        document, column = random.integers(len(labels)), random.choice(len(counts), p=share / share.sum())
        if not labels[document, column] and not planted[document, column]:
            planted[document, column] = True
            added += 1
    return planted


def train(corpus: Corpus, labels: np.ndarray, recipe: str) -> AbaloneClassifier:
    """Train a model on the training documents with these labels [n, L]."""
    changed = Corpus(
        Split(corpus.train.texts, csr_array(labels.astype(np.int32))),
        corpus.validation,
        corpus.test,
        corpus.label_names,
        name=corpus.name,
    )
    return AbaloneClassifier(recipe=recipe).fit_corpus(changed)


def doubts(answers: OutOfFold, order: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return how doubtful each pair is by each way of ranking them, [n, L], in the order of the corpus.

    Args:
        answers: of a model that was trained on the labels.
        order: `rows_in_corpus`.
        labels: [n, L] of bool.
    """
    suspects = find_suspects(answers, labels.sum(axis=0))
    ours = np.zeros(labels.shape)
    ours[order[suspects.documents], suspects.labels] = np.linspace(1, 0, len(suspects), endpoint=False)
    probabilities = np.empty(labels.shape)
    probabilities[order] = answers.said()[:, :]
    truth = answers.probabilities.tocoo()
    probabilities[order[truth.row], truth.col] = truth.data  # of given labels below the floor too
    return {"abalone": ours} | cleanlab(labels, probabilities)


def cleanlab(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, np.ndarray]:
    """Return the baseline: cleanlab's issues first, all in the order of its label quality; [n, L]."""
    by_probability = {"probability": np.where(labels, 1 - probabilities, probabilities)}
    try:
        from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
        from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
    except ImportError:
        return by_probability
    lists = [np.flatnonzero(row).tolist() for row in labels]
    quality = get_label_quality_scores_per_class(lists, probabilities)
    issues = find_multilabel_issues_per_class(lists, probabilities, return_indices_ranked_by="self_confidence")
    found = np.zeros(labels.shape)
    for column, rows in enumerate(issues[0] if isinstance(issues, tuple) else issues):
        found[np.asarray(rows, dtype=int), column] = 1
    return by_probability | {"cleanlab's filter": (found + 1 - quality) / 2}


def rows_in_corpus(answers: OutOfFold, corpus: Corpus) -> np.ndarray:
    """Return the row in the corpus of each out-of-fold document, which are in the order of their folds; [n]."""
    order = np.empty(len(answers), dtype=np.int64)
    order[np.argsort(answers.documents, kind="stable")] = np.argsort(text_hashes(corpus.train.texts), kind="stable")
    return order


def average_precision(doubt: np.ndarray, truth: np.ndarray, planted: np.ndarray) -> dict[str, float]:
    """Return the average precision of finding what was planted, in percent; all [n, L]."""
    rare = label_thirds(truth.sum(axis=0)) == len(THIRDS) - 1
    found = {}
    for kind, among, wanted in (("missing", ~planted, truth & ~planted), ("wrong", planted, planted & ~truth)):
        for name, part in ((kind, among), (f"{kind}, rarest third", among & rare)):
            found[name] = round(100 * float(average_precision_score(wanted[part], doubt[part])), 2)
    return found


def corrected(doubt: np.ndarray, truth: np.ndarray, planted: np.ndarray) -> np.ndarray:
    """Return the planted labels after looking up as many of the most doubtful as are wrong; all [n, L]."""
    number = np.count_nonzero(truth != planted)
    looked_up = np.unravel_index(np.argsort(-doubt, axis=None, kind="stable")[:number], doubt.shape)
    labels = planted.copy()
    labels[looked_up] = truth[looked_up]
    return labels


def test_scores(model: AbaloneClassifier, corpus: Corpus, frequencies: np.ndarray) -> dict[str, float]:
    """Return F1 on the test split, in percent."""
    columns = {name: column for column, name in enumerate(corpus.label_names)}
    given = np.zeros(corpus.test.labels.shape, dtype=bool)
    for row, names in enumerate(model.predict(corpus.test.texts)):
        given[row, [columns[name] for name in names]] = True
    found = evaluate(corpus.test.labels, given, frequencies=frequencies)
    return {name: round(100 * found[name], 2) for name in ("micro_f1", "macro_f1", "macro_f1_tail")}


def run(corpus: Corpus, recipe: str, seed: int, clean: Mapping[str, float] | None) -> dict[str, Any]:
    """Plant errors, find them, correct as many, and score all on the way; without scores of true labels only find."""
    truth = corpus.train.labels.toarray() > 0
    planted = plant(truth, np.random.default_rng(seed))
    model = train(corpus, planted, recipe)
    answers = model.predictor_.out_of_fold
    assert answers is not None
    ranked = doubts(answers, rows_in_corpus(answers, corpus), planted)
    changed = corrected(ranked["abalone"], truth, planted)
    told: dict[str, Any] = {
        "seed": seed,
        "planted": int(np.count_nonzero(truth != planted)),
        "corrected": int(np.count_nonzero(changed != planted)),
        "average_precision": {name: average_precision(doubt, truth, planted) for name, doubt in ranked.items()},
    }
    if clean is not None:
        scores = [test_scores(each, corpus, truth.sum(axis=0)) for each in (model, train(corpus, changed, recipe))]
        told["test"] = {"true labels": dict(clean), "with errors": scores[0], "corrected": scores[1]}
    return told


def tables(runs: Sequence[Mapping[str, Any]]) -> str:
    """Lay out the means over seeds."""
    ways = list(runs[0]["average_precision"])
    lines = ["| average precision | " + " | ".join(KINDS) + " |", "|---|" + "--:|" * len(KINDS)]
    for way in ways:
        means = (np.mean([each["average_precision"][way][kind] for each in runs]) for kind in KINDS)
        lines.append(f"| {way} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    if "test" not in runs[0]:
        return "\n".join(lines) + "\n"
    metrics = list(runs[0]["test"]["corrected"])
    lines += ["", "| test | " + " | ".join(metrics) + " |", "|---|" + "--:|" * len(metrics)]
    for name in runs[0]["test"]:
        means = (np.mean([each["test"][name][metric] for each in runs]) for metric in metrics)
        lines.append(f"| {name} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the seeds that the folder has no result of, and write the tables."""
    parser = ArgumentParser("python -m benchmarks.review", description="How well `abalone review` finds errors.")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--corpus", choices=("reuters", "arxiv54"), required=True)
    parser.add_argument("--reuters", help="the archive of Reuters-21578")
    parser.add_argument("--arxiv54", help="the folder of arxiv54")
    parser.add_argument("--recipe", default="words")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only-find", action="store_true", help="train nothing on corrected labels")
    asked = parser.parse_args()
    corpus = read_corpus(asked.corpus, getattr(asked, asked.corpus))
    file = asked.output / f"review-{asked.corpus}-{asked.recipe}" / "review.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"runs": []}
    labels = corpus.train.labels.toarray() > 0
    if "clean" not in told and not asked.only_find:
        told["clean"] = test_scores(train(corpus, labels, asked.recipe), corpus, labels.sum(axis=0))
    for seed in range(len(told["runs"]), asked.seeds):
        told["runs"].append(run(corpus, asked.recipe, seed, told.get("clean")))
        told |= {
            "command": f"python -m benchmarks.review --output DIR --corpus {asked.corpus} --{asked.corpus} PATH "
            f"--recipe {asked.recipe} --seeds {asked.seeds}{' --only-find' * asked.only_find}",
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine("cpu"),
            "versions": versions(),
        }
        with written_whole(file) as stream:
            stream.write((json.dumps(told, indent=1) + "\n").encode())
        file.with_name("review.md").write_text(tables(told["runs"]))
        print(json.dumps(told["runs"][-1]), flush=True)


if __name__ == "__main__":
    main()
