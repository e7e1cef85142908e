"""`abalone serve` of a model that counts letters; with the argument `stuck`, of one that never answers.

It ends what is in flight after a second instead of half a minute, and closes no connection for being slow.
"""

import sys
from dataclasses import replace
from unittest.mock import patch

from running import LetterCounter

from abalone.cli import app
from abalone.serving import server
from abalone.serving.predictions import Served
from patience import PATIENCE

if __name__ == "__main__":
    server.LAST_ANSWERS = 1
    limits = replace(server.ConnectionLimits.affordable(), head_seconds=PATIENCE, reading_seconds=PATIENCE)
    model = LetterCounter()
    if "stuck" in sys.argv:
        model.may_go.clear()
    with (
        patch.object(server.ConnectionLimits, "affordable", lambda: limits),
        patch("abalone.cli.serve.read_model", lambda *_: Served("letters", model)),
    ):
        app(["serve", "letters", "--port", "0"])
