"""Connections, metadata, settings and requests that consumer, producer and admin have in common."""
