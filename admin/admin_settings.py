"""The settings of an admin by name and type. Made by `make docs` from `AdminConfig`."""

from kohort.network.client_settings import ClientSettings


class AdminSettings(ClientSettings, total=False):
    """Keyword arguments of an admin."""

    default_api_timeout_ms: int
    """Time-out of calls without a timeout argument."""
