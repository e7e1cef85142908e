import json

import pytest

from abalone.files.errors import LONGEST, DataError, printable, printable_json, readable


def test_a_message_says_what_where_and_what_to_do():
    error = DataError("no text", path="a.csv", line=3, hint="Mend it.")
    assert str(error) == "a.csv:3: no text\n  Mend it."


def test_what_a_file_says_is_cut_and_not_obeyed():
    error = DataError(f"no column {'x' * 10**6}\x1b[2J", path="a\x07.csv", hint="Columns: \x00\u202e.")
    assert len(str(error)) < 2 * LONGEST
    assert str(error).startswith("a\\x07.csv: no column xxx")
    assert str(error).endswith("x\\x1b[2J\n  Columns: \\x00\\u202e.")
    assert error.reason.endswith("\x1b[2J")  # programs have it as it is


def test_ordinary_text_stays_as_it_is():
    for text in ("naïve Größe 希少 🐚", ""):
        assert printable(text) == readable(text) == text
        assert printable_json(text) == f'"{text}"'
    assert printable("\udcff") == "\\udcff"


def test_name_with_line_breaks_passes_for_no_message_of_its_own():
    name = "a\nerror: forged\r\nerror: again"
    assert printable(name) == "a\\nerror: forged\\r\\nerror: again"
    told = str(DataError(f"no label {name}", path="b\nerror: c", hint=f"Labels: {name}"))
    assert not [line for line in told.splitlines()[1:] if not line.startswith("  ")]
    assert readable("what\n  where") == "what\n  where"


@pytest.mark.parametrize("mark", ["\x1b", "\x07", "\x9b", "\x85", "\u202e", "\u2066", "\u2028", "\ufeff", "\U000e0001"])
def test_json_holds_no_mark_that_a_terminal_would_obey_and_loses_none(mark):
    value = {f"label{mark}": [f"{mark}\n", 0.5]}
    for options in ({}, {"indent": 2}):
        text = printable_json(value, **options)
        assert mark not in text
        assert text.replace("\n", "").isprintable()
        assert json.loads(text) == value
