"""Every setting once: its default, the paper's value, and a line of why. YAML and the classifier are views of this."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from reprlib import repr as short
from typing import Any, Literal

Pooling = Literal["cls", "mean"]
Schedule = Literal["cosine", "linear"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Classifier = Literal["probe", "finetune"]
ThresholdObjective = Literal["macro", "micro", "half"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a model is made. Immutable; `replace` makes a changed copy.

    The defaults are the paper's values, except for the encoder, which is the one that needs no network.
    """

    # The encoder
    encoder: str = "all-MiniLM-L6-v2"  # a folder or a hub name; the paper: roberta-base, legal-bert-base-uncased
    pooling: Pooling = "cls"  # the paper's; sentence encoders were trained with "mean"
    max_length: int = 300  # tokens of a document that are read
    max_chunks: int = 1  # longer documents: this many pieces of max_length are read and their embeddings averaged
    dropout: float = 0.1  # in the encoder, while training
    freeze_layers: int = 0  # lower layers that stay as they are; their output is computed once, then training is cheap

    # The objective: a name of `abalone.losses.LOSSES`, or a sum such as "msc+10*bce"
    objective: str = "msc"
    temperature: float = 0.1  # τ; the paper's best
    beta: float = 0.1  # repulsion of documents beside prototypes in L_MSC
    queue_size: int = 512
    momentum: float = 0.999  # of the encoder that fills the queue
    projection_dim: int = 256
    name_prototypes: bool = False  # start prototypes from the encoder's view of the label names

    # Training
    epochs: int = 80  # contrastive: 80 in the paper; pointwise baselines: 10, 40 or 80
    batch_size: int = 32
    accumulation: int = 1  # batches per optimiser step
    learning_rate: float | None = 5e-5  # of the encoder; the paper tries 5e-5 and 2e-5. None: by the encoder's width
    head_learning_rate: float = 5e-5  # of everything else: heads and prototypes
    weight_decay: float = 0.01  # off biases and norms
    warmup: float = 0.05  # share of the steps
    schedule: Schedule | None = None  # cosine where there is contrast, linear otherwise
    clip: float = 1.0  # gradient norm
    patience: int | None = None  # epochs without a better validation before training stops early

    # From embeddings to labels, where the objective has no layer for logits of its own
    classifier: Classifier = "probe"  # linear evaluation, or "finetune": a linear layer and the encoder together
    finetune_objective: str = "bce"
    finetune_epochs: int = 10  # the paper tries 5 and 10
    finetune_learning_rate: float = 5e-5  # the paper tries 5e-5 and 2e-5

    # The decision
    lexical: bool = False  # mix in a tf-idf model, as much as helps on validation
    neighbours: bool = False  # mix in the nearest training documents, as much as helps on validation
    calibrate: bool = True  # one temperature a third of the labels, so that probabilities mean what they say
    thresholds: ThresholdObjective = "macro"  # what per-label thresholds are tuned for; "half" is 0.5
    at_least_one: bool = False  # give every document its most probable label

    # The run
    seed: int = 0
    device: str = "auto"
    precision: Precision = "auto"  # training in bf16 where that is faster, reading in full; by name: both
    checkpoint_seconds: float = 300.0  # at most this much work is lost
    tensorboard: str | None = None  # a folder to write TensorBoard logs to

    def __post_init__(self) -> None:
        _check(self)

    def replace(self, **changes: Any) -> "Config":
        """A copy with some settings changed; unknown names are refused with the nearest match."""
        refuse_unknown(changes, SETTINGS, "setting")
        return replace(self, **changes)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        """From plain values, as they stand in YAML or JSON; what is not named has its default."""
        return cls().changed_by(values)

    def changed_by(self, values: dict[str, Any]) -> "Config":
        """A copy with some settings changed to plain values, as they stand in YAML or JSON."""
        refuse_unknown(values, SETTINGS, "setting")
        return replace(self, **{name: _number(name, value) for name, value in values.items()})

    @classmethod
    def from_yaml(cls, path: str | Path) -> "Config":
        """From a YAML file of settings; what is not named has its default."""
        values = read_yaml(path)
        with naming(path):
            return cls.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for YAML and JSON."""
        return asdict(self)

    def to_yaml(self, path: str | Path) -> None:
        """Write every setting, defaults included, so that the file tells the whole story."""
        import yaml

        Path(path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")


SETTINGS = tuple(field.name for field in fields(Config))
OF_THE_MACHINE = ("device", "checkpoint_seconds", "tensorboard")  # they do not change what a run comes to


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The `setting: value` lines of a file."""
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except OSError:
        raise  # it names the file
    except Exception as error:  # the parser raises anything at all where a number or a day is none
        raise ValueError(f"{path} is not YAML: {str(error)[:500]}") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold `setting: value` lines, found {type(values).__name__}")
    return values


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Say in which file a setting is that is refused."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None


