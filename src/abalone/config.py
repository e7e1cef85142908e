"""All settings, each with its default and description; YAML, options and the classifier are views of them."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from reprlib import repr as short
from typing import Annotated, Any, Literal, get_args, get_type_hints

from abalone.errors import InputError, spelled

Pooling = Literal["cls", "mean", "normalized_mean"]
Schedule = Literal["cosine", "linear"]
Precision = Literal["auto", "fp32", "bf16", "fp16"]
Classifier = Literal["probe", "finetune"]
TrackerName = Literal["tensorboard", "wandb", "mlflow"]
ThresholdObjective = Literal["macro", "micro", "half"]

NO_ENCODER = "none"  # in place of an encoder's name


@dataclass(frozen=True, kw_only=True)
class Config:
    """Hold the settings of a model. Immutable; `replace` returns a changed copy.

    The defaults of training are the paper's values, except for the encoder, which is the one that needs no network
    (the paper has roberta-base and legal-bert-base-uncased), and for the precision. The paper also tries 2e-5 for the
    encoder's learning rates, 10 and 40 epochs for losses without contrast, and 5 for fine-tuning. docs/reproduce.md
    lists where the code deviates from the paper.
    """

    # The encoder
    encoder: Annotated[str, "Pre-trained encoder: a folder or hub name; none: only tf-idf"] = "all-MiniLM-L6-v2"
    pooling: Annotated[
        Pooling, "Embedding of a document: its first token, the mean of its tokens, or that mean at length 1"
    ] = "cls"
    max_length: Annotated[int, "Tokens read per document"] = 300
    max_chunks: Annotated[int, "Pieces of max_length tokens read per document; their embeddings are averaged"] = 1
    dropout: Annotated[float, "Dropout in the encoder while training"] = 0.1
    freeze_layers: Annotated[int, "Lower encoder layers to freeze; their output is computed once, which is faster"] = 0

    # The objective
    objective: Annotated[str, "Training loss, or a sum of losses such as msc+10*bce"] = "msc"
    temperature: Annotated[float, "Temperature of the contrastive losses"] = 0.1
    beta: Annotated[float, "Weight of documents in the denominator of msc, relative to prototypes"] = 0.1
    queue_size: Annotated[int, "Documents kept in the queue of the contrastive losses"] = 512
    momentum: Annotated[float, "Momentum of the momentum encoder, which fills the queue"] = 0.999
    projection_dim: Annotated[int, "Dimensions of the space in which the contrastive losses compare documents"] = 256
    name_prototypes: Annotated[bool, "Initialise the prototypes from the label names"] = False

    # The documents
    learn_names: Annotated[bool, "Train on each label name too, as a short document with this label"] = False

    # The optimisation
    epochs: Annotated[
        int | None,
        "Passes over the training documents; 0: encoder not trained; unset: chosen by their number",
    ] = 80
    batch_size: Annotated[int, "Documents per batch"] = 32
    accumulation: Annotated[int, "Batches per optimizer step"] = 1
    learning_rate: Annotated[float | None, "Learning rate of the encoder; unset: chosen by its width"] = 5e-5
    head_learning_rate: Annotated[float, "Learning rate of everything else: heads and prototypes"] = 5e-5
    weight_decay: Annotated[float, "Weight decay, except for biases and norms"] = 0.01
    warmup: Annotated[float, "Share of the steps for warm-up of the learning rate"] = 0.05
    schedule: Annotated[Schedule | None, "Decay of the learning rate; unset: cosine if contrastive, else linear"] = None
    clip: Annotated[float, "Gradients are clipped to this norm"] = 1.0
    patience: Annotated[int | None, "Stop after this many epochs without a better validation score"] = None

    # The folds
    folds: Annotated[
        int | None,
        "Folds for cross-fitting: each is scored by a model trained on the others, then one model is trained on all; "
        "1 holds out a fifth once; 0 trains on the training split only; unset: chosen by corpus and device",
    ] = 0

    # From embeddings to labels, where the objective has no layer for logits of its own
    classifier: Annotated[Classifier, "Linear models on the trained encoder, or fine-tuning with a linear layer"] = (
        "probe"
    )
    finetune_objective: Annotated[str, "Loss of fine-tuning; not a contrastive one"] = "bce"
    finetune_epochs: Annotated[int, "Passes over the training documents in fine-tuning"] = 10
    finetune_learning_rate: Annotated[float, "Learning rate of the encoder in fine-tuning"] = 5e-5

    # The decision
    lexical: Annotated[bool, "Mix in a tf-idf model; held-out documents decide its weight"] = False
    neighbours: Annotated[bool, "Mix in the nearest training documents; held-out documents decide their weight"] = False
    calibrate: Annotated[bool, "Calibrate probabilities on held-out documents"] = True
    thresholds: Annotated[ThresholdObjective, "F1 to tune thresholds for; half sets all of them to 0.5"] = "macro"
    at_least_one: Annotated[bool, "Give every document at least its most probable label"] = False

    # The run
    seed: Annotated[int, "Random seed"] = 0
    device: Annotated[str, "Where to compute: auto, cpu, cuda, cuda:1, mps"] = "auto"
    precision: Annotated[Precision, "auto trains in bf16 where that is faster, and predicts in fp32"] = "auto"
    checkpoint_seconds: Annotated[float, "Seconds between checkpoints; an interruption loses no more"] = 300.0
    tracker: Annotated[TrackerName | None, "Experiment tracker for losses and scores; unset: none"] = None
    tracker_folder: Annotated[str | None, "Folder for the tracker's files; unset: the tracker's own default"] = None

    def __post_init__(self) -> None:
        _check(self)

    def replace(self, **changes: Any) -> "Config":
        """Return a copy with some settings changed; an unknown name is refused with the nearest match."""
        refuse_unknown(changes, SETTINGS, "setting")
        return replace(self, **changes)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        """Read plain values, as in YAML or JSON; settings that are not named have their defaults."""
        return cls().changed_by(values)

    def changed_by(self, values: dict[str, Any]) -> "Config":
        """Return a copy with some settings changed to plain values, as in YAML or JSON."""
        values = renamed(values)
        refuse_unknown(values, SETTINGS, "setting")
        return replace(self, **{name: _number(name, value) for name, value in values.items()})

    @classmethod
    def from_yaml(cls, path: str | Path) -> "Config":
        """Read a YAML file; settings that are not named have their defaults."""
        values = read_yaml(path)
        with naming(path):
            return cls.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for YAML and JSON."""
        return asdict(self)

    def to_yaml(self, path: str | Path) -> None:
        """Write every setting to a YAML file, defaults included."""
        import yaml

        Path(path).write_text(yaml.safe_dump(self.to_dict(), sort_keys=False), encoding="utf-8")


