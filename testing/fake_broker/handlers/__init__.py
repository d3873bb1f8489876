"""One file an API key. The head of each lists its versions and what it leaves out."""

from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType
from typing import Any

from kohort.common.named_tuple import NamedTuple
from kohort.protocol.schema import Response
from kohort.testing.fake_broker.handler_context import Work
from kohort.testing.fake_broker.handlers import describe_configs, get_telemetry_subscriptions, push_telemetry


class Handler(NamedTuple):
    """The versions of an API, (lowest, highest), and its function. The function returns None if no response is due."""

    VERSIONS: tuple[int, int]
    handle: Callable[[Work, Any], Awaitable[Response | None]]


_MODULES = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
HANDLERS: Mapping[int, Handler] = MappingProxyType(
    {module.KEY: Handler(module.VERSIONS, module.handle) for module in sorted(_MODULES, key=lambda one: one.KEY)}
)

UNASKED: frozenset[int] = frozenset({get_telemetry_subscriptions.KEY, push_telemetry.KEY, describe_configs.KEY})
"""Offered only if a test enables them: telemetry as by brokers only with a plugin, and settings of groups only."""
