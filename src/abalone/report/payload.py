"""The data of the page as plain values: numbers and texts, nothing drawn yet."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from abalone import __version__
from abalone.config import OF_THE_MACHINE
from abalone.data.corpus import RARE
from abalone.errors import InputError
from abalone.evaluation.bootstrap import Drawn, Interval, draw_scores
from abalone.evaluation.clustering import cluster_by_combination, label_combinations
from abalone.evaluation.matrices import EVERY, Labels
from abalone.evaluation.metrics import THIRDS, LabelScore, evaluate, per_label
from abalone.evaluation.out_of_fold import WHERE
from abalone.report.analysis import (
    confusion,
    document_losses,
    document_map,
    excerpt,
    learning_curves,
    reliability_by_third,
    threshold_worth,
    worst_documents,
)
from abalone.report.runs import Answers, Documents, ReportedRun

LOW_F1 = 0.5  # of a label that needs examples
LONG_EXCERPT = 700  # characters of a document to read
LIKELY = 5  # most probable labels of a document to read that are shown beside true and predicted ones
MEASURES = ("support", "predicted", "precision", "recall", "f1")  # of each label


def report_payload(runs: Sequence[ReportedRun], documents: Documents | None) -> dict[str, Any]:
    """Return all data of the page.

    Labels are indices into one list, the labels of all runs in order of first appearance: runs may know different ones.
    Without documents, runs that all have out-of-fold predictions are shown with these.

    Args:
        runs: the models, each with predictions where there are documents.
        documents: what they were scored on.
    """
    names = tuple(dict.fromkeys(name for run in runs for name in run.label_names))
    column = {name: index for index, name in enumerate(names)}
    columns = [np.array([column[name] for name in run.label_names]) for run in runs]  # [L of the run] each
    payload: dict[str, Any] = {
        "version": __version__,
        "thirds": THIRDS,
        "labels": names,
        "documents": None,
        "runs": [_of_run(run, own) for run, own in zip(runs, columns, strict=True)],
        "comparison": None,
    }
    if documents is not None:
        payload["documents"] = _of_documents(documents, column, runs[0].scored.mapped)
        for shown, run, own in zip(payload["runs"], runs, columns, strict=True):
            shown |= _of_scored(run, own, documents)
        if len(runs) > 1:
            payload["comparison"] = _comparison(runs)
    elif all(run.out_of_fold is not None for run in runs):
        for shown, run, own in zip(payload["runs"], runs, columns, strict=True):
            shown |= _of_out_of_fold(run, own)
        if len(runs) > 1 and (aligned := _on_the_same_documents(runs)):
            payload["comparison"] = _comparison(aligned)
    return payload


def _of_run(run: ReportedRun, columns: np.ndarray) -> dict[str, Any]:
    """Return what needs the model folder alone."""
    statistics = {name: value for name, value in run.story["statistics"].items() if name != "frequencies"}
    thresholds = run.decision.thresholds.values
    return {
        "name": run.name,
        "corpus": run.story.get("corpus", ""),
        "settings": {name: value for name, value in run.config.items() if name not in OF_THE_MACHINE},
        "statistics": statistics,
        "mixture": dict(run.decision.mixture.weights),
        "cross_fitted": run.out_of_fold is not None,
        "history": learning_curves(run.story),
        "stored_scores": run.story.get("scores", {}),
        "labels": {
            "index": columns,
            "third": run.thirds,
            "frequency": run.frequencies,
            "threshold": [None if value > 1 else value for value in thresholds.tolist()],  # None: it is never given
        },
    }


def _of_documents(documents: Documents, column: dict[str, int], mapped: np.ndarray) -> dict[str, Any]:
    known = [[column[name] for name in dict.fromkeys(row) if name in column] for row in documents.labels]
    return {
        "name": documents.name,
        "split": documents.split,
        "out_of_fold": documents.out_of_fold,
        "count": len(documents.texts),
        "unlabelled": sum(not row for row in known),
        "mapped": mapped,
        "texts": [excerpt(documents.texts[row]) for row in mapped],
        "truth": [known[row] for row in mapped],
    }


def _of_scored(run: ReportedRun, columns: np.ndarray, documents: Documents) -> dict[str, Any]:
    """Return scores, map, clustering and worst documents of a run."""
    answers = run.scored
    probabilities = answers.probabilities[EVERY, EVERY]
    losses = document_losses(answers.truth, probabilities)
    # Ranking measures need all out-of-fold predictions together: some probabilities are left out of the folder.
    ranked = None if documents.out_of_fold else probabilities
    scores = evaluate(answers.truth, answers.predictions, probabilities=ranked, frequencies=run.frequencies)
    return {
        **_of_answers(run, columns, scores),
        "map": _map(answers, columns, losses),
        "clustering": None if documents.out_of_fold else _clustering(answers, run.config["device"]),
        "worst": _worst(run, answers, columns, documents, losses),
    }


def _of_out_of_fold(run: ReportedRun, columns: np.ndarray) -> dict[str, Any]:
    """Return the out-of-fold scores of a run; there are no texts to read."""
    found = run.out_of_fold
    if found is None:
        raise InputError(f"the run {run.name!r} has no out-of-fold predictions")
    return {
        **_of_answers(replace(run, answers=Answers.out_of_fold(found)), columns, found.scores(run.frequencies)),
        "baseline": run.story.get("scores", {}).get(f"{WHERE}, tf-idf alone"),
        "out_of_fold": {
            "documents": len(found),
            "folds": found.num_folds,
            "untaught": columns[found.untaught(run.frequencies)],
        },
    }


def _on_the_same_documents(runs: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Return the runs with their out-of-fold predictions in one order; none if documents or all labels differ."""
    if not set.intersection(*(set(run.label_names) for run in runs)):
        return []
    found = [run.out_of_fold for run in runs if run.out_of_fold is not None]
    same = all(np.array_equal(own.documents, found[0].documents) for own in found)
    orders = [np.arange(len(own)) if same else np.argsort(own.documents, kind="stable") for own in found]
    first = found[0].documents[orders[0]]
    if not all(np.array_equal(own.documents[order], first) for own, order in zip(found, orders, strict=True)):
        return []
    return [
        replace(run, answers=Answers.out_of_fold(own, order))
        for run, own, order in zip(runs, found, orders, strict=True)
    ]


