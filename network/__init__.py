"""Connections, metadata, settings and requests that all clients share."""
