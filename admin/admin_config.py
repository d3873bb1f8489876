"""The admin's settings: those of connections and security, and the time that a call may take."""

from kohort.network.client_config import BOOTSTRAP_TIMEOUT_MS, DEFAULT_API_TIMEOUT_MS, ClientConfig


class AdminConfig(ClientConfig):
    """A checked set of settings."""

    bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS
    default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS
