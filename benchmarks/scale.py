"""What does not grow: the memory of predicting a million documents, and of training with fifty thousand labels."""

import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import Line, in_new_process, show
from benchmarks.tiny import long_tailed_labels, save_encoder, short_texts

TEXTS, MODEL_LABELS = 1_000_000, 20

# Resident memory without pages of files, which the system takes back when it needs them; looked at with every part.
PREDICT = """
import json, sys, time
from pathlib import Path
from abalone.data.unlabelled import read_texts
from abalone.model.folder import load
from abalone.serving import bulk

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024

model, texts, output = sys.argv[1:]
seen = []
class Watched(bulk.Parts):
    def _write_manifest(self):
        super()._write_manifest()
        seen.append(resident())
bulk.Parts = Watched
start = time.perf_counter()
answered = bulk.predict_in_parts(load(model, device="cpu"), read_texts(Path(texts)), output)
print(json.dumps([answered, time.perf_counter() - start, seen]))
"""


def predict_line(folder: Path) -> list[Line]:
    from abalone import AbaloneClassifier

    few = list(short_texts(500))
    model = AbaloneClassifier(encoder=save_encoder(folder / "encoder"), epochs=1, objective="bce", device="cpu")
    model.fit(few, long_tailed_labels(500, MODEL_LABELS), run_folder=folder / "run").save_pretrained(folder / "model")
    with (folder / "texts.jsonl").open("w") as file:
        file.writelines(f"{json.dumps({'text': text})}\n" for text in short_texts(TEXTS))
    answered, seconds, seen = in_new_process(PREDICT, folder / "model", folder / "texts.jsonl", folder / "answers")
    assert answered == TEXTS
    tenth = len(seen) // 10
    first, last = (max(part) / 2**20 for part in (seen[:tenth], seen[-tenth:]))
    return [
        Line(f"{TEXTS:,} texts predicted; memory in the first and the last tenth", f"{first:.0f} MiB", f"{last:.0f} MiB", f"{last / first:.2f}×", "≤ 1.1×"),
        Line("  texts a second", "", f"{TEXTS / seconds:,.0f}", ""),
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        lines = predict_line(Path(name))
    show("", lines)


if __name__ == "__main__":
    main()
