"""Data leakage: which documents models may be scored on, which they have seen, and the splits they were trained with.

A model keeps the provenance of its training data, with checksums of the files, columns and seed, and hashes of the
texts it was trained and tuned on. Both say of other data which of its documents would flatter the model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from scipy.sparse import vstack

from abalone.data.benchmarks import BENCHMARKS
from abalone.data.corpus import Corpus, assemble
from abalone.data.hashes import SeenTexts
from abalone.data.labels import LabelLists
from abalone.data.load import SourceData, load_corpus, read_source
from abalone.data.rows import present_column
from abalone.data.sources import matching_files, open_path
from abalone.data.split import SPLITS
from abalone.data.store import take
from abalone.errors import InputError, spelled

Provenance = Mapping[str, Any]
_REMEMBERED = ("label_separator", "merge_case", "drop_duplicates", "encoding")  # options in the provenance
_SPLITTING = ("label_separator", "merge_case", "drop_duplicates", "encoding", "bad_rows")  # on which splits depend


class TrainedModel(Protocol):
    """A finished model: `Predictor` is one, `OnnxModel` is another."""

    @property
    def story(self) -> Mapping[str, Any]:
        """The metadata of the model; under `provenance`, that of its training data."""
        ...

    @property
    def seen(self) -> SeenTexts | None:
        """The texts it was trained and tuned on, where it knows them."""
        ...


class OutOfFoldRows(Protocol):
    """Out-of-fold predictions: `evaluation.out_of_fold.OutOfFold`."""

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """Return the row of each text, and -1 for a text without predictions; [n]."""
        ...


class AllSeenError(InputError):
    """No document is left to score: the models were trained or tuned on all of them."""


@dataclass(frozen=True, eq=False)
class DocumentsToScore:
    """Documents to score models on, and what to tell whoever reads the scores.

    Args:
        name: of the data.
        split: "train", "validation", "test" or "all".
        texts: [n].
        labels: the label names of each text as they stand in the data, those that a model lacks too.
        data_notes: of reading the data.
        known_data: whether a model was trained on these very files, so that its training has given `data_notes`.
        out_of_fold: whether the models have seen all of the documents, and have out-of-fold predictions for these.
        notes: how many documents are left out.
        warnings: why the scores may look too good.
    """

    name: str
    split: str
    texts: Sequence[str]
    labels: LabelLists
    data_notes: Sequence[str] = ()
    known_data: bool = False
    out_of_fold: bool = False
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def absent(self, label_names: Iterable[str]) -> list[str]:
        """Return the labels of a model that no document carries: each counts as F1 0 in macro-F1."""
        carried = set(self.labels.carried())
        return [name for name in label_names if name not in carried]


def documents_to_score(
    data: str | Path,
    models: Mapping[str, TrainedModel],
    split: str | None = None,
    *,
    out_of_fold: Mapping[str, OutOfFoldRows] = MappingProxyType({}),
    path: str | Path | None = None,
    **reading: Any,
) -> DocumentsToScore:
    """Return the documents of `data` that models are to be scored on: none they have seen, as far as that is known.

    Data that a model was trained on is read with the same columns and options, and split with the same seed, so that
    its test split comes out again.

    Args:
        data: as for `load_corpus`.
        models: by the names that notes call them.
        split: "train", "validation", "test" or "all"; by default "test", or, of data without splits, every document
            that no model has seen.
        out_of_fold: the predictions of each model. Where no split is asked for and the models have seen all documents,
            those that all of these predictions are about are returned.
        path, reading: as for `load_corpus`; reading options that are not given are those of training.

    Raises:
        AllSeenError: no split is asked for, and the models have seen all documents.
    """
    check_split(split)
    if data in BENCHMARKS:
        corpus = load_corpus(data, path=path, **reading)
        known = any(same_data(corpus.provenance, _provenance(model)) for model in models.values())
        found = _of_corpus(corpus, split or "test", known_data=known)
    elif path is not None:
        raise InputError(f"{spelled('path')} is only for known corpora, and {data} is not one: leave it out")
    else:
        read = read_source(data, **options_of_training(data, reading, map(_provenance, models.values())))
        found = _of_own_data(read, split, models, out_of_fold)
    if not found.texts:
        raise InputError(f"the {found.split} split of {found.name} is empty; choose another with {spelled('split')}")
    return found


def check_split(split: str | None) -> None:
    """Raise where no split has this name."""
    if split not in {None, "all", *SPLITS}:
        raise InputError(f"no split is called {split!r}; there are {', '.join(SPLITS)}, and all")


def _of_own_data(
    read: SourceData,
    split: str | None,
    models: Mapping[str, TrainedModel],
    out_of_fold: Mapping[str, OutOfFoldRows],
) -> DocumentsToScore:
    # Not from a `Corpus` where that can be helped: it has no column for a label that its own training split lacks, and
    # the model may know that label well.
    documents = read.documents
    brought, same_files = any(documents.splits), [model for model in models.values() if _same_files(model, read)]
    chosen = split or ("test" if brought or same_files else "all")
    if not brought and chosen != "all":
        # The split that a model was trained with comes out again if the seed and all that is read are the same.
        corpus = _assembled(read, _provenance(same_files[0]) if same_files else None)
        found = _of_corpus(corpus, chosen, known_data=bool(same_files))
        return replace(found, warnings=_doubts(found, read, models, corpus.provenance))
    rows = np.arange(len(documents.texts)) if chosen == "all" else documents.rows()[chosen]
    notes: list[str] = []
    if split is None and chosen == "all":
        rows, notes = _unseen(read.name, documents.texts, models)
    fall_back = split is None and not rows.size
    if fall_back:
        rows = _with_predictions(documents.texts, out_of_fold)
        if not rows.size and chosen == "all":
            those = " or ".join(name for name, model in models.items() if model.seen is not None)
            raise AllSeenError(
                f"{those} was trained or tuned on every document of {read.name}: add {spelled('split', 'all')} to "
                "score these documents anyway"
            )
    found = DocumentsToScore(
        read.name,
        chosen,
        take(documents.texts, rows),
        documents.labels.select(rows),
        documents.notes,
        known_data=bool(same_files),
        out_of_fold=fall_back and rows.size > 0,
        notes=notes,
    )
    if found.out_of_fold or split == "all":
        return found  # the predictions were made before the models saw these documents; who asks for all knows
    return replace(found, warnings=_doubts(found, read, models, {"split": {"origin": read.origin}}))


def _doubts(
    found: DocumentsToScore, read: SourceData, models: Mapping[str, TrainedModel], splits: Provenance
) -> list[str]:
    """Return why scores of the models may look too good; `splits` is the provenance of the splits as read here."""
    doubts = []
    for name, model in models.items():
        then = _provenance(model)
        if found.split == "all":
            if model.seen is None and then.get("source") == read.provenance["source"]:
                source = read.provenance["source"]
                doubts.append(
                    f"{name} was trained on another version of {source}: documents that are in both are scored too"
                )
        elif _same_files(model, read):
            if _splitting(then) != _splitting(splits):
                doubts.append(
                    f"{name} was trained on another split of {read.name}, which cannot be reproduced as the data is "
                    "read here: some of the scored documents may be training documents of the model"
                )
        # Who asks for train or validation knows.
        elif found.split == "test" and model.seen is not None and (count := int(model.seen.hold(found.texts).sum())):
            doubts.append(
                f"{name} was trained or tuned on {count:,} of the {len(found.texts):,} scored documents: its scores "
                "will look too good"
            )
    return doubts


def _of_corpus(corpus: Corpus, split: str, *, known_data: bool) -> DocumentsToScore:
    parts = dict(corpus.splits())
    chosen = list(parts.values()) if split == "all" else [parts[split]]
    labels = vstack([part.labels for part in chosen], format="csr")
    texts = chosen[0].texts if len(chosen) == 1 else [text for part in chosen for text in part.texts]
    lists = LabelLists(corpus.label_names, labels.indices, labels.indptr[1:])
    return DocumentsToScore(corpus.name, split, texts, lists, corpus.notes, known_data)


def _unseen(name: str, texts: Sequence[str], models: Mapping[str, TrainedModel]) -> tuple[np.ndarray, list[str]]:
    """Return the rows of the texts that no model has seen, and a note for each model that has seen some."""
    known = np.zeros(len(texts), dtype=bool)
    notes = []
    for model_name, model in models.items():
        if model.seen is None:
            continue
        held = model.seen.hold(texts)
        known |= held
        if held.any() and not held.all():
            notes.append(
                f"{held.sum():,} of {len(texts):,} documents of {name} are not scored: {model_name} was trained or "
                "tuned on them."
            )
    return np.flatnonzero(~known), notes


def _with_predictions(texts: Sequence[str], out_of_fold: Mapping[str, OutOfFoldRows]) -> np.ndarray:
    """Return the rows of the texts that every model has out-of-fold predictions for; none without a model."""
    judged = np.full(len(texts), bool(out_of_fold))
    for predictions in out_of_fold.values():
        judged &= predictions.rows(texts) >= 0
    return np.flatnonzero(judged)


def corpus_of_training(data: str | Path, provenance: Provenance) -> Corpus:
    """Read a user's own data as a model's training did, and split it with the same seed.

    The splits are those of training if the files are. Of other data, whatever fits is read alike.

    Args:
        data: a path, as for `load_corpus`.
        provenance: of the model's training data, `story["provenance"]`.
    """
    return _assembled(read_source(data, **options_of_training(data, {}, [provenance])), provenance)


def _assembled(read: SourceData, provenance: Provenance | None) -> Corpus:
    """Return the corpus with the splits of a model's training; without a provenance, with those of any new corpus."""
    how: dict[str, Any] = {"seed": 0}
    if provenance is not None:
        made = _dict_of(provenance, "split")
        # Models trained before copies of a text were kept together do not say that they were. Nor do models of data
        # without copies, for which it makes no difference.
        how["copies_together"] = made.get("copies_together") is True
        if isinstance(made.get("seed"), int):  # a corpus made in Python may have any
            how["seed"] = made["seed"]
    return assemble(read.documents, name=read.name, origin=read.origin, provenance=read.provenance, **how)


