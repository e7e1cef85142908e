import json

import pytest
from handmade import COMPRESS

from abalone.data.benchmarks import BENCHMARKS
from abalone.errors import DataError

RECORDS = [
    {"title": "Road Act", "body": "No parking.", "labels": ["TRANSPORT", "PLANNING"], "data_type": "train"},
    {"title": "School Act", "body": "Go to school.", "labels": ["EDUCATION"], "data_type": "train"},
    {"title": "Bus Act", "body": "Buses\nmay stop.", "labels": ["TRANSPORT", "TRANSPORT"], "data_type": "dev"},
    {"title": "Whale Act", "body": "", "labels": ["FISHERIES", "PLANNING"], "data_type": "test"},
    {"title": "Empty Act", "body": "None.", "labels": [], "data_type": "test"},
]


def write(path, records=RECORDS):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_its_own_split_with_title_and_body(tmp_path):
    write(tmp_path / "uk-lex69.jsonl")
    corpus = BENCHMARKS["uklex"](tmp_path)
    assert corpus.name == "uk-lex69"
    assert [len(split) for _, split in corpus.splits()] == [2, 1, 2]
    assert corpus.train.texts[0] == "Road Act\nNo parking."
    assert corpus.label_names == ("EDUCATION", "PLANNING", "TRANSPORT")
    assert corpus.train.labels.toarray().tolist() == [[0, 1, 1], [1, 0, 0]]
    assert corpus.validation.labels.toarray().tolist() == [[0, 0, 1]]
    assert corpus.train.labels.dtype == "int32"
    assert "6355465" in str(corpus.provenance["source"])


def test_a_label_unseen_in_training_and_a_document_without_labels_are_reported(tmp_path):
    corpus = BENCHMARKS["uklex"](write(tmp_path / "uk-lex69.jsonl"))
    assert corpus.unseen_labels == ("FISHERIES",)
    assert corpus.test.labels.toarray().tolist() == [[0, 1, 0], [0, 0, 0]]
    assert any("FISHERIES" in note for note in corpus.notes)
    assert any(note.startswith("Labels in one split only: EDUCATION (train)") for note in corpus.notes)
    assert "1 test documents carry no label." in corpus.notes


def test_the_paper_uses_69_labels_so_that_file_comes_first(tmp_path):
    write(tmp_path / "uk-lex18.jsonl")
    assert BENCHMARKS["uklex"](tmp_path).name == "uk-lex18"
    write(tmp_path / "uk-lex69.jsonl")
    assert BENCHMARKS["uklex"](tmp_path).name == "uk-lex69"
    assert BENCHMARKS["uklex"](tmp_path / "uk-lex18.jsonl").name == "uk-lex18"


@pytest.mark.parametrize("suffix", COMPRESS)
def test_windows_line_ends_a_byte_order_mark_and_compression(tmp_path, suffix):
    lines = "\ufeff" + "\r\n".join(json.dumps(record) for record in RECORDS) + "\r\n\r\n"
    (tmp_path / f"uk-lex69.jsonl{suffix}").write_bytes(COMPRESS[suffix](lines.encode("utf-8")))
    assert list(BENCHMARKS["uklex"](tmp_path).train.texts) == ["Road Act\nNo parking.", "School Act\nGo to school."]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"title": "cut', "not JSON: Unterminated string"),
        ("[1, 2]", "expected a JSON object, found list"),
        (json.dumps({**RECORDS[0], "data_type": "valid"}), "data_type 'valid' is not one of train, dev, test"),
        (json.dumps({**RECORDS[0], "labels": "TRANSPORT"}), "field 'labels' is str, not list"),
        (json.dumps({**RECORDS[0], "labels": [1]}), "field 'labels' has values that are not strings"),
        (json.dumps({"title": "only"}), "field 'body' is missing"),
        (json.dumps({**RECORDS[0], "body": "x\ud83d"}), "field 'body' has half a surrogate pair at position 2"),
        (json.dumps({**RECORDS[0], "labels": ["A", "\ud83d"]}), "field 'labels' has half a surrogate pair"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, reason):
    file = write(tmp_path / "uk-lex69.jsonl")
    file.write_text(file.read_text() + line + "\n")
    with pytest.raises(DataError) as caught:
        BENCHMARKS["uklex"](tmp_path)
    assert str(caught.value).startswith(f"{file}:6: {reason}")


def test_undecodable_bytes_are_named(tmp_path):
    file = write(tmp_path / "uk-lex69.jsonl")
    file.write_bytes(file.read_bytes() + b'{"title": "caf\xe9"}\n')
    with pytest.raises(DataError, match=r"uk-lex69\.jsonl:6: byte 0xe9 at position 15 of the row is not UTF-8"):
        BENCHMARKS["uklex"](tmp_path)


def test_without_training_documents_there_is_no_corpus(tmp_path):
    write(tmp_path / "uk-lex69.jsonl", RECORDS[2:])
    with pytest.raises(DataError, match="no training documents"):
        BENCHMARKS["uklex"](tmp_path)


def test_where_nothing_is_the_error_says_what_to_get(tmp_path):
    with pytest.raises(DataError, match=r"uk-lex69\.jsonl.*Zenodo record 6355465.*put it in"):
        BENCHMARKS["uklex"](tmp_path)


def test_the_default_place(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="no such file or folder") as caught:
        BENCHMARKS["uklex"](None)
    assert str(tmp_path / "uklex") in str(caught.value)
    (tmp_path / "uklex").mkdir()
    write(tmp_path / "uklex" / "uk-lex69.jsonl")
    assert len(BENCHMARKS["uklex"](None).train) == 2
