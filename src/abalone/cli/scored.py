"""Choose the documents to score models on: none that they were trained on, as far as that can be known."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from abalone.cli.corpus import (
    as_in_training,
    checksums,
    one_or_several,
    read_and_tell,
    split_of_training,
    tell,
    unrepeated,
)

if TYPE_CHECKING:
    import numpy as np

    from abalone.data.corpus import Corpus
    from abalone.data.labels import LabelLists
    from abalone.data.seen import SeenTexts
    from abalone.evaluation.out_of_fold import OutOfFold

    Labelled = tuple[Sequence[str], LabelLists]
    """Texts, and the names of their labels."""

SPLIT_HELP = "train, validation, test or all; by default test, or all of a file without splits."


def to_score(
    data: str,
    split: str | None,
    trained_on: Mapping[str, Mapping[str, Any]],
    seen: "Mapping[str, SeenTexts]",
    *,
    path: Path | None,
    advice: str = "",
    judged: "Mapping[str, OutOfFold] | None" = None,
    **options: Any,
) -> "tuple[str, str, Sequence[str], LabelLists]":
    """What is scored: the names of data and split, the texts, and their labels as they stand in the data.

    Args:
        data: as a person names it.
        split: by default test, or of data without splits all that none of the models knows from its training.
        trained_on: the provenance of each model's data, by the name of the model.
        seen: the texts that each was trained and tuned on, where it knows them.
        path, options: those of `read_corpus`.
        advice: what else to do with documents that are all known, ending in ", or ".
        judged: the out-of-fold answers of all models. Where no split is asked for and nothing is left that no model
            knows, the documents that all of these answer are taken, and the split is called "out of fold".
    """
    from abalone.data.benchmarks import BENCHMARKS

    if data in BENCHMARKS:
        corpus = read_and_tell(data, trained_on=trained_on.values(), path=path, **options)
        name, split, (texts, labels) = corpus.name, split or "test", _of_corpus(corpus, split or "test")
    elif path is not None:
        raise ValueError(f"--path is only for known corpora, and {data} is not one: leave it out")
    else:
        name, split, (texts, labels) = _of_own_data(data, split, trained_on, seen, options, advice, judged or {})
    if not texts:
        raise ValueError(f"the {split} split of {name} is empty; choose another with --split")
    return name, split, texts, labels


def _of_own_data(
    data: str,
    split: str | None,
    trained_on: Mapping[str, Mapping[str, Any]],
    seen: "Mapping[str, SeenTexts]",
    options: Mapping[str, Any],
    advice: str,
    judged: "Mapping[str, OutOfFold]",
) -> "tuple[str, str, Labelled]":
    """As `to_score`.

    Not from a `Corpus` where that can be helped: it has no column for a label that its own training split lacks, and
    the model may know that label well.
    """
    import numpy as np

    from abalone.data.corpus import assemble
    from abalone.data.load import read_source
    from abalone.data.store import take
    from abalone.evaluation.out_of_fold import WHERE

    options = as_in_training(data, options, trained_on.values())
    columns = {option: one_or_several(options[option]) for option in ("text_column", "label_column")}
    with unrepeated() as notes:
        read = read_source(data, **{**options, **columns})
        notes += read.documents.notes
    documents, brought = read.documents, any(read.documents.splits)
    same_files = {model: then for model, then in trained_on.items() if checksums(then) == checksums(read.provenance)}
    chosen = split or ("test" if brought or same_files else "all")
    if brought or chosen == "all":
        if not same_files:  # or training has told them
            tell(documents.notes)
        rows = np.arange(len(documents.texts)) if chosen == "all" else documents.rows()[chosen]
        if split is None and chosen == "all":
            rows = _without_seen(read.name, documents.texts, seen)
        if split is None and not rows.size:
            rows = _judged(documents.texts, judged)
            if rows.size:
                chosen = WHERE
                tell(["every document was used in training: the page shows out-of-fold predictions."])
            elif chosen == "all":
                raise ValueError(
                    f"{' or '.join(seen)} was trained or tuned on every document of {read.name}: {advice}add "
                    "--split all to score these documents anyway"
                )
        labelled: Labelled = take(documents.texts, rows), documents.labels.select(rows)
        now: Mapping[str, Any] = {"split": {"origin": read.origin}}
    else:
        # The split that a model was trained with comes out again if the seed and all that is read are the same.
        made = next(map(split_of_training, same_files.values()), {"seed": 0})
        corpus = assemble(documents, name=read.name, origin=read.origin, provenance=read.provenance, **made)
        if not same_files:
            tell(corpus.notes)
        labelled, now = _of_corpus(corpus, chosen), corpus.provenance
    if chosen == WHERE:
        pass  # whatever the models know, their answers are from before they knew it
    elif chosen != "all":
        for model, then in same_files.items():
            if _deciding(then) != _deciding(now):
                warnings.warn(
                    f"{model} was trained on another split of {read.name}, which cannot be reproduced as the data is "
                    "read here: some of the scored documents may be training documents of the model",
                    stacklevel=2,
                )
        if chosen == "test":  # who asks for train or validation knows
            _warn_of_seen(labelled[0], {model: texts for model, texts in seen.items() if model not in same_files})
    elif split is None:
        for model, then in trained_on.items():
            if model not in seen and then.get("source") == read.provenance["source"]:
                warnings.warn(
                    f"{model} was trained on another version of {read.provenance['source']}: documents that are in "
                    "both are scored too",
                    stacklevel=2,
                )
    return read.name, chosen, labelled


def _without_seen(data: str, texts: Sequence[str], seen: "Mapping[str, SeenTexts]") -> "np.ndarray":
    """The rows of the texts that no model was trained or tuned on; says how many others there are."""
    import numpy as np

    known = np.zeros(len(texts), dtype=bool)
    for model, those in seen.items():
        held = those.hold(texts)
        known |= held
        if held.any() and not held.all():
            some = f"{held.sum():,} of {len(texts):,} documents of {data}"
            tell([f"{some} are not scored: {model} was trained or tuned on them."])
    return np.flatnonzero(~known)


def _judged(texts: Sequence[str], judged: "Mapping[str, OutOfFold]") -> "np.ndarray":
    """The rows of the texts that the out-of-fold answers of every model are about; none without a model."""
    import numpy as np

    answered = np.full(len(texts), bool(judged))
    for answers in judged.values():
        answered &= answers.rows(texts) >= 0
    return np.flatnonzero(answered)


def _warn_of_seen(texts: Sequence[str], seen: "Mapping[str, SeenTexts]") -> None:
    for model, those in seen.items():
        if count := int(those.hold(texts).sum()):
            warnings.warn(
                f"{model} was trained or tuned on {count:,} of the {len(texts):,} scored documents: its scores will "
                "look too good",
                stacklevel=3,
            )


def tell_absent(model: str, label_names: Sequence[str], data: str, labels: "LabelLists") -> int:
    """Say on stderr which labels of a model are on none of the documents it is scored on; returns how many.

    Whatever the model says, no such label can have a hit: its F1 is 0, and macro-F1 the lower for it.
    """
    from abalone.data.notes import listed

    carried = set(labels.carried())
    absent = [name for name in label_names if name not in carried]
    if absent:
        occur, each = ("occurs", "It") if len(absent) == 1 else ("occur", "Each")
        tell(
            [
                f"{len(absent):,} of the {len(label_names):,} labels of {model} {occur} in no scored document of "
                f"{data}. {each} counts as F1 0 in macro-F1: {listed(absent)}."
            ]
        )
    return len(absent)


def _of_corpus(corpus: "Corpus", split: str) -> "Labelled":
    from scipy.sparse import vstack

    from abalone.data.labels import LabelLists

    parts = dict(corpus.splits())
    chosen = list(parts.values()) if split == "all" else [parts[split]]
    labels = vstack([part.labels for part in chosen], format="csr")
    texts = chosen[0].texts if len(chosen) == 1 else [text for part in chosen for text in part.texts]
    return texts, LabelLists(corpus.label_names, labels.indices, labels.indptr[1:])


def _deciding(provenance: Mapping[str, Any]) -> object:
    """What decides which split a document of the same files is in."""
    split, columns = (own if isinstance(own := provenance.get(key), dict) else {} for key in ("split", "columns"))
    if split.get("origin") != "stratified":
        return split.get("origin")
    options = ("label_separator", "merge_case", "drop_duplicates", "encoding", "bad_rows")
    return split, columns.get("labels"), *map(provenance.get, options)
