"""Data that is larger than memory may be: the same corpus as of data in memory, from files that are mapped."""

import shutil
import warnings

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from datasets import Dataset
from handmade import ROWS, as_csv, as_jsonl, forge, write

from abalone import load_corpus
from abalone.data import load
from abalone.data.store import MappedTexts
from abalone.errors import DataError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mapped(cache, monkeypatch):
    """Loads everything as if it were large."""

    def load_large(*arguments, **options):
        with monkeypatch.context() as patched:
            patched.setattr(load, "IN_MEMORY", -1)
            return load_corpus(*arguments, **options)

    return load_large


def assert_same(given, wanted):
    assert (given.label_names, given.name, given.notes) == (wanted.label_names, wanted.name, wanted.notes)
    assert given.provenance == wanted.provenance
    for (_, one), (_, other) in zip(given.splits(), wanted.splits(), strict=True):
        assert isinstance(one.texts, MappedTexts)
        assert list(one.texts) == list(other.texts)
        np.testing.assert_array_equal(one.labels.toarray(), other.labels.toarray())


def shards(folder, kind):
    """ROWS by split, training in two shards."""
    splits = {"train": ROWS[:2], "train2": ROWS[2:3], "val": ROWS[3:4], "test": ROWS[4:]}
    names = {"train": "train-00000-of-00002", "train2": "train-00001-of-00002", "val": "val-0", "test": "test-0"}
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        table = pyarrow.table({"text": [r["text"] for r in rows], "labels": [r["labels"] for r in rows]})
        path = folder / f"{names[split]}.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path)
        elif kind == "feather":
            pyarrow.feather.write_feather(table, path, compression="uncompressed")
        else:  # a stream, as the datasets library writes it
            with pyarrow.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "feather", "arrow"])
def test_shards_in_arrow(kind, tmp_path, mapped):
    folder = shards(tmp_path / "data", kind)
    corpus = mapped(folder)
    assert_same(corpus, load_corpus(folder))
    assert [len(split) for _, split in corpus.splits()] == [3, 1, 1]
    assert corpus.label_names == ("a", "b", "c")
    assert [list(split.texts) for _, split in mapped(tmp_path / "data" / f"*.{kind}").splits()] == [
        list(split.texts) for _, split in corpus.splits()
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", as_csv(ROWS)),
        ("a.jsonl", as_jsonl(ROWS)),
        ("b.csv", b"text,labels\n" + b"".join(b'%d,"x, y; z%d"\n' % (n, n % 3) for n in range(40))),
        ("c.csv", b"text,a,b,c\n" + b"".join(b"t%d,%d,1,0\n" % (n, n % 2) for n in range(40))),
    ],
)
def test_other_formats(name, content, tmp_path, mapped):
    path = write(tmp_path / name, content)
    assert_same(mapped(path), load_corpus(path))


def test_datasets(tmp_path, mapped):
    dataset = Dataset.from_list([{"text": row["text"], "labels": row["labels"]} for row in ROWS * 8])
    assert_same(mapped(dataset), load_corpus(dataset))
    dataset.save_to_disk(tmp_path / "saved")
    assert_same(mapped(tmp_path / "saved"), load_corpus(tmp_path / "saved"))


def test_a_folder_for_each_split(tmp_path, cache):
    flat = shards(tmp_path / "flat", "parquet")
    for split in ("train", "val", "test"):
        (tmp_path / "deep" / split).mkdir(parents=True)
        for number, file in enumerate(sorted(flat.glob(f"{split}-*"))):
            shutil.copy(file, tmp_path / "deep" / split / f"{number:03d}.parquet")
    given, wanted = load_corpus(tmp_path / "deep"), load_corpus(flat)
    assert [list(split.texts) for _, split in given.splits()] == [list(split.texts) for _, split in wanted.splits()]
    assert sorted(given.provenance["sha256"])[0] == "test/000.parquet"
    by_pattern = load_corpus(tmp_path / "deep" / "*" / "*.parquet")
    assert by_pattern.provenance["sha256"] == given.provenance["sha256"]


def test_it_is_read_once(tmp_path, mapped, monkeypatch):
    path = write(tmp_path / "a.jsonl", as_jsonl(ROWS))
    first = mapped(path)
    monkeypatch.setattr(load, "read_documents", pytest.fail)
    assert_same(mapped(path), first)


def test_what_changes_the_documents_changes_the_key(tmp_path, mapped):
    rows = [{"text": "one", "body": "uno", "labels": "a; b, c", "split": split} for split in ("train", "val", "test")]
    path = write(tmp_path / "a.jsonl", as_jsonl(rows))
    assert mapped(path).label_names == ("a", "b, c")
    assert mapped(path, label_separator=",").label_names == ("a; b", "c")
    assert mapped(path, text_column="body").train.texts[0] == "uno"
    write(tmp_path / "a.jsonl", as_jsonl([{**row, "text": "two"} for row in rows]))
    assert mapped(path).train.texts[0] == "two"


def test_rows_left_out_are_listed_every_time(tmp_path, mapped):
    path = write(tmp_path / "a.jsonl", as_jsonl([*ROWS, {"text": "", "labels": ["a"], "split": "train"}]))
    with pytest.raises(DataError, match=r"a\.jsonl:6: no text"):
        mapped(path)
    report, lists = tmp_path / "a.jsonl.bad-rows.jsonl", []
    for _ in range(2):
        with pytest.warns(UserWarning, match="Rows left out: 1; see"):
            corpus = mapped(path, skip_bad_rows=True)
        assert len(corpus.train) == 3
        lists.append(report.read_bytes())
        report.unlink()
    assert lists[0] == lists[1]


