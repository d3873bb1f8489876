"""Positions, resets, commits, and requests about offsets."""