def options_of_training(
    data: str | Path, options: Mapping[str, Any], provenances: Iterable[Provenance]
) -> dict[str, Any]:
    """Add to reading options those that models were trained with, where they are not given and fit the data.

    Columns do where the data has them, an encoding and the dropping of copies where it is the very same files. What is
    made of labels fits all data.

    Args:
        data: a path, as for `load_corpus`.
        options: reading options of `load_corpus` that are given.
        provenances: of each model's training data; where the options in them differ, a user has to give them.
    """
    trained_on = list(provenances)
    known = [(columns_of_training(each), *map(each.get, _REMEMBERED)) for each in trained_on]
    columns, separator, merge_case, drop_duplicates, encoding = (
        known[0] if known and all(each == known[0] for each in known) else ({}, None, None, None, None)
    )
    place, options = Path(data), dict(options)
    if not columns or not (place.exists() or matching_files(place)):  # reading it gives the better error
        return options
    if drop_duplicates is True or isinstance(encoding, str):
        now = checksums(open_path(place).provenance)
        if any(checksums(each) == now for each in trained_on):
            options["drop_duplicates"] = drop_duplicates is True or bool(options.get("drop_duplicates"))
            options["encoding"] = options.get("encoding") or encoding
    if merge_case is True:
        options["merge_case"] = True
    present = open_path(place, checked=False, encoding=options.get("encoding")).tables[0].columns
    taken = {
        option: names[0] if len(names) == 1 else names
        for option, names in columns.items()
        if not options.get(option) and all(present_column(present, name) for name in names)
    }
    if "label_column" in taken and options.get("label_separator") is None and isinstance(separator, str):
        options["label_separator"] = separator
    return {**options, **taken}