def _of_answers(run: ReportedRun, columns: np.ndarray, scores: dict[str, float]) -> dict[str, Any]:
    """Return scores, and everything else that needs only truth, probabilities and predictions."""
    answers = run.scored
    truth, probabilities, predictions = answers.truth, answers.probabilities, answers.predictions
    table = per_label(truth, predictions, run.label_names, run.frequencies)
    by_label = {name: [getattr(row, name) for row in table] for name in MEASURES}
    drawn = draw_scores(truth, predictions, run.thirds)
    return {
        "scores": scores,
        "baseline": answers.baseline,
        "intervals": _plain(drawn.intervals()),
        "by_label": by_label,
        "needs_examples": needs_examples(table),
        "reliability": [asdict(part) for part in reliability_by_third(probabilities, truth, run.thirds)],
        "thresholds": threshold_worth(run),
        "confusion": _confusion(truth, predictions, columns),
    }


def needs_examples(table: Sequence[LabelScore]) -> list[int]:
    """Return the labels that more training documents would help most: rare ones with a low F1, the worst first.

    A label without a document is not among them: its F1 is unknown.

    Args:
        table: as `per_label` makes it, with training frequencies.
    """
    needy = [
        (label.f1, label.train_frequency, place)
        for place, label in enumerate(table)
        if label.support and label.train_frequency is not None and label.train_frequency < RARE and label.f1 < LOW_F1
    ]
    return [place for _, _, place in sorted(needy)]


def _map(answers: Answers, columns: np.ndarray, losses: np.ndarray) -> dict[str, Any] | None:
    """Return place, predicted labels and loss of the documents on the map; `None` without an encoder."""
    if answers.embeddings is None:
        return None
    return {
        "layouts": {name: places.round(4) for name, places in document_map(answers.embeddings).items()},
        "given": [columns[row] for row in _rows(csr_array(answers.predictions), answers.mapped)],
        "loss": losses[answers.mapped].round(3),
    }


