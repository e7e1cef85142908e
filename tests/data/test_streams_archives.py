"""Archives that were made with intent: nothing leaves them but the files that are asked for, and not too much."""

import gzip
import io
import tarfile
import zipfile

import pytest

from abalone.data import streams
from abalone.data.streams import Allowance, read_tar, read_zip
from abalone.errors import DataError


def tar(path, *members):
    """Members are (name, content) or a `TarInfo`."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name, kind, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def test_names_that_lead_outside_lead_nowhere(tmp_path):
    names = ("../../a.txt", "/etc/b.txt", "in/../../c.txt", "d.txt")
    path = tar(tmp_path / "in.tar", *((name, name.encode()) for name in names))
    found = read_tar(path, {"a.txt", "b.txt", "c.txt", "d.txt"})
    assert found == {name.rpartition("/")[2]: name.encode() for name in names}
    assert [file.name for file in tmp_path.iterdir()] == ["in.tar"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_devices_and_folders_are_no_files(tmp_path, kind):
    path = tar(tmp_path / "in.tar", special("a", kind, "/etc/passwd"), special("b", kind, "b"), ("c", b"text"))
    assert read_tar(path, {"a", "b", "c"}) == {"c": b"text"}


def test_a_small_archive_does_not_become_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "ALWAYS_FINE", 1 << 20)
    packed = tar(tmp_path / "in.tar.gz", ("junk", bytes(1 << 23)), ("a", b"text"))
    with pytest.raises(
        DataError, match=r"in\.tar\.gz: unpacks to more than 2 MiB, over 200 times its size\n.*unpack it"
    ):
        read_tar(packed, {"a"})
    monkeypatch.setattr(streams, "ALWAYS_FINE", 1 << 24)
    assert read_tar(packed, {"a"}) == {"a": b"text"}


def test_small_archive_may_unpack_to_256_mib(tmp_path):
    (tmp_path / "in.zip").touch()
    allowance = Allowance(tmp_path / "in.zip")
    allowance.take(256 * 2**20)
    with pytest.raises(DataError, match=r"in\.zip: unpacks to more than 256 MiB"):
        allowance.take(1)


def test_members_have_a_size_and_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LARGEST_MEMBER", 1000)
    path = tar(tmp_path / "in.tar", ("a", bytes(1001)), ("b", bytes(1000)))
    with pytest.raises(DataError, match=r"its file a is larger than"):
        read_tar(path, {"a"})
    assert len(read_tar(path, {"b"})["b"]) == 1000
    monkeypatch.setattr(streams, "MEMBERS", 1)
    with pytest.raises(DataError, match="holds more than 1 files"):
        read_tar(path, {"b"})


def zipped(path, **options):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in options.get("files", {"../a.xml": b"<a/>", "b.txt": b"", "c.XML": b"<c/>"}).items():
            archive.writestr(name, content)
    return path


def test_zips_are_read_where_they_are(tmp_path):
    assert list(read_zip(zipped(tmp_path / "in.zip"), ".xml")) == [("../a.xml", b"<a/>"), ("c.XML", b"<c/>")]
    assert [file.name for file in tmp_path.iterdir()] == ["in.zip"]


def test_a_zip_bomb(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "LARGEST_MEMBER", 1 << 20)
    path = zipped(tmp_path / "in.zip", files={"a.xml": bytes(1 << 24)})
    with pytest.raises(DataError, match=r"in\.zip: its file a\.xml is larger than 1 MiB"):
        list(read_zip(path, ".xml"))


def test_small_zip_of_many_members_does_not_become_a_large_one(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "ALWAYS_FINE", 1 << 20)
    path = zipped(tmp_path / "in.zip", files={f"{number}.xml": bytes(1 << 19) for number in range(10)})
    read = []
    with pytest.raises(DataError, match=r"in\.zip: unpacks to more than 1 MiB, over 200 times its size\n.*unpack it"):
        read += read_zip(path, ".xml")
    monkeypatch.setattr(streams, "ALWAYS_FINE", 10 << 19)
    assert sum(len(content) for _, content in read_zip(path, ".xml")) == 10 << 19


@pytest.mark.parametrize(
    ("place", "value"), [(8, 1), (10, 99), (16, 170)], ids=["a password", "an unknown method", "another checksum"]
)
def test_zips_that_python_cannot_read(tmp_path, place, value):
    path = zipped(tmp_path / "in.zip", files={"a.xml": b"<a/>" * 50})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + place] = value
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"in\.zip: not a readable zip"):
        list(read_zip(path, ".xml"))


@pytest.mark.parametrize("content", [b"", b"PK", gzip.compress(b"no tar", mtime=0)[:-5], b"\0" * 100, b"x" * 2000])
def test_what_is_no_archive(tmp_path, content):
    for name, read in (
        ("in.tar", read_tar),
        ("in.tar.gz", read_tar),
        ("in.zip", lambda p, n: list(read_zip(p, ".xml"))),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: not a readable"):
            read(tmp_path / name, {"a"})
    with pytest.raises(DataError, match="not a readable tar archive"):
        read_tar(tmp_path, {"a"})
