"""Our losses as losses of `SentenceTransformerTrainer`."""

from typing import Any

from torch import Tensor, nn

from abalone.encoder.heads import Prototypes
from abalone.encoder.queue import MemoryQueue
from abalone.losses.registry import loss_spec, make_loss


class MultiLabelLoss(nn.Module):
    """A loss of ABALONE, by name, over documents that carry several labels each.

    The training dataset has one column of texts and a column `labels` of 0/1 lists, one entry a label. The embeddings
    of the model are contrasted as they are, without a projection, so that its own similarity is what is trained.
    What the loss has beside the model (prototypes, a layer for logits) is trained with it and kept here.

    Args:
        model: a `SentenceTransformer`.
        num_labels: L, the length of every list of labels.
        loss: a name of `abalone.losses.LOSSES` or a sum such as "msc+10*bce"; not `mulcon`, which needs token states.
        queue_size: earlier documents to contrast with, for losses that take them. There is no momentum encoder: they
            are embeddings of the model itself at earlier steps. 0 for none.
        settings: of the loss, such as `temperature`.

    Example:
        >>> import torch
        >>> class Model(nn.Linear):  # a SentenceTransformer in small
        ...     def get_embedding_dimension(self):
        ...         return self.out_features
        ...     def forward(self, features):
        ...         return {"sentence_embedding": super().forward(features["words"])}
        >>> loss = MultiLabelLoss(Model(3, 2), num_labels=2, loss="msc", temperature=0.2)
        >>> value = loss([{"words": torch.eye(3)}], torch.tensor([[1, 0], [1, 1], [0, 1]]))
        >>> value.requires_grad, len(loss.queue)
        (True, 3)
    """

    def __init__(
        self, model: nn.Module, num_labels: int, loss: str = "msc", *, queue_size: int = 512, **settings: float
    ) -> None:
        super().__init__()
        spec = loss_spec(loss)
        if spec.takes == "label_embeddings":
            raise ValueError(f"loss {loss!r} looks at tokens, which a SentenceTransformer does not give its losses")
        dim: int = model.get_embedding_dimension()  # type: ignore[operator]
        self.model = model  # under this name the trainer replaces it by the wrapped one
        self.loss = make_loss(loss, **settings)
        self.name, self.num_labels, self.takes, self.joint = loss, num_labels, spec.takes, spec.joint
        self.queue = MemoryQueue(queue_size, dim, num_labels) if spec.queue and queue_size else None
        self.prototypes = Prototypes(num_labels, dim) if spec.prototypes else None
        self.head = nn.Linear(dim, num_labels) if spec.joint or spec.takes == "logits" else None

    def forward(self, sentence_features: list[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of one batch, with 0/1 labels [B, L]; in training the batch joins the queue afterwards."""
        if len(sentence_features) != 1:
            raise ValueError(f"MultiLabelLoss takes one column of texts, got {len(sentence_features)}")
        if labels is None:
            raise ValueError("MultiLabelLoss needs a column `labels` of 0/1 lists beside the texts")
        if labels.dim() != 2 or labels.shape[1] != self.num_labels:
            raise ValueError(f"labels must be 0/1 lists of {self.num_labels} entries, got shape {tuple(labels.shape)}")
        embeddings: Tensor = self.model(sentence_features[0])["sentence_embedding"]  # [B, d]
        inputs = [self.head(embeddings)] if self.head is not None else []  # [B, L]
        if self.takes == "embeddings":
            inputs.insert(0, embeddings)
        value: Tensor = self.loss(*inputs, labels, **self._references())
        # The trainer switches the model, not its loss, to evaluation: documents scored then are not to be remembered.
        if self.queue is not None and self.model.training:
            self.queue.enqueue(embeddings.detach(), labels)
        return value

    def _references(self) -> dict[str, Any]:
        references: dict[str, Any] = {}
        if self.queue is not None and len(self.queue):
            references["queue"] = self.queue.contents()
        if self.prototypes is not None:
            references["prototypes"] = self.prototypes()
        return references

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings that the trainer writes into the model card."""
        size = 0 if self.queue is None else self.queue.size
        return {"loss": self.name, "num_labels": self.num_labels, "queue_size": size}