SETTINGS = tuple(field.name for field in fields(Config))
KINDS: dict[str, Any] = get_type_hints(Config)
ABOUT: dict[str, str] = {
    name: kind.__metadata__[0] for name, kind in get_type_hints(Config, include_extras=True).items()
}
OF_THE_MACHINE = ("device", "checkpoint_seconds", "tracker", "tracker_folder")  # they do not change what a run comes to


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read the `setting: value` lines of a file."""
    import yaml

    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8")) or {}
    except OSError:
        raise  # it names the file
    except Exception as error:  # the parser raises anything at all where a number or a day is none
        raise InputError(f"{path} is not YAML: {str(error)[:500]}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path} must hold `setting: value` lines, found {type(values).__name__}")
    return values


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name the file in the error about a setting in it."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None


def refuse_unknown(names: Iterable[Any], known: Collection[str], kind: str) -> None:
    """Raise if a name is unknown, and suggest the nearest known one."""
    for name in names:
        if not isinstance(name, str) or name not in known:
            near = get_close_matches(short(name).strip("'"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            raise InputError(f"no {kind} is called {short(name)}; {hint}")


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    """Translate a setting that files of earlier versions have: `tensorboard`, a folder or nothing."""
    if "tensorboard" not in values:
        return values
    others = {name: value for name, value in values.items() if name != "tensorboard"}
    folder = values["tensorboard"]
    if folder is None or others.get("tracker") is not None:
        return others
    return {**others, "tracker": "tensorboard", "tracker_folder": folder}


def _number(name: str, value: Any) -> Any:
    """Return the value as a number where the setting is one: YAML reads 5e-5, without a dot, as a string."""
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
    "folds": 0,
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
LEFT_OPEN = ("learning_rate", "epochs", "folds")  # may be None: what suits the encoder, the corpus and the device
_ABOVE_ZERO = ("temperature", "beta", "clip")
_FINITE = ("temperature",)
_SHARES = ("dropout", "momentum", "warmup", "beta")
CHOICES: dict[str, tuple[object, ...]] = {
    "pooling": get_args(Pooling),
    "schedule": (*get_args(Schedule), None),
    "classifier": get_args(Classifier),
    "thresholds": get_args(ThresholdObjective),
    "precision": get_args(Precision),
    "tracker": (*get_args(TrackerName), None),
}
_WITHOUT_ENCODER: dict[str, object] = {  # whatever else these are, they ask an encoder
    "epochs": 0,
    "neighbours": False,
    "freeze_layers": 0,
    "name_prototypes": False,
    "classifier": "probe",
}


def _check(config: Config) -> None:
    """Raise on a value that would only fail later; the error names setting and value."""
    for field in fields(config):
        name, value = field.name, getattr(config, field.name)
        default = field.default
        if value is None and name in LEFT_OPEN:
            continue
        if isinstance(default, bool) and not isinstance(value, bool):
            raise InputError(f"{name} must be true or false, got {short(value)}")
        if isinstance(default, int | float) and not isinstance(default, bool):
            whole = isinstance(default, int)
            if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
                raise InputError(f"{name} must be a {'whole ' if whole else ''}number, got {short(value)}")
            if whole and value > _LARGEST:
                raise InputError(f"{name} must be at most {_LARGEST}, got {short(value)}")
        if isinstance(default, str) and not isinstance(value, str):
            raise InputError(f"{name} must be a string, got {short(value)}")
        if name in _LEAST and not value >= _LEAST[name]:
            raise InputError(f"{name} must be at least {_LEAST[name]:g}, got {short(value)}")
        if name in _ABOVE_ZERO and not value > 0:
            raise InputError(f"{name} must be above 0, got {short(value)}")
        if name in _FINITE and value == inf:
            raise InputError(f"{name} must be finite, got {short(value)}")
        if name in _SHARES and not 0 <= value <= 1:
            raise InputError(f"{name} must be between 0 and 1, got {short(value)}")
        if name in CHOICES and value not in CHOICES[name]:
            raise InputError(f"{name} must be one of {', '.join(map(str, CHOICES[name]))}, got {short(value)}")
    if not (config.tracker_folder is None or isinstance(config.tracker_folder, str)):
        raise InputError(f"tracker_folder must be a folder or nothing, got {short(config.tracker_folder)}")
    if config.tracker_folder is not None and config.tracker is None:
        raise InputError(
            f"{spelled('tracker_folder', config.tracker_folder)} needs a tracker: tensorboard, wandb or mlflow"
        )
    if config.patience is not None and (not isinstance(config.patience, int) or config.patience < 1):
        raise InputError(f"patience must be a whole number of epochs or nothing, got {short(config.patience)}")
    if config.encoder == NO_ENCODER:
        for name, only in _WITHOUT_ENCODER.items():
            if getattr(config, name) != only:
                raise InputError(
                    f"without an encoder {name} must be {_plain(only)}, got {_plain(getattr(config, name))}: "
                    "start from the recipe words, or name an encoder"
                )


def _plain(value: object) -> str:
    """Return a value as YAML writes it."""
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
