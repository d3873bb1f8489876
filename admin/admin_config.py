"""The admin's settings: those of connections and security, and the time that a call may take."""

from kohort.network.client_config import DEFAULT_API_TIMEOUT_MS, ClientConfig


class AdminConfig(ClientConfig):
    """A checked set of settings."""

    default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS
