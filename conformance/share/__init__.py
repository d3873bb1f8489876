"""Checks of share groups (KIP-932), and their scripted member."""
