"""Tokens: texts to token ids once, cached on disk, memory-mapped, truncated only when they are read."""

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache as run_once
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from abalone.data.store import ArrayWriter, MappedTexts, Stored, arrays_once
from abalone.errors import DataError, InputError, spelled
from abalone.files.cache import cache_entry
from abalone.progress import track

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

FORMAT = "abalone-tokens-3"  # part of the key: another layout never meets an old file
BLOCK_TEXTS, BLOCK_CHARACTERS = 2048, 8_000_000  # what is in memory at a time; either ends a block
# A tokenizer takes 120 bytes of memory for each character that it reads at once, so long texts are read in pieces.
LONGEST_PIECE = 1_000_000  # characters
# English takes 5 characters a token, and code or tables as few as 2: where more are too few, the next piece is read.
CHARACTERS_PER_TOKEN = 16
# Where a text is cut, the best first. Across a single space nothing is merged by tokenizers that split texts into words
# first, as WordPiece and byte-level BPE do, nor by those that mark where words begin, as SentencePiece does.
_CUTS = [re.compile(rf"(?s:.*)(?P<cut>{cut})") for cut in (r"(?<=\S) (?=\S)", r"(?<=\S)\s(?=\S)", r"\s")]
_SPACE = re.compile(r"\s")
ID_TYPES: dict[str, np.dtype[Any]] = {"U16": np.dtype(np.uint16), "U32": np.dtype(np.uint32)}

# Cased, accented, spaced and unspaced scripts, and nothing at all: a tokenizer that treats special tokens
# in an unusual way shows it on one of these.
PROBES = ("a", "", "Rare labels matter: 42 of them!", " naïve  Überblick\n", "希少なラベル", "x" * 300)


@dataclass(frozen=True, eq=False)
class TokenArray:
    """Token ids of many documents, end to end, without special tokens; whole, unless only the first were asked for.

    Args:
        ids: every document's ids, [tokens].
        offsets: document `i` is `ids[offsets[i] : offsets[i + 1]]`, [documents + 1].
        prefix, suffix: the special tokens that the encoder expects around a document.
    """

    ids: np.ndarray
    offsets: np.ndarray
    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def document(self, index: int, max_length: int | None = None) -> np.ndarray:
        """Return ids of one document with its special tokens, at most `max_length` of them in all (int64)."""
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        start, stop = int(self.offsets[index]), int(self.offsets[index + 1])
        if max_length is not None:
            stop = min(stop, start + self._room(max_length))
        first, last = len(self.prefix), len(self.prefix) + stop - start
        whole = np.empty(last + len(self.suffix), dtype=np.int64)
        whole[:first], whole[first:last], whole[last:] = self.prefix, self.ids[start:stop], self.suffix
        return whole

    def chunks(self, index: int, max_length: int, max_chunks: int) -> list[np.ndarray]:
        """Cut a document into consecutive pieces of at most `max_length`, special tokens around each; at least one."""
        own = self.document(index)[len(self.prefix) : -len(self.suffix) or None]
        room = self._room(max_length)
        starts = range(0, max(len(own), 1), room)[:max_chunks]
        return [
            np.concatenate([self.prefix, own[start : start + room], self.suffix]).astype(np.int64) for start in starts
        ]

    def lengths(self, max_length: int | None = None) -> np.ndarray:
        """Return how long `document(i, max_length)` is, for every `i`, [documents]."""
        own = np.diff(self.offsets)
        if max_length is not None:
            own = np.minimum(own, self._room(max_length))
        return own + len(self.prefix) + len(self.suffix)

    def _room(self, max_length: int) -> int:
        special = len(self.prefix) + len(self.suffix)
        if max_length <= special:
            setting = spelled("max_length", max_length)
            raise InputError(f"{setting} leaves no room for text beside {special} special tokens")
        return max_length - special


