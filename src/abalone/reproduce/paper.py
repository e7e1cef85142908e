"""The paper's published figures, shown beside ours where the corpus is the same.

Audibert, Gauffre & Amini, "Exploring Contrastive Learning for Long-Tailed Multi-Label Text Classification".
"""

# The paper's names by the names that `load_corpus` knows.
PUBLISHED = {"aapd": "AAPD", "rcv1": "RCV1", "uk-lex69": "UK-LEX"}
ENCODERS = {"AAPD": "roberta-base", "RCV1": "roberta-base", "UK-LEX": "legal-bert-base-uncased"}

Scores = dict[str, tuple[float, float, float]]  # by row: micro-F1, macro-F1 in percent, Hamming loss × 10³

# Table 1: train, validation, test, labels, labels a document, words a document.
DATASETS: dict[str, tuple[str, str, str, int, float, int]] = {
    "RCV1": ("19.7k", "3.5k", "781k", 91, 3.2, 241),
    "AAPD": ("42.5k", "4.8k", "8.5k", 54, 2.4, 163),
    "UK-LEX": ("20.0k", "8.0k", "8.5k", 69, 1.7, 1154),
}

# Table 2, and Table 3 below.
ABLATION: dict[str, Scores] = {
    "AAPD": {
        "L_MLM": (63.86, 45.62, 28.48),
        "L_Base": (72.25, 56.42, 24.4),
        "L_BQueue": (72.73, 57.92, 24.15),
        "L_BQProto": (73.3, 59.126, 23.69),
        "L_MSC": (73.59, 60.00, 23.74),
    },
    "RCV1": {
        "L_MLM": (80.06, 58.42, 13.5),
        "L_Base": (87.89, 73.7, 8.51),
        "L_BQueue": (87.56, 72.9, 8.72),
        "L_BQProto": (88.00, 74.82, 8.44),
        "L_MSC": (88.40, 76.82, 8.21),
    },
}
COMPARISON: dict[str, Scores] = {
    "AAPD": {
        "L_ASY": (72.92, 60.63, 25.3),
        "L_FCL": (73.85, 59.91, 22.61),
        "L_BCE": (73.89, 59.98, 22.53),
        "L_Base": (72.51, 56.67, 24.13),
        "L_Base-FT": (73.09, 58.55, 23.61),
        "L_MSC": (73.84, 60.75, 23.72),
        "L_MSC-FT": (74.00, 60.41, 23.01),
    },
    "RCV1": {
        "L_ASY": (86.63, 75.02, 10.02),
        "L_FCL": (88.36, 76.69, 8.19),
        "L_BCE": (88.17, 76.06, 8.17),
        "L_Base": (87.86, 73.79, 8.48),
        "L_Base-FT": (88.41, 76.08, 8.18),
        "L_MSC": (88.54, 77.05, 8.12),
        "L_MSC-FT": (88.65, 77.18, 7.99),
    },
    "UK-LEX": {
        "L_ASY": (70.53, 60.58, 14.43),
        "L_FCL": (73.23, 61.17, 11.54),
        "L_BCE": (72.61, 60.97, 11.95),
        "L_Base": (72.3, 59.66, 12.31),
        "L_Base-FT": (72.45, 60.66, 12.23),
        "L_MSC": (73.5, 62.06, 11.83),
        "L_MSC-FT": (72.97, 61.33, 12.04),
    },
}

# Table 4: Silhouette, Davies–Bouldin; 10⁴ test embeddings, the most frequent half of the label combinations.
REPRESENTATION: dict[str, dict[str, tuple[float, float]]] = {
    "RCV1": {
        "L_MLM": (-0.14, 2.83),
        "L_BCE": (0.15, 2.02),
        "L_Base": (0.07, 2.23),
        "L_Base-FT": (0.13, 2.00),
        "L_MSC": (0.10, 2.07),
        "L_MSC-FT": (0.16, 1.98),
    },
}


def about(published: str) -> str:
    """Return the sentence of a caption about the paper's figures for a corpus."""
    return f"The paper: its own figures for {published}, with {ENCODERS[published]} and its own splits."
