"""A stray quote costs its own row and no other, and honest text of many lines stays one text."""

import json
from pathlib import Path

import pytest
from handmade import write

from abalone import load_corpus
from abalone.data.tables import SWALLOWED, BadRow, CsvRow, CsvTable, csv_rows
from abalone.errors import DataError

PROSE = [
    f"Line {number} of an article, with a clause, and so on." if number % 3 else "A line." for number in range(300)
]


def rows(number, first=0):
    return [f"text {n},{'ab'[n % 2]}\n" for n in range(first, first + number)]


def read(content):
    return list(csv_rows(iter(content), ",", Path("a.csv")))


def test_stray_quote_costs_its_own_row_alone(tmp_path):
    lines = ["text,labels\n", *rows(1000)]
    lines[700] = '"' + lines[700]
    path = write(tmp_path / "a.csv", "".join(lines))
    with pytest.raises(DataError, match=r"a\.csv:701: broken quotes: a quoted text begins here and does not end"):
        load_corpus(path)
    with pytest.warns(UserWarning, match="Rows left out: 1; see"):
        corpus = load_corpus(path, skip_bad_rows=True)
    assert sum(len(split) for _, split in corpus.splits()) == 999
    (entry,) = map(json.loads, (tmp_path / "a.csv.bad-rows.jsonl").read_text().splitlines())
    assert (entry["line"], entry["row"]) == (701, '"text 699,b')


@pytest.mark.parametrize("opening", ['"open,a\n', 'text,"a\n'])
@pytest.mark.parametrize("end", [[], ['a 5" pipe,a\n'], ['"quoted, properly",a\n'], ['a pipe of 5",b\n']])
def test_rows_between_a_stray_quote_and_the_next_quote_are_read(opening, end):
    """Also where the next quote happens to end the text: then there was no error at all."""
    found = read(["text,labels\n", *rows(10), opening, *rows(200), *end, *rows(5)])
    (broken,) = [record for record in found if isinstance(record, BadRow)]
    assert (broken.line, broken.lines, broken.source) == (12, 1, opening)
    assert [record.line for record in found if record is not broken] == [*range(1, 12), *range(13, 218 + len(end))]


def test_rows_after_a_text_whose_closing_quote_is_missing_are_read():
    body = ['"An article\n', *(f"{line}\n" for line in PROSE[:30])]
    found = read(["text,labels\n", *rows(10), *body, *rows(500)])
    broken, *after = found[11:]
    assert isinstance(broken, BadRow)
    assert (broken.line, broken.source) == (12, "".join([*body, *rows(broken.lines - 31)]))
    assert broken.lines < 31 + SWALLOWED
    assert len(after) == 500 - (broken.lines - 31)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_honest_text_of_many_lines_is_one_text(columns):
    article, more = "\n".join(PROSE), ",a" * (columns - 1)
    header = ",".join(f"c{column}" for column in range(columns))
    found = read(f'{header}\n"{article}"{more}\nx{more}\n'.splitlines(keepends=True))
    assert [type(record) for record in found] == [CsvRow] * 3
    assert found[1].fields[0] == article
    assert found[2].line == 302


def test_lines_that_are_lost_are_counted(tmp_path):
    lost = ['"open\n', *(f"{line}\n" for line in PROSE[:70])]
    content = "".join(["text,labels\n", *rows(200), *lost])
    _, *_, bad = CsvTable(write(tmp_path / "a.csv", content)).records()
    assert isinstance(bad, BadRow)
    assert (bad.line, bad.lines) == (202, 71)
    assert bad.reason == "broken quotes: unexpected end of data (71 lines from here on are lost)"
    with pytest.warns(UserWarning, match=r"Rows left out: 1 \(71 lines\); see"):
        corpus = load_corpus(tmp_path / "a.csv", skip_bad_rows=True)
    assert corpus.provenance["bad_rows"] == 1
    assert json.loads((tmp_path / "a.csv.bad-rows.jsonl").read_text())["lines"] == 71


def test_every_row_behind_many_stray_quotes_is_told():
    lines = ["text,labels\n", *rows(5000)]
    for place in range(100, 5000, 100):
        lines[place] = '"' + lines[place]
    found = read(lines)
    assert [record.line for record in found if isinstance(record, BadRow)] == list(range(101, 5001, 100))
    assert len(found) == len(lines)
