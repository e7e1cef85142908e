"""Tables in three formats."""

import csv
import io
from dataclasses import replace

import pytest

from abalone.reproduce.layout import Column, Line, Table, Value, comma_separated, escaped, latex, markdown, write

TABLE = Table(
    "example",
    "Loss",
    (
        Column("micro-F1", "at 0.5", r"$\mu$-F$_1$", "highest"),
        Column("Ham", "at 0.5", best="lowest"),
        Column("Ham", "the paper", best="lowest"),
        Column("runs", text=True),
    ),
    (
        ("", (Line("L_A", r"$\mathcal{L}_{A}$", (Value(71.256, 0.5), Value(3.0), None, "2/3")),)),
        (
            "Ours",
            (
                Line("L_B", r"$\mathcal{L}_{B}$", (Value(71.259, 1.25), Value(2.0), Value(9.0), "")),
                Line(
                    "L_C", r"$\mathcal{L}_{C}$", (Value(71.2, 1.25, final=False), Value(2.0, final=False), None, "1/3")
                ),
            ),
        ),
    ),
    "50 % of a_b & c.",
)


def test_value_has_mean_and_sample_deviation_of_known_values():
    assert Value.of([]) is None
    assert Value.of([None, None]) is None
    assert Value.of([3.0]) == Value(3.0, None)
    value = Value.of([1.0, None, 2.0, 3.0])
    assert (value.mean, value.deviation) == (2.0, 1.0)  # the sample deviation
    assert Value.of([87.25579999999999] * 3).deviation == 0  # and no trace of rounding


def test_markdown():
    assert markdown(TABLE).splitlines() == [
        "### example",
        "",
        "| Loss | micro-F1, at 0.5 | Ham, at 0.5 | Ham, the paper | runs |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| L_A | **71.26** ± 0.50 | 3.00 | – | 2/3 |",  # 71.256 and 71.259 look the same, so both are best
        "| **Ours** |  |  |  |  |",
        "| L_B | **71.26** ± 1.25 | **2.00** | 9.00 | – |",  # a single figure is not the best of anything
        "| L_C | 71.20 ± 1.25 | 2.00 | – | 1/3 |",  # what misses runs cannot win
        "",
        "50 % of a_b & c.",
    ]


def test_no_row_is_bold_while_an_incomplete_one_is_ahead():
    ahead = Line("L_D", r"$\mathcal{L}_{D}$", (Value(99.0, final=False), Value(1.0, final=False), None, "1/3"))
    assert "**" not in markdown(replace(TABLE, sections=(*TABLE.sections[:1], ("", (*TABLE.sections[1][1], ahead)))))


def test_csv_keeps_the_digits():
    rows = list(csv.reader(io.StringIO(comma_separated(TABLE))))
    assert rows[0][:5] == ["table", "section", "Loss", "micro-F1, at 0.5", "micro-F1, at 0.5, deviation"]
    assert rows[1] == ["example", "", "L_A", "71.256", "0.5", "3", "", "", "", "2/3"]
    assert rows[2] == ["example", "Ours", "L_B", "71.259", "1.25", "2", "", "9", "", ""]
    assert {len(row) for row in rows} == {10}


def test_csv_columns_do_not_depend_on_finished_runs():
    empty = replace(TABLE, sections=(("", (Line("L_A", "A", (None, None, None, "0/3")),)),))
    assert comma_separated(empty).splitlines()[0] == comma_separated(TABLE).splitlines()[0]


def test_latex():
    text = latex(TABLE)
    assert r" & \multicolumn{2}{c}{at 0.5} & \multicolumn{1}{c}{the paper} & \multicolumn{1}{c}{} \\" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\cmidrule(lr){4-4}" in text
    assert r"\cmidrule(lr){5-5}" not in text
    assert r"\textbf{Loss} & $\mu$-F$_1$ & Ham & Ham & runs \\" in text
    assert r"$\mathcal{L}_{A}$ & \textbf{71.26} {\tiny$\pm$0.50} & 3.00 & -- & 2/3 \\" in text
    assert r"\caption{50 \% of a\_b \& c.}" in text
    assert text.count("{") == text.count("}")
    rows = [line for line in text.splitlines() if line.endswith(r"\\") and r"\multicolumn" not in line]
    assert {line.count("&") for line in rows} == {4}


def test_latex_of_a_long_table_is_a_longtable():
    lines = tuple(Line(f"label {n}", f"label {n}", (Value(1.0), None, None, "3/3")) for n in range(90))
    text = latex(replace(TABLE, sections=(("head", lines),)))
    assert text.startswith("% example: needs the packages booktabs and longtable")
    assert text.count(r"\toprule") == text.count(r"\textbf{Loss}") == 2  # on the first page and on all others
    for part in (r"\begin{longtable}{lcccc}", r"\endfirsthead", r"\endhead", r"\bottomrule", r"\end{longtable}"):
        assert text.count(part) == 1
    assert "table*" not in text
    assert "longtable" not in latex(TABLE)
    assert latex(TABLE).startswith("% example: needs the package booktabs\n")


@pytest.mark.parametrize("special", ["|", "%", "_", "³", "−", "\n", "\r\n"])
def test_names_with_special_characters(special):
    line = Line(f"a{special}b", "a", ("x",))
    table = Table("t", "Label", (Column(f"c{special}"),), (("", (line,)),), f"about {special}")
    header, ruler, body, empty = markdown(table).splitlines()[2:6]
    assert empty == ""
    unescaped = [text.replace("\\|", "").count("|") for text in (header, ruler, body)]
    assert unescaped == [3, 3, 3]
    assert latex(table)


def test_all_formats_are_written(tmp_path):
    write(TABLE, tmp_path / "new")
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["example.csv", "example.md", "example.tex"]
    assert (tmp_path / "new" / "example.md").read_text() == markdown(TABLE)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"a\b", r"a\textbackslash{}b"),
        ("{50 %}", r"\{50 \%\}"),
        ("a_b & c", r"a\_b \& c"),
        ("two\nlines", "two lines"),
        ("−0.5 ± 1", r"$-$0.5 $\pm$ 1"),
    ],
)
def test_special_characters_are_escaped(text, written):
    assert escaped(text) == written


@pytest.mark.parametrize("start", ["[", "*"])
def test_start_of_a_row_is_no_argument_of_the_command_before(start):
    assert escaped(f"{start}1pt]").startswith("{")
