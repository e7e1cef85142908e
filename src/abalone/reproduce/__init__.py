"""The paper's tables and figures as data, and one runner that makes them for any corpus and encoder."""
