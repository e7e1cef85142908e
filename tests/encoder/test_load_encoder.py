import hashlib
import io
import json
import os
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    CamembertConfig,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

import abalone.encoder.load
import tiny
from abalone.encoder.load import load_encoder, packaged_encoder, window
from abalone.encoder.text_encoder import TextEncoder

SMALL = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
NO_SPECIAL = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    return load_encoder(tiny.save_encoder(tmp_path_factory.mktemp("encoder"), layers=3))


def test_dropout_is_set_everywhere(tmp_path):
    encoder, _ = load_encoder(tiny.save_encoder(tmp_path), dropout=0.3)
    assert {m.p for m in encoder.modules() if isinstance(m, torch.nn.Dropout)} == {0.3}


def test_window(loaded):
    assert window(*loaded) == 64
    loaded[1].model_max_length = 10**30
    for config in (RobertaConfig, CamembertConfig, MPNetConfig):
        model = AutoModel.from_config(config(**SMALL, max_position_embeddings=130))
        assert window(TextEncoder(model), loaded[1]) == 128  # two positions belong to padding
    for config in (BertConfig, DistilBertConfig, ModernBertConfig):
        model = AutoModel.from_config(config(**SMALL, **NO_SPECIAL, max_position_embeddings=130))
        assert window(TextEncoder(model), loaded[1]) == 130
    loaded[1].model_max_length = 64


def test_weights_in_half_precision_are_trained_in_full(tmp_path):
    folder = tiny.save_encoder(tmp_path)
    AutoModel.from_pretrained(folder).half().save_pretrained(folder)
    assert {p.dtype for p in load_encoder(folder)[0].parameters()} == {torch.float32}


def test_pickled_weights_are_refused(tmp_path):
    folder = tiny.save_encoder(tmp_path)
    model = AutoModel.from_pretrained(folder)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"cannot load the encoder .*\n.*a pickle.*convert it once: .*save_pretrained"):
        load_encoder(folder)
    (tmp_path / "pytorch_model.bin").rename(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="cannot load the encoder"):
        load_encoder(folder)


CODE = """
from pathlib import Path
Path(__file__).with_name("has-run").touch()
from transformers import BertConfig as Config, BertModel as Model, PreTrainedTokenizerFast as Tokenizer
"""


def change(file: Path, **entries: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))


@pytest.mark.parametrize("known", [True, False])
def test_code_that_comes_with_a_model_is_not_run(tmp_path, known):
    folder = tiny.save_encoder(tmp_path)
    (tmp_path / "code.py").write_text(CODE)
    classes = {
        "AutoConfig": "code.Config",
        "AutoModel": "code.Model",
        "AutoTokenizer": ["code.Tokenizer", "code.Tokenizer"],
    }
    change(tmp_path / "config.json", auto_map=classes, **({} if known else {"model_type": "own-invention"}))
    change(tmp_path / "tokenizer_config.json", auto_map=classes, tokenizer_class="Tokenizer")
    if known:
        load_encoder(folder)
    else:
        with pytest.raises(ValueError, match="cannot load the encoder"):
            load_encoder(folder)
    assert not (tmp_path / "has-run").exists()


def test_a_model_does_not_choose_a_kernel_from_the_hub(tmp_path):
    folder = tiny.save_encoder(tmp_path)
    change(tmp_path / "config.json", attn_implementation="somebody/kernel", _attn_implementation="somebody/kernel")
    assert load_encoder(folder)[0].model.config._attn_implementation in ("sdpa", "eager")


