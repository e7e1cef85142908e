"""The command `abalone`.

A command is a module of this package that decorates a function with `@app.command()`, and a line below that
imports the module. A command imports what it needs when it runs, so that `abalone --help` answers at once.
"""

from abalone.cli import demo as demo
from abalone.cli import evaluate as evaluate
from abalone.cli import export as export
from abalone.cli import predict as predict
from abalone.cli import report as report
from abalone.cli import reproduce as reproduce
from abalone.cli import review as review
from abalone.cli import serve as serve
from abalone.cli import stats as stats
from abalone.cli import train as train
from abalone.cli.app import app as app
