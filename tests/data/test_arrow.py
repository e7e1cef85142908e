import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from abalone.data.arrow import BATCH, ArrowTable, DatasetTable, ParquetTable, is_saved_dataset, load_saved
from abalone.errors import DataError

NAMED = Features(
    {"text": Value("string"), "labels": List(ClassLabel(names=["x", "y"])), "kind": ClassLabel(names=["k"])}
)
ROWS = {"text": ["a", "b", "c"], "labels": [[1, 0], [], None], "kind": [0, -1, None]}
READ = [
    {"text": "a", "labels": ["y", "x"], "kind": "k"},
    {"text": "b", "labels": [], "kind": None},
    {"text": "c", "labels": None, "kind": None},
]


def test_parquet_rows_are_numbered_across_batches(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [str(n) for n in range(BATCH + 5)], "other": [0] * (BATCH + 5)}), path)
    table = ParquetTable(path)
    assert table.columns == ("text", "other")
    rows = list(table.records(["text"]))
    assert [row.line for row in rows] == list(range(1, BATCH + 6))
    assert rows[-1].values == {"text": str(BATCH + 4)}


def test_parquet_columns_with_dots_and_categories(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": pa.array(["a"]).dictionary_encode(), "cs.ai": [1], "cs.lg": [0]}), path)
    (row,) = ParquetTable(path).records(["text", "cs.ai"])
    assert row.values == {"text": "a", "cs.ai": 1}


def test_parquet_from_the_hub_has_names_for_its_classes(tmp_path):
    Dataset.from_dict(ROWS, features=NAMED).to_parquet(tmp_path / "a.parquet")
    assert [row.values for row in ParquetTable(tmp_path / "a.parquet").records()] == READ


def test_what_is_no_parquet_is_an_error(tmp_path):
    (tmp_path / "a.parquet").write_text("text,labels\n")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet"):
        ParquetTable(tmp_path / "a.parquet")


@pytest.mark.parametrize("form", [None, "numpy", "torch"])
def test_datasets_give_names_whatever_their_format(form):
    dataset = Dataset.from_dict(ROWS, features=NAMED).select([2, 0]).with_format(form)
    table = DatasetTable(dataset, "dataset")
    assert table.columns == ("text", "labels", "kind")
    assert [(row.line, row.values) for row in table.records()] == [(1, READ[2]), (2, READ[0])]
    assert [dict(row.values) for row in table.records(["text"])] == [{"text": "c"}, {"text": "a"}]


def test_saved_datasets_are_recognised(tmp_path):
    assert not is_saved_dataset(tmp_path)
    Dataset.from_dict(ROWS, features=NAMED).save_to_disk(tmp_path / "saved")
    assert is_saved_dataset(tmp_path / "saved")
    assert load_saved(tmp_path / "saved").column_names == ["text", "labels", "kind"]


def test_damaged_saved_datasets_are_an_error(tmp_path):
    Dataset.from_dict(ROWS, features=NAMED).save_to_disk(tmp_path)
    for path in tmp_path.glob("*.arrow"):
        path.unlink()
    with pytest.raises(DataError, match="cannot be read as a saved dataset"):
        load_saved(tmp_path)


def test_text_that_is_no_utf8(tmp_path):
    column = pa.array([b"fine", b"\xff\xfe"]).cast(pa.binary())
    pq.write_table(pa.table({"text": column.view(pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet: .*UTF8"):
        list(ParquetTable(tmp_path / "a.parquet").records())


def test_names_of_labels_that_nobody_can_read(tmp_path):
    schema = pa.schema([("text", pa.string())], metadata={"huggingface": '{"info": {"features": {"text": "x"}}}'})
    pq.write_table(pa.table({"text": ["a"]}, schema=schema), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: its label names cannot be read"):
        ParquetTable(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content"), [("state.json", "[" * 5000), ("state.json", "{}"), ("dataset_info.json", "[]")]
)
def test_a_saved_dataset_with_a_damaged_description(tmp_path, name, content):
    Dataset.from_dict(ROWS).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / name).write_text(content)
    with pytest.raises(DataError, match="saved: cannot be read as a saved dataset"):
        load_saved(tmp_path / "saved")


def test_offsets_that_point_out_of_a_mapped_file_are_not_followed(tmp_path):
    Dataset.from_dict({"text": ["aaaa", "bbbb", "cccc"]}).save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    content = file.read_bytes()
    offsets = b"".join(number.to_bytes(4, "little") for number in (0, 4, 8, 12))
    assert offsets in content
    file.write_bytes(content.replace(offsets, offsets[:4] + b"\xff\xff\xff\x7f" + offsets[8:]))
    with pytest.raises(DataError, match="the dataset is damaged"):
        list(DatasetTable(load_saved(tmp_path / "saved"), "saved").records())


def test_names_of_columns_that_are_no_utf8(tmp_path):
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("texts", pa.string())])):
        pass
    (tmp_path / "a.arrow").write_bytes((tmp_path / "a.arrow").read_bytes().replace(b"texts", b"\xff" * 5))
    with pytest.raises(DataError, match=r"a\.arrow: cannot be read as Arrow: .*utf-8"):
        ArrowTable(tmp_path / "a.arrow")
