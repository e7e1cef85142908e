import csv

import numpy as np
import pytest
from handmade import COMPRESS

from abalone.data.benchmarks import BENCHMARKS
from abalone.errors import DataError

NAMES = ["cs.ai", "cs.it", "math.it"]
# 200 documents; cs.it and math.it go together, as they do on arXiv
DOCUMENTS = [(f"abstract number {i}", ["cs.it", "math.it"] if i % 3 else ["cs.ai"]) for i in range(200)]
PARTS = {"train": DOCUMENTS[:150], "val": DOCUMENTS[150:170], "test": DOCUMENTS[170:]}
SIZES = [152, 17, 31]  # 200 documents in the paper's shares of 42,500 / 4,800 / 8,540


def write_sgm(folder):
    for part, documents in PARTS.items():
        (folder / f"text_{part}").write_text("".join(f"{text}\n" for text, _ in documents), "utf-8")
        (folder / f"label_{part}").write_text("".join(" ".join(labels) + "\n" for _, labels in documents), "utf-8")


def write_hedwig(folder, validation="dev"):
    for part, documents in PARTS.items():
        name = {"val": validation}.get(part, part)
        lines = ("".join(str(int(n in labels)) for n in NAMES) + f"\t{text}\n" for text, labels in documents)
        (folder / f"aapd_{name}.tsv").write_text("".join(lines), "utf-8")


def write_csv(file, documents=DOCUMENTS, header=("", "abstract", "math.it", "cs.it", "cs.ai")):
    with file.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        names = header[header.index("abstract") + 1 :]
        for i, (text, labels) in enumerate(documents):
            writer.writerow([i, text, *(int(name in labels) for name in names)])


def contents(corpus):
    """Text and label names of every document, in the order of the splits."""
    return [
        (text, [corpus.label_names[j] for j in split.labels[[i]].indices])
        for _, split in corpus.splits()
        for i, text in enumerate(split.texts)
    ]


def test_sgm_is_pooled_and_split_again_in_the_papers_shares(tmp_path):
    write_sgm(tmp_path)
    corpus = BENCHMARKS["aapd"](tmp_path)
    assert [len(split) for _, split in corpus.splits()] == SIZES
    assert corpus.label_names == tuple(NAMES)
    assert sorted(contents(corpus)) == sorted(DOCUMENTS)
    assert corpus.train.labels.dtype == np.int32
    share = [split.labels.mean(axis=0)[0] for _, split in corpus.splits()]
    assert share == pytest.approx([67 / 200] * 3, abs=0.03)
    assert "no ids" in str(corpus.provenance["split"])
    assert contents(BENCHMARKS["aapd"](tmp_path)) == contents(corpus)


def test_the_three_forms_are_one_corpus(tmp_path):
    folders = {form: tmp_path / form for form in ("sgm", "hedwig", "csv")}
    for folder in folders.values():
        folder.mkdir()
    write_sgm(folders["sgm"])
    write_hedwig(folders["hedwig"])
    write_csv(folders["csv"] / "AAPD.csv")
    sgm, hedwig, table = (BENCHMARKS["aapd"](folder) for folder in folders.values())
    assert contents(table) == contents(sgm)
    assert list(hedwig.train.texts) == list(sgm.train.texts)
    assert (hedwig.train.labels != sgm.train.labels).nnz == 0
    assert hedwig.label_names == ("label_01", "label_02", "label_03")
    assert "without label names" in hedwig.notes[0]
    assert contents(BENCHMARKS["aapd"](folders["csv"] / "AAPD.csv")) == contents(sgm)


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("form", ["sgm", "hedwig", "csv"])
def test_compressed_files(tmp_path, form, suffix):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    for folder in (plain, packed):
        folder.mkdir()
    {"sgm": write_sgm, "hedwig": write_hedwig, "csv": lambda folder: write_csv(folder / "AAPD.csv")}[form](plain)
    for file in plain.iterdir():
        (packed / f"{file.name}{suffix}").write_bytes(COMPRESS[suffix](file.read_bytes()))
    assert contents(BENCHMARKS["aapd"](packed)) == contents(BENCHMARKS["aapd"](plain))


def test_a_label_on_no_document_does_not_change_the_split(tmp_path):
    for name, names in {"with": [*NAMES, "zz"], "without": NAMES}.items():
        (tmp_path / name).mkdir()
        write_csv(tmp_path / name / "aapd.csv", header=("", "abstract", *names))
    assert contents(BENCHMARKS["aapd"](tmp_path / "with")) == contents(BENCHMARKS["aapd"](tmp_path / "without"))


