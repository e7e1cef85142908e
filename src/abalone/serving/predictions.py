"""The body of an answer, from what the model says of each text."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

import numpy as np

from abalone.inference.served import Served, Verdict
from abalone.serving.problems import Refusal


@dataclass(frozen=True)
class Predictions:
    """Writes answers of one model.

    Args:
        served: the model.
        most: labels in one answer, over all of its texts.
    """

    served: Served
    most: int

    def check(self, texts: int, top_k: int | None) -> None:
        """Refuse a request whose answer would be too large, before the model works on it."""
        if top_k is not None:
            self._check_size(texts * min(top_k, len(self.served.classifier.label_names)))

    def body(self, verdicts: Sequence[Verdict], top_k: int | None) -> bytes:
        """The JSON. It takes a while where labels are many: call it in a thread."""
        if top_k is None:
            self._check_size(sum(int(verdict.given.sum()) for verdict in verdicts))
        # One text at a time: `json` gives no other thread a turn before it is done.
        predictions = ",".join(_json(self._prediction(verdict, top_k)) for verdict in verdicts)
        return f'{{"model":{_json(self.served.name)},"predictions":[{predictions}]}}'.encode()

    def _check_size(self, labels: int) -> None:
        if labels > self.most:
            raise Refusal(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the answer would have {labels:,} labels, at most {self.most:,} are given at a time; send fewer texts "
                "or a smaller top_k",
            )

    def _prediction(self, verdict: Verdict, top_k: int | None) -> dict[str, object]:
        names, thresholds = self.served.classifier.label_names, self.served.classifier.decision.thresholds.values
        order = np.argsort(-verdict.probabilities, kind="stable")
        chosen = order[verdict.given[order]] if top_k is None else order[:top_k]
        labels = [
            {
                "name": names[j],
                "probability": round(float(verdict.probabilities[j]), 6),
                "threshold": shown_threshold(thresholds[j]),
                "given": bool(verdict.given[j]),
            }
            for j in chosen.tolist()
        ]
        evidence = None if verdict.evidence is None else [vars(document) for document in verdict.evidence]
        return {"labels": labels, "evidence": evidence}


def shown_threshold(value: float) -> float | None:
    """A threshold as answers show it; none for a label that is never given."""
    return round(float(value), 6) if value <= 1 else None


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
