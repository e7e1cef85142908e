import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from abalone.data.store import BLOB, JoinedTexts, MappedTexts, TextWriter, join, take
from abalone.files.errors import DataError

TEXTS = ["plain", "", "línea\nzwei\r\n", "😀 𝔘", "last but one", "last"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with TextWriter(tmp_path / "texts") as writer:
        for text in TEXTS:
            writer.append(text)
    return tmp_path / "texts"


def test_what_was_written_is_read_back(folder):
    texts = MappedTexts(folder)
    assert len(texts) == len(TEXTS)
    assert list(texts) == TEXTS
    assert texts[-1] == "last"
    assert texts[np.int32(3)] == TEXTS[3]
    assert texts[1:4] == TEXTS[1:4]
    assert texts[::-2] == TEXTS[::-2]
    assert "plain" in texts


@pytest.mark.parametrize("position", [len(TEXTS), -len(TEXTS) - 1])
def test_positions_outside_are_refused(folder, position):
    with pytest.raises(IndexError):
        MappedTexts(folder)[position]


def test_rows_are_selected_though_the_files_are_gone(folder):
    texts = MappedTexts(folder)
    for file in folder.iterdir():
        file.unlink()
    assert list(texts.select(np.array([5, 0]))) == [TEXTS[5], TEXTS[0]]


def test_rows_select_and_reorder(folder):
    picked = MappedTexts(folder).select(np.array([5, 0, 3]))
    assert list(picked) == [TEXTS[5], TEXTS[0], TEXTS[3]]
    assert list(picked.select(np.array([2, 0]))) == [TEXTS[3], TEXTS[5]]
    assert picked[-1] == TEXTS[3]
    with pytest.raises(IndexError):
        picked[3]


@pytest.mark.parametrize("mapped_first", [True, False])
def test_joined_texts_are_those_of_both_and_what_is_mapped_stays_so(folder, mapped_first):
    parts = [MappedTexts(folder), ["and", "others"]]
    expected = [*TEXTS, "and", "others"] if mapped_first else ["and", "others", *TEXTS]
    joined = join(*parts) if mapped_first else join(*reversed(parts))
    assert isinstance(joined, JoinedTexts)
    assert len(joined) == len(expected)
    assert list(joined) == expected
    assert [joined[i] for i in range(-len(expected), len(expected))] == expected * 2
    assert joined[np.int32(len(TEXTS))] == expected[len(TEXTS)]
    assert joined[1:7] == expected[1:7]
    assert joined[::-2] == expected[::-2]
    assert take(joined, np.array([7, 0, 1])) == [expected[row] for row in (7, 0, 1)]
    assert list(pickle.loads(pickle.dumps(joined))) == expected
    for outside in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError, match=rf"text {outside} of {len(expected)}"):
            joined[outside]


def test_texts_in_memory_and_parts_of_one_folder_join_to_what_they_are(folder):
    assert join(["a"], ["b", "c"]) == ["a", "b", "c"]
    texts = MappedTexts(folder)
    joined = join(texts.select(np.array([5, 0])), texts.select(np.array([3])))
    assert isinstance(joined, MappedTexts)
    assert list(joined) == [TEXTS[5], TEXTS[0], TEXTS[3]]


def test_a_pickle_holds_the_path_and_not_the_texts(tmp_path):
    with TextWriter(tmp_path) as writer:
        writer.append("x" * 100_000)
    pickled = pickle.dumps(MappedTexts(tmp_path, np.array([0])))
    assert len(pickled) < 2_000
    assert pickle.loads(pickled)[0] == "x" * 100_000


def test_no_texts_at_all(tmp_path):
    with TextWriter(tmp_path):
        pass
    assert list(MappedTexts(tmp_path)) == []


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def interrupted() -> None:
        with TextWriter(tmp_path) as writer:
            writer.append("begun")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_damage_is_noticed(folder):
    os.truncate(folder / BLOB, 3)
    with pytest.raises(DataError, match=r"texts\.utf8: 3 bytes where the offsets expect \d+\n  Delete"):
        MappedTexts(folder)
    with pytest.raises(DataError, match="no readable texts"):
        MappedTexts(folder.parent)


def written(folder: Path, texts: list[str]) -> MappedTexts:
    with TextWriter(folder) as writer:
        for text in texts:
            writer.append(text)
    return MappedTexts(folder)


def test_the_fingerprint_follows_the_texts_and_their_order_but_not_their_place(tmp_path):
    texts = written(tmp_path / "a", ["one", "two", "three"])
    assert written(tmp_path / "b", ["one", "two", "three"]).fingerprint() == texts.fingerprint()
    others = [
        written(tmp_path / "c", ["one", "two", "four"]),
        written(tmp_path / "d", ["onet", "wo", "three"]),
        written(tmp_path / "e", ["one", "two"]),
        texts.select(np.array([0, 1])),
        texts.select(np.array([1, 0])),
        texts.select(np.array([], dtype=int)),
    ]
    assert len({other.fingerprint() for other in [texts, *others]}) == 1 + len(others)
    assert (
        texts.select(np.array([2, 0])).select(np.array([1])).fingerprint() == texts.select(np.array([0])).fingerprint()
    )


def test_lone_surrogates_are_not_written(tmp_path):
    with pytest.raises(UnicodeEncodeError):
        written(tmp_path, ["lone \ud800 surrogate"])
    assert list(tmp_path.iterdir()) == []


def test_taking_rows_leaves_texts_where_they_are(folder):
    mapped, listed = (take(texts, np.array([3, 0])) for texts in (MappedTexts(folder), TEXTS))
    assert isinstance(mapped, MappedTexts)
    assert list(mapped) == listed == [TEXTS[3], TEXTS[0]]


@pytest.mark.parametrize(
    "offsets", [np.zeros((2, 2), np.uint64), np.array([], np.uint64), np.array([0.0, 1.0]), np.array(["a"], object)]
)
def test_offsets_that_are_none(folder: Path, offsets: np.ndarray) -> None:
    np.save(folder / "offsets.npy", offsets, allow_pickle=True)
    with pytest.raises(DataError, match=r"offsets|no readable texts"):
        MappedTexts(folder)


def test_a_text_that_is_damaged(folder: Path) -> None:
    content = bytearray((folder / BLOB).read_bytes())
    content[0] = 0xFF
    (folder / BLOB).write_bytes(content)
    texts = MappedTexts(folder)
    assert texts[5] == "last"
    with pytest.raises(DataError, match="text 0 is damaged: invalid start byte\n  Delete the folder"):
        texts[0]