def columns_of_training(provenance: Provenance) -> dict[str, list[str]]:
    """Return the columns of a model's training data by the option that names them; none where they are not known."""
    columns = _dict_of(provenance, "columns")
    split = columns.get("split")
    named = {"text_column": columns.get("text"), "label_column": columns.get("labels"), "split_column": [split]}
    return {
        option: names
        for option, names in named.items()
        if isinstance(names, list) and names and all(isinstance(name, str) for name in names)
    }


def same_data(one: Provenance, other: Provenance) -> bool:
    """Return whether two provenances are of the same files, or of the same source where files are not known."""
    return _origin(one) is not None and _origin(one) == _origin(other)


def checksums(provenance: Provenance) -> list[str] | None:
    """Return the checksums of the files, whatever the files are called; `None` where they are not known."""
    return list(sums.values()) if isinstance(sums := provenance.get("sha256"), dict) else None


def _provenance(model: TrainedModel) -> Provenance:
    found: Provenance = model.story.get("provenance", {})
    return found


def _same_files(model: TrainedModel, read: SourceData) -> bool:
    return checksums(_provenance(model)) == checksums(read.provenance)


def _origin(provenance: Provenance) -> object:
    return checksums(provenance) or provenance.get("source")


def _splitting(provenance: Provenance) -> object:
    """Return all that decides which split a document of the same files is in."""
    split = _dict_of(provenance, "split")
    if split.get("origin") != "stratified":
        return split.get("origin")
    return split, _dict_of(provenance, "columns").get("labels"), *map(provenance.get, _SPLITTING)


def _dict_of(provenance: Provenance, key: str) -> dict[str, Any]:
    return found if isinstance(found := provenance.get(key), dict) else {}
