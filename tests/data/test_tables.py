import csv
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abalone.data.sources import open_path
from abalone.data.tables import BadRow, CsvTable, JsonTable, Record
from abalone.errors import DataError


@pytest.fixture
def csv_table(tmp_path):
    def write(content: str | bytes, name: str = "a.csv", **options: str) -> CsvTable:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return CsvTable(path, **options)

    return write


@pytest.fixture
def json_table(tmp_path):
    def write(content: str | bytes, kind: str = "jsonl") -> JsonTable:
        path = tmp_path / f"a.{kind}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return JsonTable(path, format=kind)

    return write


def lines_and_values(table):
    return [(row.line, dict(row.values) if isinstance(row, Record) else row.reason) for row in table.records()]


def test_lines_are_those_where_records_start(csv_table):
    table = csv_table('text,labels\n"one\ntwo ""quoted"", and\n\nmore",a\n\nnext,b\n')
    assert table.columns == ("text", "labels")
    assert lines_and_values(table) == [
        (2, {"text": 'one\ntwo "quoted", and\n\nmore', "labels": "a"}),
        (7, {"text": "next", "labels": "b"}),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(csv_table, end, mark):
    table = csv_table(mark + end.join(["text,labels", "x,a", '"y,z",b', ""]))
    assert table.columns == ("text", "labels")
    assert lines_and_values(table) == [(2, {"text": "x", "labels": "a"}), (3, {"text": "y,z", "labels": "b"})]


@given(rows=st.lists(st.tuples(st.text(), st.text()).filter(any)))
def test_whatever_the_csv_module_writes_comes_back(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([("text", "labels"), *rows])
    assert [tuple(row.values.values()) for row in CsvTable(path).records()] == rows


def test_tabs(csv_table):
    table = csv_table("text\tlabels\nx, y; z\ta\n", name="a.tsv", format="tsv")
    assert lines_and_values(table) == [(2, {"text": "x, y; z", "labels": "a"})]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_as_spreadsheets_write_it_elsewhere(csv_table, separator):
    table = csv_table(f'text{separator}labels\n"a{separator}b"{separator}c\n')
    assert lines_and_values(table) == [(2, {"text": f"a{separator}b", "labels": "c"})]


def test_fields_beyond_the_default_limit(csv_table):
    table = csv_table(f"text,labels\n{'x' * 300_000},a\n")
    (row,) = table.records()
    assert len(row.values["text"]) == 300_000


def test_wrong_numbers_of_columns(csv_table):
    table = csv_table("text,labels\nonly\nx,a\nx,y,z\n")
    assert lines_and_values(table) == [
        (2, "1 columns where the header has 2"),
        (3, {"text": "x", "labels": "a"}),
        (4, "3 columns where the header has 2"),
    ]


def test_a_stray_quote_swallows_no_rows_in_silence(csv_table):
    rows = list(csv_table('text,labels\nx,a\n"open,b\ny,c\nz"z,d\nw,e\n').records())
    assert [type(row) for row in rows] == [Record, BadRow, Record]
    assert rows[1].line == 3
    assert "quotes" in rows[1].reason
    assert rows[1].source == '"open,b\ny,c\nz"z,d\n'
    assert rows[2].line == 6


def test_undecodable_bytes_have_a_line_and_a_position(csv_table):
    rows = list(csv_table(b'text,labels\nx,a\n"one\nn\xc3\xa9e caf\xe9",b\ny,c\n').records())
    assert [row.line for row in rows] == [2, 3, 5]
    assert rows[1].reason == "byte 0xe9 at position 14 of the row is not UTF-8"
    assert "name it: encoding='cp1252'" in rows[1].hint
    assert isinstance(rows[2], Record)


def test_headers_have_to_be_sound(csv_table):
    with pytest.raises(DataError, match=r"a\.csv:1: header: UTF-16, where UTF-8 is expected"):
        _ = csv_table("text,labels\n".encode("utf-16")).columns
    with pytest.raises(DataError, match=r"duplicate columns in the header: x"):
        _ = csv_table("x,x,y\n").columns
    assert csv_table("").columns == ()
    assert csv_table(" text , labels\n").columns == ("text", "labels")


def test_json_lines(json_table):
    table = json_table('\ufeff{"text": "a\\nb", "labels": ["x"]}\r\n\r\n{"text": "c", "id": 3}\r\n')
    assert table.columns == ("text", "labels", "id")
    assert lines_and_values(table) == [(1, {"text": "a\nb", "labels": ["x"]}), (3, {"text": "c", "id": 3})]


def test_bad_json_lines(json_table):
    rows = list(json_table(b'{"text": "a"}\n{"text": "b\n[1]\n{"text": "\xff"}\n{"text": "c"}').records())
    assert [row.line for row in rows] == [1, 2, 3, 4, 5]
    assert [row.reason.partition(";")[0] for row in rows if isinstance(row, BadRow)] == [
        "not JSON: Unterminated string starting at position 10",
        "expected a JSON object, found list",
        "byte 0xff at position 11 of the row is not UTF-8",
    ]
    assert rows[1].source == '{"text": "b'


def test_a_file_of_nothing_but_bad_lines_is_an_error_at_once(json_table):
    with pytest.raises(DataError, match=r"a\.jsonl:1: not JSON"):
        _ = json_table("text,labels\nx,a\n").columns


def test_line_separators_inside_json_strings_end_no_line(json_table):
    (row,) = json_table('{"text": "a\u2028b\x85c"}\n').records()
    assert row.values == {"text": "a\u2028b\x85c"}


@pytest.mark.parametrize("indent", [None, 2])
def test_json_lists(json_table, indent):
    objects = [{"text": "a", "labels": ["x", "y"]}, {"text": "[b]", "labels": []}]
    table = json_table("\n" + json.dumps(objects, indent=indent) + "\n", kind="json")
    assert [row.values for row in table.records()] == objects
    assert [row.line for row in table.records()] == ([3, 10] if indent else [2, 2])


def test_json_lines_called_json(json_table):
    assert lines_and_values(json_table('{"text": "a"}\n{"text": "b"}\n', kind="json")) == [
        (1, {"text": "a"}),
        (2, {"text": "b"}),
    ]


def test_an_empty_json_list(json_table):
    table = json_table(" [ ]\n", kind="json")
    assert table.columns == ()
    assert list(table.records()) == []


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('[{"a": 1},\n{"a": 2}', 2, "the file ends"),
        ('[{"a": 1}\n{"a": 2}]', 2, "found '{'"),
        ('[{"a": 1},\n\n{"a": oops}]', 3, "Expecting value"),
        ("[", 1, "Expecting value"),
        ('[{"a": 1}]\n[{"a": 2}]', 1, "or the closing ']', found"),
    ],
)
def test_broken_json_lists(json_table, text, line, reason):
    with pytest.raises(DataError, match="not JSON") as caught:
        list(json_table(text, kind="json").records())
    assert caught.value.line == line
    assert reason in caught.value.reason


