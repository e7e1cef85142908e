"""Training as a whole: from texts and labels to a finished model."""

import logging
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from abalone.config import NO_ENCODER, Config
from abalone.data.corpus import Corpus, Split
from abalone.data.hashes import SeenTexts
from abalone.data.notes import listed
from abalone.data.tokens import tokenize
from abalone.device import reading_precision
from abalone.encoder.feed import Feed, FeedRows, TokenFeed, embed, unlabelled
from abalone.encoder.heads import LinearHead
from abalone.encoder.load import load_encoder, window
from abalone.encoder.text_encoder import TextEncoder, split_layers
from abalone.errors import InputError, as_input_error
from abalone.evaluation.lexical import LexicalModel
from abalone.evaluation.matrices import Scores
from abalone.evaluation.neighbours import NearestNeighbours
from abalone.files.atomic import alone_in
from abalone.inference.card import LEFT_OUT
from abalone.inference.predictor import Predictor
from abalone.inference.torch_backend import TorchBackend
from abalone.losses import loss_spec
from abalone.progress import overall
from abalone.recipes import words_alone
from abalone.training.callbacks import Begun, Callback, Callbacks
from abalone.training.crossfit import cross_fit, probe_of
from abalone.training.decide import Decided, HeldOut, decide
from abalone.training.estimate import DECISION, READ, OnEstimate, timed
from abalone.training.folds import divide, held_out_labels
from abalone.training.label_names import as_text, taught_by
from abalone.training.open_settings import rate_for_width, settled
from abalone.training.run import TrainingRun, enter_folder, refuse_other_documents
from abalone.training.runtime import Runtime, random_state_kept
from abalone.training.stages import FITTING, Start, Trained, train_copy, train_stages
from abalone.training.trackers import trackers_of
from abalone.training.words import FITTED, Words, fit_words, story_of, words_model

log = logging.getLogger(__name__)


def fit(
    config: Config,
    corpus: Corpus,
    folder: Path,
    *,
    resume: bool = False,
    on_estimate: OnEstimate | None = None,
    callbacks: Sequence[Callback] = (),
) -> Predictor:
    """Train the stages that `config` asks for, and fit the decision to documents that were held out.

    With folds, validation documents join the training documents: each is judged by a model that has not seen it, the
    decision is fitted to what was said of all of them, and the model that takes it is trained on all. Without, the
    decision is fitted to the validation documents, which no training ever sees.

    Args:
        config: the settings.
        corpus: its training and validation splits are used; the test split is not looked at.
        folder: where checkpoints go.
        resume: go on from `folder`.
        on_estimate: told how long it will take, before the first step, where that is known by then: on a CPU, in one
            process, unless it goes on with a run. May raise to stop.
        callbacks: told of the training, before the tracker that the settings name.

    Where several processes were launched, all of them call this with the same arguments, and each gets the model.
    """
    with random_state_kept(config.device), ExitStack() as held:
        runtime = Runtime.start(config.device, config.precision)
        ranks = runtime.ranks
        told = Callbacks([*callbacks, *trackers_of(config)] if ranks.main else [])
        on_cpu = runtime.device.type == "cpu"
        suited = settled(config, len(corpus.train) + len(corpus.validation), on_cpu=on_cpu)
        refuse_unusable(suited, corpus)
        if ranks.count > config.batch_size:
            warnings.warn(
                f"a batch of {config.batch_size} documents leaves some of {ranks.count} processes without any: "
                "raise batch_size, or launch fewer",
                stacklevel=3,
            )
        refuse_other_documents(ranks, config, corpus)

        def enter() -> tuple[str, dict[str, Any]]:
            held.enter_context(alone_in(folder))
            chosen = {"folds": suited.folds, "epochs": suited.epochs}
            return enter_folder(folder, config, corpus, resume=resume, chosen=chosen)

        made_by, chosen = ranks.from_main(enter)
        config = config.replace(**chosen)
        scores = held.enter_context(told.around(Begun(config.to_dict(), folder, resume)))
        if config.folds:
            if len(corpus.validation) and not _made_here(corpus):
                log.info(
                    "%s validation documents are trained on too, each judged by a model that has not seen it; "
                    "folds=0 (--folds 0) keeps them apart",
                    f"{len(corpus.validation):,}",
                )
            corpus = corpus.with_validation_in_train()
        if config.encoder == NO_ENCODER:
            predictor = fit_words(config, corpus)
        else:
            torch.manual_seed(config.seed)  # before any weight is drawn
            encoder, tokenizer = load_encoder(config.encoder, config.pooling, config.dropout)
            # Before all documents are read, so that more layers than there are cost nothing.
            parts = split_layers(encoder, config.freeze_layers) if config.freeze_layers else None
            config = _within_window(config, encoder, tokenizer)
            taught = taught_by(config, corpus)
            if config.learning_rate is None:
                config = config.replace(learning_rate=rate_for_width(encoder.hidden_size))
            with ranks.first_here_goes_first():  # the others then find the tokens in the cache
                train, validation = (make_feed(split, tokenizer, config) for split in (taught, corpus.validation))
            run = TrainingRun(
                config, train, None if config.folds else validation, runtime, folder, resume, callbacks=told
            )
            names = _name_features(corpus.label_names, encoder, tokenizer, config) if config.name_prototypes else None
            held.enter_context(timed(run, corpus, encoder, parts, on_estimate))
            lower, trained = (None, encoder) if parts is None else parts
            start = Start(trained, lower, len(corpus.label_names), names)
            fit_parts = _fit_across_folds if config.folds else _fit_with_validation
            made = fit_parts(run, corpus, taught, start)
            predictor = made.predictor(config, corpus, tokenizer)
        predictor.story["fingerprint"] = made_by  # of the settings as given, before some were settled
        for documents, measured in predictor.story["scores"].items():
            scores.update({f"{documents.replace(', ', '/')}/{name}": value for name, value in measured.items()})
        return predictor


