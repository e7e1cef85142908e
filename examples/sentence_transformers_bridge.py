"""Multi-label contrastive training with `SentenceTransformerTrainer`: our loss, their trainer.

    pip install '.[sentence-transformers,data,offline]'    # in a clone
    python examples/sentence_transformers_bridge.py

Documents that share labels move together, the more labels the closer, and every label counts the same however rare.
"""

import tempfile

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments

from abalone import load_corpus
from abalone.data.corpus import Split
from abalone.encoder.load import packaged_encoder
from abalone.losses.sentence_transformers import MultiLabelLoss

DOCUMENTS = 1_000  # of the bundled sample: enough to see a difference on a laptop, in a few minutes


def train(model: SentenceTransformer, split: Split, *, epochs: float = 1, learning_rate: float = 5e-5) -> None:
    """Train `model` in place. The dataset has a column of texts and a column `labels` of 0/1 lists."""
    dataset = Dataset.from_dict({"text": list(split.texts), "labels": split.labels.toarray().tolist()})
    loss = MultiLabelLoss(model, num_labels=split.labels.shape[1], loss="msc", queue_size=256)
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=32,
            learning_rate=learning_rate,
            warmup_steps=10,
            save_strategy="no",
            report_to="none",
        )
        SentenceTransformerTrainer(model, arguments, train_dataset=dataset, loss=loss).train()


def shared_with_nearest(model: SentenceTransformer, split: Split) -> float:
    """Which share of their labels a document and the one nearest to it have in common, on average."""
    embeddings = model.encode(list(split.texts), normalize_embeddings=True)
    similarity = embeddings @ embeddings.T
    similarity[range(len(similarity)), range(len(similarity))] = -1
    labels = split.labels.toarray() > 0
    nearest = labels[similarity.argmax(1)]
    either = (labels | nearest).sum(1)
    return float(((labels & nearest).sum(1)[either > 0] / either[either > 0]).mean())


def main() -> None:
    """Train the small default encoder on the bundled arXiv abstracts and look at others before and after."""
    corpus = load_corpus("arxiv-sample")
    model = SentenceTransformer(str(packaged_encoder("all-MiniLM-L6-v2") or "sentence-transformers/all-MiniLM-L6-v2"))
    before = shared_with_nearest(model, corpus.validation)
    train(model, Split(corpus.train.texts[:DOCUMENTS], corpus.train.labels[:DOCUMENTS]))
    after = shared_with_nearest(model, corpus.validation)
    print(f"labels shared with the nearest document: {before:.3f} before, {after:.3f} after")


if __name__ == "__main__":
    main()
