"""`abalone predict`: streams answered line by line, files of any kind, and readers that leave early."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import tiny
from abalone import AbaloneClassifier
from abalone.cli import app
from patience import PATIENCE

NAMES = [f"topic {j}" for j in range(5)]
HINT = "  Fix the row, or leave out such rows with --skip-bad-rows.\n"
TEXTS, LABELS = tiny.corpus(120)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model folder; the encoder as it is will do, since the answers are compared with the model's own."""
    folder = tmp_path_factory.mktemp("predict")
    encoder = tiny.save_encoder(folder / "encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        classifier = AbaloneClassifier(
            encoder=encoder, pooling="mean", max_length=20, epochs=0, lexical=False, device="cpu"
        )
        classifier.fit(TEXTS, LABELS, label_names=NAMES).save_pretrained(folder / "model")
    return folder / "model"


@pytest.fixture(scope="module")
def classifier(model):
    return AbaloneClassifier.from_pretrained(model)


@pytest.fixture(scope="module")
def stream(model):
    """`abalone predict DIR -`, running until its input ends, and then without an error."""
    with subprocess.Popen(
        [sys.executable, "-m", "abalone", "predict", str(model), "-", "--device", "cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)  # an answer that never comes must not hang the tests
        watchdog.start()
        yield process
        process.stdin.close()
        assert process.wait() == 0, process.stderr.read().decode()
        assert process.stderr.read() == b""
        watchdog.cancel()


def ask(process: subprocess.Popen[bytes], line: bytes) -> list[str]:
    """Send one line, and only one, and wait for its answer."""
    process.stdin.write(line + b"\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())["labels"]


def same_labels(given: list[str], classifier: AbaloneClassifier, text: str) -> bool:
    return sorted(given) == sorted(classifier.predict([text])[0])


def test_each_line_is_answered_before_the_next_is_sent(stream, classifier):
    for text in TEXTS[:5]:
        assert same_labels(ask(stream, text.encode()), classifier, text)
        assert same_labels(ask(stream, json.dumps({"id": 3, "text": text}).encode()), classifier, text)
    assert same_labels(ask(stream, TEXTS[5].encode() + b"\r"), classifier, TEXTS[5])


def test_lines_that_are_hardly_texts_are_answered_too(stream, classifier):
    for text in ("{w1 w2}", '{"text": 3', "[1]", '{"a":' * 5000, "w1 " * 50_000):
        assert same_labels(ask(stream, text.encode()), classifier, text), text[:20]


def test_many_lines_come_back_in_order(stream, classifier):
    asked = [TEXTS[number % len(TEXTS)] for number in range(3000)]
    expected = dict(zip(TEXTS, map(sorted, classifier.predict(TEXTS)), strict=True))

    def feed() -> None:
        for text in asked:
            stream.stdin.write(text.encode() + b"\n")
        stream.stdin.flush()

    feeder = threading.Thread(target=feed)
    feeder.start()
    for number, text in enumerate(asked):
        assert sorted(json.loads(stream.stdout.readline())["labels"]) == expected[text], number
    feeder.join()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a closed pipe is no error elsewhere")
def test_a_reader_that_stops_early_is_no_error(model, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS * 20))
    command = f"{sys.executable} -m abalone predict {model} {tmp_path / 'texts.txt'} --probabilities | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout).keys() == {"labels", "probabilities"}


def imported(*commands: tuple[object, ...]) -> tuple[int, set[str]]:
    """The status of the last of some commands in a process of their own, and what is imported after them."""
    script = "\n".join(
        [
            "import json, sys; from abalone.cli import app",
            *(
                f"try: app({list(map(str, command))!r})\nexcept SystemExit as end: status = end.code"
                for command in commands
            ),
            "print(json.dumps([status, sorted(sys.modules)]))",
        ]
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stdout.splitlines()[-1])
    return status, set(modules)


def test_an_answer_needs_nothing_that_takes_seconds_to_import(model, tmp_path):
    (tmp_path / "texts.txt").write_text(TEXTS[0])
    status, modules = imported(("predict", model, tmp_path / "texts.txt", "--device", "cpu"))
    slow = {"transformers", "accelerate", "sklearn", "pandas", "sympy", "scipy.stats", "scipy.optimize"}
    assert (status, modules & {*slow, "torch._dynamo", "torch._inductor"}) == (0, set())


def test_a_wrong_name_is_told_before_torch_is_imported(model, tmp_path):
    status, modules = imported(("predict", model, "nowhere.txt"), ("predict", tmp_path), ("evaluate", tmp_path, "x"))
    assert (status, modules & {"torch", "transformers", "sklearn"}) == (2, set())


# From here on in this process, which has paid for the imports already.


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def answers(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def from_stdin(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Result:
    """With the file as standard input: the test runner's own has no descriptor to read."""
    (tmp_path / "stdin").write_bytes(content)
    with (tmp_path / "stdin").open("rb") as file:
        monkeypatch.setattr("abalone.cli.predict.sys", WithStdin(file))
        return run(*arguments)


class WithStdin:
    """`sys` with another standard input."""

    def __init__(self, stdin: object) -> None:
        self.stdin, self.stdout = stdin, sys.stdout


TABLES = {
    "texts.csv": "number,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS[:7])),
    "texts.tsv": "text\tnumber\n" + "".join(f"{text}\t{n}\n" for n, text in enumerate(TEXTS[:7])),
    "texts.jsonl": "".join(json.dumps({"text": text, "labels": ["unused"]}) + "\n" for text in TEXTS[:7]),
    "texts.json": json.dumps([{"text": text} for text in TEXTS[:7]]),
    "texts.txt": "\n".join(TEXTS[:7]),
    "texts": "\ufeff" + "\r\n".join([TEXTS[0], *(json.dumps({"text": text}) for text in TEXTS[1:7])]) + "\r\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_files_of_any_kind(name, model, classifier, tmp_path):
    (tmp_path / name).write_bytes(TABLES[name].encode())
    given = answers(run(model, tmp_path / name))
    assert [sorted(answer["labels"]) for answer in given] == [sorted(row) for row in classifier.predict(TEXTS[:7])]


def test_top_and_probabilities(model, classifier, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS[:7]))
    probabilities = classifier.predict_proba(TEXTS[:7])
    for row, answer in zip(probabilities, answers(run(model, tmp_path / "texts.txt", "--probabilities")), strict=True):
        np.testing.assert_allclose([answer["probabilities"][name] for name in NAMES], row, atol=1e-6)
        assert list(answer["probabilities"].values()) == sorted(answer["probabilities"].values(), reverse=True)
        places = [list(answer["probabilities"]).index(label) for label in answer["labels"]]
        assert places == sorted(places)
    for row, answer in zip(probabilities, answers(run(model, tmp_path / "texts.txt", "--top", 2)), strict=True):
        assert answer == {"labels": [NAMES[j] for j in np.argsort(-row)[:2]]}
    assert len(answers(run(model, tmp_path / "texts.txt", "--top", 99))[0]["labels"]) == len(NAMES)
    assert run(model, tmp_path / "texts.txt", "--top", 0).exit_code == 2


@pytest.mark.parametrize("name", ["empty.txt", "empty.csv", "empty.jsonl"])
def test_nothing_in_nothing_out(name, model, tmp_path):
    (tmp_path / name).write_bytes(b"")
    done = run(model, tmp_path / name)
    assert answers(done) == []
    assert f"note: {tmp_path / name} contains no text: 0 texts answered." in done.stderr


def test_another_encoding_is_named_and_nothing_else_is_taken_from_standard_input_either(
    model, classifier, tmp_path, monkeypatch
):
    content, texts = "w1 é\nw2\n".encode("latin-1"), ["w1 é", "w2"]
    (tmp_path / "texts.txt").write_bytes(content)
    for done in (run(model, tmp_path / "texts.txt"), from_stdin(content, tmp_path, monkeypatch, model)):
        assert done.exit_code == 2
        assert "byte 0xe9 at position 4 of the row is not UTF-8" in done.stderr
        assert "name it: --encoding cp1252" in done.stderr
    named = ("--encoding", "latin-1")
    for done in (
        run(model, tmp_path / "texts.txt", *named),
        from_stdin(content, tmp_path, monkeypatch, model, "-", *named),
    ):
        given = [answer["labels"] for answer in answers(done)]
        assert all(same_labels(labels, classifier, text) for labels, text in zip(given, texts, strict=True))


def test_an_empty_standard_input(model, tmp_path, monkeypatch):
    assert answers(from_stdin(b"", tmp_path, monkeypatch, model)) == []


def test_text_columns_of_tables_and_of_json_lines(model, classifier, tmp_path, monkeypatch):
    (tmp_path / "own.csv").write_text("head,body\nw1,w2 w30\n")
    columns = ("--text-column", "head", "--text-column", "body", "--top", 5)
    expected = [{"labels": [NAMES[j] for j in np.argsort(-classifier.predict_proba(["w1\nw2 w30"])[0])]}]
    assert answers(run(model, tmp_path / "own.csv", *columns)) == expected
    line = b'{"head": "w1", "body": "w2 w30"}'
    assert answers(from_stdin(line, tmp_path, monkeypatch, model, "-", *columns)) == expected


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("texts.csv", b"number,words\n1,w1\n", "texts.csv: no column for the text"),
        ("texts.csv", b"text\nw1\n\xff\n", "texts.csv:3: byte 0xff at position 1 of the row is not UTF-8"),
        ("texts.jsonl", b'{"text": "w1"}\n{"text": ""}\n', "texts.jsonl:2: no text in column 'text'"),
        ("texts.txt", b"w1\nw2 \xff\n", "texts.txt:2: byte 0xff at position 4 of the row is not UTF-8"),
        ("texts.txt", b'w1\n{"text": "\\ud800"}\n', "texts.txt:2: the text has half a surrogate pair at position 1"),
    ],
)
def test_bad_files_are_refused_with_the_line(name, content, told, model, tmp_path):
    (tmp_path / name).write_bytes(content)
    result = run(model, tmp_path / name)
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("error: ")
    assert told in result.stderr


def test_a_bad_row_of_a_file_is_told_before_the_first_answer(model, tmp_path, monkeypatch):
    (tmp_path / "texts.jsonl").write_text('{"text": "w1"}\n{"text": "w2"}\n{"text": ""}\n')
    result = run(model, tmp_path / "texts.jsonl")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(
        "texts.jsonl:3: no text in column 'text'\n  Fix the row, or leave out such rows with --skip-bad-rows.\n"
    )
    monkeypatch.setattr("abalone.data.unlabelled.QUICK", 10)
    result = run(model, tmp_path / "texts.jsonl")
    assert (result.exit_code, len(result.stdout.splitlines())) == (2, 2)


ROWS = ["w1", "", "w2 w30", '{"foo": 1}', "w3", "", ""]


@pytest.mark.parametrize("way", ["table", "lines", "stream"])
@pytest.mark.parametrize("probabilities", [(), ("--probabilities",)])
def test_a_bad_row_that_is_skipped_has_an_answer_that_says_so_in_its_place(
    way, probabilities, model, tmp_path, monkeypatch
):
    if way == "table":
        (tmp_path / "texts.csv").write_text("id,text\n1,w1\n2,\n3,w2 w30\n4\n5,w3\n6,\n")
        result, name = run(model, tmp_path / "texts.csv", "--skip-bad-rows", *probabilities), tmp_path / "texts.csv"
    elif way == "lines":
        (tmp_path / "texts.txt").write_text("\n".join(ROWS))
        result, name = run(model, tmp_path / "texts.txt", "--skip-bad-rows", *probabilities), tmp_path / "texts.txt"
    else:
        content = "\n".join(ROWS).encode()
        result = from_stdin(content, tmp_path, monkeypatch, model, "-", "--skip-bad-rows", *probabilities)
        name = "standard input"
    (tmp_path / "good.txt").write_text("w1\nw2 w30\nw3\n")
    good = answers(run(model, tmp_path / "good.txt", *probabilities))
    given = answers(result)
    assert [given[0], given[2], given[4]] == good
    skipped = [given[1], given[3], *given[5:]]
    first = {"table": f"{name}:3: no text in column 'text'"}.get(way, f"{name}:2: the line is empty")
    assert skipped[0] == {"labels": None, "skipped": first}
    assert len(skipped) == (3 if way == "table" else 2)  # empty lines at the end are no texts
    assert all(answer["labels"] is None and str(name) in answer["skipped"] for answer in skipped)
    assert result.stderr == f"note: Rows skipped: {len(skipped)}; their answers say why.\n"


def test_bad_rows_are_skipped_and_listed_beside_a_folder_of_answers(model, tmp_path):
    (tmp_path / "texts.csv").write_text('id,text\n1,"w1\nw2"\n2,\n3,w3\n4,w4\n5\n')
    command = (model, tmp_path / "texts.csv", "-o", tmp_path / "answers", "--part-size", 2)
    assert run(*command).exit_code == 2
    done = run(*command, "--skip-bad-rows", "--resume")
    assert done.exit_code == 0, done.stderr
    report = tmp_path / "answers.bad-rows.jsonl"
    assert done.stderr.endswith(f"note: Rows left out: 2; see {report}.\n")
    entries = [json.loads(line) for line in report.read_text().splitlines()]
    assert [(entry["number"], entry["line"]) for entry in entries] == [(2, 4), (5, 7)]
    parts = sorted((tmp_path / "answers").glob("part-*.jsonl"))
    assert [len(part.read_text().splitlines()) for part in parts] == [2, 1]


def test_what_comes_before_a_bad_line_of_a_stream_is_answered(model, tmp_path, monkeypatch):
    content = b'w1\n{"body": "w2"}\n{"head": "w3"}\nw4\n'
    result = from_stdin(content, tmp_path, monkeypatch, model, "-", "--text-column", "body")
    assert (result.exit_code, result.stderr) == (2, f"error: standard input:3: no text in column 'body'\n{HINT}")
    assert len(result.stdout.splitlines()) == 2


def test_empty_lines_are_refused_between_texts_and_nothing_at_the_end(model, tmp_path, monkeypatch):
    assert len(answers(from_stdin(b"w1\nw2\n\n \n", tmp_path, monkeypatch, model))) == 2
    result = from_stdin(b"w1\n\nw2\n", tmp_path, monkeypatch, model)
    assert (result.exit_code, len(result.stdout.splitlines())) == (2, 1)
    assert "standard input:2: the line is empty" in result.stderr


@pytest.mark.parametrize("line", ['{"foo": "x"}', '{"text": null}', '{"text": 3}'])
def test_a_json_line_without_a_text_is_refused_rather_than_read_as_its_braces(line, model, tmp_path, monkeypatch):
    result = from_stdin(f"w1\n{line}\n".encode(), tmp_path, monkeypatch, model)
    assert (result.exit_code, len(result.stdout.splitlines())) == (2, 1)
    assert result.stderr.startswith("error: standard input:2: ")
    assert ("--text-column" in result.stderr) is ("foo" in line)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere", "-"), "error: nowhere is not a model folder: nothing is there"),
        (("{model}", "nowhere.txt"), "error: nowhere.txt: there is no such file"),
        (("{model}", "-", "--device", "gpu"), "error: no device is called 'gpu'"),
    ],
)
def test_mistakes_end_in_status_2(arguments, told, model):
    result = run(*(argument.format(model=model) for argument in arguments))
    assert result.exit_code == 2
    assert result.stderr.startswith(told)


