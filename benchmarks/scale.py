"""Memory of predicting a million documents and of training with fifty thousand labels, which must not grow."""

import json
import tempfile
from pathlib import Path

from benchmarks.measure import Line, in_new_process, show
from benchmarks.tiny import long_tailed_labels, save_encoder, short_texts

TEXTS, FEW_LABELS = 1_000_000, 20
DOCUMENTS, VALIDATION, MANY_LABELS, STEPS = 100_000, 2_000, 50_000, 20

# Memory without pages of files, which the system takes back when it needs them; looked at with every part.
PREDICT = """
import json, sys, time
from pathlib import Path
from abalone.data.bad_rows import usable
from abalone.data.unlabelled import read_unlabelled
from abalone.inference.folder import load
from abalone.inference import bulk

class Watched(bulk.Parts):
    def _write_manifest(self):
        super()._write_manifest()
        status = Path("/proc/self/status").read_text()
        seen.append(int(status.split("RssAnon:")[1].split()[0]) * 1024)

model, texts, output = sys.argv[1:]
seen, bulk.Parts = [], Watched
start = time.perf_counter()
bulk.predict_in_parts(load(model, device="cpu"), usable(read_unlabelled(Path(texts))), output)
print(json.dumps([time.perf_counter() - start, seen]))
"""

# The whole of training but for the length of its epoch: steps, validation, thresholds, scores, folder.
TRAIN = """
import json, resource, sys, time
from abalone import AbaloneClassifier
from abalone.data.corpus import Corpus, Split
from abalone.training import loop
from benchmarks.tiny import long_tailed_labels, short_texts

folder, documents, validation, labels, steps = sys.argv[1], *map(int, sys.argv[2:])
texts, matrix = list(short_texts(documents)), long_tailed_labels(documents, labels)
train, rest = Split(texts[validation:], matrix[validation:]), Split(texts[:validation], matrix[:validation])
corpus = Corpus(train, rest, Split([], matrix[:0]), tuple(map(str, range(labels))))
whole_epoch = loop.shuffled_batches
loop.shuffled_batches = lambda *arguments, **options: whole_epoch(*arguments, **options)[:steps]
start = time.perf_counter()
model = AbaloneClassifier("paper", encoder=f"{folder}/encoder", objective="msc+bce", epochs=1, max_length=16,
                          calibrate=True, thresholds="macro", device="cpu")
model.fit_corpus(corpus, run_folder=f"{folder}/run").save_pretrained(f"{folder}/model")
model.predict(texts[:1000])
unit = 1 if sys.platform == "darwin" else 1024  # what ru_maxrss counts in
print(json.dumps([time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit]))
"""


def prediction_lines(folder: Path) -> list[Line]:
    from abalone import AbaloneClassifier

    few = list(short_texts(500))
    model = AbaloneClassifier(
        "paper", encoder=f"{folder}/encoder", objective="bce", epochs=1, max_length=16, device="cpu"
    )
    model.fit(few, long_tailed_labels(500, FEW_LABELS), run_folder=folder / "run").save_pretrained(folder / "model")
    with (folder / "texts.jsonl").open("w") as file:
        file.writelines(f"{json.dumps({'text': text})}\n" for text in short_texts(TEXTS))
    seconds, seen = in_new_process(PREDICT, folder / "model", folder / "texts.jsonl", folder / "answers")
    tenth = len(seen) // 10
    first, last = max(seen[:tenth]), max(seen[-tenth:])
    memory = f"{first / 2**20:.0f} MiB", f"{last / 2**20:.0f} MiB", f"{last / first:.2f}×", "≤ 1.1×"
    return [
        Line(f"{TEXTS:,} short texts predicted: memory in the last tenth; plain: in the first", *memory),
        Line("  texts a second", "", f"{TEXTS / seconds:,.0f}", ""),
    ]


def training_lines(folder: Path) -> list[Line]:
    size = (DOCUMENTS, VALIDATION, MANY_LABELS, STEPS)
    seconds, peak = in_new_process(TRAIN, folder, *size, ABALONE_CACHE=str(folder / "cache"))
    dense = DOCUMENTS * MANY_LABELS * 4
    memory = f"{dense / 2**30:.1f} GiB", f"{peak / 2**30:.1f} GiB", f"{peak / dense:.2f}×", "< 8 GiB"
    return [
        Line(f"{MANY_LABELS:,} labels, {DOCUMENTS:,} documents: peak of memory; plain: one dense matrix", *memory),
        Line(f"  {STEPS} steps, validation, thresholds, scores", "", f"{seconds:.0f} s", ""),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        save_encoder(Path(name) / "encoder")
        lines = [*prediction_lines(Path(name)), *training_lines(Path(name))]
    show("Memory that does not grow; an encoder of one layer, 32 wide", lines)


if __name__ == "__main__":
    main()
