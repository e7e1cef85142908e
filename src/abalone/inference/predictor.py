"""A finished model: texts in, labels out. A backend runs its neural part, torch or ONNX; neither is imported here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.sparse import csr_array

from abalone.config import Config
from abalone.data.hashes import SeenTexts
from abalone.errors import InputError
from abalone.evaluation.decision import Decision
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.matrices import EVERY, Labels, Scores
from abalone.evaluation.metrics import LabelScore, evaluate, per_label
from abalone.evaluation.out_of_fold import OUT_OF_FOLD, OutOfFold

if TYPE_CHECKING:
    from abalone.evaluation.neighbours import NearestNeighbours
    from abalone.evaluation.neighbours_in_numpy import StoredNeighbours
    from abalone.inference.torch_backend import TorchBackend

Vectors = np.ndarray | csr_array
"""Rows that texts are compared by: embeddings [n, h], or tf-idf rows [n, F] of a model without an encoder."""

TFIDF_DECISION = "tfidf_decision"  # key in the story: the decision of the tf-idf model if it were used alone
NO_NETWORK = "this model is tf-idf + SVM without an encoder, so it has no embeddings; train one with another recipe"
NOT_IN_TORCH = "this model is an ONNX file, which has neither torch weights nor settings; load the model folder instead"
NOT_JUDGED = (
    "this model has no out-of-fold scores, as it was trained with folds=0 or by an earlier version: give labelled "
    "documents (DATA) to score it on, or train it again with folds=1 or more"
)


class Backend(Protocol):
    """The neural classifier of a model, encoder and linear layer, as one library runs it."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings [n, h], float32."""
        ...

    def read(self, texts: Sequence[str]) -> tuple[Scores, np.ndarray]:
        """Return logits [n, L] and embeddings [n, h]; each text is encoded once."""
        ...


