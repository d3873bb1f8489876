"""Fetch sessions, requests, and the buffer of what was fetched and not yet polled."""
