"""The model card: README.md of a model folder."""

from typing import TYPE_CHECKING, Any

from abalone.evaluation.out_of_fold import WHERE
from abalone.recipes import nearest_recipe

if TYPE_CHECKING:
    from abalone.evaluation.out_of_fold import OutOfFold
    from abalone.inference.predictor import Predictor

LEFT_OUT = "encoder_left_out"  # in the story: the encoder that held-out documents gave no weight beside words
SHOWN = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "macro_f1_head": "macro-F1, frequent third",
    "macro_f1_medium": "macro-F1, medium third",
    "macro_f1_tail": "macro-F1, rare third",
    "hamming_loss": "Hamming loss",
}

CITATION = """```bibtex
@article{audibert_contrastive_mltc,
  title  = {Exploring Contrastive Learning for Long-Tailed Multi-Label Text Classification},
  author = {Audibert, Alexandre and Gauffre, Aur{\\'e}lien and Amini, Massih-Reza},
  year   = {2023}
}
```"""


def model_card(predictor: "Predictor") -> str:
    """Return Markdown about the model: training, data, scores and use."""
    story = predictor.story
    parts = [
        _header(predictor),
        f"# A classifier for {story['corpus']}\n\n"
        f"Gives a text some of {len(predictor.label_names)} labels, with an eye to the rare ones. Made with ABALONE: "
        f"{_made(predictor)}.",
        _usage(predictor),
        _intended_use(predictor),
        _data(story["statistics"]),
        *([] if predictor.out_of_fold is None else [_out_of_fold(predictor, predictor.out_of_fold)]),
        *(
            _scores(split, scores)
            for split, scores in story.get("scores", {}).items()
            if predictor.out_of_fold is None or split != WHERE
        ),
        _configuration(predictor),
        f"## Citation\n\n{CITATION}",
    ]
    return "\n\n".join(parts) + "\n"


def _made(predictor: "Predictor") -> str:
    """Name the encoder and its training, and the experts with their weights."""
    config, experts = predictor.config, predictor.decision.mixture.used
    if predictor.words is not None:
        tried = predictor.story.get(LEFT_OUT)
        judges = "validation" if predictor.out_of_fold is None else "out-of-fold answers"
        left_out = "" if tried is None else f"; beside words, {judges} gave the encoder `{tried}` no weight"
        return f"tf-idf and a linear SVM for each label, without an encoder{left_out}"
    trained = f", objective `{config.objective}`" if config.epochs else " as it is, and a linear layer"
    return f"`{config.encoder}`{trained}" + "".join(
        f", with the {name} expert at weight {weight:.2f}" for name, weight in experts.items()
    )


def _header(predictor: "Predictor") -> str:
    of_encoder = "" if predictor.words is not None else ", contrastive-learning, sentence-transformers"
    return "\n".join(
        [
            "---",
            "library_name: abalone-mltc",
            "pipeline_tag: text-classification",
            f"tags: [multi-label, long-tail{of_encoder}]",
            "---",
        ]
    )


