"""Fetch sessions, Fetch requests, and the buffer of records that have not been polled."""
