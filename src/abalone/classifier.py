"""`AbaloneClassifier`, the scikit-learn estimator from texts to label lists."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from abalone.config import SETTINGS, Config, refuse_unknown
from abalone.data.corpus import Corpus, Split
from abalone.data.in_memory import Labels, Texts, corpus_of, is_matrix, known_labels, read_texts
from abalone.evaluation.matrices import EVERY, row_blocks
from abalone.evaluation.metrics import LabelScore
from abalone.files.atomic import remove_unless_in_use
from abalone.files.cache import cache_entry
from abalone.launch import is_main
from abalone.recipes import DEFAULT, nearest_recipe
from abalone.recipes import recipe as recipe_config

if TYPE_CHECKING:
    from abalone.training.callbacks import Callback
    from abalone.training.estimate import OnEstimate


class AbaloneClassifier(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Classify texts with several labels each, of which most are rare.

    Its parameters are a recipe and the settings of `Config`, which override those of the recipe: `encoder`,
    `objective`, `epochs`, `max_length`, `seed`, `device` and so on. It follows scikit-learn's manners (`get_params`,
    `clone`, pipelines, `GridSearchCV`).

    Args:
        recipe: "rare", the best that is known for rare labels; "paper", the method of the paper; "fast", which trains
            only linear models and needs no GPU; "words", tf-idf and linear SVMs without an encoder, the fastest.
        settings: of `Config`.

    Attributes:
        label_names: the labels, in the order of the columns of `predict_proba`.
        classes_: the same as an array, as scikit-learn has them.

    Example:
        >>> model = AbaloneClassifier(objective="msc", epochs=5, seed=1)
        >>> model.get_params()["epochs"]
        5
    """

    def __init__(self, recipe: str = DEFAULT, **settings: Any) -> None:
        refuse_unknown(settings, (*SETTINGS, "recipe"), "setting")
        self.recipe = recipe
        for name, value in recipe_config(recipe).to_dict().items():
            setattr(self, name, settings.get(name, value))

    # What scikit-learn reads to learn the parameters' names; `Config` stays the one place that lists them.
    __init__.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter("self", Parameter.POSITIONAL_ONLY),
            Parameter("recipe", Parameter.POSITIONAL_OR_KEYWORD, default=DEFAULT),
            *(Parameter(name, Parameter.KEYWORD_ONLY, default=v) for name, v in recipe_config().to_dict().items()),
        ]
    )

    def set_params(self, **params: Any) -> "AbaloneClassifier":
        """Change parameters; another recipe also changes those that are still as the old recipe has them."""
        if "recipe" in params:
            old, new = recipe_config(self.recipe).to_dict(), recipe_config(params["recipe"]).to_dict()
            params |= {name: new[name] for name in new if name not in params and getattr(self, name) == old[name]}
        super().set_params(**params)
        return self

    def fit(
        self,
        texts: Texts,
        labels: Labels,
        validation: tuple[Texts, Labels] | None = None,
        *,
        label_names: Sequence[str] | None = None,
        run_folder: str | Path | None = None,
        resume: bool = False,
        callbacks: "Sequence[Callback]" = (),
    ) -> "AbaloneClassifier":
        """Train on texts and their labels.

        In a script that `torchrun` or `accelerate launch` started in several processes, all of them call this alike;
        they train one model, and each has it in the end.

        Args:
            texts: the documents: a list, a column of a DataFrame, or a DataFrame of one column. An empty text is
                refused, here and wherever texts are given.
            labels: a list of label names for each text, or a 0/1 matrix [n, L], dense or sparse.
            validation: texts and labels to choose checkpoints and thresholds on; without it a tenth of the
                documents is set aside, so that every label keeps its share.
            label_names: names of the columns of a 0/1 matrix. Without them `predict` answers with a 0/1 matrix too.
            run_folder: where checkpoints go while training, and stay; by default a folder of the cache, which is
                removed when training is done. What a run that was interrupted leaves there is kept for 30 days.
            resume: go on where an interrupted `fit` with the same data and settings stopped.
            callbacks: instances of `abalone.training.callbacks.Callback`, told of every step and epoch.
        """
        corpus = corpus_of(texts, labels, validation, label_names=label_names, seed=self.seed)
        self.fit_corpus(corpus, run_folder=run_folder, resume=resume, callbacks=callbacks)
        self.predictor_.answers_in_names = not is_matrix(labels) or label_names is not None
        return self

    def fit_corpus(
        self,
        corpus: Corpus,
        *,
        run_folder: str | Path | None = None,
        resume: bool = False,
        on_estimate: "OnEstimate | None" = None,
        callbacks: "Sequence[Callback]" = (),
    ) -> "AbaloneClassifier":
        """Train on the training and validation splits of a `Corpus`, as `load_corpus` gives it.

        Args:
            corpus: the documents.
            run_folder: as in `fit`.
            resume: as in `fit`.
            on_estimate: called on a CPU with an `Estimate` of the time before the first step; may raise to stop. By
                default a warning where it is over half an hour.
            callbacks: as in `fit`.
        """
        from abalone.distributed import RankLostError
        from abalone.training.estimate import warn_if_long
        from abalone.training.interruption import TrainingInterrupted, TrainingTerminated, told_to_stop
        from abalone.training.pipeline import fit
        from abalone.training.run import fingerprint, how_to_go_on

        config = self._config()
        # The default is found again by an interrupted run with the same data and settings.
        folder = cache_entry("runs", fingerprint(config, corpus)[:16]) if run_folder is None else Path(run_folder)
        advice = "Call fit again with the same data and settings, and resume=True."
        with told_to_stop(), _warnings_of_main_only():
            try:
                estimated = on_estimate or warn_if_long
                self.predictor_ = fit(config, corpus, folder, resume=resume, on_estimate=estimated, callbacks=callbacks)
            except (KeyboardInterrupt, TrainingTerminated) as stop:
                kind = TrainingInterrupted if isinstance(stop, KeyboardInterrupt) else TrainingTerminated
                stopped = kind(str(stop) or f"training stopped; {how_to_go_on(folder)}")
                stopped.add_note(advice)
                raise stopped from None
            except RankLostError as lost:
                elsewhere = f"checkpoints are in {folder} on the machine of the main process"
                alone = RankLostError(f"{lost}; {how_to_go_on(folder) if folder.exists() else elsewhere}")
                alone.add_note(advice)
                raise alone from lost
        if run_folder is None and is_main():
            remove_unless_in_use(folder)
        return self

    def _config(self) -> Config:
        return Config(**{name: getattr(self, name) for name in SETTINGS})

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the labels in the order of the columns."""
        check_is_fitted(self, "predictor_")
        names: tuple[str, ...] = self.predictor_.label_names
        return names

    @property
    def classes_(self) -> np.ndarray:
        """Return the labels in the order of the columns, [L]."""
        return np.array(self.label_names, dtype=object)

    def predict_proba(self, texts: Texts) -> np.ndarray:
        """Return probabilities [n, L], columns in the order of `label_names`."""
        check_is_fitted(self, "predictor_")
        probabilities: np.ndarray = self.predictor_.probabilities(read_texts(texts))
        return probabilities

    def predict(self, texts: Texts) -> list[list[str]] | np.ndarray:
        """Return the label names of each text; a 0/1 matrix if trained on one without names."""
        check_is_fitted(self, "predictor_")
        predictor = self.predictor_
        chosen = predictor.decision.given(predictor.scores(read_texts(texts)))
        if not predictor.answers_in_names:
            return chosen[EVERY, EVERY].astype(np.int64)
        return [names for rows in row_blocks(chosen.shape) for names in predictor.names(chosen[rows, EVERY])]

    def encode(self, texts: Texts) -> np.ndarray:
        """Return embeddings [n, h]; a model of words alone has none."""
        check_is_fitted(self, "predictor_")
        embeddings: np.ndarray = self.predictor_.embed(read_texts(texts))
        return embeddings

    def evaluate(self, texts: Texts, labels: Labels) -> dict[str, float]:
        """Return scores: `micro_f1`, `macro_f1`, `hamming_loss`, `macro_f1_head`/`_medium`/`_tail` and more.

        Labels it was not trained on are left out of the scores, and named in a warning.
        """
        return self.evaluate_split(Split(read_texts(texts), known_labels(labels, self.label_names)))[0]

    def evaluate_split(self, split: Split) -> tuple[dict[str, float], list[LabelScore]]:
        """Return scores on a split whose label columns are those of the model, overall and label by label."""
        check_is_fitted(self, "predictor_")
        return self.predictor_.evaluate(split.labels, self.predictor_.scores(split.texts))

    def evaluate_out_of_fold(self) -> tuple[dict[str, float], list[LabelScore]]:
        """Return out-of-fold scores on the training documents, overall and label by label.

        Each document was scored by a model that was not trained on it, so they estimate the scores on new documents;
        with `folds=0` there are none. `predictor_.out_of_fold` holds the predictions, and gives 95 % intervals too.
        """
        check_is_fitted(self, "predictor_")
        return self.predictor_.judged()

    def score(self, texts: Texts, labels: Labels) -> float:
        """Return macro-F1, for scikit-learn's model selection."""
        return self.evaluate(texts, labels)["macro_f1"]

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model folder; an old one of that name stays whole until the new one is complete.

        Of several processes that were launched together only the main one writes.
        """
        from abalone.inference.folder import save

        check_is_fitted(self, "predictor_")
        if is_main():
            save(self.predictor_, folder)

    def push_to_hub(self, name: str, *, private: bool | None = None, token: str | None = None) -> str:
        """Upload the model folder, with its card, to the Hugging Face hub, and return its address there.

        Args:
            name: "user/model"; made if it is not there.
            private: whether a new one is; by default what the account says.
            token: to write with; by default the one that `hf auth login` has stored.
        """
        from abalone.inference.folder import push

        check_is_fitted(self, "predictor_")
        return push(self.predictor_, name, private=private, token=token)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, *, revision: str | None = None, **settings: Any
    ) -> "AbaloneClassifier":
        """Read a model folder; `settings` such as `device` replace those it was made with.

        Args:
            folder: a path, or the name of a model on the Hugging Face hub, "user/model".
            revision: the branch, tag or commit on the hub.
            settings: as in the constructor.
        """
        from abalone.inference.folder import find, load

        predictor = load(find(folder, revision), **settings)
        model = cls(nearest_recipe(predictor.config)[0], **predictor.config.to_dict())
        model.predictor_ = predictor
        return model


@contextmanager
def _warnings_of_main_only() -> Iterator[None]:
    """Silence warnings in all processes but the main one: they would all give the same."""
    with warnings.catch_warnings():
        if not is_main():
            warnings.simplefilter("ignore")
        yield
