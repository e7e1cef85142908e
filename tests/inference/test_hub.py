"""Up to the hub and down again, with the hub's calls replaced by a folder."""

import shutil

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from sklearn.exceptions import NotFittedError

import tiny
from abalone import AbaloneClassifier

TEXTS, LABELS = tiny.corpus(120)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABALONE_CACHE", str(folder / "cache"))
        encoder = tiny.save_encoder(folder / "encoder")
        return AbaloneClassifier(encoder=encoder, max_length=20, epochs=0, lexical=False, device="cpu").fit(
            TEXTS, LABELS
        )


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Repositories as folders."""
    calls = []

    def create_repo(self, repo_id, *, private=None, exist_ok=False, **rest):
        assert exist_ok
        calls.append(("create", repo_id, private, self.token))
        (tmp_path / "hub" / repo_id).mkdir(parents=True, exist_ok=True)
        return f"https://hub/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, **rest):
        calls.append(("upload", repo_id))
        shutil.copytree(folder_path, tmp_path / "hub" / repo_id, dirs_exist_ok=True)

    def snapshot_download(repo_id, *, revision=None, allow_patterns=None, **rest):
        calls.append(("download", repo_id, revision))
        place = tmp_path / "hub" / repo_id
        if not place.is_dir():
            raise LocalEntryNotFoundError(f"no connection, and {repo_id} is not in the cache\nmore lines")
        target = tmp_path / "downloaded" / repo_id
        files = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
        for name in huggingface_hub.utils.filter_repo_objects(files, allow_patterns=allow_patterns):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(place / name, target / name)
        return str(target)

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    return calls


def test_up_and_down_again(classifier, hub, tmp_path):
    assert classifier.push_to_hub("me/model", private=True, token="hf_x") == "https://hub/me/model"
    assert hub == [("create", "me/model", True, "hf_x"), ("upload", "me/model")]
    (tmp_path / "hub/me/model/pytorch_model.bin").write_bytes(b"a pickle")
    (tmp_path / "hub/me/model/evil.py").write_text("boom")
    again = AbaloneClassifier.from_pretrained("me/model", revision="v1", device="cpu")
    assert hub[-1] == ("download", "me/model", "v1")
    np.testing.assert_array_equal(again.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    fetched = {path.suffix or path.name for path in (tmp_path / "downloaded").rglob("*") if path.is_file()}
    assert fetched == {".json", ".safetensors", ".md", "SHA256SUMS"}


def test_what_only_other_tools_read_stays_behind(classifier, hub, tmp_path, monkeypatch):
    monkeypatch.setattr(classifier.predictor_.network.tokenizer, "chat_template", "{{ messages }}")
    classifier.push_to_hub("me/chatty")
    assert (tmp_path / "hub/me/chatty/chat_template.jinja").is_file()
    again = AbaloneClassifier.from_pretrained("me/chatty", device="cpu")
    np.testing.assert_array_equal(again.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    assert not (tmp_path / "downloaded/me/chatty/chat_template.jinja").exists()


def test_a_folder_of_that_name_comes_first(classifier, hub, tmp_path):
    classifier.save_pretrained(tmp_path / "me" / "model")
    AbaloneClassifier.from_pretrained("me/model")
    assert hub == []


@pytest.mark.parametrize(
    ("name", "told"),
    [("me/none", "is neither a folder nor a model on the hub: no connection"), ("me/other", "was not made by ABALONE")],
)
def test_what_the_hub_does_not_have(name, told, hub, tmp_path):
    (tmp_path / "hub/me/other").mkdir(parents=True)
    (tmp_path / "hub/me/other/config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match=told) as caught:
        AbaloneClassifier.from_pretrained(name)
    assert "\n" not in str(caught.value)


def test_what_looks_like_no_name_is_not_asked_for(classifier, hub, tmp_path):
    for place in (tmp_path / "me" / "model", "nowhere", "./me/model"):
        with pytest.raises(FileNotFoundError, match="is not a model folder"):
            AbaloneClassifier.from_pretrained(place)
    with pytest.raises(ValueError, match="has the form user/model, got 'model'"):
        classifier.push_to_hub("model")
    with pytest.raises(NotFittedError):
        AbaloneClassifier().push_to_hub("me/model")
    assert hub == []
