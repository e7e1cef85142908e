import io
import tarfile

import pytest

from abalone.data.benchmarks import BENCHMARKS
from abalone.data.benchmarks.reuters import SGML, decode, elements, read_stories, story_text
from abalone.errors import DataError
from fuzzing import time_limit


def story(number, topics, split="TRAIN", indexed="YES", text=None):
    """One element as the files have it; the words are made up."""
    text = text or f"<TEXT>&#2;\n<TITLE>STORY {number}</TITLE>\n<BODY>Words of it.\n Reuter\n&#3;</BODY></TEXT>"
    marked = "".join(f"<D>{topic}</D>" for topic in topics)
    return (
        f'<REUTERS TOPICS="{indexed}" LEWISSPLIT="{split}" CGISPLIT="X" OLDID="{number}" NEWID="{number}">\n'
        f"<DATE>26-FEB-1987</DATE>\n<TOPICS>{marked}</TOPICS>\n<PLACES><D>usa</D></PLACES>\n"
        f"<UNKNOWN>\n&#5;&#5;F Y</UNKNOWN>\n{text}\n</REUTERS>\n"
    )


STORIES = [
    *(story(i, ["earn"]) for i in range(40)),
    *(story(i, ["grain", "wheat"]) for i in range(40, 60)),
    *(story(i, ["earn", "earn"], "TEST") for i in range(60, 65)),
    story(65, ["wheat", "rye"], "TEST"),
    story(66, ["grain"], "TEST"),
    story(70, ["rye"], "NOT-USED"),  # not of the split
    story(71, ["rye"], "TRAIN", "NO"),  # nobody looked for topics here
    story(72, []),  # of the split, without a topic
    story(73, ["cocoa"]),  # a topic without a test document
    story(74, ["tea"], "TEST"),  # a topic without a training document
]


def contents(stories=STORIES):
    """The 22 files: three with the stories, the others with none."""
    head = '<!DOCTYPE lewis SYSTEM "lewis.dtd">\n'
    parts = [stories[:30], stories[30:50], stories[50:]]
    return {name: head + "".join(parts[i]) if i < 3 else head for i, name in enumerate(SGML)}


def write_folder(folder, stories=STORIES):
    for name, content in contents(stories).items():
        (folder / name).write_text(content, "latin-1")


def write_archive(file, mode, skip=()):
    with tarfile.open(file, mode) as tar:
        for name, content in {**contents(), "README.txt": "read me"}.items():
            if name not in skip:
                member = tarfile.TarInfo(f"reuters21578/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content.encode("latin-1")))


def test_modapte_over_topics_with_train_and_test_documents(tmp_path):
    write_folder(tmp_path)
    corpus = BENCHMARKS["reuters"](tmp_path)
    assert corpus.label_names == ("earn", "grain", "wheat")
    assert [len(split) for _, split in corpus.splits()] == [54, 6, 7]  # a tenth of training for validation
    assert corpus.test.labels.toarray().tolist() == [[1, 0, 0]] * 5 + [[0, 0, 1], [0, 1, 0]]
    assert corpus.train.labels.sum(axis=0).tolist() == [36, 18, 18]
    assert corpus.train.labels.dtype == "int32"
    assert corpus.test.texts[0] == "STORY 60\nWords of it.\n Reuter"
    assert "2 documents are outside the ModApte split." in corpus.notes
    assert "3 ModApte documents carry none of the 3 topics and are left out." in corpus.notes
    assert "72 stories were read; the whole of Reuters-21578 has 21578." in corpus.notes
    assert "our choice" in str(corpus.provenance["split"])


@pytest.mark.parametrize(
    ("name", "mode"), [("r.tar.xz", "w:xz"), ("r.tar.gz", "w:gz"), ("r.tgz", "w:gz"), ("r.tar", "w")]
)
def test_the_archive_is_read_as_the_folder_is(tmp_path, name, mode):
    unpacked, packed = tmp_path / "unpacked", tmp_path / "packed"
    unpacked.mkdir()
    packed.mkdir()
    write_folder(unpacked)
    write_archive(packed / name, mode)
    one = BENCHMARKS["reuters"](unpacked)
    for place in (packed, packed / name):
        other = BENCHMARKS["reuters"](place)
        assert other.train.texts == one.train.texts
        assert (other.validation.labels != one.validation.labels).nnz == 0
    assert sorted(p.name for p in packed.iterdir()) == [name]


@pytest.mark.parametrize(("topics", "indexed"), [("YES", True), ("NO", False), ("BYPASS", False), ("yes", False)])
def test_a_story_counts_as_indexed_where_a_person_looked_for_topics(topics, indexed):
    """README.TXT of the distribution: BYPASS is neither YES nor NO, and ModApte takes TOPICS="YES" alone."""
    (found,) = read_stories(story(1, ["rye"], indexed=topics), "x.sgm")
    assert (found.indexed, found.topics) == (indexed, ["rye"])


def test_entities_are_decoded_once_and_control_characters_go():
    assert decode("A&amp;B &lt;BAC> &amp;lt; &quot;x&quot;") == 'A&B <BAC> &lt; "x"'
    assert decode("&#2;one\ttwo\nthree&#127;&#30;&#3;\x1f") == "one\ttwo\nthree"
    assert decode("R&D &notes; &copy") == "R&D &notes; &copy"
    assert decode("caf\xe9") == "café"


def test_brief_has_a_title_and_unproc_no_structure():
    assert (
        story_text(' TYPE="BRIEF"', "&#2;\n******<TITLE>PROFIT UP &lt;X>\n</TITLE>Blah blah.\n&#3;") == "PROFIT UP <X>"
    )
    assert story_text(' TYPE="UNPROC"', "&#2;\nWEEKLY REPORT\n 1 &lt; 2\n&#3;") == "WEEKLY REPORT\n 1 < 2"
    assert story_text("", "<TITLE>T</TITLE><DATELINE> NY, </DATELINE><BODY>B</BODY>") == "T\nB"


@pytest.mark.parametrize("cut", ["<TITLE>STORY 66", "<TOPICS>", "</REUTERS>"])
def test_a_file_cut_in_a_story(cut):
    content = story(65, ["rye"]) + story(66, ["rye"])
    content = content[: content.rindex(cut) + len(cut) - 1]
    with pytest.raises(DataError, match=r"reut2-007\.sgm:13: story NEWID=66 has no end"):
        list(read_stories(content, "reut2-007.sgm"))


def test_a_file_cut_in_the_first_tag_of_a_story():
    with pytest.raises(DataError, match=r"x\.sgm:13: story NEWID=\? has no end"):
        list(read_stories(story(65, ["rye"]) + "<REUT", "x.sgm"))


def test_a_file_cut_in_its_first_story():
    with pytest.raises(DataError, match=r"x\.sgm:2: story NEWID=65"):
        list(read_stories("<!DOCTYPE lewis>\n" + story(65, ["rye"])[:-20], "x.sgm"))


def test_a_story_that_lost_its_end_in_the_middle():
    content = story(65, ["rye"]).replace("</REUTERS>", "") + story(66, ["rye"])
    with pytest.raises(DataError, match=r"x\.sgm:1: story NEWID=65"):
        list(read_stories(content, "x.sgm"))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"no SGML files.*\n.*reut2-000\.sgm.*UCI"):
        BENCHMARKS["reuters"](tmp_path)
    write_folder(tmp_path)
    (tmp_path / "reut2-004.sgm").unlink()
    with pytest.raises(DataError, match=r"missing: reut2-004\.sgm\n"):
        BENCHMARKS["reuters"](tmp_path)


