"""Speed and memory, as ratios to a plain implementation measured in the same run. `python -m benchmarks` runs all."""