class PlainTokenizer:
    """A fast tokenizer's own copy that does not truncate, pad or add special tokens, but knows them.

    `tokenize` makes one from any fast tokenizer. Whoever calls it again and again on small batches makes
    one beforehand and passes that, as the copy takes longer than a small batch.
    """

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise TypeError(f"{type(tokenizer).__name__} is not a fast tokenizer; load it with AutoTokenizer")
        self._original = cast("PreTrainedTokenizerFast", tokenizer)
        # Truncation and padding are left behind by whoever called the tokenizer last: they are not part of it.
        state = json.loads(self._original.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
        self._state = json.dumps(state, sort_keys=True)

    @cached_property
    def fingerprint(self) -> bytes:
        """Return what changes with anything that can change an id."""
        return hashlib.sha256(f"{self._original.split_special_tokens}\n{self._state}".encode()).digest()

    @cached_property
    def backend(self) -> "Tokenizer":
        """Return the copy: the original is not touched, so another thread may be using it."""
        from tokenizers import Tokenizer

        backend = Tokenizer.from_str(self._state)
        backend.encode_special_tokens = self._original.split_special_tokens
        return backend

    @cached_property
    def special_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the ids before and after every document, `[CLS] … [SEP]` or `<s> … </s>`."""
        # verbose=False: no advice about sequences longer than the model, which is the reader's business here.
        wanted = [self._original(text, verbose=False)["input_ids"] for text in PROBES]
        plain = [self.backend.encode(text, add_special_tokens=False).ids for text in PROBES]
        around = wanted[PROBES.index("")]
        for split in range(len(around) + 1):
            prefix, suffix = around[:split], around[split:]
            if all(whole == [*prefix, *ids, *suffix] for whole, ids in zip(wanted, plain, strict=True)):
                return tuple(prefix), tuple(suffix)
        raise InputError(
            f"{type(self._original).__name__} does more than put the same special tokens around every text, "
            "so its tokens cannot be cached without them; use another tokenizer"
        )

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Return the smallest type that holds every id."""
        largest = max(self.backend.get_vocab(with_added_tokens=True).values(), default=0)
        return ID_TYPES["U16" if largest <= np.iinfo(np.uint16).max else "U32"]

    def encode(self, texts: Iterable[str], most: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of ids, [tokens], and documents' lengths, [documents]; only one block is in memory.

        Args:
            texts: the documents.
            most: tokens that are wanted of each; there may be more.
        """
        _keep_forks_quiet()
        dtype = self.dtype
        for block in _blocks(texts):
            ids = [document.astype(dtype) for document in encode_in_pieces(self.backend, block, most)]
            yield np.concatenate(ids), np.array([len(document) for document in ids], dtype=np.int64)


def encode_in_pieces(backend: "Tokenizer", texts: Sequence[str], most: int | None = None) -> list[np.ndarray]:
    """Encode texts to token ids without special tokens, in memory that does not grow with the longest text.

    A text is read piece by piece, and only until there are as many ids as are wanted. The ids are those of the whole
    text: pieces end between words, unless a word is longer than `LONGEST_PIECE`.

    Args:
        backend: a tokenizer without truncation.
        texts: few enough to be in memory as tokens.
        most: ids that are wanted of each; there may be more.
    """
    size = LONGEST_PIECE if most is None else min(LONGEST_PIECE, CHARACTERS_PER_TOKEN * most)
    ids: list[list[np.ndarray]] = [[] for _ in texts]
    found, starts = [0] * len(texts), [0] * len(texts)
    unfinished = list(range(len(texts)))  # a text without a character has no ids, as one piece says
    while unfinished:
        pieces = []
        for row in unfinished:
            stop = _end_of_piece(texts[row], starts[row], size)
            pieces.append(texts[row][starts[row] : stop])
            starts[row] = stop
        for row, encoding in zip(unfinished, _encoded(backend, pieces), strict=True):
            ids[row].append(np.array(encoding, dtype=np.int64))
            found[row] += len(encoding)
        unfinished = [
            row for row in unfinished if starts[row] < len(texts[row]) and (most is None or found[row] < most)
        ]
    return [pieces[0] if len(pieces) == 1 else np.concatenate(pieces) for pieces in ids]


def _encoded(backend: "Tokenizer", pieces: Sequence[str]) -> Iterator[list[int]]:
    """Yield ids of each piece, a few at a time: what a tokenizer knows of a piece is much more than its ids."""
    for block in _blocks(pieces):
        yield from [encoding.ids for encoding in backend.encode_batch_fast(block, add_special_tokens=False)]


def _end_of_piece(text: str, start: int, size: int) -> int:
    """Return where the piece of a text that begins at `start` ends: within `size` characters, or after a long word."""
    stop, longest = start + size, start + LONGEST_PIECE
    if stop >= len(text):
        return len(text)
    for cut in _CUTS:
        if found := cut.match(text, start + 1, stop):
            return found.start("cut")
    found = _SPACE.search(text, stop, longest)
    return found.start() if found else min(longest, len(text))


def tokenize(
    texts: Sequence[str],
    tokenizer: "PreTrainedTokenizerBase | PlainTokenizer",
    *,
    cache: Path | Literal["default"] | None = "default",
    most: int | None = None,
) -> TokenArray:
    """Return token ids of `texts`, from the cache if they were made before, by whatever process.

    Args:
        texts: any sequence of strings.
        tokenizer: a fast tokenizer.
        cache: the folder to keep them in; by default `tokens` in the cache folder. `None` keeps them in
            memory, which suits texts that come once.
        most: tokens that are wanted of each text, so that no more of a long one is read; there may be more. Only
            without a cache, as that serves every length.
    """
    plain = tokenizer if isinstance(tokenizer, PlainTokenizer) else PlainTokenizer(tokenizer)
    if cache is None:
        return _in_memory(texts, plain, most)
    if most is not None:
        raise InputError("tokens are cached whole: most= is for cache=None")
    name = f"{_key(texts, plain)}.safetensors"
    path = cache_entry("tokens", name) if cache == "default" else Path(cache) / name
    try:
        stored = arrays_once(path, FORMAT, lambda: _write_tokens(path, texts, plain))
    except OSError as error:
        warnings.warn(
            f"cannot cache tokens in {path.parent} ({error.strerror or error}), so they stay in memory; "
            "set ABALONE_CACHE to a folder with space",
            stacklevel=2,
        )
        return _in_memory(texts, plain)
    return _mapped(stored)


def _in_memory(texts: Sequence[str], plain: PlainTokenizer, most: int | None = None) -> TokenArray:
    ids, lengths = [np.empty(0, plain.dtype)], [np.zeros(1, np.int64)]
    for block_ids, block_lengths in plain.encode(track(texts, "Tokenizing", total=len(texts)), most):
        ids.append(block_ids)
        lengths.append(block_lengths)
    prefix, suffix = plain.special_tokens
    return TokenArray(np.concatenate(ids), np.cumsum(np.concatenate(lengths)), prefix, suffix)


def _write_tokens(path: Path, texts: Sequence[str], plain: PlainTokenizer) -> None:
    prefix, suffix = plain.special_tokens
    lengths = [np.zeros(1, np.int64)]
    with ArrayWriter(path, FORMAT) as writer:
        writer.extend("ids", np.empty(0, plain.dtype))
        for block_ids, block_lengths in plain.encode(track(texts, "Tokenizing", total=len(texts))):
            writer.extend("ids", block_ids)
            lengths.append(block_lengths)
        writer.extend("offsets", np.cumsum(np.concatenate(lengths)))
        writer.facts |= {"prefix": json.dumps(prefix), "suffix": json.dumps(suffix)}


def _mapped(stored: Stored) -> TokenArray:
    try:
        ids, offsets = stored.arrays["ids"], stored.arrays["offsets"]
        prefix, suffix = (tuple(json.loads(stored.facts[name])) for name in ("prefix", "suffix"))
        fit = ids.size == offsets[-1]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):  # forged, since the checksums fit
        fit = False
    if not fit:
        raise DataError("the cached tokens are damaged", path=stored.path, hint="Delete the file; it will be rebuilt.")
    return TokenArray(ids, offsets, prefix, suffix)


def _key(texts: Sequence[str], plain: PlainTokenizer) -> str:
    digest = hashlib.sha256(FORMAT.encode() + plain.fingerprint)
    if isinstance(texts, MappedTexts):  # their content is known without reading a gigabyte
        digest.update(texts.fingerprint())
        return digest.hexdigest()
    for index, text in enumerate(texts):
        encoded = _utf8(index, text)
        digest.update(len(encoded).to_bytes(8, "little"))  # so that ["ab", "c"] is not ["a", "bc"]
        digest.update(encoded)
    return digest.hexdigest()


def _blocks(texts: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    characters = 0
    for index, text in enumerate(texts):
        characters += len(_utf8(index, text))
        block.append(text)
        if len(block) == BLOCK_TEXTS or characters >= BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _utf8(index: int, text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"text {index} is {type(text).__name__}, not a string")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"text {index} has half a character (a lone surrogate) at position {error.start}",
            hint='It comes from a broken "\\ud8.." escape in JSON; repair the text or leave it out.',
        ) from None


@run_once
def _keep_forks_quiet() -> None:
    # Older versions of `tokenizers` print four lines in every process forked after its threads have run, unless
    # this variable is set. The forked process gets what the library would choose there anyway: no threads.
    variable = "TOKENIZERS_PARALLELISM"
    set_here: list[str] = []

    def before() -> None:
        if variable not in os.environ:
            os.environ[variable] = "false"
            set_here.append(variable)

    def after_in_parent() -> None:
        while set_here:
            os.environ.pop(set_here.pop(), None)

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=set_here.clear)
