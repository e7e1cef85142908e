"""Plain text for LaTeX."""

import pytest

from abalone.reproduce.latex import escaped


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
def test_what_latex_would_take_for_its_own(text, written):
    assert escaped(text) == written


@pytest.mark.parametrize("start", ["[", "*"])
def test_a_row_is_no_argument_of_the_end_of_the_row_above(start):
    assert escaped(f"{start}1pt]").startswith("{")
