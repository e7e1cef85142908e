import zipfile

import pytest
from made_up_rcv1 import newsitem, same, write_tokens, write_xml

from abalone.data.benchmarks import BENCHMARKS
from abalone.data.benchmarks.rcv1 import QRELS, ancestors
from abalone.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ABALONE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "rcv1"
    place.mkdir()
    write_tokens(place)
    return place


def test_raw_xml_gets_its_ancestors_and_the_same_split(folder, tmp_path):
    write_xml(tmp_path / "xml")
    xml, tokens = BENCHMARKS["rcv1"](tmp_path / "xml"), BENCHMARKS["rcv1"](folder)
    assert xml.label_names == tokens.label_names
    ids = [
        [[int(text.split()[i].rstrip(".")) for text in s.texts] for _, s in c.splits()]
        for c, i in ((xml, 1), (tokens, 2))
    ]
    assert ids[0] == ids[1]
    assert xml.test.texts[0] == "Café 26151.\nSome <news> été.\nAnd more."
    assert xml.test.labels.toarray().tolist() == [[1, 1]] * 8  # every C15 lies under CCAT


def test_zips_are_read_without_unpacking(tmp_path):
    loose, packed = tmp_path / "loose", tmp_path / "packed"
    write_xml(loose)
    packed.mkdir()
    for day in loose.iterdir():
        with zipfile.ZipFile(packed / f"{day.name}.zip", "w") as archive:
            archive.writestr("readme.txt", "no news")
            for file in day.iterdir():
                archive.write(file, file.name)
    assert same(BENCHMARKS["rcv1"](packed), BENCHMARKS["rcv1"](loose))
    assert sorted(p.name for p in packed.iterdir()) == ["day0.zip", "day1.zip"]
    (packed / "day0.zip").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataError, match=r"day0\.zip: not a readable zip"):
        BENCHMARKS["rcv1"](packed)


def test_raw_documents_that_are_not_of_rcv1_v2(tmp_path):
    bare = newsitem(26190, ["C15"]).replace(b'<code code="USA"/>', b"")
    write_xml(tmp_path, [(26180, newsitem(26180, [])), (26190, bare), (5, b"<codes/>")])
    corpus = BENCHMARKS["rcv1"](tmp_path)
    assert len(corpus.test) == 9
    assert "1 documents have no topic code and are left out, as in RCV1-v2." in corpus.notes
    assert any(note.startswith("1 documents have no region code") for note in corpus.notes)
    assert "1 XML files are not news items." in corpus.notes


def test_a_topics_file_beside_the_xml_decides(folder, tmp_path):
    write_xml(tmp_path / "xml", [(26190, newsitem(26190, ["C15"]))])
    (tmp_path / "xml" / QRELS).write_bytes((folder / QRELS).read_bytes())
    corpus, tokens = BENCHMARKS["rcv1"](tmp_path / "xml"), BENCHMARKS["rcv1"](folder)
    assert (corpus.test.labels != tokens.test.labels).nnz == 0
    assert f"1 documents are not in {QRELS} and are left out, as in RCV1-v2." in corpus.notes


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (newsitem(26190, ["C15"])[:-30], r"26190newsML\.xml:\d+: not well-formed XML"),
        (newsitem("", ["C15"]), r"26190newsML\.xml: the news item has the itemid ''"),
        (newsitem("9" * 30, ["C15"]), r"26190newsML\.xml: the news item has the itemid '9999"),
        (
            newsitem(26190, ["C15"]).replace(b"iso-8859-1", b"iso-99"),
            r"newsML\.xml: not readable XML \(unknown encoding",
        ),
        (newsitem(26190, ["C15"]).replace(b"iso-8859-1", b"utf-7"), r"newsML\.xml: not readable XML \(multi-byte"),
    ],
)
def test_damaged_xml_is_named(tmp_path, content, reason):
    write_xml(tmp_path, [(26190, content)])
    with pytest.raises(DataError, match=reason):
        BENCHMARKS["rcv1"](tmp_path)


@pytest.mark.parametrize(
    ("topic", "above"),
    [("C1511", ["C151", "C15", "CCAT"]), ("E12", ["ECAT"]), ("GSPO", ["GCAT"]), ("MCAT", []), ("1POL", []), ("", [])],
)
def test_the_topics_above_a_topic(topic, above):
    assert ancestors(topic) == above


def test_a_folder_that_is_called_like_a_file(tmp_path):
    write_xml(tmp_path)
    (tmp_path / "folder.xml").mkdir()
    (tmp_path / "nowhere.zip").symlink_to("nowhere")
    assert len(BENCHMARKS["rcv1"](tmp_path).test) == 8
