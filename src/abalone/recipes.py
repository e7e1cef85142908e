"""Recipes: settings that were chosen together, under a name. What they are worth is in docs/recipe.md."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from abalone.config import Config, naming, read_yaml

DEFAULT = "rare"

RECIPES: dict[str, dict[str, Any]] = {
    # The best that we know for rare labels: contrast and classification at once, and an expert for words.
    "rare": {
        "pooling": "mean",
        "objective": "msc+10*bce",
        "epochs": 8,
        "learning_rate": 1e-4,
        "head_learning_rate": 1e-3,
        "lexical": True,
    },
    # The paper's method as printed: contrastive pre-training, linear evaluation, labels above 0.5.
    "paper": {"calibrate": False, "thresholds": "half"},
    # Nothing is trained but linear models, on the encoder's embeddings and on words: minutes without a GPU.
    "fast": {"pooling": "mean", "epochs": 0, "lexical": True},
}


def recipe(name: str = DEFAULT, **changes: Any) -> Config:
    """The settings of a recipe, some of them changed.

    Example:
        >>> recipe("fast", seed=3).lexical
        True
    """
    return Config(**recipe_settings(name)).replace(**changes)


def recipe_settings(name: str) -> dict[str, Any]:
    """What a recipe sets; everything else has the default of `Config`."""
    if name not in RECIPES:
        near = get_close_matches(str(name), RECIPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(RECIPES)}"
        raise ValueError(f"no recipe is called {name!r}; {hint}")
    return RECIPES[name]


def read_settings(file: Path | None, recipe_name: str | None = None) -> Config:
    """A recipe, changed by a YAML file of settings, which may itself name the recipe.

    Args:
        file: `setting: value` lines.
        recipe_name: goes before the one in the file.
    """
    if file is None:
        return recipe(recipe_name or DEFAULT)
    values = read_yaml(file)
    with naming(file):
        named = values.pop("recipe", DEFAULT)
        return recipe(recipe_name or named).changed_by(values)
