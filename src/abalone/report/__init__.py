"""The HTML report, and charts of the long tail."""
