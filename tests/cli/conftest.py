"""What the tests of several commands begin with."""

import pytest

import tiny
from train_command import DOCUMENTS, SETTINGS


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A folder with a corpus, an encoder and a configuration to train with."""
    return tiny.workshop(tmp_path_factory.mktemp("workshop"), DOCUMENTS, SETTINGS)


@pytest.fixture
def cache(workshop, monkeypatch):
    """The cache in that folder."""
    monkeypatch.setenv("ABALONE_CACHE", str(workshop / "cache"))