def _usage(predictor: "Predictor") -> str:
    """Show how to open the model with each library, and list the parts of it that other libraries leave out."""
    lines = ["## Use", "", "```python", "from abalone import AbaloneClassifier", ""]
    lines += [
        'model = AbaloneClassifier.from_pretrained("path/to/this/folder")',
        'model.predict(["a text"])',
        "```",
    ]
    if predictor.words is not None:
        return "\n".join(lines)
    from abalone.inference.huggingface import (
        opens_as_classifier,  # with torch, which a model of words alone does without
    )

    encoder, head = predictor.network.encoder, predictor.network.head
    lines.append("")
    if opens_as_classifier(predictor):
        lines += ["With `transformers` alone, the probability of every label:", "", "```python"]
        lines += ["from transformers import pipeline", ""]
        lines += ['pipe = pipeline("text-classification", model="path/to/this/folder", top_k=None)']
        lines += ['pipe(["a text"], truncation=True)', "```", ""]
    lines += ["With `sentence-transformers` alone, the embeddings:", "", "```python"]
    lines += ["from sentence_transformers import SentenceTransformer", ""]
    lines += ['SentenceTransformer("path/to/this/folder").encode(["a text"])', "```"]
    left_out = ["the thresholds, one a label, which stand in `abalone.json` under `decision`"]
    if not opens_as_classifier(predictor):
        left_out.append(
            "the classifier, a linear layer in `head.safetensors`: the head that `transformers` has for this "
            f"architecture cannot carry it, or not on `{encoder.pooling}` pooling"
        )
    used = predictor.decision.mixture.used
    left_out += [f"the {name} expert, mixed in with weight {weight:.2f}" for name, weight in used.items()]
    if used and predictor.decision.calibration is not None:
        left_out.append("calibrated probabilities: the temperatures were fitted to the mixture with the experts")
    if predictor.config.max_chunks > 1:
        left_out.append(
            f"all but the first {predictor.network.max_length} tokens of a text, where ABALONE reads "
            f"{predictor.config.max_chunks} times as many"
        )
    if (layers := len(head.weight)) > 1:
        left_out.append(f"the averaging over {layers} linear layers: `transformers` sees one, their mean")
    lines += ["", "What is left out without ABALONE:", "", *(f"- {item};" for item in left_out)]
    return "\n".join(lines)[:-1] + "."


def _intended_use(predictor: "Predictor") -> str:
    fitted = (
        "on the validation documents, so scores there look a little too good"
        if predictor.out_of_fold is None
        else "on out-of-fold answers, those of models that had not seen the document"
    )
    return (
        "## Intended use\n\n"
        "Proposing labels for texts like those it was trained on, in the same language and from the same kind of "
        "source, where a person or a later step can correct them. Not for decisions about people without a person "
        "in them: it has learnt whatever bias the labels of its training documents have.\n\n"
        f"Mixing, probabilities and thresholds were fitted {fitted}; on texts unlike these, fit them again. A label "
        "with few training documents is uncertain, whatever its threshold says."
    )


def _data(data: dict[str, Any]) -> str:
    return (
        f"## Data\n\n{data['train']:,} training and {data['validation']:,} validation documents, "
        f"{data['labels_per_document']:.2f} labels and {data['words_per_document']:,.0f} words each. The most frequent "
        f"label is on {data['frequency_max']:,} training documents, the rarest on {data['frequency_min']:,}; "
        f"{data['labels_under_30']} labels are on fewer than 30."
    )


def _out_of_fold(predictor: "Predictor", answers: "OutOfFold") -> str:
    scores, intervals = answers.scores(predictor.frequencies), answers.intervals(predictor.frequencies)
    rows = [
        f"| {title} | {scores[name]:.4f} | "
        + (f"{intervals[name].low:.4f} – {intervals[name].high:.4f} |" if name in intervals else "|")
        for name, title in SHOWN.items()
        if name in scores
    ]
    return "\n".join(
        [
            "## Out-of-fold scores",
            "",
            f"Each of {len(answers):,} documents was judged by a model that had not seen it, with thresholds chosen on "
            "other documents. Intervals are over the documents, 95 %.",
            "",
            "| metric | value | interval |",
            "|---|---|---|",
            *rows,
        ]
    )


def _scores(split: str, scores: dict[str, float]) -> str:
    rows = [f"| {title} | {scores[name]:.4f} |" for name, title in SHOWN.items() if name in scores]
    where = split if split.startswith(WHERE) else f"on {split}"
    return "\n".join([f"## Scores {where}", "", "| metric | value |", "|---|---|", *rows])


def _configuration(predictor: "Predictor") -> str:
    import yaml

    settings = yaml.safe_dump(predictor.config.to_dict(), sort_keys=False, allow_unicode=True).strip()
    recipe, others = nearest_recipe(predictor.config)
    changed = f", but for {', '.join(f'`{name}`' for name in others)}" if others else ""
    return f"## Configuration\n\nThe recipe `{recipe}`{changed}. All settings:\n\n```yaml\n{settings}\n```"
