"""`abalone predict`: label texts; answers are JSON lines, CSV rows or Parquet files."""

import codecs
import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from abalone.cli.app import app
from abalone.cli.options import READING_PANEL, Device, Encoding, SkipBadRows, TextColumn, open_model
from abalone.config import Precision
from abalone.errors import InputError, printable_json
from abalone.launch import is_main, launched

if TYPE_CHECKING:
    from abalone.data.bad_rows import Skipped
    from abalone.data.rows import Row, TextColumns
    from abalone.data.tables import BadRow
    from abalone.distributed import Ranks
    from abalone.inference.answers import Answer, Wanted
    from abalone.inference.predictor import Predictor

Form = Literal["jsonl", "csv", "parquet"]
BLOCK = 256  # lines of a stream that are answered at a time


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or an ONNX file made from one.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Texts to label: a table, or one text per line; - is standard input.")
    ] = "-",
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every label.")] = False,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Print the N most probable labels, ignoring thresholds."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the answers to files in a folder, or to one .csv file."
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="Format of the answers: jsonl, csv or parquet. csv is one file or standard output, parquet a folder.",
        ),
    ] = None,
    part_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Texts per file in the folder; 10000 by default.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after the last complete file in the folder.")
    ] = False,
    device: Device = "auto",
    precision: Annotated[
        Precision | None,
        typer.Option(
            metavar="NAME",
            help="auto, fp32, bf16 or fp16; by default that of the model. bf16 is faster on hardware that has it, and "
            "moves probabilities by about 0.01.",
        ),
    ] = None,
    text_column: TextColumn = None,
    id_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column to copy to each answer as its id.", rich_help_panel=READING_PANEL),
    ] = None,
    encoding: Encoding = None,
    skip_bad_rows: SkipBadRows = False,
) -> None:
    """Predict the labels of texts: one JSON line or CSV row per text, in order.

    The text is read from the columns the model was trained on, or, if any is missing, from a column with a usual name.
    A line of standard input is a text or a JSON object. Lines are answered as they arrive, in constant memory. An ONNX
    file runs on the CPU, without torch.

    With --output DIR the answers go to part-00000.jsonl, part-00001.jsonl … in that folder. Each file is complete or
    absent. If the command is stopped or killed, run it again with --resume. Processes launched with `torchrun` share
    the work. With --output FILE.csv all answers go to that file.
    """
    from abalone.data.bad_rows import Skipped
    from abalone.data.leakage import columns_of_training
    from abalone.data.rows import TextColumns
    from abalone.data.unlabelled import count_texts, require_file
    from abalone.inference.answers import Wanted

    form = _form(form, output, in_parts=resume or part_size is not None)
    if launched()[1] > 1 and (output is None or form == "csv" or file == "-" or model.is_file()):
        raise InputError(
            "several processes were launched, and they can share only work from a model folder and a file of texts to "
            "a folder of answers: give MODEL, FILE and --output DIR"
        )
    if file != "-":
        require_file(Path(file))
        if form == "csv" and output is not None and output.exists() and output.samefile(file):
            raise InputError(f"{output} is the input file: give --output another name")
    predictor = open_model(model, device, precision)
    trained = columns_of_training(predictor.story.get("provenance", {})).get("text_column", [])
    columns = TextColumns(text_column or None, trained, id_column)
    wanted = Wanted(probabilities, top)
    skipped = Skipped() if skip_bad_rows else None
    if form != "csv" and output is not None:
        from abalone.data.sources import report_beside
        from abalone.data.streams import known_encoding
        from abalone.inference.bulk import PART_SIZE, model_checksum, predict_in_parts

        ranks = None
        if launched()[1] > 1:
            ranks = _share(predictor, device)
        identity = {
            "model": model_checksum(model),
            "text_column": text_column,
            "id_column": id_column,
            "precision": precision,
            "encoding": encoding and known_encoding(encoding, file),  # the same bytes give other texts
        }
        try:
            answered = predict_in_parts(
                predictor,
                texts_one_by_one(file, columns, skipped, encoding),
                output,
                wanted=wanted,
                part_size=part_size or PART_SIZE,
                form=form,
                resume=resume,
                identity=identity,
                ranks=ranks,
                total=None if file == "-" else count_texts(Path(file), columns, encoding, skipping=True),
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("interrupted\n  To continue, run the same command with --resume.") from None
        typer.echo(f"{answered:,} texts answered in {output}", err=True)
        if skipped and skipped.rows:
            listed = report_beside(output)
            if is_main():
                skipped.write(listed)
            typer.echo(f"note: Rows left out: {len(skipped.rows)}; see {listed}.", err=True)
        return
    # In a terminal the answers themselves show how far it is.
    shown = output is not None or not sys.stdout.isatty()
    blocks = _answered(predictor, file, columns, wanted, skipped, encoding, shown=shown)
    if form == "csv":
        from abalone.inference.answers import CsvAnswers

        rows = CsvAnswers(
            predictor.label_names,
            ids=id_column is not None,
            probabilities=probabilities,
            skipped=skip_bad_rows,
            shown=not shown,
        )
        _write(chain([rows.header()], map(rows.lines, blocks)), output)
        if rows.formulas:
            warnings.warn(
                f"{rows.formulas:,} of the ids begin with =, +, - or @, which spreadsheets take for formulas: import "
                "that column as text",
                stacklevel=2,
            )
    else:
        _write(("".join(f"{printable_json(answer)}\n" for answer in block) for block in blocks), None)
    if skipped and skipped.rows:
        typer.echo(f"note: Rows skipped: {len(skipped.rows)}; their answers say why.", err=True)


def _form(form: Form | None, output: Path | None, *, in_parts: bool) -> Form:
    """Return the format of the answers, by its name or the file's; raise where options contradict each other."""
    by_name = output is not None and output.suffix.lower() == ".csv" and not output.is_dir()
    form = form or ("csv" if by_name else "jsonl")
    if by_name and form != "csv":
        raise InputError(f"--format {form} writes to a folder, and {output} is a file name: give a folder")
    if form == "csv" and output is not None and not by_name:
        raise InputError(f"--format csv writes one file: --output must end in .csv, got {output}")
    if (in_parts or form == "parquet") and (output is None or form == "csv"):
        raise InputError("--resume, --part-size and --format parquet need --output DIR, a folder for the answers")
    return form


def _answered(
    predictor: "Predictor",
    file: str,
    columns: "TextColumns",
    wanted: "Wanted",
    skipped: "Skipped | None",
    encoding: str | None,
    *,
    shown: bool,
) -> "Iterator[Iterable[Answer]]":
    """Yield the answers to the texts of a file or a stream in blocks, under one progress bar if it is `shown`.

    A note says if there is no text at all.
    """
    from abalone.data.rows import with_ids
    from abalone.data.unlabelled import count_texts
    from abalone.inference.answers import answers
    from abalone.progress import whole

    # Rows without a text are told before the first answer, unless they are to be skipped.
    total = None if file == "-" else count_texts(Path(file), columns, encoding, skipping=skipped is not None)
    done = 0
    with whole("Predicting", total, shown=shown) as bar:
        for rows in texts_in_blocks(file, columns, skipped, encoding):
            lines: Iterable[Answer] = ()  # of a block in which all rows were skipped
            if rows:
                scores = predictor.scores([row.text for row in rows])
                lines = answers(scores, predictor.decision, predictor.label_names, wanted)
                lines = with_ids(rows, lines)
            yield lines if skipped is None else skipped.in_place(lines)
            done += len(rows)
            bar.reach(done)
    if not done and not (skipped and skipped.rows):
        typer.echo(f"note: {'standard input' if file == '-' else file} contains no text: 0 texts answered.", err=True)


def _write(pieces: Iterable[str], file: Path | None) -> None:
    """Write text as it comes to standard output, or to a file that is whole or absent."""
    if file is None:
        for piece in pieces:
            typer.echo(piece, nl=False)
            sys.stdout.flush()
        return
    from abalone.files.atomic import written_whole

    with written_whole(file) as written:
        written.write(codecs.BOM_UTF8)  # without it Excel reads letters beyond ASCII as others
        for piece in pieces:
            written.write(piece.encode())


def _share(predictor: "Predictor", device: str) -> "Ranks":
    """Share the encoding among all launched processes."""
    from abalone.distributed import launched_ranks

    ranks = launched_ranks(device)
    if predictor.backend is not None:
        predictor.network.ranks = ranks
    return ranks


def texts_one_by_one(
    file: str, columns: "TextColumns", skipped: "Skipped | None" = None, encoding: str | None = None
) -> "Iterator[Row]":
    """Yield texts one by one."""
    from abalone.data.bad_rows import usable
    from abalone.data.unlabelled import read_unlabelled

    rows = (
        chain.from_iterable(rows_of_stream(sys.stdin.fileno(), columns, encoding))
        if file == "-"
        else read_unlabelled(Path(file), columns, encoding)
    )
    return usable(rows) if skipped is None else skipped.usable(rows)


def texts_in_blocks(
    file: str, columns: "TextColumns", skipped: "Skipped | None" = None, encoding: str | None = None
) -> "Iterator[list[Row]]":
    """Yield texts in lists that fit in memory: of a stream as lines arrive, of a file some thousand at a time."""
    from abalone.data.bad_rows import usable
    from abalone.inference.answers import windows

    if file == "-":
        for rows in rows_of_stream(sys.stdin.fileno(), columns, encoding):
            yield from windows(usable(rows) if skipped is None else skipped.usable(rows))
            yield []  # where lines were skipped, whoever sent them waits for their answers too
    else:
        yield from windows(texts_one_by_one(file, columns, skipped, encoding))
        yield []


def rows_of_stream(
    descriptor: int, columns: "TextColumns", encoding: str | None = None
) -> "Iterator[list[Row | BadRow]]":
    """Yield the rows of a stream's lines as they arrive."""
    from abalone.data.streams import known_encoding
    from abalone.data.unlabelled import rows_of_lines

    encoding = None if encoding is None else known_encoding(encoding, "standard input")
    return rows_of_lines(lines_as_they_come(descriptor, encoding), "standard input", columns, encoding)


def lines_as_they_come(descriptor: int, encoding: str | None = None) -> Iterator[list[str]]:
    """Yield the lines of a stream as they arrive: one at a time from a terminal, many from a file.

    Bytes that are invalid in the encoding, by default UTF-8, become lone surrogates, as with `open_text`.
    """
    from abalone.data.streams import decoder_of

    decode = decoder_of(encoding, "standard input")
    pieces = list[str]()  # of a line that has no end yet; joined once, however long it becomes
    more = True
    while more:
        chunk = os.read(descriptor, 1 << 16)
        more = bool(chunk)
        end, *others = decode(chunk, not more).split("\n")
        pieces.append(end)
        if others:
            lines = ["".join(pieces), *others[:-1]]
            pieces = others[-1:]
            for start in range(0, len(lines), BLOCK):
                yield [line.rstrip("\r") for line in lines[start : start + BLOCK]]
    if pending := "".join(pieces):
        yield [pending.rstrip("\r")]
