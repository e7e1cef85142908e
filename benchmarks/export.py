"""int8 ONNX against fp32 ONNX on two cores: speed, F1, and agreement between processors."""

import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from abalone.errors import install_hint
from benchmarks.measure import Line, best_seconds, show

if TYPE_CHECKING:
    from abalone.data.corpus import Split
    from abalone.inference.predictor import Predictor

THREADS = 2
TRAINING_DOCUMENTS = 2_000  # embedded once for the probe; the encoder stays as it is
TIMED_DOCUMENTS = 128
TITLE = f"ONNX on {THREADS} cores, all-MiniLM-L6-v2 with a probe on arXiv abstracts; plain = fp32, ours = int8"
FP32, INT8, TEXTS = "fp32.onnx", "int8.onnx", "texts.json"
PRINTED = "import sys, json; from benchmarks.export import timed; print(json.dumps(timed(sys.argv[1])))"


def main() -> None:
    try:
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as missing:
        show(TITLE, [Line(f"left out: {missing.name} is not here ({install_hint('onnx')})", "", "", "")])
        return

    from abalone import AbaloneClassifier, load_corpus
    from abalone.data.corpus import Split

    corpus = load_corpus("arxiv-sample")
    train = Split(corpus.train.texts[:TRAINING_DOCUMENTS], corpus.train.labels[:TRAINING_DOCUMENTS])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a rare label may have no document among the first
        classifier = AbaloneClassifier("fast", lexical=False, max_length=256, device="cpu")
        classifier.fit_corpus(replace(corpus, train=train))
    show(TITLE, lines(classifier.predictor_, corpus.test))


def lines(predictor: "Predictor", test: "Split") -> list[Line]:
    from abalone.evaluation.metrics import evaluate
    from abalone.inference.export import export
    from abalone.inference.onnx_model import OnnxModel

    texts = list(test.texts[:TIMED_DOCUMENTS])
    with TemporaryDirectory() as folder:
        files = [Path(folder) / FP32, Path(folder) / INT8]
        sizes = [export(predictor, file, int8=file.name == INT8).bytes / 1e6 for file in files]
        (Path(folder) / TEXTS).write_text(json.dumps(texts))
        fp32, int8, exact, given = timed(folder)
        avx2 = _timed_with_avx2_only(folder)
        models = [OnnxModel.load(file, threads=THREADS) for file in files]
    one_fp32, one_int8 = best_seconds(*(partial(model.probabilities, texts[:1]) for model in models), repeat=20)
    macro = [
        100 * evaluate(test.labels, model.decision.labels(model.probabilities(test.texts)))["macro_f1"]
        for model in models
    ]
    return [
        _speed(f"{len(texts)} abstracts, a second", len(texts), fp32, int8, "≥ 1.8×"),
        Line("one abstract", f"{one_fp32 * 1e3:.1f} ms", f"{one_int8 * 1e3:.1f} ms", f"{one_fp32 / one_int8:.2f}×"),
        _off("mean difference of a probability from fp32", given, exact, "≤ 0.03"),
        *([] if avx2 is None else _without_vnni(avx2, exact, given)),
        Line(
            f"macro-F1 on {len(test):,} test documents",
            f"{macro[0]:.2f}",
            f"{macro[1]:.2f}",
            f"{macro[1] - macro[0]:+.2f}",
            "≥ −0.5",
        ),
        Line("file", f"{sizes[0]:.1f} MB", f"{sizes[1]:.1f} MB", f"{sizes[1] / sizes[0]:.2f}×"),
    ]


Timed = tuple[float, float, list[list[float]], list[list[float]]]


def timed(folder: str) -> Timed:
    """Return the seconds of both files in `folder` for its texts, and the probabilities of both, [n, L]."""
    from abalone.inference.onnx_model import OnnxModel

    texts = json.loads((Path(folder) / TEXTS).read_text())
    models = [OnnxModel.load(Path(folder) / name, threads=THREADS) for name in (FP32, INT8)]
    fp32, int8 = best_seconds(*(partial(model.probabilities, texts) for model in models), repeat=5)
    full, small = (model.probabilities(texts).tolist() for model in models)
    return fp32, int8, full, small


def _timed_with_avx2_only(folder: str) -> Timed | None:
    """Return what `timed` returns on a processor without VNNI, or None where that cannot be emulated."""
    command = [sys.executable, "-m", "benchmarks.avx2_only", sys.executable, "-c", PRINTED, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return None
    fp32, int8, full, small = json.loads(done.stdout)
    return fp32, int8, full, small


def _without_vnni(avx2: Timed, exact: Sequence[Sequence[float]], given: Sequence[Sequence[float]]) -> list[Line]:
    fp32, int8, _, small = avx2
    return [
        _speed("with AVX2 only: abstracts, a second", len(given), fp32, int8, "≥ 1.2×"),
        _off("… mean difference of a probability from fp32", small, exact, "≤ 0.03"),
        _off("… from int8 above", small, given, "≤ 0.002"),
    ]


def _speed(what: str, texts: int, fp32: float, int8: float, promised: str) -> Line:
    return Line(what, f"{texts / fp32:.0f}", f"{texts / int8:.0f}", f"{fp32 / int8:.2f}×", promised)


def _off(what: str, these: Sequence[Sequence[float]], those: Sequence[Sequence[float]], promised: str) -> Line:
    return Line(what, "", f"{np.abs(np.array(these) - np.array(those)).mean():.5f}", "", promised)


if __name__ == "__main__":
    main()
