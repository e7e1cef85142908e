import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from handmade import forge
from safetensors.numpy import load_file

from abalone.data.store import (
    HEADER_BYTES,
    ArrayWriter,
    DamagedError,
    JoinedTexts,
    MappedTexts,
    TextWriter,
    arrays_once,
    join,
    open_arrays,
    take,
)
from abalone.errors import DataError

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
    folder.unlink()
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
    with TextWriter(tmp_path / "texts") as writer:
        writer.append("x" * 100_000)
    pickled = pickle.dumps(MappedTexts(tmp_path / "texts", np.array([0])))
    assert len(pickled) < 2_000
    assert pickle.loads(pickled)[0] == "x" * 100_000


def test_no_texts_at_all(tmp_path):
    for texts in ([], ["", ""]):
        assert list(written(tmp_path / "texts", texts)) == texts


def test_arrays_may_follow_texts_that_are_all_empty(tmp_path):
    with TextWriter(tmp_path / "texts") as writer:
        writer.append("")
        writer.extend("ids", np.arange(3))
    stored = open_arrays(tmp_path / "texts", None)
    assert list(MappedTexts(stored)) == [""]
    assert stored.arrays["ids"].tolist() == [0, 1, 2]


def test_an_error_while_writing_leaves_nothing(tmp_path):
    def interrupted() -> None:
        with TextWriter(tmp_path / "texts") as writer:
            writer.append("begun")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_damage_is_noticed(folder):
    with pytest.raises(DataError, match="no readable texts"):
        MappedTexts(folder.parent)
    os.truncate(folder, HEADER_BYTES + 3)
    with pytest.raises(DataError, match=r"no readable texts here .*is not as it was written.*\n  Delete"):
        MappedTexts(folder)


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
        written(tmp_path / "texts", ["lone \ud800 surrogate"])
    assert list(tmp_path.iterdir()) == []


def test_taking_rows_leaves_texts_where_they_are(folder):
    mapped, listed = (take(texts, np.array([3, 0])) for texts in (MappedTexts(folder), TEXTS))
    assert isinstance(mapped, MappedTexts)
    assert list(mapped) == listed == [TEXTS[3], TEXTS[0]]


@pytest.mark.parametrize("offsets", [np.array([], np.uint64), np.array([0, 1]), np.array([0, 9], np.uint64)])
def test_offsets_that_are_none(folder: Path, offsets: np.ndarray) -> None:
    forge(folder, offsets=offsets)
    with pytest.raises(DataError, match="offsets"):
        MappedTexts(folder)


def test_a_text_that_is_damaged(folder: Path) -> None:
    content = bytearray(folder.read_bytes())
    content[HEADER_BYTES] = 0xFF
    folder.write_bytes(content)
    texts = MappedTexts(folder)
    assert texts[5] == "last"
    with pytest.raises(DataError, match="text 0 is damaged: invalid start byte\n  Delete the file"):
        texts[0]


ARRAYS = {
    "bytes": np.arange(3, dtype=np.uint8),
    "numbers": np.arange(5),
    "none": np.empty(0, np.int32),
    "small": np.array([1, -1], np.int8),
}


@pytest.fixture
def store(tmp_path: Path):
    """The path of a file of arrays, and what writes it."""
    path = tmp_path / "arrays.safetensors"

    def build() -> None:
        with ArrayWriter(path, "a-1") as writer:
            for name, values in ARRAYS.items():
                for start in range(0, max(len(values), 1), 2):
                    writer.extend(name, values[start : start + 2])
            writer.facts["about"] = "é"

    return path, build


def test_arrays_are_mapped_aligned_and_read_by_safetensors_too(store):
    stored = arrays_once(store[0], "a-1", store[1])
    assert stored.facts == {"format": "a-1", "about": "é"}
    others = load_file(store[0])
    for name, values in ARRAYS.items():
        for found in (stored.arrays[name], others[name]):
            np.testing.assert_array_equal(found, values)
            assert found.dtype == values.dtype
        assert stored.arrays[name].flags.aligned
        assert not stored.arrays[name].flags.owndata
        assert not stored.arrays[name].flags.writeable


def test_arrays_that_are_intact_are_not_built_again(store):
    path, build = store
    arrays_once(path, "a-1", build)
    assert arrays_once(path, "a-1", pytest.fail).path == path


def test_any_change_of_a_byte_is_noticed_and_mended(store):
    path, build = store
    build()
    whole = path.read_bytes()
    for place in [*range(0, HEADER_BYTES, 97), *range(HEADER_BYTES, len(whole))]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.warns(UserWarning, match=rf"{path} is damaged, so it is made again from the source"):
            arrays_once(path, "a-1", build)
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "damage",
    [lambda whole: whole[:-1], lambda whole: whole + b"\0", lambda _: b"", lambda _: b"[" * 9000, lambda w: w[:20]],
)
def test_any_other_length_or_content_is_noticed(store, damage):
    path, build = store
    build()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DamagedError):
        open_arrays(path, "a-1")


def test_another_format_is_made_again(store):
    path, build = store
    build()
    with pytest.raises(DamagedError):
        open_arrays(path, "a-2")
    assert open_arrays(path, None).facts["format"] == "a-1"


def test_arrays_that_another_process_replaces_stay_readable(store):
    path, build = store
    held = arrays_once(path, "a-1", build)
    build()
    np.testing.assert_array_equal(held.arrays["numbers"], ARRAYS["numbers"])
    assert arrays_once(path, "a-1", pytest.fail).arrays.keys() == held.arrays.keys()


@pytest.mark.parametrize(
    ("name", "values"), [("one", np.arange(2)), ("other", np.arange(2, dtype=np.int8))], ids=["not the latest", "type"]
)
def test_an_array_goes_on_only_while_it_is_the_latest_and_of_its_type(name, values, tmp_path):
    with ArrayWriter(tmp_path / "arrays", "a-1") as writer:
        writer.extend("one", np.arange(8))
        writer.extend("other", np.arange(2))
        with pytest.raises(ValueError, match=f"cannot go on with the array '{name}'"):
            writer.extend(name, values)


def test_a_header_that_is_full_leaves_no_file(tmp_path):
    writer = ArrayWriter(tmp_path / "arrays", "a-1")
    writer.facts["long"] = "x" * HEADER_BYTES
    with pytest.raises(ValueError, match="do not fit the header"), writer:
        pass
    assert list(tmp_path.iterdir()) == []