def test_nothing_is_left_of_data_that_cannot_be_read(tmp_path, mapped, cache):
    path = write(tmp_path / "a.jsonl", as_jsonl([*ROWS, {"text": 3}]))
    with pytest.raises(DataError, match=r"a\.jsonl:6"):
        mapped(path)
    assert list((cache / "texts").iterdir()) == []


def overwrite_letters(content):
    return content.replace(b"o", b"0", 1)


DAMAGE = [overwrite_letters, lambda _: b"", lambda content: content[:-1], lambda _: b"[" * 9000]


@pytest.fixture
def damaged(tmp_path, mapped, cache):
    """Damages the file in the cache, and sees that this is noticed and mended."""
    rows = [*ROWS, {"text": "", "labels": ["a"], "split": "train"}]  # so that there is a list of bad rows too
    file = write(tmp_path / "data.jsonl", as_jsonl(rows))

    def read_and_listen():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            corpus = mapped(file, skip_bad_rows=True)
        return corpus, [str(warning.message) for warning in told if " is damaged, " in str(warning.message)]

    whole, _ = read_and_listen()
    (path,) = (path for path in (cache / "texts").rglob("*") if path.is_file())
    content = path.read_bytes()

    def check(damage):
        path.unlink()  # `whole` has mapped the file, and must not see it shrink
        path.write_bytes(damage(content))
        corpus, (told,) = read_and_listen()
        assert_same(corpus, whole)
        assert told == f"{path} is damaged, so it is made again from the source"
        assert path.read_bytes() == content
        assert read_and_listen()[1] == []

    return check


@pytest.mark.parametrize("damage", DAMAGE, ids=["letters", "empty", "cut", "nested"])
def test_damaged_file_is_noticed_and_made_again(damage, damaged):
    damaged(damage)


def test_damage_is_noticed_wherever_it_is(damaged):
    for tenth in range(101):

        def flip_a_bit(content, tenth=tenth):
            place = (len(content) - 1) * tenth // 100
            return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]

        damaged(flip_a_bit)


def test_renamed_label_in_the_cache_is_noticed(tmp_path, mapped, cache):
    file = write(tmp_path / "data.jsonl", as_jsonl(ROWS))
    mapped(file)
    (stored,) = (cache / "texts").iterdir()
    stored.write_bytes(stored.read_bytes().replace(b'"a"', b'"z"'))
    with pytest.warns(UserWarning, match="is damaged, so it is made again from the source"):
        assert mapped(file).label_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("labels", np.full(7, 10**9, np.int32)),
        ("labels", np.full(6, -1, np.int32)),
        ("ends", np.array([2, 1, 5, 6, 6])),
        ("ends", np.array([2, 3, 5, 6, 10**9])),
        ("splits", np.full(5, 3, np.int8)),
        ("splits", np.zeros(4, np.int8)),
        ("hashes", np.zeros(4, np.uint64)),
        ("offsets", np.full(6, 10**9, np.uint64)),
        ("facts", np.frombuffer(b"[" * 9000, np.uint8)),
        ("facts", np.frombuffer(b'{"names": []}', np.uint8)),
    ],
)
def test_indices_that_point_out_of_an_array_are_not_followed(name, values, tmp_path, mapped, cache):
    file = write(tmp_path / "data.jsonl", as_jsonl(ROWS))
    mapped(file)
    (stored,) = (cache / "texts").iterdir()
    forge(stored, **{name: values})
    with pytest.raises(DataError, match="the cached texts are damaged"):
        mapped(file)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, mapped, cache):
    cache.write_text("a file")
    with pytest.raises(DataError, match=r"the texts cannot be cached here: .*\n  Set ABALONE_CACHE"):
        mapped(write(tmp_path / "a.jsonl", as_jsonl(ROWS)))


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
def test_what_is_no_arrow_is_refused(name, tmp_path, cache):
    with pytest.raises(DataError, match=rf"{name}: cannot be read as (Parquet|Arrow)"):
        load_corpus(write(tmp_path / name, b"ARROW1, or so it says"))


@pytest.mark.filterwarnings("ignore:.*(does not beat tf-idf|adds nothing to words) alone")
def test_a_model_is_trained_and_scored_on_mapped_data(tmp_path, mapped):
    import tiny
    from abalone import AbaloneClassifier
    from abalone.data.in_memory import label_lists

    texts, labels = tiny.corpus(90)
    names = label_lists(labels, list("abcde"))
    tiny.write_jsonl(tmp_path / "a.jsonl", texts, names, ["train"] * 60 + ["val"] * 30)
    settings = {"encoder": tiny.save_encoder(tmp_path / "encoder"), "epochs": 1, "objective": "bce", "max_length": 20}
    models = [
        AbaloneClassifier(**settings, device="cpu").fit_corpus(corpus, run_folder=tmp_path / "run")
        for corpus in (mapped(tmp_path / "a.jsonl"), load_corpus(tmp_path / "a.jsonl"))
    ]
    one, other = (model.predict_proba(texts) for model in models)
    np.testing.assert_array_equal(one, other)


def test_a_separator_that_is_half_a_character_is_kept_too(tmp_path, mapped):
    file = write(tmp_path / "data.jsonl", as_jsonl(ROWS))
    for _ in range(2):
        assert mapped(file, label_separator="\udcff").label_names == ("a", "b", "c")
