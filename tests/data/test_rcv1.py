import numpy as np
import pytest
from handmade import COMPRESS, forge
from made_up_rcv1 import TRAIN, record, same, write_tokens

from abalone.data.benchmarks import BENCHMARKS, rcv1
from abalone.data.benchmarks.rcv1 import QRELS, TOKENS
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


def test_prepared_as_in_the_paper(folder):
    corpus = BENCHMARKS["rcv1"](folder)
    assert [len(split) for _, split in corpus.splits()] == [34, 6, 8]  # 15 % of 40 for validation
    assert corpus.label_names == ("C15", "CCAT")  # GCAT is on 29 training documents
    assert "1 topics with fewer than 30 training documents are left out: GCAT." in corpus.notes
    assert any("the whole of RCV1-v2 has 91" in note for note in corpus.notes)
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
    with pytest.raises(DataError, match=rf"qrels:126: expected 'TOPIC id 1', found '{line}'"):
        BENCHMARKS["rcv1"](folder)


def test_a_line_outside_a_record(folder):
    file = folder / TOKENS[0]
    file.write_text("stray tokens\n" + file.read_text())
    with pytest.raises(DataError, match=r"train\.dat:1: expected '\.I <id>', found 'stray tokens'"):
        BENCHMARKS["rcv1"](folder)


def test_a_document_given_twice(folder):
    with (folder / TOKENS[4]).open("a") as file:
        file.write(record(26151))
    with pytest.raises(DataError, match=r"test_pt3\.dat:11: document 26151 appears twice"):
        BENCHMARKS["rcv1"](folder)


def test_ids_outside_both_ranges_are_left_out_and_counted(folder):
    with (folder / TOKENS[0]).open("a") as file:
        file.write(record(17) + record(900_000))
    corpus = BENCHMARKS["rcv1"](folder)
    assert len(corpus.train) + len(corpus.validation) == 40
    assert any(note.startswith("2 documents with ids outside 2286–810596") for note in corpus.notes)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files(folder, tmp_path, suffix):
    packed = tmp_path / "packed"
    packed.mkdir()
    for file in folder.iterdir():
        (packed / f"{file.name}{suffix}").write_bytes(COMPRESS[suffix](file.read_bytes()))
    assert same(BENCHMARKS["rcv1"](packed), BENCHMARKS["rcv1"](folder))


def test_windows_line_ends(folder, tmp_path):
    (tmp_path / "windows").mkdir()
    write_tokens(tmp_path / "windows", end="\r\n")
    assert same(BENCHMARKS["rcv1"](tmp_path / "windows"), BENCHMARKS["rcv1"](folder))


@pytest.mark.parametrize("suffix", list(COMPRESS)[1:])
def test_a_cut_archive(folder, suffix):
    plain = folder / TOKENS[0]
    cut = folder / f"{TOKENS[0]}{suffix}"
    cut.write_bytes(COMPRESS[suffix](plain.read_bytes())[:-30])
    plain.unlink()
    with pytest.raises(DataError, match=rf"tokens_train\.dat\{suffix}: cannot be read.*\n.*in full"):
        BENCHMARKS["rcv1"](folder)


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


@pytest.mark.parametrize("number", ["9" * 20, "9" * 5000, "٣"])
def test_numbers_that_no_document_has(folder, number):
    (folder / TOKENS[1]).write_text(f".I {number}\n.W\nword\n\n", "utf-8")
    with pytest.raises(DataError, match=r"_pt0\.dat:1: expected '\.I <id>'"):
        BENCHMARKS["rcv1"](folder)
    write_tokens(folder)
    (folder / QRELS).write_text(f"C15 {number} 1\n", "utf-8")
    with pytest.raises(DataError, match=r"qrels:1: expected 'TOPIC id 1'"):
        BENCHMARKS["rcv1"](folder)


def text(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("facts", text(b"{")),
        ("facts", text(b'{"topics": [], "notes": []}')),
        ("facts", text(b'{"topics": [1, 2, 3], "notes": []}')),
        ("ids", np.zeros(1, np.int64)),
        ("labels", np.full(3, 10**9, np.int32)),
        ("bounds", np.zeros(0, np.int32)),
        ("offsets", np.zeros(0, np.uint64)),
    ],
)
def test_a_damaged_cache_is_made_again_and_a_forged_one_told(folder, cache, name, values):
    whole = BENCHMARKS["rcv1"](folder)
    (store,) = (cache / "texts").iterdir()
    forge(store, **{name: values})
    with pytest.raises(DataError, match=rf"{store}: the prepared corpus is damaged .*\n  Delete the file"):
        BENCHMARKS["rcv1"](folder)
    content = bytearray(store.read_bytes())
    content[-1] ^= 1
    store.unlink()  # `whole` has mapped the file, and must not see it change
    store.write_bytes(content)
    with pytest.warns(UserWarning, match=rf"{store} is damaged, so it is made again from the source"):
        assert same(BENCHMARKS["rcv1"](folder), whole)
