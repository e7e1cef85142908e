import gzip
import zipfile

import pytest

from abalone.data.benchmarks import BENCHMARKS, rcv1
from abalone.data.benchmarks.rcv1 import QRELS, TOKENS, ancestors
from abalone.data.errors import DataError

# id -> topics: 40 training documents, 8 test documents
TRAIN = {2286 + 3 * i: ["CCAT", "C15", *(["GCAT"] if i < 29 else [])] for i in range(40)}
TEST = {26151 + i: ["C15", "GCAT"] for i in range(8)}
PARTS = [TRAIN, *(dict(list(TEST.items())[start : start + 2]) for start in range(0, 8, 2))]


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


def record(document):
    return f".I {document}\n.W\nrecov excit {document}\nmexic bank\n\n"


def write_tokens(place, end="\n"):
    for name, part in zip(TOKENS, PARTS, strict=True):
        (place / name).write_text("".join(map(record, part)), "latin-1", newline=end)
    lines = (f"{topic} {document} 1\n" for part in PARTS for document, topics in part.items() for topic in topics)
    (place / QRELS).write_text("".join(lines), "latin-1", newline=end)


def newsitem(document, topics, text="Some &lt;news&gt; &#233;t&#xe9;."):
    codes = "".join(f'<code code="{topic}"><editdetail attribution="X"/></code>' for topic in topics)
    return f"""<?xml version="1.0" encoding="iso-8859-1" ?>
<newsitem itemid="{document}" id="root" date="1996-08-20" xml:lang="en">
<title>USA: Caf\xe9 {document}.</title><headline>Caf\xe9 {document}.</headline><dateline>NY</dateline>
<text><p>{text}</p>
<p>And more.</p></text><copyright>(c) someone</copyright>
<metadata><codes class="bip:countries:1.0"><code code="USA"/></codes>
<codes class="bip:topics:1.0">{codes}</codes></metadata></newsitem>""".encode("latin-1")


def leaves(topics):
    """What the raw XML has: topics without their ancestors."""
    return [topic for topic in topics if topic != "CCAT"]


def write_xml(place, extra=()):
    items = [(document, newsitem(document, leaves(topics))) for part in PARTS for document, topics in part.items()]
    for document, content in [*items, *extra]:
        day = place / f"day{document % 2}"
        day.mkdir(parents=True, exist_ok=True)
        (day / f"{document}newsML.xml").write_bytes(content)


def same(one, other):
    return one.label_names == other.label_names and all(
        list(a.texts) == list(b.texts) and (a.labels != b.labels).nnz == 0
        for (_, a), (_, b) in zip(one.splits(), other.splits(), strict=True)
    )


def test_prepared_as_in_the_paper(folder):
    corpus = BENCHMARKS["rcv1"](folder)
    assert [len(split) for _, split in corpus.splits()] == [34, 6, 8]  # 15 % of 40 for validation
    assert corpus.label_names == ("C15", "CCAT")  # GCAT is on 29 training documents
    assert "1 topics with fewer than 30 training documents are left out: GCAT." in corpus.notes
    assert any("it would be 91" in note for note in corpus.notes)
    assert corpus.test.labels.toarray().tolist() == [[1, 0]] * 8
    assert corpus.test.labels.dtype == "int32"
    assert corpus.test.texts[1] == "recov excit 26152 mexic bank"
    train = {int(text.split()[2]) for text in [*corpus.train.texts, *corpus.validation.texts]}
    assert train == set(TRAIN)
    assert corpus.provenance["seed"] == 0


def test_a_second_run_opens_what_the_first_one_wrote(folder, cache, monkeypatch):
    first = BENCHMARKS["rcv1"](folder)
    monkeypatch.setattr(rcv1, "read_tokens", None)
    monkeypatch.setattr(rcv1, "read_qrels", None)
    assert same(BENCHMARKS["rcv1"](folder), first)
    assert len(list((cache / "texts").iterdir())) == 1


def test_a_changed_source_is_read_again(folder):
    BENCHMARKS["rcv1"](folder)
    file = folder / TOKENS[1]
    file.write_text(file.read_text().replace("mexic", "rio"))
    assert BENCHMARKS["rcv1"](folder).test.texts[0] == "recov excit 26151 rio bank"


def test_ids_without_tokens_or_without_topics_are_counted(folder):
    with (folder / QRELS).open("a") as file:
        file.write("CCAT 26199 1\nC15 26199 1\nC15 26200 1\n")
    with (folder / TOKENS[4]).open("a") as file:
        file.write(record(26300) + ".I 26301\n.W\n\n")
    corpus = BENCHMARKS["rcv1"](folder)
    assert len(corpus.test) == 10
    assert corpus.test.labels[[8]].nnz == 0
    assert "2 documents of the topics file have no text here (the first: 26199)." in corpus.notes
    assert "2 documents have no line in the topics file." in corpus.notes
    assert "1 documents have no text." in corpus.notes
    assert "2 test documents carry no label." in corpus.notes


