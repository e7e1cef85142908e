"""`abalone serve` of a model that counts letters; with the argument `stuck`, of one that never answers.

It ends what is in flight after a second instead of half a minute.
"""

import sys
from unittest.mock import patch

from running import LetterCounter

from abalone.cli import app
from abalone.serving import server
from abalone.serving.predictions import Served

if __name__ == "__main__":
    server.LAST_ANSWERS = 1
    model = LetterCounter()
    if "stuck" in sys.argv:
        model.may_go.clear()
    with patch("abalone.cli.serve.read_model", lambda *_: Served("letters", model)):
        app(["serve", "letters", "--port", "0"])
