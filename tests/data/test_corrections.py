"""Corrections: what is suggested is read back as it was decided, and a table that is wrong changes nothing."""

import csv
from io import BytesIO

import numpy as np
import pytest
from scipy.sparse import csr_array

from abalone.data.corpus import Corpus, Split
from abalone.data.corrections import Suggestion, corrected, write_suggestions
from abalone.errors import InputError

NAMES = ("cats", "dogs; large", "=birds")
TEXTS = ["a cat", "a dog", "a cat and a dog", "=a bird", "a cat"]
LABELS = [[1, 0, 0], [0, 1, 0], [1, 0, 1], [0, 0, 1], [1, 0, 0]]


@pytest.fixture
def corpus():
    train, validation = Split(TEXTS[:4], csr_array(LABELS[:4])), Split(TEXTS[4:], csr_array(LABELS[4:]))
    return Corpus(train, validation, Split([], csr_array((0, 3), dtype=int)), NAMES, provenance={"source": "here"})


def suggest(text: str, label: str, *, add: bool) -> Suggestion:
    names = tuple(name for name, there in zip(NAMES, LABELS[TEXTS.index(text)], strict=True) if there)
    return Suggestion(text, label, add, 0.9, 0.8, 2, names)


ALL = (
    suggest("a cat and a dog", "dogs; large", add=True),
    suggest("a cat and a dog", "=birds", add=False),
    suggest("a cat", "dogs; large", add=True),
    suggest("=a bird", "cats", add=True),
)


def table(folder, decisions, suggestions=ALL, **changes):
    """Write the suggestions and decide them, as a person does in a spreadsheet; `changes` replace cells of row 0."""
    buffer = BytesIO()
    write_suggestions(buffer, suggestions)
    rows = list(csv.reader(buffer.getvalue().decode("utf-8-sig").splitlines()))
    header = rows[0]
    for row, decision in zip(rows[1:], decisions, strict=True):
        row[header.index("decision")] = decision
    for name, value in changes.items():
        rows[1][header.index(name)] = value
    path = folder / "review.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def labels(corpus):
    return [split.labels.toarray().tolist() for split in (corpus.train, corpus.validation)]


def test_what_was_agreed_to_is_changed_in_all_copies_and_nothing_else(corpus, tmp_path):
    changed = corrected(corpus, table(tmp_path, ["yes", "X", "Yes ", "no"]))
    assert labels(changed) == [[[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], [[1, 1, 0]]]
    assert labels(corpus) == [LABELS[:4], LABELS[4:]]
    assert changed.notes[-1] == "Corrections of review.csv: 2 labels added, 1 removed."
    (made,) = changed.provenance["corrections"]
    assert (made["added"], made["removed"], len(made["sha256"])) == (2, 1, 64)
    assert changed.provenance["source"] == "here"


def test_given_again_they_change_nothing_more(corpus, tmp_path):
    path = table(tmp_path, ["yes", "yes", "", ""])
    once = corrected(corpus, path)
    twice = corrected(once, path)
    assert labels(twice) == labels(once)
    assert len(twice.provenance["corrections"]) == 2
    assert twice.notes[-1].endswith("0 labels added, 0 removed, 2 were so already.")


def test_no_cell_is_a_formula(tmp_path):
    with table(tmp_path, [""] * 4).open(encoding="utf-8", newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    assert '["=birds"]' in cells
    assert " =a bird" in cells


@pytest.mark.parametrize(
    ("decisions", "changes", "told"),
    [
        (["", "", "", ""], {}, "none of its 4 rows is decided"),
        (["maybe", "", "", ""], {}, r"review.csv:2: the decision is 'maybe'"),
        (["yes", "", "", ""], {"key": "t0123456789abcdef"}, r"review.csv:2: no training or validation document has"),
        (["yes", "", "", ""], {"label": "dogs; larg"}, r"no label 'dogs; larg'\n  Did you mean 'dogs; large'\?"),
        (["yes", "", "", ""], {"suggestion": "change"}, r"review.csv:2: the suggestion is 'change'"),
        (["yes", "", "", ""], {"label": ""}, r"review.csv:2: the label is "),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(decisions, changes, told, corpus, tmp_path):
    with pytest.raises(InputError, match=told):
        corrected(corpus, table(tmp_path, decisions, **changes))


def test_one_that_decides_a_label_twice_is_refused(corpus, tmp_path):
    path = table(tmp_path, ["yes", "no"], [ALL[0], ALL[0]])
    with pytest.raises(
        InputError, match=r"review.csv:3: the label 'dogs; large' of this document was decided in line 2"
    ):
        corrected(corpus, path)


def test_one_that_takes_the_last_document_of_a_label_is_refused(corpus, tmp_path):
    path = table(tmp_path, ["yes"], [suggest("a dog", "dogs; large", add=False)])
    with pytest.raises(InputError, match="leave no training document with the label 'dogs; large'"):
        corrected(corpus, path)


def test_one_without_decisions_to_read_is_refused(corpus, tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("text,label\na cat,cats\n")
    with pytest.raises(InputError, match=r"there is no column 'key'"):
        corrected(corpus, path)


def test_only_decided_columns_are_needed_and_any_format_is_read(corpus, tmp_path):
    with table(tmp_path, ["yes", "", "", ""]).open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    path = tmp_path / "decided.tsv"
    path.write_text("decision\tlabel\tsuggestion\tkey\n" + f"1\t{row['label']}\tADD\t{row['key']}\n")
    assert np.array_equal(corrected(corpus, path).train.labels.toarray()[2], [1, 1, 1])


def test_a_name_that_a_spreadsheet_would_rewrite_is_a_list(tmp_path):
    numbers = Corpus(
        Split(["one", "two"], csr_array([[1, 0], [0, 1]])), Split([], csr_array((0, 2), dtype=int)),
        Split([], csr_array((0, 2), dtype=int)), ("250", "250.00"),
    )  # fmt: skip
    path = table(tmp_path, ["yes"], [Suggestion("one", "250.00", True, 0.9, 0.8, 1, ("250",))])
    assert '"[""250.00""]"' in path.read_text()
    assert corrected(numbers, path).train.labels.toarray().tolist() == [[1, 1], [0, 1]]


def test_a_file_in_another_encoding_is_refused_with_what_to_do(corpus, tmp_path):
    path = table(tmp_path, ["yes", "", "", ""], text="na\u00efve")
    path.write_bytes(path.read_text(encoding="utf-8").encode("cp1252"))
    with pytest.raises(InputError, match="Save the table as CSV in UTF-8"):
        corrected(corpus, path)


@pytest.mark.parametrize("label", ["[b", "[b]", "1.5, 2"])
def test_a_label_that_cannot_be_read_is_told_with_its_line(label, corpus, tmp_path):
    with pytest.raises(InputError, match=r"review\.csv:2: "):
        corrected(corpus, table(tmp_path, ["yes", "", "", ""], label=label))
