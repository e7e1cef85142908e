from abalone.data.errors import LONGEST, DataError, printable, readable


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
    for text in ("naïve Größe 希少 🐚", "two\nlines", ""):
        assert printable(text) == readable(text) == text
    assert printable("\udcff") == "\\udcff"
