"""The long tail before and after: three models on a part of the bundled arXiv abstracts, side by side on one page.

    pip install '.[offline]'             # in a clone
    python examples/long_tail.py long-tail.html

`frozen` is the encoder as it is, with linear evaluation. `bce` is trained with binary cross-entropy, `msc` is
pre-trained with the contrastive loss; both have a tf-idf expert mixed in. Takes some twenty minutes on two cores.
"""

import sys
from pathlib import Path

from abalone import AbaloneClassifier
from abalone.config import Config
from abalone.data.corpus import Corpus
from abalone.data.in_memory import label_lists
from abalone.demo import SETTINGS, demo_corpus
from abalone.report.page import write_report
from abalone.report.runs import Documents


def write_page(path: Path, corpus: Corpus, settings: Config) -> None:
    """Train the three on the corpus and write the page of their test scores."""
    plain = settings.replace(lexical=False, neighbours=False)
    runs = {
        "frozen": plain.replace(epochs=0, freeze_layers=0),
        "msc": plain.replace(objective="msc", lexical=True),
        "bce": plain.replace(objective="bce", lexical=True),
    }
    models = {name: AbaloneClassifier(**run.to_dict()).fit_corpus(corpus) for name, run in runs.items()}
    documents = Documents(corpus.name, "test", corpus.test.texts, label_lists(corpus.test.labels, corpus.label_names))
    write_report(models, path, documents)


if __name__ == "__main__":
    write_page(Path(sys.argv[1]), demo_corpus(), SETTINGS.replace(epochs=6))
