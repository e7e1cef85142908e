"""A run folder that somebody has edited or damaged."""

import made_up_runs
import pytest

from abalone.config import Config
from abalone.training.run import IDENTITY, enter_folder


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"fingerprint": 3, "settings": {}}', b"\xff", b"[" * 5000, b"9" * 5000]
)
def test_a_damaged_identity_is_told(tmp_path, content):
    corpus = made_up_runs.corpus()
    enter_folder(tmp_path, Config(), corpus, resume=False)
    enter_folder(tmp_path, Config(), corpus, resume=True)
    (tmp_path / IDENTITY).write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json is damaged, so whose run this is cannot be told: start anew"):
        enter_folder(tmp_path, Config(), corpus, resume=True)