def refuse_unknown(names: Iterable[Any], known: Collection[str], kind: str) -> None:
    """Raise if one of the names is not known, with the nearest one that is."""
    for name in names:
        if not isinstance(name, str) or name not in known:
            near = get_close_matches(short(name).strip("'"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise ValueError(f"no {kind} is called {short(name)}; {hint}")


def _number(name: str, value: Any) -> Any:
    """YAML takes 5e-5 for a text, since it has no dot; people do not."""
    default = next(field.default for field in fields(Config) if field.name == name)
    if isinstance(default, float) and isinstance(value, str):
        with suppress(ValueError):
            return float(value)
    return value


_LEAST: dict[str, float] = {
    "max_length": 3,  # a word between two special tokens
    "max_chunks": 1,
    "freeze_layers": 0,
    "queue_size": 1,
    "projection_dim": 1,
    "epochs": 0,  # 0: the encoder as it is
    "batch_size": 1,
    "accumulation": 1,
    "learning_rate": 0,
    "head_learning_rate": 0,
    "weight_decay": 0,
    "finetune_epochs": 1,
    "finetune_learning_rate": 0,
    "checkpoint_seconds": 0,
    "seed": 0,
}
_LARGEST = 2**32 - 1  # what the libraries beneath take for a seed; nothing else comes near it
LEFT_OPEN = ("learning_rate",)  # may be None: what suits the encoder
_ABOVE_ZERO = ("temperature", "beta", "clip")
_SHARES = ("dropout", "momentum", "warmup", "beta")
_CHOICES: dict[str, tuple[object, ...]] = {
    "pooling": ("cls", "mean"),
    "schedule": ("cosine", "linear", None),
    "classifier": ("probe", "finetune"),
    "thresholds": ("macro", "micro", "half"),
    "precision": ("auto", "fp32", "bf16", "fp16"),
}


def _check(config: Config) -> None:
    """Refuse values that could only fail later, naming the setting and the value."""
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        default = field.default
        if value is None and name in LEFT_OPEN:
            continue
        if isinstance(default, bool) and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {short(value)}")
        if isinstance(default, int | float) and not isinstance(default, bool):
            whole = isinstance(default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise ValueError(f"{name} must be a {'whole ' if whole else ''}number, got {short(value)}")
            if whole and value > _LARGEST:
                raise ValueError(f"{name} must be at most {_LARGEST}, got {short(value)}")
        if isinstance(default, str) and not isinstance(value, str):
            raise ValueError(f"{name} must be a text, got {short(value)}")
        if name in _LEAST and not value >= _LEAST[name]:
            raise ValueError(f"{name} must be at least {_LEAST[name]:g}, got {short(value)}")
        if name in _ABOVE_ZERO and not value > 0:
            raise ValueError(f"{name} must be above 0, got {short(value)}")
        if name in _SHARES and not 0 <= value <= 1:
            raise ValueError(f"{name} must be between 0 and 1, got {short(value)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"{name} must be one of {', '.join(map(str, _CHOICES[name]))}, got {short(value)}")
    if not (config.tensorboard is None or isinstance(config.tensorboard, str)):
        raise ValueError(f"tensorboard must be a folder or nothing, got {short(config.tensorboard)}")
    if config.patience is not None and (not isinstance(config.patience, int) or config.patience < 1):
        raise ValueError(f"patience must be a whole number of epochs or nothing, got {short(config.patience)}")