@dataclass(eq=False)
class Predictor:
    """A model from texts to labels: network, experts, decision.

    Args:
        label_names: [L], the columns of every matrix.
        backend: the neural classifier. `None` in a model of words alone, where `lexical` is the classifier, and
            nothing is mixed.
        decision: mixing, calibration, thresholds.
        lexical, neighbours: experts to mix in, if any.
        answers_in_names: whether `AbaloneClassifier.predict` returns label names; a 0/1 matrix otherwise, as the model
            was trained on one.
        story: metadata of training: provenance, statistics of the data, history, scores. Of an ONNX file only a part.
        seen: hashes of the texts that the model was trained and tuned on, if they are known.
        out_of_fold: predictions for each training document by a model not trained on it, if it was cross-fitted.
        trained_with: the settings; an ONNX file does not have them.
    """

    label_names: tuple[str, ...]
    backend: Backend | None
    decision: Decision
    lexical: LexicalModel | None = None
    neighbours: "NearestNeighbours | StoredNeighbours | None" = None
    answers_in_names: bool = True
    story: dict[str, Any] = field(default_factory=dict)
    seen: SeenTexts | None = None
    out_of_fold: OutOfFold | None = None
    trained_with: Config | None = None

    @property
    def config(self) -> Config:
        """Return the settings the model was trained with; raises `ValueError` for an ONNX file."""
        if self.trained_with is None:
            raise InputError(NOT_IN_TORCH)
        return self.trained_with

    @property
    def network(self) -> "TorchBackend":
        """Return encoder, tokenizer and linear layer in torch; raises `ValueError` where the model has none."""
        if self.backend is None:
            raise InputError(NO_NETWORK)
        from abalone.inference.torch_backend import TorchBackend

        if not isinstance(self.backend, TorchBackend):
            raise InputError(NOT_IN_TORCH)
        return self.backend

    @property
    def words(self) -> LexicalModel | None:
        """Return the classifier of a model of words alone; `None` where there is an encoder."""
        return self.lexical if self.backend is None else None

    @property
    def frequencies(self) -> Sequence[int]:
        """Return the number of training documents of each label, [L]."""
        found: Sequence[int] = self.story["statistics"]["frequencies"]
        return found

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return embeddings [n, h], float32; raises `ValueError` where there is no encoder."""
        if self.backend is None:
            raise InputError(NO_NETWORK)
        return self.backend.embed(texts)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the rows that texts are compared by: embeddings [n, h], or tf-idf rows [n, F] without an encoder."""
        return self.embed(texts) if self.words is None else self.words.rows(texts)

    def scores(self, texts: Sequence[str]) -> Scores:
        """Return probabilities [n, L], computed block by block where texts and labels are many."""
        if not len(texts):
            return np.empty((0, len(self.label_names)))
        if self.words is not None:
            return self.decision.scores(self.words.logits_in_blocks(texts), {})
        return self._read(texts)[0]

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return probabilities [n, L]."""
        return self.scores(texts)[EVERY, EVERY]

    def probabilities_and_vectors(self, texts: Sequence[str]) -> tuple[np.ndarray, Vectors]:
        """Return probabilities [n, L] and `vectors`, each text encoded once."""
        if not len(texts) or self.words is not None:
            return self.probabilities(texts), self.vectors(texts)
        scores, embeddings = self._read(texts)
        return scores[EVERY, EVERY], embeddings

    def _read(self, texts: Sequence[str]) -> tuple[Scores, np.ndarray]:
        """Return probabilities [n, L] by classifier and experts, and embeddings [n, h]."""
        if self.backend is None:
            raise InputError(NO_NETWORK)
        logits, embeddings = self.backend.read(texts)
        used = self.decision.mixture.used
        experts: dict[str, Scores] = {}
        if self.lexical is not None and "lexical" in used:
            experts["lexical"] = self.lexical.logits_in_blocks(texts)
        if self.neighbours is not None and "neighbours" in used:
            experts["neighbours"] = self.neighbours.logits_in_blocks(embeddings)
        return self.decision.scores(logits, experts), embeddings

    def names(self, chosen: np.ndarray) -> list[list[str]]:
        """Return the label names of each row of a 0/1 matrix [n, L]."""
        return [[self.label_names[column] for column in np.flatnonzero(row)] for row in chosen]

    def predict(self, texts: Sequence[str]) -> list[list[str]]:
        """Return label names for each text, of which none may be empty."""
        from abalone.data.in_memory import read_texts  # with modules for splitting that `abalone predict` does not need

        return self.names(self.decision.labels(self.probabilities(read_texts(texts))))

    def evaluate(self, truth: Labels, probabilities: Scores) -> tuple[dict[str, float], list[LabelScore]]:
        """Score probabilities against the truth, overall and label by label; by thirds where frequencies are known.

        Args:
            truth: 0/1, [n, L].
            probabilities: of the same documents by this model, [n, L].
        """
        known = self.story.get("statistics", {}).get("frequencies")
        frequencies = None if known is None else np.array(known)
        given = self.decision.given(probabilities)
        overall = evaluate(truth, given, probabilities=probabilities, frequencies=frequencies)
        return overall, per_label(truth, given, self.label_names, frequencies, self.decision.thresholds.values)

    def judged(self) -> tuple[dict[str, float], list[LabelScore]]:
        """Return the out-of-fold scores, overall and label by label; raises `ValueError` where there are none."""
        if self.out_of_fold is None:
            raise InputError(NOT_JUDGED)
        by_label = self.out_of_fold.by_label(self.label_names, self.frequencies, self.decision.thresholds.values)
        return self.out_of_fold.scores(self.frequencies), by_label

    def tfidf_alone(self, truth: Labels, texts: Sequence[str]) -> dict[str, float] | None:
        """Score the tf-idf model within this model by itself: the baseline to beat.

        Its calibration and thresholds were fitted to it alone, on validation. `None` where the model has none, where
        it does not know them, and where it is nothing else than tf-idf.

        Args:
            truth: 0/1, [n, L].
            texts: the same documents.
        """
        stored = self.story.get(TFIDF_DECISION)
        if self.lexical is None or stored is None or self.decision.mixture.used == {"lexical": 1.0}:
            return None
        decision = Decision.from_dict(stored)
        probabilities = decision.scores(self.lexical.logits_in_blocks(texts), {})
        frequencies = np.array(self.frequencies)
        return evaluate(truth, decision.given(probabilities), probabilities=probabilities, frequencies=frequencies)

    def refuse_misfits(self) -> None:
        """Raise `ValueError` where the parts are not those of one model, before a text finds out."""
        if self.backend is None and self.lexical is None:
            raise InputError("it has neither an encoder nor a tf-idf model")
        if self.backend is None and self.decision.mixture.used:
            raise InputError("there is no encoder to mix experts with")
        experts = {"lexical": self.lexical, "neighbours": self.neighbours}
        if absent := [name for name in self.decision.mixture.used if experts.get(name) is None]:
            raise InputError(f"{', '.join(absent)} is mixed in, but its file is missing")
        self.refuse_other_labels()

    def refuse_other_labels(self) -> None:
        """Raise `ValueError` where a part is for another number of labels than there are label names."""
        decision, experts = self.decision, {"lexical": self.lexical, "neighbours": self.neighbours}
        by_label = {"thresholds": len(decision.thresholds.values)}
        if decision.calibration is not None:
            by_label["calibration"] = len(decision.calibration.groups)
        by_label |= {name: expert.num_labels for name, expert in experts.items() if expert is not None}
        if "frequencies" in self.story.get("statistics", {}):
            by_label["frequencies"] = len(self.frequencies)
        if "label_f1" in self.story:
            by_label["label_f1"] = len(self.story["label_f1"])
        if TFIDF_DECISION in self.story:
            by_label[TFIDF_DECISION] = len(Decision.from_dict(self.story[TFIDF_DECISION]).thresholds.values)
        if self.out_of_fold is not None:
            by_label[OUT_OF_FOLD] = self.out_of_fold.num_labels
        refuse_other_labels(len(self.label_names), by_label)


def refuse_other_labels(labels: int, by_label: Mapping[str, int]) -> None:
    """Raise `ValueError` where a part is for another number of labels than there are label names."""
    for name, found in by_label.items():
        if found != labels:
            raise InputError(f"there are {labels} label names, and {name} for {found}")


def label_f1(decision: Decision, probabilities: Scores, truth: Labels) -> list[float | None]:
    """Return the F1 of each label, [L]; `None` where no document carries it, so that nothing can be said.

    Args:
        decision: chooses the labels.
        probabilities: [n, L].
        truth: 0/1, [n, L].
    """
    table = per_label(truth, decision.given(probabilities), tuple(map(str, range(probabilities.shape[1]))))
    return [round(label.f1, 4) if label.support else None for label in table]
