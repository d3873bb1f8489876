"""Ours and the peers, in one run on one machine: `python -m benchmarks [name ...]`."""