@dataclass(frozen=True, eq=False)
class _Made:
    """The parts of a finished model.

    Args:
        trained: encoder and linear layer; `None` where words alone decide and none was trained on all documents.
        decided: the decision, and what it is worth.
        lexical, neighbours: the experts that are mixed in.
    """

    trained: Trained | None
    decided: Decided
    lexical: LexicalModel | None
    neighbours: NearestNeighbours | None

    def predictor(self, config: Config, corpus: Corpus, tokenizer: PreTrainedTokenizerBase) -> Predictor:
        """Put the model together."""
        if self.trained is None or self.trained.head is None or self.decided.words_alone:
            assert self.lexical is not None
            story = {LEFT_OUT: config.encoder, "history": {} if self.trained is None else self.trained.history}
            return words_model(words_alone(config), corpus, self.lexical, self.decided, **story)
        return Predictor(
            corpus.label_names,
            TorchBackend(self.trained.encoder, tokenizer, self.trained.head, config),
            self.decided.decision,
            self.lexical,
            self.neighbours,
            story={**story_of(corpus), "history": self.trained.history, **self.decided.story},
            seen=SeenTexts.of(corpus.train.texts, corpus.validation.texts),
            out_of_fold=self.decided.out_of_fold,
            trained_with=config,
        )


def _fit_with_validation(run: TrainingRun, corpus: Corpus, taught: Split, start: Start) -> _Made:
    """Train on `taught`, and fit the decision to what the model says of the validation split.

    Args:
        taught: the training documents, and the label names after them where they are learnt.
    """
    validation = run.validation
    assert validation is not None
    own = replace(run, train=start.input_of(run, run.train), validation=start.input_of(run, validation))
    trained = train_stages(own, start)
    assert trained.head is not None
    # The model has one layer, as other libraries expect it; the decision is fitted to what that layer says.
    head = trained.head.merged()
    trained = replace(trained, head=head)
    embeddings = _read(run, trained, validation, "Encoding validation")
    lexical, neighbours = None, None
    experts: dict[str, Scores] = {}
    if run.config.lexical:
        lexical = Words(taught, run.config.seed).expert(np.arange(len(taught)))
        lexical.calibrate(corpus.validation.texts, corpus.validation.labels)
        experts["lexical"] = lexical.logits_in_blocks(corpus.validation.texts)
    if run.config.neighbours:
        documents = FeedRows(run.train, np.arange(len(corpus.train)))
        neighbours = _neighbours(run, corpus, _read(run, trained, documents, "Encoding the neighbours"))
        experts["neighbours"] = neighbours.logits_in_blocks(embeddings)
    labels = corpus.validation.labels
    logits = head.logits_in_blocks(embeddings)
    decided = _decide(HeldOut(logits, experts, labels, labels), run, corpus)
    if decided.words_alone:
        return _Made(trained, decided, lexical, None)
    used = decided.decision.mixture.used
    return _Made(
        trained,
        decided,
        lexical if "lexical" in used else None,
        neighbours if "neighbours" in used else None,
    )


def _fit_across_folds(run: TrainingRun, corpus: Corpus, taught: Split, start: Start) -> _Made:
    """Fit the decision to what models of folds say of documents they have not seen; then train on all documents."""
    config, every = run.config, np.arange(len(taught))
    folds = divide(corpus.train, config.folds or 1, len(taught) - len(corpus.train))
    words = Words(taught, config.seed) if config.lexical else None
    own = replace(run, train=start.input_of(run, run.train))
    judged = held_out_labels(corpus.train, folds)
    said = cross_fit(own, start, run.train, words, folds, judged["learnable"])
    decided = _decide(HeldOut(said.logits, said.experts, **judged), run, corpus)
    used = decided.decision.mixture.used
    lexical = None
    if words is not None and (decided.words_alone or "lexical" in used):
        lexical = words.expert(every)
        lexical.link = said.link or lexical.link
    if decided.words_alone:
        return _Made(None, decided, lexical, None)
    if lexical is None:
        overall().skip(FITTED, len(every))
    if config.neighbours and "neighbours" not in used:
        overall().skip(READ, start.depth * float(run.train.lengths.sum()))
    trained, embeddings = train_copy(own, start), said.embeddings
    if embeddings is None and (trained.head is None or "neighbours" in used):
        embeddings = _read(run, trained, run.train, "Encoding all documents")
    if trained.head is not None:
        head = trained.head.merged()
    else:
        assert embeddings is not None
        head = LinearHead(*probe_of(run).fit_chosen(embeddings, taught.labels, said.setting))
        overall().done(FITTING, 1)
    neighbours = None if "neighbours" not in used or embeddings is None else _neighbours(run, corpus, embeddings)
    return _Made(replace(trained, head=head), decided, lexical, neighbours)


