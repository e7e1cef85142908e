"""Tables in three formats."""

import csv
import io

import pytest

from abalone.experiments.layout import Column, Line, Table, Value, comma_separated, latex, markdown, write

TABLE = Table(
    "example",
    "Loss",
    (
        Column("micro-F1", "at 0.5", r"$\mu$-F$_1$", "highest"),
        Column("Ham", "at 0.5", best="lowest"),
        Column("Ham", "the paper", best="lowest"),
        Column("runs"),
    ),
    (
        ("", (Line("L_A", r"$\mathcal{L}_{A}$", (Value(71.256, 0.5), Value(3.0), None, "2/3")),)),
        ("Ours", (Line("L_B", r"$\mathcal{L}_{B}$", (Value(71.259, 1.25), Value(2.0), Value(9.0), "")),)),
    ),
    "50 % of a_b & c.",
)


def test_values():
    assert Value.of([]) is None
    assert Value.of([None, None]) is None
    assert Value.of([3.0]) == Value(3.0, None)
    value = Value.of([1.0, None, 2.0, 3.0])
    assert (value.mean, value.deviation) == (2.0, 1.0)  # the sample deviation


def test_markdown():
    assert markdown(TABLE).splitlines() == [
        "| Loss | micro-F1, at 0.5 | Ham, at 0.5 | Ham, the paper | runs |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| L_A | **71.26** ± 0.50 | 3.00 | – | 2/3 |",  # 71.256 and 71.259 look the same, so both are best
        "| **Ours** |  |  |  |  |",
        "| L_B | **71.26** ± 1.25 | **2.00** | 9.00 | – |",  # a single figure is not the best of anything
        "",
        "50 % of a_b & c.",
    ]


def test_csv_keeps_the_digits():
    rows = list(csv.reader(io.StringIO(comma_separated(TABLE))))
    assert rows[0][:3] == ["Loss", "micro-F1, at 0.5", "micro-F1, at 0.5, deviation"]
    assert rows[1] == ["L_A", "71.256", "0.5", "3", "", "", "", "2/3"]
    assert rows[2] == ["L_B", "71.259", "1.25", "2", "", "9", "", ""]
    assert {len(row) for row in rows} == {8}


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


@pytest.mark.parametrize("special", ["|", "%", "_", "³", "−"])
def test_names_with_special_characters(special):
    line = Line(f"a{special}b", "a", ("x",))
    table = Table("t", "Label", (Column(f"c{special}"),), (("", (line,)),), f"about {special}")
    header, ruler, body = markdown(table).splitlines()[:3]
    unescaped = [text.replace("\\|", "").count("|") for text in (header, ruler, body)]
    assert unescaped == [3, 3, 3]
    assert latex(table)


def test_all_formats_are_written(tmp_path):
    write(TABLE, tmp_path / "new")
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["example.csv", "example.md", "example.tex"]
    assert (tmp_path / "new" / "example.md").read_text() == markdown(TABLE)