def test_a_pair_that_is_given_twice_counts_once(folder):
    with (folder / QRELS).open("a") as file:
        file.write("C15 26151 1\n")
    assert BENCHMARKS["rcv1"](folder).test.labels.max() == 1


@pytest.mark.parametrize("end", [".I 26300", ".I 26300\n", ".I 26300\n.W", ".I 26300\n.W\n", ".I 26300\n.W\nrecov ex"])
def test_a_file_cut_in_a_record(folder, cache, end):
    file = folder / TOKENS[2]
    file.write_text(file.read_text() + end)
    with pytest.raises(DataError) as caught:
        BENCHMARKS["rcv1"](folder)
    assert str(caught.value).startswith(f"{file}:11: the record of document 26300 is cut short")
    assert list((cache / "texts").iterdir()) == []


def test_a_record_that_runs_into_the_next_one(folder):
    file = folder / TOKENS[2]
    file.write_text(file.read_text().replace("\n\n", "\n", 1))
    with pytest.raises(DataError, match=r"test_pt1\.dat:1: the record of document 26153 is cut short"):
        BENCHMARKS["rcv1"](folder)


def test_a_last_record_without_its_empty_line_is_whole_if_nothing_follows(folder):
    whole = BENCHMARKS["rcv1"](folder)
    file = folder / TOKENS[0]
    file.write_text(file.read_text()[:-1])
    assert same(BENCHMARKS["rcv1"](folder), whole)
    with (folder / QRELS).open("a") as qrels:
        qrels.write("C15 2287 1\n")
    with pytest.raises(DataError, match=r"tokens_train\.dat:196: the record of document 2403 is cut short"):
        BENCHMARKS["rcv1"](folder)


@pytest.mark.parametrize("line", ["C15 26151", "C15 26151 0", "C15 x 1", "26151 C15 1", "C15 26151 1 1"])
def test_malformed_topics_are_named(folder, line):
    with (folder / QRELS).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(DataError, match=rf"qrels:126: 'TOPIC id 1' expected, not '{line}'"):
        BENCHMARKS["rcv1"](folder)


def test_a_line_outside_a_record(folder):
    file = folder / TOKENS[0]
    file.write_text("stray tokens\n" + file.read_text())
    with pytest.raises(DataError, match=r"train\.dat:1: '\.I <id>' expected, not 'stray tokens'"):
        BENCHMARKS["rcv1"](folder)


def test_a_document_given_twice(folder):
    with (folder / TOKENS[4]).open("a") as file:
        file.write(record(26151))
    with pytest.raises(DataError, match=r"test_pt3\.dat:11: document 26151 is there a second time"):
        BENCHMARKS["rcv1"](folder)


def test_ids_outside_both_ranges_are_left_out_and_counted(folder):
    with (folder / TOKENS[0]).open("a") as file:
        file.write(record(17) + record(900_000))
    corpus = BENCHMARKS["rcv1"](folder)
    assert len(corpus.train) + len(corpus.validation) == 40
    assert any(note.startswith("2 documents with ids outside 2286–810596") for note in corpus.notes)


def test_compressed_as_distributed_and_windows_line_ends(folder, tmp_path):
    plain = BENCHMARKS["rcv1"](folder)
    packed, windows = tmp_path / "packed", tmp_path / "windows"
    packed.mkdir()
    windows.mkdir()
    for file in folder.iterdir():
        (packed / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    write_tokens(windows, end="\r\n")
    assert same(BENCHMARKS["rcv1"](packed), plain)
    assert same(BENCHMARKS["rcv1"](windows), plain)
    cut = packed / f"{TOKENS[0]}.gz"
    cut.write_bytes(cut.read_bytes()[:-30])
    with pytest.raises(DataError, match=r"tokens_train\.dat\.gz:\d+: cannot be decompressed"):
        BENCHMARKS["rcv1"](packed)


def test_missing_files_are_named(folder, tmp_path):
    (folder / TOKENS[3]).unlink()
    (folder / QRELS).unlink()
    with pytest.raises(DataError, match=r"missing: lyrl2004_tokens_test_pt2\.dat, rcv1-v2\.topics\.qrels\n.*NIST"):
        BENCHMARKS["rcv1"](folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no token files and no XML files.*\n.*JMLR"):
        BENCHMARKS["rcv1"](tmp_path / "empty")


def test_too_small_for_any_topic(folder):
    (folder / QRELS).write_text("C15 2286 1\n")
    with pytest.raises(DataError, match=r"no topic has 30 training documents \(40 read\)"):
        BENCHMARKS["rcv1"](folder)


def test_an_empty_topics_file(folder):
    (folder / QRELS).write_text("")
    with pytest.raises(DataError, match="no topic has 30 training documents"):
        BENCHMARKS["rcv1"](folder)


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
