"""The paper's tables and figures, for any corpus and encoder. Only `cli/reproduce.py` imports this package."""
