import pytest

from abalone.serving.middleware import KEY_VARIABLE, read_key

KEY = "0123456789abcdef"


def test_the_key_is_read_from_the_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    assert read_key(None) is None
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    assert read_key(None) == KEY
    (tmp_path / "key").write_text(f"another-{KEY}\n")
    assert read_key(tmp_path / "key") == f"another-{KEY}"


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"two lines of\nkeys and more", b"x" * 2000, b"\xff" * 20])
def test_what_is_no_key_is_refused_without_showing_it(tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(ValueError, match=r"key: an API key has 16 to 1,000 characters") as refused:
        read_key(tmp_path / "key")
    assert not content.strip() or content.decode("latin-1") not in str(refused.value)


def test_an_empty_variable_is_not_taken_for_no_key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, "")
    with pytest.raises(ValueError, match=KEY_VARIABLE):
        read_key(None)
