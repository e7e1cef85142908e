"""Recipes: named settings that were chosen together. docs/recipe.md has their scores."""

from pathlib import Path
from typing import Any

from abalone.config import (
    LEFT_OPEN,
    NO_ENCODER,
    OF_THE_MACHINE,
    SETTINGS,
    Config,
    naming,
    read_yaml,
    refuse_unknown,
    renamed,
)

DEFAULT = "rare"

RECIPES: dict[str, dict[str, Any]] = {
    # The best that we know for rare labels: contrast and classification at once, an expert for words, and neighbours
    # among the training documents where validation asks for them.
    "rare": {
        "pooling": "mean",
        "objective": "msc+0.3*zlpr",
        "epochs": None,
        "folds": None,
        "learning_rate": None,
        "head_learning_rate": 1e-3,
        "lexical": True,
        "neighbours": True,
        "learn_names": True,
    },
    # The paper's method: contrastive pre-training, linear evaluation, labels above 0.5. docs/reproduce.md lists where
    # we deviate from it.
    "paper": {"calibrate": False, "thresholds": "half"},
    # Only linear models are trained, on the encoder's embeddings and on words: minutes without a GPU.
    "fast": {
        "pooling": "normalized_mean",
        "max_length": 128,
        "epochs": 0,
        "folds": None,
        "lexical": True,
        "learn_names": True,
    },
    # No encoder: tf-idf and a linear SVM per label, with the same calibration and thresholds. The fastest.
    "words": {"encoder": NO_ENCODER, "epochs": 0, "folds": None, "lexical": True, "learn_names": True},
}

ABOUT_RECIPES = {  # as the help says it
    "rare": "the best known for rare labels; trains the encoder, best on a GPU",
    "paper": "the method of the paper, 80 epochs",
    "fast": "trains only linear models, which takes minutes without a GPU",
    "words": "tf-idf and linear SVMs without an encoder, the fastest on any machine",
}


def recipe(name: str = DEFAULT, **changes: Any) -> Config:
    """Return the settings of a recipe, some of them changed.

    Example:
        >>> recipe("fast", seed=3).lexical
        True
    """
    refuse_unknown([name], RECIPES, "recipe")
    return Config(**RECIPES[name]).replace(**changes)


def nearest_recipe(config: Config) -> tuple[str, list[str]]:
    """Return the recipe that agrees with most of these settings, and the settings that differ from it.

    So a model can say how it was made, however its settings were given.
    """
    values = config.to_dict()
    other: dict[str, list[str]] = {}
    for name in RECIPES:
        said = recipe(name).to_dict()
        left_open = [each for each in LEFT_OPEN if said[each] is None]
        other[name] = [each for each in said if each not in left_open and said[each] != values[each]]
    nearest = min(other, key=lambda name: len(other[name]))
    return nearest, other[nearest]


def words_alone(config: Config) -> Config:
    """Return the recipe `words`, with the seed and the decision of other settings."""
    kept = ("seed", "folds", "learn_names", "calibrate", "thresholds", "at_least_one", *OF_THE_MACHINE)
    return recipe("words", **{name: getattr(config, name) for name in kept})


def read_settings(file: Path | None, recipe_name: str | None = None) -> Config:
    """Return a recipe changed by a YAML file of settings, which may name the recipe.

    Args:
        file: `setting: value` lines.
        recipe_name: overrides the one in the file.
    """
    if file is None:
        return recipe(DEFAULT if recipe_name is None else recipe_name)
    values = read_yaml(file)
    with naming(file):
        values = renamed(values)
        refuse_unknown(values, (*SETTINGS, "recipe"), "setting")
        in_file = recipe(values.pop("recipe", DEFAULT))
        return (in_file if recipe_name is None else recipe(recipe_name)).changed_by(values)