def _clustering(answers: Answers, device: str) -> dict[str, Any] | None:
    """Return clustering scores of the documents on the map; `None` without a map or a second label combination."""
    truth = answers.truth[answers.mapped]
    if answers.embeddings is None or label_combinations(truth).max() < 1:
        return None
    return cluster_by_combination(answers.embeddings, truth, device=device).to_dict()


def _confusion(truth: csr_array, predictions: Labels, columns: np.ndarray) -> dict[str, Any]:
    found = confusion(truth, predictions)
    shown = found.most_confused()
    return {
        "pairs": [
            [int(columns[meant]), int(columns[given]), count, both] for meant, given, count, both in found.pairs()
        ],
        "labels": columns[shown] if shown else [],
        "instead": found.instead[shown][:, shown].toarray() if shown else [],
        "together": found.together[shown][:, shown].toarray() if shown else [],
        "only_missed": found.only_missed[shown] if shown else [],
        "only_given": found.only_given[shown] if shown else [],
    }


def _worst(
    run: ReportedRun, answers: Answers, columns: np.ndarray, documents: Documents, losses: np.ndarray
) -> list[dict[str, Any]]:
    """Return the documents with the highest loss: true, predicted and most probable labels of each."""
    shown = []
    for row in worst_documents(losses):
        probabilities = answers.probabilities[row : row + 1, EVERY][0]  # [L]
        meant = np.zeros(len(columns), dtype=bool)
        meant[answers.truth.indices[slice(*answers.truth.indptr[row : row + 2])]] = True
        given = answers.predictions[row]
        likely = np.argsort(-probabilities, kind="stable")[:LIKELY]
        labels = np.union1d(np.flatnonzero(meant | given), likely)
        labels = labels[np.argsort(-probabilities[labels], kind="stable")]
        shown.append(
            {
                "row": int(row),
                "text": excerpt(documents.texts[row], LONG_EXCERPT),
                "loss": float(losses[row]),
                "labels": [
                    {
                        "label": int(columns[label]),
                        "probability": float(probabilities[label]),
                        "threshold": min(1.0, float(run.decision.thresholds.values[label])),
                        "meant": bool(meant[label]),
                        "given": bool(given[label]),
                    }
                    for label in labels
                ],
            }
        )
    return shown


def _comparison(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """Return scores of all runs on the labels they share, and differences of every two on the same draws."""
    shared = [name for name in runs[0].label_names if all(name in run.label_names for run in runs[1:])]
    if not shared:
        raise InputError(f"the runs {', '.join(run.name for run in runs)} have no label in common to compare them on")
    of_first = dict(zip(runs[0].label_names, runs[0].thirds.tolist(), strict=True))
    thirds = np.array([of_first[name] for name in shared])
    drawn = [_drawn(run, shared, thirds) for run in runs]
    return {
        "shared": len(shared),
        "documents": runs[0].scored.truth.shape[0],
        "scores": [_plain(of_run.intervals()) for of_run in drawn],
        # differences[a][b] is run a minus run b
        "differences": [[_plain(of_run.against(other)) for other in drawn] for of_run in drawn],
    }


def _drawn(run: ReportedRun, shared: Sequence[str], thirds: np.ndarray) -> Drawn:
    place = {name: index for index, name in enumerate(run.label_names)}
    columns = [place[name] for name in shared]
    return draw_scores(run.scored.truth[:, columns], run.scored.predictions[:, columns], thirds)


def _plain(intervals: dict[str, Interval]) -> dict[str, list[float]]:
    return {name: [found.value, found.low, found.high] for name, found in intervals.items()}


def _rows(matrix: csr_array, rows: np.ndarray) -> list[np.ndarray]:
    """Return the columns of the ones in some rows of a 0/1 matrix."""
    chosen = matrix[rows]
    return [chosen.indices[start:stop] for start, stop in pairwise(chosen.indptr)]
