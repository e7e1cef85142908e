"""The bridge inside the real trainer: it learns, prototypes too; and the example does what it says."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from abalone.data.corpus import Split
from abalone.losses import BaseLoss, BCELoss, MSCLoss
from abalone.losses.sentence_transformers import MultiLabelLoss

sentence_transformers = pytest.importorskip("sentence_transformers")
datasets = pytest.importorskip("datasets")

EXAMPLE = Path(__file__).parents[2] / "examples" / "sentence_transformers_bridge.py"
TEXTS, LABELS = tiny.corpus(160)
pytestmark = [
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def model(tmp_path):
    return sentence_transformers.SentenceTransformer(tiny.save_encoder(tmp_path / "encoder"), device="cpu")


def losses_in_training(model, loss, folder, *, epochs=6):
    dataset = datasets.Dataset.from_dict({"text": TEXTS, "labels": LABELS.toarray().tolist()})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=32,
        learning_rate=3e-3,
        logging_strategy="epoch",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = sentence_transformers.SentenceTransformerTrainer(model, arguments, train_dataset=dataset, loss=loss)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("name", ["msc", "base", "msc+10*bce"])
def test_the_trainer_lowers_the_loss_and_trains_what_belongs_to_it(name, model, tmp_path):
    loss = MultiLabelLoss(model, 5, name, queue_size=0)
    own = [part for part in (loss.prototypes, loss.head) if part is not None]
    before = [parameter.detach().clone() for part in own for parameter in part.parameters()]
    went = losses_in_training(model, loss, tmp_path / "run")
    assert went[-1] < 0.95 * went[0], went
    after = [parameter for part in own for parameter in part.parameters()]
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))


def features(model, texts):
    return [{name: value for name, value in model.preprocess(texts).items() if isinstance(value, torch.Tensor)}]


def test_the_queue_holds_training_batches_only_and_takes_part(model):
    loss = MultiLabelLoss(model, 5, "msc", queue_size=12)
    labels = torch.from_numpy(LABELS[:24].toarray())
    model.train()
    loss(features(model, TEXTS[:8]), labels[:8])
    assert len(loss.queue) == 8
    model.eval()
    with torch.no_grad():
        value = loss(features(model, TEXTS[8:24]), labels[8:24])
        embeddings = torch.from_numpy(model.encode(TEXTS[8:24]))
        expected = MSCLoss()(embeddings, labels[8:24], loss.queue.contents(), loss.prototypes())
        without = MSCLoss()(embeddings, labels[8:24], prototypes=loss.prototypes())
    torch.testing.assert_close(value, expected)
    assert abs(value - without) > 1e-3
    assert len(loss.queue) == 8


def test_the_value_is_that_of_the_loss_itself(model):
    model.eval()
    labels = torch.from_numpy(LABELS[:16].toarray())
    embeddings = torch.from_numpy(model.encode(TEXTS[:16]))
    value = MultiLabelLoss(model, 5, "base", temperature=0.3)(features(model, TEXTS[:16]), labels)
    torch.testing.assert_close(value, BaseLoss(0.3)(embeddings, labels))
    pointwise = MultiLabelLoss(model, 5, "bce")
    value = pointwise(features(model, TEXTS[:16]), labels)
    torch.testing.assert_close(value, BCELoss()(pointwise.head(embeddings), labels))


def test_what_it_cannot_use_is_named(model):
    with pytest.raises(ValueError, match="'mulcon' looks at tokens"):
        MultiLabelLoss(model, 5, "mulcon")
    with pytest.raises(ValueError, match="no loss is called 'mcs'; did you mean 'msc'"):
        MultiLabelLoss(model, 5, "mcs")
    loss, text = MultiLabelLoss(model, 5), features(model, TEXTS[:2])
    with pytest.raises(ValueError, match="needs a column `labels`"):
        loss(text)
    with pytest.raises(ValueError, match=r"lists of 5 entries, got shape \(2,\)"):
        loss(text, torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="one column of texts, got 2"):
        loss(text * 2, torch.zeros(2, 5))
    assert loss.get_config_dict() == {"loss": "msc", "num_labels": 5, "queue_size": 512}


def test_the_example_brings_documents_with_the_same_labels_together(model):
    example = runpy.run_path(str(EXAMPLE))
    documents = Split(TEXTS, LABELS)
    before = example["shared_with_nearest"](model, documents)
    example["train"](model, documents, epochs=8, learning_rate=3e-3)
    after = example["shared_with_nearest"](model, documents)
    assert after > before + 0.1, (before, after)
    assert np.isfinite(model.encode(TEXTS[:3])).all()