def _read(run: TrainingRun, trained: Trained, documents: Feed, description: str) -> np.ndarray:
    """Return embeddings [n, h] in the precision of later predictions: what is fitted here must fit there."""
    # Encoding is shared by all ranks; everything after it is the same on each, and takes no longer than on one.
    precision = reading_precision(run.config.precision)
    return embed(trained.encoder, documents, run.runtime.device, description, precision=precision, ranks=run.ranks)


def _neighbours(run: TrainingRun, corpus: Corpus, embeddings: np.ndarray) -> NearestNeighbours:
    """Remember the training documents, which are the first of the embeddings [n, h]."""
    labels = corpus.train.labels
    return NearestNeighbours(fp16=True, device=str(run.runtime.device)).fit(embeddings[: labels.shape[0]], labels)


def _decide(held: HeldOut, run: TrainingRun, corpus: Corpus) -> Decided:
    overall().begin("Fitting the decision")
    decided = decide(held, np.array(corpus.stats().frequencies), run.config)
    overall().done(DECISION, 1)
    return decided


def _made_here(corpus: Corpus) -> bool:
    """Return whether the validation documents were split off by us, rather than given by a person."""
    split = corpus.provenance.get("split")
    return not isinstance(split, dict) or split.get("origin") == "stratified" or "validation" in split


def refuse_unusable(config: Config, corpus: Corpus) -> None:
    """Refuse settings and documents that could only fail later, after the expensive part."""
    with as_input_error():
        spec = loss_spec(config.objective)
        finetuning = loss_spec(config.finetune_objective) if config.classifier == "finetune" else None
    if spec.takes == "label_embeddings" and config.max_chunks > 1:
        raise InputError(f"objective {config.objective!r} cannot read documents in chunks: set max_chunks to 1")
    if config.freeze_layers and config.max_chunks > 1:
        raise InputError("freeze_layers and max_chunks cannot be combined: set max_chunks to 1")
    if spec.takes == "label_embeddings" and not spec.joint:
        raise InputError(f"{config.objective!r} alone collapses; add a pointwise loss: '{config.objective}+bce'")
    if finetuning is not None and finetuning.takes != "logits":
        raise InputError(f"finetune_objective must be a pointwise loss such as bce, got {config.finetune_objective!r}")
    if config.folds and config.patience is not None:
        raise InputError("patience watches validation documents, and with folds all are trained on: set folds to 0")
    if len(corpus.train) == 0:
        raise InputError("there are no training documents")
    if corpus.train.labels.nnz == 0:
        raise InputError("no training document carries a label")
    if config.folds == 0 and len(corpus.validation) == 0:
        raise InputError("there are no validation documents: give more documents, or validation=(texts, labels)")
    if config.folds == 0 and corpus.validation.labels.nnz == 0:
        raise InputError("no validation document carries a label of the training documents")
    frequencies = np.asarray(corpus.train.labels.sum(axis=0)).ravel()
    if absent := [name for name, count in zip(corpus.label_names, frequencies, strict=True) if count == 0]:
        named = config.learn_names and all(map(as_text, absent))
        so = "has only the name to learn it from" if named else "cannot learn it"
        warnings.warn(f"no training document carries {listed(absent)}, so the model {so}", stacklevel=4)


def make_feed(split: Split, tokenizer: PreTrainedTokenizerBase, config: Config) -> TokenFeed:
    """Return a split as token batches; tokens come from the cache where they were made before."""
    tokens = tokenize(split.texts, tokenizer)
    return TokenFeed(tokens, split.labels, config.max_length, config.max_chunks)


def _name_features(
    names: Sequence[str], encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase, config: Config
) -> Tensor:
    """Return the embeddings of the label names, [L, h]."""
    feed = make_feed(Split(names, unlabelled(len(names))), tokenizer, config)
    return torch.from_numpy(embed(encoder, feed, torch.device("cpu")))


def _within_window(config: Config, encoder: TextEncoder, tokenizer: PreTrainedTokenizerBase) -> Config:
    longest = window(encoder, tokenizer)
    if config.max_length <= longest:
        return config
    warnings.warn(
        f"{config.encoder} reads at most {longest} tokens, so max_length={config.max_length} becomes {longest}; "
        "raise max_chunks to read more of long documents",
        stacklevel=3,
    )
    return config.replace(max_length=longest)
