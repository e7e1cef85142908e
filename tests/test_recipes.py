"""Recipes are settings under a name. What they set changes with what is known, so no figure is repeated here."""

import pytest

from abalone.config import Config
from abalone.recipes import RECIPES, nearest_recipe, read_settings, recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_defaults_and_what_it_sets(name):
    made = recipe(name).to_dict()
    assert made == Config().to_dict() | RECIPES[name]


def test_the_paper_is_what_the_settings_are_without_a_recipe_but_for_the_decision():
    decision = {"calibrate", "thresholds"}
    assert RECIPES["paper"].keys() == decision
    assert recipe("paper").replace(**{name: getattr(Config(), name) for name in decision}) == Config()


def test_what_is_given_goes_before_the_recipe():
    lexical = not recipe().lexical
    assert recipe(lexical=lexical) == recipe().replace(lexical=lexical) != recipe()
    assert recipe("fast", seed=3) == recipe("fast").replace(seed=3)
    with pytest.raises(ValueError, match="no setting is called 'epoch'; did you mean 'epochs'"):
        recipe("fast", epoch=3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rar", "no recipe is called 'rar'; did you mean 'rare'?"),
        ("quick", f"no recipe is called 'quick'; known: {', '.join(RECIPES)}"),
        (None, "no recipe is called None"),
        (["rare"], "no recipe is called ['rare']; did you mean 'rare'?"),
        ("x" * 10_000, "no recipe is called 'xxx"),
    ],
    ids=["typo", "unknown", "nothing", "a list", "long"],
)
def test_a_name_that_is_none(name, message):
    with pytest.raises(ValueError, match="no recipe") as error:
        recipe(name)
    assert message in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("name", RECIPES)
def test_a_model_tells_its_recipe_from_its_settings(name):
    assert nearest_recipe(recipe(name)) == (name, [])
    assert nearest_recipe(recipe(name, seed=5, encoder="other")) == (name, ["encoder", "seed"])
    if recipe(name).learning_rate is None:  # which a model has settled
        assert nearest_recipe(recipe(name, learning_rate=1e-4)) == (name, [])
    changed = recipe(name, thresholds="micro", queue_size=3)
    nearest, others = nearest_recipe(changed)
    assert recipe(nearest, **{each: getattr(changed, each) for each in others}) == changed


def settings_file(folder, text):
    file = folder / "settings.yaml"
    file.write_text(text)
    return file


def test_a_file_changes_the_default_recipe(tmp_path):
    assert read_settings(None) == recipe()
    assert read_settings(settings_file(tmp_path, "")) == recipe()
    assert read_settings(settings_file(tmp_path, "seed: 4\nlearning_rate: 3e-5")) == recipe(
        seed=4, learning_rate=3e-5
    )  # to YAML 3e-5 is a text


@pytest.mark.parametrize(
    ("lines", "tracker", "folder"),
    [
        ("tensorboard: null", None, None),
        ("tensorboard: logs", "tensorboard", "logs"),
        ("tensorboard: logs\ntracker: mlflow", "mlflow", None),
    ],
)
def test_file_of_earlier_version_with_tensorboard_is_read(lines, tracker, folder, tmp_path):
    (tmp_path / "config.yaml").write_text(f"recipe: words\n{lines}\n")
    settings = read_settings(tmp_path / "config.yaml")
    assert (settings.tracker, settings.tracker_folder) == (tracker, folder)


def test_a_file_may_name_the_recipe(tmp_path):
    file = settings_file(tmp_path, "seed: 4\nrecipe: paper\n")
    assert read_settings(file) == recipe("paper", seed=4)
    assert read_settings(file, "fast") == recipe("fast", seed=4)  # who types a name means it
    assert read_settings(None, "fast") == recipe("fast")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recipe: papers", "no recipe is called 'papers'; did you mean 'paper'?"),
        ("recipe:", "no recipe is called None; known: "),
        ("recipe: [rare, fast]", "no recipe is called ['rare', 'fast']"),
        ("recip: fast", "no setting is called 'recip'; did you mean 'recipe'?"),
        ("epoch: 3", "no setting is called 'epoch'; did you mean 'epochs'?"),
        ("3: 3", "no setting is called 3; known: "),
        ("epochs: three", "epochs must be a whole number, got 'three'"),
        ("recipe: fast\nepochs: -1", "epochs must be at least 0, got -1"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(tmp_path, text, message):
    for typed in (None, "fast"):
        with pytest.raises(ValueError, match=r"settings\.yaml: ") as error:
            read_settings(settings_file(tmp_path, text), typed)
        assert message in str(error.value)
