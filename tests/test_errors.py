"""What tells a user's mistake from a bug, how messages spell settings, and text of files that is safe to print."""

import json

import pytest

from abalone.errors import (
    LONGEST,
    DataError,
    InputError,
    as_input_error,
    printable,
    printable_json,
    readable,
    spelled,
    spelling_options,
)


def test_callers_who_catch_value_error_go_on_working():
    assert issubclass(InputError, ValueError)
    assert issubclass(DataError, InputError)


def test_a_value_error_becomes_an_input_error_with_its_message_and_cause():
    with pytest.raises(InputError, match=r"^too many$") as raised, as_input_error():
        raise ValueError("too many")
    assert type(raised.value.__cause__) is ValueError


def test_an_input_error_stays_the_one_it_is():
    with pytest.raises(DataError) as raised, as_input_error():
        raise DataError("empty", path="a.csv")
    assert raised.value.path == "a.csv"


@pytest.mark.parametrize("error", [TypeError, KeyError])
def test_other_errors_pass_as_they_are(error):
    with pytest.raises(error), as_input_error():
        raise error("x")


@pytest.mark.parametrize(
    ("setting", "value", "argument", "option"),
    [
        ("text_column", None, "text_column=", "--text-column"),
        ("skip_bad_rows", True, "skip_bad_rows=True", "--skip-bad-rows"),
        ("encoding", "utf-16", "encoding='utf-16'", "--encoding utf-16"),
        ("encoding", "a b", "encoding='a b'", "--encoding 'a b'"),
        ("folds", 0, "folds=0", "folds=0"),  # no option of this command
    ],
)
def test_a_setting_is_spelled_as_its_reader_types_it(setting, value, argument, option):
    assert spelled(setting, value) == argument
    with spelling_options(
        {name: f"--{name.replace('_', '-')}" for name in ("text_column", "skip_bad_rows", "encoding")}
    ):
        assert spelled(setting, value) == option
    assert spelled(setting, value) == argument


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
