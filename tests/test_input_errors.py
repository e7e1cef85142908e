"""What tells a user's mistake from a bug, and how messages spell settings."""

import pytest

from abalone.errors import InputError, as_input_error, spelled, spelling_options
from abalone.files.errors import DataError


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