def test_half_precision_by_name_is_near(model, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("w0 w1 w2\nw3 w40 w41\n")
    answers = {}
    for precision in ("fp32", "bf16"):
        result = CliRunner().invoke(
            app, ["predict", str(model), str(texts), "--probabilities", "--precision", precision]
        )
        assert result.exit_code == 0, result.output
        answers[precision] = [json.loads(line)["probabilities"] for line in result.stdout.splitlines()]
    for exact, near in zip(answers["fp32"], answers["bf16"], strict=True):
        assert near != exact
        assert near == pytest.approx(exact, abs=1e-2)


def test_a_folder_of_answers(model, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    command = (model, tmp_path / "texts.txt", "--probabilities", "-o", tmp_path / "answers", "--part-size", 50)
    done = run(*command)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"{len(TEXTS)} texts answered in {tmp_path / 'answers'}\n"
    parts = sorted((tmp_path / "answers").glob("part-*.jsonl"))
    in_parts = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    printed = answers(run(model, tmp_path / "texts.txt", "--probabilities"))
    assert [answer["labels"] for answer in in_parts] == [answer["labels"] for answer in printed]
    for one, other in zip(in_parts, printed, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)
    again = run(*command)
    assert again.exit_code == 2
    assert (
        again.stderr
        == f"error: {tmp_path / 'answers'} holds predictions: continue with --resume, or give another folder\n"
    )
    assert run(*command, "--resume").exit_code == 0
    changed = run(*command[:-1], 60, "--resume")
    assert changed.exit_code == 2
    assert "was started with other settings: part_size was 50 and is 60" in changed.stderr


@pytest.mark.filterwarnings("always")
def test_resuming_with_another_encoding_is_refused(model, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(["plain", "plain too", "caf\xe9"]), encoding="latin-1")
    command = (model, tmp_path / "texts.txt", "-o", tmp_path / "answers", "--part-size", 2)
    assert run(*command, "--encoding", "latin-1").exit_code == 0
    (tmp_path / "answers" / "part-00001.jsonl").unlink()  # the part that stays reads the same in both encodings
    refused = run(*command, "--encoding", "cp1251", "--resume")
    assert refused.exit_code == 2
    assert "was started with other settings: encoding was 'iso8859-1' and is 'cp1251'" in refused.stderr
    assert run(*command, "--encoding", "ISO-8859-1", "--resume").exit_code == 0  # another name of the same


def test_a_stream_to_a_folder_of_answers(model, tmp_path, monkeypatch):
    content = "\n".join(TEXTS[:30]).encode()
    done = from_stdin(content, tmp_path, monkeypatch, model, "-", "-o", tmp_path / "a", "--format", "parquet")
    assert done.exit_code == 0, done.stderr
    assert [path.name for path in sorted((tmp_path / "a").iterdir())] == ["manifest.json", "part-00000.parquet"]
    assert (
        from_stdin(
            content, tmp_path, monkeypatch, model, "-", "-o", tmp_path / "a", "--format", "parquet", "--resume"
        ).exit_code
        == 0
    )


@pytest.mark.parametrize("option", [("--resume",), ("--part-size", 5), ("--format", "parquet")])
def test_options_of_a_folder_of_answers_need_one(option, model):
    result = run(model, "-", *option)
    assert (result.exit_code, result.stderr) == (
        2,
        "error: --resume, --part-size and --format parquet need --output DIR, a folder for the answers\n",
    )


def test_a_bad_row_leaves_the_parts_before_it(model, tmp_path):
    rows = [json.dumps({"text": text}) for text in TEXTS[:30]]
    (tmp_path / "texts.jsonl").write_text("\n".join([*rows[:25], '{"text": ""}', *rows[26:]]))
    command = (model, tmp_path / "texts.jsonl", "-o", tmp_path / "answers", "--part-size", 10)
    result = run(*command)
    assert result.exit_code == 2
    assert "texts.jsonl:26: no text in column 'text'" in result.stderr
    assert sorted(path.name for path in (tmp_path / "answers").glob("part*")) == [
        "part-00000.jsonl",
        "part-00001.jsonl",
    ]
    (tmp_path / "texts.jsonl").write_text("\n".join(rows))
    assert run(*command, "--resume").exit_code == 0
    assert len((tmp_path / "answers" / "part-00002.jsonl").read_text().splitlines()) == 10