def test_hedwig_copies_that_say_validation(tmp_path):
    write_hedwig(tmp_path, validation="validation")
    assert [len(split) for _, split in BENCHMARKS["aapd"](tmp_path).splits()] == SIZES


def test_csv_with_quotes_and_newlines_inside(tmp_path):
    documents = [*DOCUMENTS, ('says "yes",\r\nthen no', ["cs.ai"])]
    write_csv(tmp_path / "aapd.csv", documents)
    corpus = BENCHMARKS["aapd"](tmp_path)
    assert ('says "yes",\r\nthen no', ["cs.ai"]) in contents(corpus)
    assert corpus.notes == ("Columns not read: ''.",)


def test_documents_without_labels_and_empty_texts_are_kept_and_counted(tmp_path):
    write_csv(tmp_path / "aapd.csv", [*DOCUMENTS, ("bare", []), (" ", ["cs.ai"])])
    corpus = BENCHMARKS["aapd"](tmp_path)
    assert len(contents(corpus)) == 202
    assert any("carry no label" in note for note in corpus.notes)
    assert any("have no text" in note for note in corpus.notes)


def test_a_label_on_no_document_is_reported(tmp_path):
    write_csv(tmp_path / "aapd.csv", header=("abstract", "cs.ai", "cs.it", "math.it", "cmp-lg"), documents=[])
    write_rows = "".join(f"text {i},1,{i % 2},0,0\n" for i in range(20))
    (tmp_path / "aapd.csv").write_text("abstract,cs.ai,cs.it,math.it,cmp-lg\n" + write_rows)
    corpus = BENCHMARKS["aapd"](tmp_path)
    assert corpus.label_names == ("cs.ai", "cs.it")
    assert "No document carries 2 of the labels: cmp-lg, math.it." in corpus.notes


@pytest.mark.parametrize("short", ["text_val", "label_val"])
def test_files_of_unequal_length(tmp_path, short):
    write_sgm(tmp_path)
    file = tmp_path / short
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(DataError, match=rf"{short}:20: ends before this line"):
        BENCHMARKS["aapd"](tmp_path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("0110 no tab\n", "not a string of 0 and 1"), ("01x\ttext\n", "not a string"), ("0110\ttext\n", "4 bits, where")],
)
def test_bad_bits_are_named(tmp_path, line, reason):
    write_hedwig(tmp_path)
    file = tmp_path / "aapd_dev.tsv"
    file.write_text(file.read_text() + line)
    with pytest.raises(DataError, match=rf"aapd_dev\.tsv:21: {reason}"):
        BENCHMARKS["aapd"](tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", r"aapd\.csv:1: no column 'abstract'"),
        ("Text,cs.ai\nx,1\n", r"aapd\.csv:1: no column 'abstract' among \['Text', 'cs.ai'\]"),
        ('abstract,cs.ai\n"two\nlines",1\nx,2\n', r"aapd\.csv:4: not an abstract and then 1 values"),
        ("abstract,cs.ai\nx\n", r"aapd\.csv:2: 1 columns where the header has 2"),
        ('abstract,cs.ai\nx,1\n"open,1\n', r"aapd\.csv:3: broken quotes"),
        ("abstract,cs.ai\n", r"aapd: there are no training documents"),
    ],
)
def test_bad_csv_is_named(tmp_path, content, reason):
    (tmp_path / "aapd.csv").write_text(content)
    with pytest.raises(DataError, match=reason):
        BENCHMARKS["aapd"](tmp_path)


def test_several_csv_files_need_the_same_columns(tmp_path):
    (tmp_path / "a.csv").write_text("abstract,cs.ai\nx,1\n")
    (tmp_path / "b.csv").write_text("abstract,cs.it\nx,1\n")
    with pytest.raises(DataError, match=r"b\.csv:1: not the columns of a\.csv"):
        BENCHMARKS["aapd"](tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none of the three published forms.*\n.*lancopku/SGM"):
        BENCHMARKS["aapd"](tmp_path)
    write_sgm(tmp_path)
    (tmp_path / "label_test").unlink()
    with pytest.raises(DataError, match="missing: label_test"):
        BENCHMARKS["aapd"](tmp_path)
