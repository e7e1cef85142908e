"""Damage as it comes about: cuts, flipped bits, mixed files, wrong encodings, and what people with intent write."""

import random
import re
from collections.abc import Callable, Sequence

Numbers = random.Random

# What has broken readers elsewhere.
TOKENS: tuple[bytes, ...] = (
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3(", b"\x80", b"\x1b[31m", b"\x85",
    "\u2028\u2029\x1c\x85".encode(), "\u202e\u200b".encode(), "🐚".encode(), b"\r", b"\n", b"\r\n", b"\t", b" ", b'"',
    b"'", b"\\", b",", b";", b"|", b":", b"{", b"}", b"[", b"]", b"<", b">", b"&", b"/", b"-", b"../", b"%s%n", b"~",
    b"null", b"true", b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"1", b"18446744073709551616", b"9" * 5000,
    b"0." + b"1" * 400, b'"\\ud800"', b'{"text": 1}', b'["a", ["b"]]', b"[" * 3000, b'{"a":' * 3000, b"(" * 500,
    b"__proto__", b"text", b"labels", b"split", b"train", b"test", b"&#1114112;", b"&#55296;", b"&#99999999999;",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b"!!python/object/apply:os.system [id]", b"2026-13-45", b"*a", b"&a [*a]",
)  # fmt: skip
NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
WORD = re.compile(rb"""\[[^\]]*\]|"[^"\n]*"|'[^'\n]*'|[\w.-]+""")
HUGE = (b"-1", b"0", b"65537", b"2147483648", b"9223372036854775808", b"1e400", b"9" * 4400, b"0.5", b"NaN")


def truncated(data: bytes, numbers: Numbers) -> bytes:
    """Cut, anywhere or near one of the ends."""
    return data[: numbers.choice((numbers.randint(0, len(data)), max(0, len(data) - numbers.randint(1, 16))))]


def flipped(data: bytes, numbers: Numbers) -> bytes:
    """Some bits the other way round."""
    changed = bytearray(data)
    for _ in range(numbers.choice((1, 1, 2, 8, 64)) if data else 0):
        changed[numbers.randrange(len(changed))] ^= 1 << numbers.randrange(8)
    return bytes(changed)


def overwritten(data: bytes, numbers: Numbers) -> bytes:
    """A stretch of other bytes."""
    start = numbers.randint(0, len(data))
    size = numbers.choice((1, 2, 4, 8, 100))
    return data[:start] + numbers.choice((numbers.randbytes(size), b"\xff" * size, bytes(size))) + data[start + size :]


def without_a_part(data: bytes, numbers: Numbers) -> bytes:
    """A stretch is gone."""
    start = numbers.randint(0, len(data))
    return data[:start] + data[start + numbers.choice((1, 5, 50, 500)) :]


def with_a_part_again(data: bytes, numbers: Numbers) -> bytes:
    """A stretch stands there several times."""
    start = numbers.randint(0, len(data))
    part = data[start : start + numbers.choice((1, 10, 200))]
    return data[:start] + part * numbers.choice((2, 3, 40)) + data[start:]


def with_a_token(data: bytes, numbers: Numbers) -> bytes:
    """Something that means something, where it should not be."""
    start = numbers.randint(0, len(data))
    return data[:start] + numbers.choice(TOKENS) + data[start + numbers.choice((0, 0, 1, 5)) :]


def with_another_number(data: bytes, numbers: Numbers) -> bytes:
    """A number too large, too small, or none."""
    found = list(NUMBER.finditer(data))
    if not found:
        return with_a_token(data, numbers)
    place = numbers.choice(found)
    return data[: place.start()] + numbers.choice(HUGE) + data[place.end() :]


def with_another_word(data: bytes, numbers: Numbers) -> bytes:
    """A word, a number, or what stands in quotes or brackets, is something else: the rest stays sound."""
    found = list(WORD.finditer(data[:20_000]))
    if not found:
        return with_a_token(data, numbers)
    place = numbers.choice(found)
    return data[: place.start()] + numbers.choice(TOKENS) + data[place.end() :]


def in_another_encoding(data: bytes, numbers: Numbers) -> bytes:
    """What an editor or a spreadsheet makes of it."""
    text = data.decode("utf-8", "replace")
    encodings = ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7", "shift_jis")
    return text.encode(numbers.choice(encodings), "replace")


def with_other_line_ends(data: bytes, numbers: Numbers) -> bytes:
    """As another system, or none, ends its lines."""
    ends = (b"\r", b"\r\n", b"\n\r", b"", "\u2028".encode(), b"\x0b", b"\n\n\n")
    return data.replace(b"\n", numbers.choice(ends))


def something_else(data: bytes, numbers: Numbers) -> bytes:
    """Another file altogether."""
    kinds = (
        b"", b"\0" * 1000, numbers.randbytes(300), numbers.choice(TOKENS) * 3, b"\x1f\x8b\x08", b"PK\x03\x04",
        b"PAR1PAR1", b"[" * 100_000, b'{"text":' * 30_000, b"<" * 1000, b"%PDF-1.7",
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c\x05posix.",
    )  # fmt: skip
    return numbers.choice(kinds)


MUTATIONS: tuple[Callable[[bytes, Numbers], bytes], ...] = (
    truncated, flipped, overwritten, without_a_part, with_a_part_again, with_a_token, with_a_token,
    with_another_number, with_another_word, with_another_word, in_another_encoding, with_other_line_ends,
    something_else,
)  # fmt: skip


def mutated(data: bytes, numbers: Numbers, others: Sequence[bytes] = ()) -> bytes:
    """`data` after one to four mishaps; now and then spliced with one of `others`."""
    if others and numbers.random() < 0.1:
        other = numbers.choice(others)
        data = data[: numbers.randint(0, len(data))] + other[numbers.randint(0, len(other)) :]
    for _ in range(numbers.choice((1, 1, 1, 2, 4))):
        data = numbers.choice(MUTATIONS)(data, numbers)
    return data
