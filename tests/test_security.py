"""What `SECURITY.md` promises of the code itself: none of it reads a pickle, runs what it reads, or unpacks to disk."""

import ast
from pathlib import Path

import pytest

import abalone

SOURCES = sorted(Path(abalone.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "imp"}
CALLS = {
    "torch.load": "may read a pickle; use safetensors",
    "joblib.load": "reads a pickle; use safetensors",
    "yaml.load": "runs what the file says; use yaml.safe_load",
    "yaml.full_load": "runs what the file says; use yaml.safe_load",
    "yaml.unsafe_load": "runs what the file says; use yaml.safe_load",
    "os.system": "runs a shell",
    "os.popen": "runs a shell",
    "eval": "runs what it is given",
    "exec": "runs what it is given",
    "shutil.unpack_archive": "unpacks to where the archive says; use abalone.data.streams",
}
METHODS = {"extract", "extractall"}  # of archives, which say themselves where their members go
NEEDED = {  # keyword arguments that a call must have, with that value
    "np.load": {"allow_pickle": False},
    "AutoConfig.from_pretrained": {"trust_remote_code": False},
    "AutoTokenizer.from_pretrained": {"trust_remote_code": False},
    "AutoModel.from_pretrained": {"trust_remote_code": False, "use_safetensors": True},
    "AutoModelForSequenceClassification.from_pretrained": {"trust_remote_code": False, "use_safetensors": True},
}


def faults(source: str) -> list[str]:
    """What a module does that none of ours may."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [f"imports {name}" for name in names if name.partition(".")[0] in MODULES]
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        given = {keyword.arg: getattr(keyword.value, "value", ...) for keyword in node.keywords}
        if called in CALLS:
            found.append(f"{called} {CALLS[called]}")
        if called.rpartition(".")[2] in METHODS:
            found.append(f"{called} unpacks to where the archive says")
        if given.get("shell"):
            found.append(f"{called} runs a shell")
        if (
            given.get("weights_only") is False
            or given.get("allow_pickle") is True
            or given.get("trust_remote_code") is True
        ):
            found.append(f"{called} is told to trust")
        needed = NEEDED.get(called, {})
        found += [
            f"{called} without {name}={value}" for name, value in needed.items() if given.get(name, ...) is not value
        ]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parent)))
def test_no_module_reads_a_pickle_or_runs_what_it_reads(path):
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('a.bin')",
        "torch.load('a.bin', weights_only=True)",
        "np.load('a.npy')",
        "np.load('a.npy', allow_pickle=True)",
        "numpy.load('a.npy', allow_pickle=True)",
        "yaml.load(text, Loader)",
        "AutoModel.from_pretrained(name)",
        "AutoModel.from_pretrained(name, trust_remote_code=False)",
        "AutoTokenizer.from_pretrained(name, trust_remote_code=True)",
        "eval('1')",
        "tar.extractall(folder)",
        "subprocess.run(line, shell=True)",
    ],
)
def test_each_of_these_would_be_found(source):
    assert faults(source)


def test_the_calls_that_matter_are_looked_at():
    """Else a new way of calling them would pass unseen."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]
    called = {ast.unparse(node.func) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {"AutoConfig.from_pretrained", "AutoModel.from_pretrained", "AutoTokenizer.from_pretrained"} <= called
    assert {"np.load", "yaml.safe_load"} <= called
