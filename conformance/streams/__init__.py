"""Checks of streams groups (KIP-1071), and their scripted member."""
