"""Errors, values and text that every layer shares. Imports nothing else of kohort."""
