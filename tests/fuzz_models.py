"""Fuzzing what comes as a model: folders, encoders of others, ONNX files."""

import random
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import exported

import judged
import tiny
from abalone import AbaloneClassifier
from abalone.encoder.load import load_encoder
from abalone.inference.export import export
from abalone.inference.folder import SUMS, load, save
from abalone.inference.onnx_model import OnnxModel, with_checksum
from abalone.inference.predictor import Predictor
from fuzz_readers import Files, put_damaged, written_by
from fuzzing import Target, only_clear_errors
from mutations import mutated

Numbers = random.Random
ASKED = ["w1 w2 w3", "", "w4 " * 40]


@cache
def model_files() -> Files:
    """A model folder with everything that one can hold."""
    with TemporaryDirectory() as place, warnings.catch_warnings(), tiny.every_expert_heard():
        warnings.simplefilter("ignore")
        predictor = exported.fit(Path(place), lexical=True, neighbours=True).predictor_
        predictor.out_of_fold = judged.out_of_fold(exported.TEXTS, exported.LABELS)
        return written_by(lambda folder: save(predictor, folder / "model"))


@cache
def words_files() -> Files:
    """A model folder without an encoder."""
    return written_by(lambda folder: save(_words(), folder / "model"))


@cache
def _words() -> Predictor:
    return AbaloneClassifier("words").fit(exported.TEXTS, exported.LABELS, label_names=exported.NAMES).predictor_


@cache
def encoder_files() -> Files:
    """An encoder as the model hub has it."""
    return written_by(lambda folder: tiny.save_encoder(folder / "encoder"))


@cache
def onnx_file() -> bytes:
    """A model as one file."""
    with TemporaryDirectory() as place, warnings.catch_warnings(), tiny.every_expert_heard():
        warnings.simplefilter("ignore")
        export(exported.fit(Path(place), lexical=True, neighbours=True).predictor_, Path(place) / "m.onnx")
        return (Path(place) / "m.onnx").read_bytes()


def check_model(numbers: Numbers, place: Path) -> None:
    """A damaged model folder is refused, or answers."""
    _check_folder(model_files(), numbers, place)


def check_words(numbers: Numbers, place: Path) -> None:
    """So is one without an encoder."""
    _check_folder(words_files(), numbers, place)


def _check_folder(files: Files, numbers: Numbers, place: Path) -> None:
    if numbers.random() < 0.8:  # else the sums find all damage, and nothing is read
        files = {name: content for name, content in files.items() if not name.endswith(SUMS)}
    put_damaged(files, place, numbers)
    with only_clear_errors(about="model"):
        predictor = load(place / "model", only_to_answer=bool(numbers.random() < 0.5))
        with only_clear_errors():  # a model that is whole but says nothing sensible
            predictor.decision.labels(predictor.probabilities(ASKED))


def check_encoder(numbers: Numbers, place: Path) -> None:
    """A damaged encoder is refused, or can be used."""
    put_damaged(encoder_files(), place, numbers)
    with only_clear_errors(about="encoder"):
        _, tokenizer = load_encoder(str(place / "encoder"))
        tokenizer(ASKED)


@cache
def words_onnx_file() -> bytes:
    """A model without an encoder as one file."""
    with TemporaryDirectory() as place:
        return export(_words(), Path(place) / "m.onnx").path.read_bytes()


def onnx_files() -> tuple[bytes, bytes]:
    """Both kinds of ONNX file."""
    return onnx_file(), words_onnx_file()


def check_onnx(numbers: Numbers, place: Path) -> None:
    """A damaged ONNX file is refused, or answers."""
    file = place / "m.onnx"
    with_network, of_words = onnx_files()
    content = with_network if numbers.random() < 0.7 else of_words
    # Most of the file are weights; what can go wrong stands in what it says of itself, at both ends: how texts are
    # read and decided on, and behind that the words.
    start = numbers.choice((0, content.rindex(b"label_names"), max(0, len(content) - 8000)))
    damaged = content[:start] + mutated(content[start : start + 8000], numbers) + content[start + 8000 :]
    # Else the checksum finds all damage, and nothing is read.
    file.write_bytes(with_checksum(damaged) if numbers.random() < 0.8 else damaged)
    with only_clear_errors(about="m.onnx"):
        model = OnnxModel.load(file, threads=1)
        with only_clear_errors():
            model.decision.labels(model.probabilities(ASKED))


TARGETS = {
    "models/folders": Target(check_model, small=10, share=1, seconds=30, prepare=model_files),
    "models/words": Target(check_words, small=10, share=0.5, seconds=30, prepare=words_files),
    "models/encoders": Target(check_encoder, small=5, share=0.5, seconds=30, prepare=encoder_files),
    "models/onnx": Target(check_onnx, small=10, share=0.7, seconds=30, prepare=onnx_files),
}
