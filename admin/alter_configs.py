"""Changes settings of groups (KIP-848, KIP-932, KIP-1071)."""

from collections.abc import Mapping
from typing import Final

from kohort.admin.describe_configs import GROUP
from kohort.admin.request_driver import RequestDriver
from kohort.network.errors import AuthorizationFailed, ConfigError
from kohort.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.protocol.errors import BrokerError, ErrorCode

SET, DELETE = 0, 1
REFUSED: Final = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def alter_group_configs(driver: RequestDriver, group: str, configs: Mapping[str, str | None]) -> None:
    """Set settings of a group, which need not exist; None returns one to its default.

    Raises ConfigError for an unknown name or a value outside of the broker's bounds.
    """
    changes = tuple(
        AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
        for name, value in sorted(configs.items())
    )
    request = IncrementalAlterConfigsRequest(
        resources=(AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=changes),),
        validate_only=False,
    )
    response = driver.of_controller(
        "IncrementalAlterConfigs", request, codes=lambda found: [one.error_code for one in found.responses]
    )
    for one in response.responses:
        if one.error_code == ErrorCode.INVALID_CONFIG:
            said = f": {one.error_message}" if one.error_message else ""
            hint = "list names and values with `kohort group configs`"
            raise ConfigError(f"the broker refuses the setting{said}", hint=hint, group=group)
        if one.error_code in REFUSED:
            raise AuthorizationFailed("not allowed to change settings", hint="grant ALTER_CONFIGS on it", group=group)
        if one.error_code:
            raise BrokerError(one.error_code, one.error_message, api="IncrementalAlterConfigs", group=group)
