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
    (tmp_path / "open.yaml").write_text("learning_rate: null\n")
    assert Config.from_yaml(tmp_path / "open.yaml").learning_rate is None
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
        ("encoder: 3", "encoder must be a string, got 3"),
        ("batch_size: 0", "batch_size must be at least 1, got 0"),
        ("dropout: 1.5", "dropout must be between 0 and 1, got 1.5"),
        ("temperature: .inf", "temperature must be finite, got inf"),
        ("pooling: max", "pooling must be one of cls, mean, normalized_mean, got 'max'"),
        ("patience: 0", "patience must be a whole number of epochs"),
        ("learning_rate: fast", "learning_rate must be a number, got 'fast'"),
        ("head_learning_rate: null", "head_learning_rate must be a number, got None"),
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


@pytest.mark.parametrize(
    "content",
    [
        "batch_size: 2026-13-45",  # no such day
        "batch_size: 0x_",
        "batch_size: !!int ''",
        f"batch_size: {'9' * 5000}",
        "[" * 2000,
        "batch_size: !!python/object/apply:os.system [id]",
        b"\xff\xfe\x00",
        "a: &a [x]\n" + "".join(f"a: &a [{'*a, ' * 9}*a]\n" for _ in range(30)),  # ten to the thirtieth, written out
    ],
)
def test_yaml_that_is_none_of_ours_is_named(tmp_path, content):
    file = tmp_path / "c.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"c\.yaml") as caught:
        Config.from_yaml(file)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("name", ["seed", "queue_size", "max_chunks", "projection_dim"])
def test_whole_numbers_end_somewhere(name):
    with pytest.raises(ValueError, match=f"{name} must be at most 4294967295, got 4294967296"):
        Config(**{name: 2**32})
