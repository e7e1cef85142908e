"""What makes two runs the same."""

from abalone.config import Config
from abalone.reproduce.identity import encoder_name, portable, run_key


def test_a_folder_is_called_by_its_last_part_and_a_hub_name_as_it_is(tmp_path, monkeypatch):
    (tmp_path / "models" / "bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert encoder_name("models/bert") == encoder_name("./models/bert/") == encoder_name("/gone/bert") == "bert"
    assert encoder_name("user/bert") == "user/bert"
    monkeypatch.chdir(tmp_path / "models" / "bert")
    assert encoder_name(".") == "bert"
    assert encoder_name("..") == "models"


def test_a_link_keeps_its_name(tmp_path):
    (tmp_path / "version-3").mkdir()
    (tmp_path / "bert").symlink_to(tmp_path / "version-3")
    assert encoder_name(str(tmp_path / "bert")) == "bert"


def test_stored_names_mean_the_same_in_every_folder(tmp_path, monkeypatch):
    before = run_key(portable(Config(encoder="user/bert")), None, "corpus")
    stored = portable(Config(encoder="user/bert"))
    (tmp_path / "user" / "bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert run_key(stored, None, "corpus") == before


def test_a_whole_number_is_the_same_setting_with_or_without_a_dot():
    def key(**settings: object) -> str:
        return run_key(portable(Config.from_dict(settings)), None, "corpus")

    assert key(dropout=0) == key(dropout=0.0) != key()
    assert key(clip=1) == key(clip=1.0) == key()
    damaged = portable(Config()) | {"dropout": 10**400}
    assert run_key(damaged, None, "corpus") != key()
