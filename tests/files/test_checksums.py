"""What is sealed is made once, and again only when a file of it has changed."""

import pytest

from abalone.files import checksums
from abalone.files.checksums import SEAL, damaged_file, sealed_once


@pytest.fixture
def folder(tmp_path):
    return sealed_once(tmp_path / "entry", build)


def build(place):
    (place / "one").write_bytes(b"one")
    (place / "two").write_bytes(b"")


def test_intact_folder_is_not_built_again(folder):
    (folder / ".lock").touch()
    assert damaged_file(folder) is None
    assert sealed_once(folder, pytest.fail) == folder


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda folder: (folder / "one").write_bytes(b"0ne"), "one"),
        (lambda folder: (folder / "two").write_bytes(b"\0"), "two"),
        (lambda folder: (folder / "one").unlink(), "one"),
        (lambda folder: (folder / "three").touch(), "three"),
        (lambda folder: (folder / SEAL).unlink(), SEAL),
        (lambda folder: (folder / SEAL).write_text("[]"), SEAL),
        (lambda folder: (folder / SEAL).write_bytes(b"\xff"), SEAL),
        (lambda folder: (folder / SEAL).write_text((folder / SEAL).read_text().replace("two", "tow")), "tow"),
    ],
)
def test_any_change_is_noticed(change, named, folder):
    change(folder)
    with pytest.warns(UserWarning, match=rf"entry.{named} is damaged, so it is made again from the source"):
        sealed_once(folder, build)
    assert damaged_file(folder) is None
    assert (folder / "one").read_bytes() == b"one"


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_what_another_process_has_made_again_meanwhile_stays(folder, monkeypatch):
    (folder / "one").write_bytes(b"0ne")

    def overtaken(place):
        monkeypatch.undo()
        sealed_once(place, build)
        made.append(place.stat().st_ino)
        return "one"

    made = []
    monkeypatch.setattr(checksums, "damaged_file", overtaken)
    sealed_once(folder, pytest.fail)
    assert made == [folder.stat().st_ino]
