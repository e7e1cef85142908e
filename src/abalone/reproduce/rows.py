"""The rows of the paper's tables, and those we add: what is trained, by which name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, Literal

from abalone.config import Config
from abalone.errors import InputError

Kind = Literal["lexical", "frozen", "contrastive", "supervised", "finetuned"]
LEXICAL = "tf-idf"  # stands as the objective of a run that trains no encoder


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Args:
        name: as printed and as chosen with `--rows`.
        latex: as in the paper's source.
        kind: which part of the grid varies for it.
        settings: what it changes in `Config`.
        starts_from: the row whose pre-trained encoder it goes on with.
    """

    name: str
    latex: str
    kind: Kind
    settings: Mapping[str, Any] = field(default_factory=dict)
    starts_from: str | None = None


def _loss(name: str, kind: Kind, *, starts_from: str | None = None, **settings: Any) -> Row:
    return Row(f"L_{name}", rf"$\mathcal{{L}}_{{{name}}}$", kind, settings, starts_from)


_ALL = (
    _loss("MLM", "frozen"),
    _loss("Base", "contrastive", objective="base"),
    _loss("BQueue", "contrastive", objective="bqueue"),
    _loss("BQProto", "contrastive", objective="bqproto"),
    _loss("MSC", "contrastive", objective="msc"),
    _loss("ASY", "supervised", objective="asymmetric"),
    _loss("FCL", "supervised", objective="focal"),
    _loss("BCE", "supervised", objective="bce"),
    _loss("Base-FT", "finetuned", objective="bce", starts_from="L_Base"),
    _loss("MSC-FT", "finetuned", objective="bce", starts_from="L_MSC"),
    # Beyond the paper
    Row("tf-idf + SVM", "tf-idf + SVM", "lexical"),
    _loss("MSC+BCE", "contrastive", objective="msc+10*bce"),
    _loss("MSC-names", "contrastive", objective="msc", name_prototypes=True),
    _loss("MulSupCon", "contrastive", objective="mulsupcon"),
    _loss("ZLPR", "supervised", objective="zlpr"),
)
ROWS: dict[str, Row] = {row.name: row for row in _ALL}


@dataclass(frozen=True)
class Experiment:
    """A table or figure: its rows, and what of the grid they go through.

    Args:
        name: of the command and of the files.
        sections: rows by heading; an empty heading is none.
        varies: "temperature": every row is averaged over temperatures and seeds. "setting": each row has its learning
            rate and epochs chosen on validation, and is averaged over seeds. "seed": nothing but the seed varies.
        shows: which part of a run's record; a run whose record lacks it counts as missing.
    """

    name: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    varies: Literal["temperature", "setting", "seed"]
    shows: Literal["scores", "clustering", "forces"] = "scores"

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows, in order."""
        return tuple(ROWS[name] for _, names in self.sections for name in names)

    def only(self, names: Sequence[str]) -> "Experiment":
        """The same experiment with some of its rows."""
        left = ((heading, tuple(name for name in own if name in names)) for heading, own in self.sections)
        return replace(self, sections=tuple(section for section in left if section[1]))


ABLATION = Experiment("ablation", (("", ("L_MLM",)), ("", ("L_Base", "L_BQueue", "L_BQProto", "L_MSC"))), "temperature")
COMPARISON = Experiment(
    "comparison",
    (
        ("Supervised loss", ("L_ASY", "L_FCL", "L_BCE")),
        ("Contrastive loss", ("L_Base", "L_Base-FT")),
        ("Ours", ("L_MSC", "L_MSC-FT")),
        ("Beyond the paper", ("tf-idf + SVM", "L_MSC+BCE", "L_MSC-names", "L_MulSupCon", "L_ZLPR")),
    ),
    "setting",
)
REPRESENTATION = Experiment(
    "representation",
    (("", ("L_MLM", "L_BCE")), ("", ("L_Base", "L_Base-FT")), ("", ("L_MSC", "L_MSC-FT"))),
    "setting",
    "clustering",
)
IMBALANCE = Experiment("imbalance", (("", ("L_MLM", "L_Base", "L_MSC")),), "seed", "forces")
EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (ABLATION, COMPARISON, REPRESENTATION, IMBALANCE)}

# What the rows and the grid decide; settings from elsewhere would be overruled in silence.
DECIDED = frozenset(
    {"objective", "temperature", "epochs", "learning_rate", "name_prototypes", "seed", "classifier", "lexical"}
    | {"finetune_objective", "finetune_epochs", "finetune_learning_rate", "neighbours", "thresholds", "at_least_one"}
)


def refuse_decided(base: Config) -> None:
    """Raise if `base` sets what a table decides by itself."""
    default = Config()
    if changed := sorted(name for name in DECIDED if getattr(base, name) != getattr(default, name)):
        raise InputError(
            f"{', '.join(changed)}: set by the rows and the grid of the table; remove it from the settings"
        )


def row_names(wanted: Sequence[str]) -> tuple[str, ...]:
    """The rows meant by `msc`, `L_MSC` or `MSC-FT`, in any case of letters."""
    known = {_plain(name): name for name in ROWS}
    for name in wanted:
        if _plain(name) not in known:
            near = get_close_matches(_plain(name), known, n=1)
            hint = f"; did you mean {known[near[0]]!r}?" if near else "."
            raise InputError(f"no row is called {name!r}{hint} Rows: {', '.join(ROWS)}")
    return tuple(known[_plain(name)] for name in wanted)


def _plain(name: str) -> str:
    name = name.lower().replace(" ", "").removeprefix("l_")
    return LEXICAL if name == "tf-idf+svm" else name