def test_weights_that_would_be_random_are_refused(tmp_path):
    folder = tiny.save_encoder(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = next(name for name in tensors if "query.weight" in name)
    save_file(
        {key: value for key, value in tensors.items() if key != name}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ValueError, match=r"its weights lack 1 of the model's, such as .*query\.weight"):
        load_encoder(folder)


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    folder = tiny.save_encoder(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["another"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ValueError, match="its tokenizer counts tokens up to 65, and the model has vectors for 65"):
        load_encoder(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", "[" * 5000),
        ("config.json", '{"model_type": "bert", "dtype": "float-1"}'),
        ("config.json", "[]"),
        ("tokenizer.json", "{}"),
        ("tokenizer_config.json", '{"mask_token": 0.5}'),
    ],
)
def test_damaged_files_are_told_by_the_name_of_the_encoder(tmp_path, file, content):
    folder = tiny.save_encoder(tmp_path)
    (tmp_path / file).write_text(content)
    with pytest.raises(ValueError, match=f"cannot load the encoder '{folder}'"):
        load_encoder(folder)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("num_hidden_layers", 10**6), ("num_hidden_layers", 1e12), ("vocab_size", 10**12), ("hidden_size", 10**9)],
)
def test_configuration_beyond_its_weights_is_refused_before_anything_is_built(setting, value, tmp_path, monkeypatch):
    """A million layers took minutes."""
    folder = tiny.save_encoder(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {setting: value}))
    for loader in ("AutoConfig", "AutoModel"):
        monkeypatch.setattr(f"transformers.{loader}.from_pretrained", lambda *_, **__: pytest.fail("it is built"))
    with pytest.raises(ValueError, match=f"config.json has {setting} {value:,}, and the weights are 37 tensors"):
        load_encoder(folder)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_file_that_may_not_be_read_is_told_as_such(name, tmp_path, monkeypatch):
    """safetensors says that it is not there."""
    folder, opened = tiny.save_encoder(tmp_path), io.open

    def refused(file, *arguments, **options):
        if Path(os.fspath(file)) == tmp_path / name:
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *arguments, **options)

    monkeypatch.setattr(io, "open", refused)
    with pytest.raises(PermissionError, match=f"Permission denied: '{tmp_path / name}'"):
        load_encoder(folder)


def test_a_name_that_no_folder_can_have(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="cannot load the encoder") as caught:
        load_encoder("x" * 5000)
    assert len(str(caught.value)) < 3000


def test_an_encoder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match=r"cannot load the encoder .*nowhere.*\n.*pip install '\.\[offline\]'"):
        load_encoder(str(tmp_path / "nowhere"))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A model hub without models, which is asked in vain or not reached at all, and an empty cache."""
    library = import_module(type(huggingface_hub.get_session()).__module__.partition(".")[0])
    asked = []

    def answer(client, request, **_):
        if "someone/encoder" in request.url.path:  # the client asks for other things too
            asked.append(request.url.path.rpartition("/")[2])
        if not hub.reachable:
            raise library.ConnectError("no route to host", request=request)
        return library.Response(404, headers={"X-Error-Code": "RepoNotFound"}, request=request)

    def wait(seconds):
        raise AssertionError(f"it waits {seconds} s to ask again")

    hub = SimpleNamespace(asked=asked, reachable=True)
    monkeypatch.setattr(library.Client, "send", answer)
    monkeypatch.setattr(time, "sleep", wait)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return hub


def test_a_hub_that_cannot_be_reached_is_asked_once(hub):
    hub.reachable = False
    with pytest.raises(ValueError, match=r"encoder 'someone/encoder': We couldn't connect to .* cached files"):
        load_encoder("someone/encoder")
    assert hub.asked == ["config.json"]


def test_an_encoder_in_the_cache_needs_no_hub(hub, tmp_path):
    hub.reachable = False
    repository, commit = tmp_path / "cache" / "models--someone--encoder", "0" * 40
    tiny.save_encoder(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert load_encoder("someone/encoder")[0].hidden_size == 32
    assert hub.asked == ["config.json"]


def test_what_the_hub_answers_is_told(hub):
    with pytest.raises(ValueError, match="someone/encoder is not a local folder and is not a valid model identifier"):
        load_encoder("someone/encoder")


def test_a_folder_needs_no_hub(hub, tmp_path, monkeypatch):
    tiny.save_encoder(tmp_path / "someone" / "encoder")
    monkeypatch.chdir(tmp_path)
    load_encoder("someone/encoder")
    assert not hub.asked


def test_the_packaged_encoder_is_the_published_one(monkeypatch):
    folder = packaged_encoder("all-MiniLM-L6-v2")
    assert packaged_encoder("sentence-transformers/all-MiniLM-L6-v2") == folder
    assert packaged_encoder("roberta-base") is None
    digest = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert digest == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    monkeypatch.setattr(abalone.encoder.load, "SHA256", "0" * 64)
    with pytest.raises(ValueError, match="are not those published as all-MiniLM-L6-v2: run pip install"):
        packaged_encoder("all-MiniLM-L6-v2")
