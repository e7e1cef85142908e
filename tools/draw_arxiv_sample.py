"""Draw the bundled sample from the full arxiv54: `python tools/draw_arxiv_sample.py FOLDER_OF_ARXIV54`.

Each split of the sample comes from the same split of the full set. Documents are drawn in the order of a hash
of their id, so that the same folder gives the same sample on every machine and with every version of every
library. Every label first gets its floor of documents, so that tail labels stay usable; the rest follows in
the same order. So a label has its floor or its fair share, whichever is more, and the head keeps its shape.
"""

import hashlib
import json
import lzma
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from abalone.data.benchmarks import read_jsonl
from abalone.data.benchmarks.arxiv import FIELDS, SAMPLE_SEED

SAMPLE = Path(__file__).parents[1] / "src" / "abalone" / "data" / "sample"
# split: documents, and how many a label gets at least (or all it has, where that is less)
SIZES = {"train": (5_000, 20), "val": (1_000, 6), "test": (1_500, 8)}

Record = Mapping[str, Any]


def main(source: Path) -> None:
    """Write the three files and the note about their source."""
    lines = []
    for split, (size, floor) in SIZES.items():
        records = [record for _, record in read_jsonl(source / f"{split}.jsonl.xz", FIELDS)]
        drawn = draw(records, size, floor)
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in drawn).encode()
        target = SAMPLE / f"{split}.jsonl.xz"
        target.write_bytes(lzma.compress(text, preset=9 | lzma.PRESET_EXTREME))
        frequency = Counter(label for record in drawn for label in record["labels"])
        rarest, least = frequency.most_common()[-1]
        lines.append(
            f"| `{target.name}` | {len(drawn):,} of {len(records):,} | {len(frequency)} | {least} ({rarest}) "
            f"| `{hashlib.sha256(text).hexdigest()}` |"
        )
    note = NOTE.format(seed=SAMPLE_SEED, table="\n".join(lines), floors=describe_floors())
    (SAMPLE / "PROVENANCE.md").write_text(note, encoding="utf-8")


def draw(records: list[Record], size: int, floor: int) -> list[Record]:
    """Return `size` of the records, in their order, with `floor` documents per label where there are that many."""
    shuffled = sorted(records, key=lambda record: hashlib.sha256(f"{SAMPLE_SEED} {record['id']}".encode()).digest())
    frequency = Counter(label for record in records for label in record["labels"])
    chosen: dict[str, Record] = {}
    for label, _ in reversed(frequency.most_common()):
        have = sum(label in record["labels"] for record in chosen.values())
        carriers = [record for record in shuffled if label in record["labels"] and record["id"] not in chosen]
        chosen |= {record["id"]: record for record in carriers[: max(floor - have, 0)]}
    rest = [record for record in shuffled if record["id"] not in chosen]
    chosen |= {record["id"]: record for record in rest[: size - len(chosen)]}
    return [record for record in records if record["id"] in chosen]


def describe_floors() -> str:
    """Return the floors as a phrase."""
    return ", ".join(f"{floor} in {split}" for split, (_, floor) in SIZES.items())


NOTE = """# arxiv-sample

**What.** English abstracts of arXiv papers with their categories, of those 54 that AAPD uses (lower case; one
of them, cmp-lg, has no paper: 53 remain). A line is a JSON object with `id` (arXiv identifier), `title`,
`text` (the abstract) and `labels`.

**From where.** A sample of `arxiv54`, which was made from arXiv's public metadata of 2007–2026.

**Licence.** arXiv releases its metadata, titles and abstracts included, under CC0 1.0 (public domain
dedication): https://creativecommons.org/publicdomain/zero/1.0/

**How drawn.** Each file from the file of the same name in `arxiv54`, so that no test paper of the full set is
in the training part of the sample. Documents are drawn in the order of a hash of seed and id. Rarest label
first, every label gets a floor of documents ({floors}; or all there are); then the rest
follows. So a label has its floor or its fair share, whichever is more: rare labels are less rare than in the
full set, and the head keeps its shape. Seed {seed}. The command:

    python tools/draw_arxiv_sample.py FOLDER_OF_ARXIV54

| file | documents | labels | rarest label | SHA-256 of the uncompressed file |
|---|---|---|---|---|
{table}
"""

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