def test_items_of_json_lists_that_are_no_objects(json_table):
    rows = list(json_table('[{"a": 1},\n"b"]', kind="json").records())
    assert rows[1][1:4] == (2, "expected a JSON object, found str", '"b"')


@pytest.mark.parametrize(
    ("value", "reason"), [("[" * 5000, "nested too deeply"), ("9" * 5000, "a number of more than 4300 digits")]
)
def test_json_that_python_will_not_decode(tmp_path, value, reason):
    lines = tmp_path / "a.jsonl"
    lines.write_text(f'{{"text": "a"}}\n{{"text": {value}}}\n')
    good, bad = JsonTable(lines).records()
    assert isinstance(good, Record)
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.reason[:10]) == (2, "not JSON: ")
    assert reason in bad.reason
    listed = tmp_path / "a.json"
    listed.write_text(f'[{{"text": "a"}},\n{{"text": {value}}}]')
    with pytest.raises(DataError, match=rf"a\.json:2: not JSON: .*{reason}"):
        list(JsonTable(listed, format="json").records())


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8", "shift_jis"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_tables_in_other_encodings(tmp_path, name, encoding):
    word = "カフェ" if encoding == "shift_jis" else "café €"
    content = {
        "a.csv": f"text,labels\n{word},{word}\n",
        "a.jsonl": f'{{"text": "{word}", "labels": "{word}"}}\n',
        "a.json": f'[{{"text": "{word}", "labels": "{word}"}}]',
    }[name]
    path = tmp_path / name
    path.write_bytes(content.encode(encoding))
    (table,) = open_path(path, encoding=encoding.upper()).tables
    assert table.columns == ("text", "labels")
    assert [row.values for row in table.records()] == [{"text": word, "labels": word}]


def test_bytes_that_are_not_of_the_encoding_are_bad_rows_or_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"text,labels\nx,a\n\x81,b\n")
    _, bad = open_path(path, encoding="cp1252").tables[0].records()
    assert bad.reason == "byte 0x81 at position 1 of the row is not cp1252"
    with pytest.raises(DataError, match=r"a\.csv: cannot be read as utf-16"):
        _ = open_path(path, encoding="utf-16").tables[0].columns


def test_what_is_no_text_file_has_no_encoding(tmp_path):
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: encoding= is only for text files"):
        open_path(tmp_path / "a.parquet", encoding="latin-1")
    with pytest.raises(DataError, match="unknown encoding 'latin-one'\n  Common ones: utf-8, cp1252"):
        open_path(tmp_path / "a.parquet", encoding="latin-one")
