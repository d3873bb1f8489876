"""The admin's settings: those of connections and security, and the time that a call may take."""

from kohort.network.client_config import BOOTSTRAP_TIMEOUT_MS, DEFAULT_API_TIMEOUT_MS, ClientConfig


class AdminConfig(ClientConfig):
    """A checked set of settings. Make it with `AdminConfig.of(**settings)` or `AdminConfig.from_kafka({...})`.

    Both raise ConfigError for an unknown name, a wrong type, a value out of bounds, and settings that contradict each
    other.
    """

    bootstrap_timeout_ms: int = BOOTSTRAP_TIMEOUT_MS
    default_api_timeout_ms: int = DEFAULT_API_TIMEOUT_MS
