import dataclasses

import pytest

from abalone.config import Config


def test_defaults_are_the_papers():
    config = Config()
    paper = {"temperature": 0.1, "beta": 0.1, "queue_size": 512, "momentum": 0.999, "projection_dim": 256, "epochs": 80,
             "batch_size": 32, "weight_decay": 0.01, "warmup": 0.05, "clip": 1.0, "dropout": 0.1, "max_length": 300,
             "head_learning_rate": 5e-5, "pooling": "cls"}  # fmt: skip
    assert {name: getattr(config, name) for name in paper} == paper


def test_yaml_there_and_back(tmp_path):
    config = Config(objective="msc+10*bce", epochs=3, schedule="linear", lexical=True, patience=2)
    config.to_yaml(tmp_path / "c.yaml")
    assert Config.from_yaml(tmp_path / "c.yaml") == config


def test_yaml_names_only_what_differs(tmp_path):
    (tmp_path / "c.yaml").write_text("epochs: 3\nlearning_rate: 2e-5\n")  # a text, to YAML
    assert Config.from_yaml(tmp_path / "c.yaml") == Config(epochs=3, learning_rate=2e-5)
    (tmp_path / "empty.yaml").write_text("")
    assert Config.from_yaml(tmp_path / "empty.yaml") == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epoch: 3", "no setting is called 'epoch'; did you mean 'epochs'"),
        ("- 3", "must hold `setting: value` lines, found list"),
        ("a: [", "is not YAML"),
        ("epochs: three", "epochs must be a whole number, got 'three'"),
        ("epochs: 2.5", "epochs must be a whole number, got 2.5"),
        ("lexical: 1", "lexical must be true or false, got 1"),
        ("encoder: 3", "encoder must be a text, got 3"),
        ("batch_size: 0", "batch_size must be at least 1, got 0"),
        ("dropout: 1.5", "dropout must be between 0 and 1, got 1.5"),
        ("pooling: max", "pooling must be one of cls, mean, got 'max'"),
        ("patience: 0", "patience must be a whole number of epochs"),
        ("learning_rate: fast", "learning_rate must be a number, got 'fast'"),
    ],
)
def test_bad_settings_are_named(tmp_path, text, message):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"c\.yaml") as error:
        Config.from_yaml(path)
    assert message in str(error.value)


def test_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().epochs = 3
