"""The model card that lies in a model folder as README.md."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abalone.model.predictor import Predictor

SHOWN = {
    "micro_f1": "micro-F1",
    "macro_f1": "macro-F1",
    "macro_f1_head": "macro-F1, frequent third",
    "macro_f1_medium": "macro-F1, medium third",
    "macro_f1_tail": "macro-F1, rare third",
    "hamming_loss": "Hamming loss",
}


def model_card(predictor: "Predictor") -> str:
    """Markdown with what the model is, what it was trained on, how good it is and how to use it."""
    config, story = predictor.config, predictor.story
    data = story["statistics"]
    lines = [
        "---",
        "library_name: abalone-mltc",
        "pipeline_tag: text-classification",
        "tags: [multi-label, long-tail, contrastive-learning]",
        "---",
        f"# A classifier for {story['corpus']}",
        "",
        f"Gives a text some of {len(predictor.label_names)} labels, with an eye to the rare ones. Made with ABALONE: "
        f"`{config.encoder}`, objective `{config.objective}`.",
        "",
        "```python",
        "from abalone import AbaloneClassifier",
        'model = AbaloneClassifier.from_pretrained("path/to/this/folder")',
        'model.predict(["a text"])',
        "```",
        "",
        "## Data",
        "",
        f"{data['train']:,} training and {data['validation']:,} validation documents, "
        f"{data['labels_per_document']:.2f} labels and {data['words_per_document']:,.0f} words each. The most frequent "
        f"label is on {data['frequency_max']:,} training documents, the rarest on {data['frequency_min']:,}; "
        f"{data['labels_under_30']} labels are on fewer than 30.",
    ]
    for split, scores in story.get("scores", {}).items():
        lines += ["", f"## Scores on {split}", "", "| metric | value |", "|---|---|"]
        lines += [f"| {title} | {scores[name]:.4f} |" for name, title in SHOWN.items() if name in scores]
    if weights := predictor.decision.mixture.weights:
        mixed = ", ".join(f"{name} (weight {weight:.2f})" for name, weight in weights.items())
        lines += ["", f"Mixed in beside the encoder: {mixed}. Tools that read only the encoder leave these out."]
    lines += [
        "",
        "## Limits",
        "",
        "Mixing, probabilities and thresholds were fitted on the validation documents, so scores there flatter a "
        "little; on texts unlike these they need fitting again. A label with few training documents is uncertain, "
        "whatever its threshold says.",
        "",
        "## Reference",
        "",
        "Audibert, Gauffre & Amini, *Exploring Contrastive Learning for Long-Tailed Multi-Label Text Classification*.",
        "",
    ]
    return "\n".join(lines)
