"""int8 ONNX beside fp32 ONNX on two cores: how much faster, and what it costs in F1."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from abalone.extras import install_hint
from benchmarks.measure import Line, best_seconds, show

THREADS = 2
TRAINING_DOCUMENTS = 2_000  # embedded once for the probe; the encoder stays as it is
TIMED_DOCUMENTS = 128
TITLE = f"ONNX on {THREADS} cores, all-MiniLM-L6-v2 with a probe on arXiv abstracts; plain = fp32, ours = int8"


def main() -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as missing:
        show(TITLE, [Line(f"left out: {missing.name} is not here ({install_hint('onnx')})", "", "", "")])
        return

    from abalone import AbaloneClassifier, load_corpus
    from abalone.data.corpus import Split
    from abalone.evaluation.metrics import evaluate
    from abalone.serving.export import export
    from abalone.serving.onnx_model import OnnxModel

    corpus = load_corpus("arxiv-sample")
    train = Split(corpus.train.texts[:TRAINING_DOCUMENTS], corpus.train.labels[:TRAINING_DOCUMENTS])
    with warnings.catch_warnings(), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # a rare label may have no document among the first
        classifier = AbaloneClassifier("fast", lexical=False, max_length=256, device="cpu")
        classifier.fit_corpus(replace(corpus, train=train))
        files = [Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"]
        exported = [export(classifier.predictor_, file, int8=file.stem == "int8") for file in files]
        models = [OnnxModel.load(file, threads=THREADS) for file in files]
    test = corpus.test
    macro = []
    for model in models:
        given = model.decision.labels(model.probabilities(test.texts))
        macro.append(100 * evaluate(test.labels, given)["macro_f1"])
    texts = test.texts[:TIMED_DOCUMENTS]
    fp32, int8 = best_seconds(*(partial(model.probabilities, texts) for model in models), repeat=5)
    one_fp32, one_int8 = best_seconds(*(partial(model.probabilities, texts[:1]) for model in models), repeat=20)
    sizes = [file.bytes / 1e6 for file in exported]
    show(
        TITLE,
        [
            Line(
                f"{len(texts)} abstracts, a second",
                f"{len(texts) / fp32:.0f}",
                f"{len(texts) / int8:.0f}",
                f"{fp32 / int8:.2f}×",
                "≥ 1.8×",
            ),
            Line("one abstract", f"{one_fp32 * 1e3:.1f} ms", f"{one_int8 * 1e3:.1f} ms", f"{one_fp32 / one_int8:.2f}×"),
            Line(
                f"macro-F1 on {len(test):,} test documents",
                f"{macro[0]:.2f}",
                f"{macro[1]:.2f}",
                f"{macro[1] - macro[0]:+.2f}",
                "≥ −0.5",
            ),
            Line("file", f"{sizes[0]:.1f} MB", f"{sizes[1]:.1f} MB", f"{sizes[1] / sizes[0]:.2f}×"),
        ],
    )


if __name__ == "__main__":
    main()
