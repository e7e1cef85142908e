import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from abalone.data.cache import PARTIAL
from abalone.data.errors import DataError
from abalone.data.texts import BLOB, MappedTexts, TextWriter, build_once, source_key

TEXTS = ["plain", "", "línea\nzwei\r\n", "😀 𝔘", "lone \ud800 surrogate", "last"]


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


def test_rows_select_and_reorder(folder):
    picked = MappedTexts(folder).select(np.array([5, 0, 3]))
    assert list(picked) == [TEXTS[5], TEXTS[0], TEXTS[3]]
    assert list(picked.select(np.array([2, 0]))) == [TEXTS[3], TEXTS[5]]
    assert picked[-1] == TEXTS[3]
    with pytest.raises(IndexError):
        picked[3]


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


def test_the_key_follows_the_files_and_the_preparation(tmp_path):
    file = tmp_path / "source"
    file.write_text("one")
    os.utime(file, ns=(1, 1))
    keys = {source_key([file], "1"), source_key([file], "2"), source_key([file, file], "1")}
    os.utime(file, ns=(1, 2))
    keys.add(source_key([file], "1"))
    file.write_text("four")
    os.utime(file, ns=(1, 1))
    keys.add(source_key([file], "1"))
    assert len(keys) == 5


def test_build_once_builds_once(tmp_path):
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "made").touch()

    for _ in range(2):
        assert build_once(tmp_path / "a" / "b", build) == tmp_path / "a" / "b"
    assert len(calls) == 1
    assert (tmp_path / "a" / "b" / "made").exists()
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_a_failed_build_leaves_nothing(tmp_path):
    def build(folder: Path) -> None:
        (folder / "half").touch()
        raise DataError("bad source")

    with pytest.raises(DataError, match="bad source"):
        build_once(tmp_path / "cache", build)
    assert list(tmp_path.iterdir()) == []


def test_of_builds_at_once_one_wins_and_all_use_it(tmp_path):
    both_inside = threading.Barrier(2, timeout=10)

    def build(folder: Path) -> None:
        both_inside.wait()
        (folder / "by").write_text(folder.name)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: build_once(tmp_path / "cache", build), range(2)))
    assert results == [tmp_path / "cache"] * 2
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]
    assert (tmp_path / "cache" / "by").exists()


def test_what_killed_builds_left_is_removed_after_a_day(tmp_path):
    old, young = (tmp_path / f".cache.{age}{PARTIAL}" for age in ("old", "young"))
    for left in (old, young):
        left.mkdir()
        (left / BLOB).touch()
    os.utime(old, (0, 0))
    build_once(tmp_path / "cache", lambda folder: None)
    assert not old.exists()
    assert young.exists()
