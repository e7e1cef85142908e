"""How long tests wait for what must happen."""

# Seconds of the clock, and so many that only what never happens takes them, however slow or busy the machine. Nothing
# is held to be fast by it: work is bounded by what a neighbour does not change, such as CPU time (see `fuzzing.py`).
# pytest's own limit, `faulthandler_timeout` in pyproject.toml, is longer, so that a test can say what it waited for.
PATIENCE = 1200.0
