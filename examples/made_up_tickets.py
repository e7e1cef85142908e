"""Write a CSV of made-up support tickets: the table of the tutorial, docs/tutorial.md.

    python examples/made_up_tickets.py tickets.csv

A ticket has one to three of eight labels and a sentence for each; the first labels are everywhere, the last are rare.
"""

import csv
import random
import sys
from pathlib import Path

TICKETS = 320
SENTENCES = {  # a label, how often it is drawn, and what people write when they mean it
    "billing": (100, ["I was charged twice for order {}.", "The invoice {} has the wrong amount.",
                      "Why is my bill higher than agreed?", "My card was charged after I cancelled."]),
    "delivery": (60, ["Parcel {} has not arrived.", "The courier left the parcel at the wrong door.",
                      "Tracking has said 'in transit' for two weeks.", "When will order {} be shipped?"]),
    "account": (40, ["I cannot log in since the update.", "The password reset mail never comes.",
                     "My account is locked.", "How do I change my user name?"]),
    "refund": (30, ["I want my money back.", "I returned item {} and still wait for the refund.",
                    "Please refund order {}."]),
    "hardware": (20, ["The screen flickers.", "Device {} no longer switches on.", "The printer prints blank pages."]),
    "complaint": (10, ["Nobody answers the phone.", "This is the third time I write to you.",
                       "Your support was rude to me."]),
    "warranty": (6, ["Is this still under warranty?", "It broke within the guarantee period."]),
    "privacy": (4, ["Delete all data you hold about me.", "Who has access to my documents?"]),
}  # fmt: skip


def tickets(number: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Texts with their labels, the same for the same seed."""
    chance = random.Random(seed)
    names, weights = list(SENTENCES), [weight for weight, _ in SENTENCES.values()]
    made = []
    for _ in range(number):
        labels = list(dict.fromkeys(chance.choices(names, weights, k=chance.choice((1, 1, 2, 2, 3)))))
        sentences = [chance.choice(SENTENCES[label][1]).format(chance.randint(1000, 9999)) for label in labels]
        chance.shuffle(sentences)
        made.append((" ".join(sentences), labels))
    return made


def main(path: Path) -> None:
    """Write the table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "labels"])
        writer.writerows((text, "; ".join(labels)) for text, labels in tickets(TICKETS))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tickets.csv"))