def test_damaged_archives_are_named(tmp_path):
    whole, cut, short = tmp_path / "whole.tar.xz", tmp_path / "cut.tar.xz", tmp_path / "short.tar"
    write_archive(whole, "w:xz")
    cut.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"cut\.tar\.xz: not a readable tar archive"):
        BENCHMARKS["reuters"](cut)
    write_archive(short, "w", skip=("reut2-021.sgm",))
    with pytest.raises(DataError, match=r"missing in the archive: reut2-021\.sgm"):
        BENCHMARKS["reuters"](short)


def test_no_topic_in_both_halves(tmp_path):
    write_folder(tmp_path, [story(1, ["tea"]), story(2, ["rye"], "TEST")])
    with pytest.raises(DataError, match="no topic has both"):
        BENCHMARKS["reuters"](tmp_path)


@pytest.mark.parametrize("entity", ["&#55296;", "&#1114112;", "&#999999999;"])
def test_numbers_that_are_no_characters(entity):
    assert decode(f"a{entity}b") == "a\ufffdb"
    assert decode("&#99999999999;") == "&#99999999999;"


@pytest.mark.parametrize(
    "content",
    [
        "<REUTERS>" * 200_000,
        f"<REUTERS {'a' * 1_000_000}></REUTERS>",
        f"<REUTERS><TOPICS>{'<D>' * 200_000}</TOPICS><TEXT>{'<TITLE>' * 200_000}",
    ],
    ids=["stories", "an attribute", "titles"],
)
def test_tags_that_are_never_closed_take_no_minutes(content):
    # Looking forward only it takes hundredths of a second, from every tag again many minutes: no machine is so slow
    # that this much of its CPU time, which no neighbour takes away, lies on the wrong side.
    with time_limit(60), pytest.raises(DataError, match="has no end"):
        list(read_stories(content, "a.sgm"))


def test_other_names_that_begin_alike_are_other_elements():
    assert [found.content for found in elements("<DD>x</DD><D>y</D><D a>z</D><D>", "D")] == ["y", "z"]


def test_a_link_in_the_archive_is_no_file(tmp_path):
    with tarfile.open(tmp_path / "r.tar", "w") as tar:
        for name in SGML:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member)
    with pytest.raises(DataError, match=r"missing in the archive: reut2-000\.sgm"):
        BENCHMARKS["reuters"](tmp_path)
