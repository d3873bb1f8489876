"""The cluster's brokers, their API versions, and the settings of brokers, topics and groups."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kohort.admin.admin_core import AdminRequest
from kohort.admin.describe_configs import BROKER, describe_configs, described_configs
from kohort.admin.request_driver import RequestDriver, first_of
from kohort.admin.topics import metadata, once_described
from kohort.common.version import __version__
from kohort.network.requests import Endpoint, VersionRanges
from kohort.protocol.apis.api_versions import ApiVersionsRequest
from kohort.protocol.apis.describe_configs import DescribeConfigsResult


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker, as advertised on the listener that the client uses."""

    node: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> str:
        """The advertised address, as host:port."""
        return f"{self.host}:{self.port}"


Configs = Mapping[str, str | None]
"""Current settings, by Kafka's names; None for a secret or without a value."""


def brokers(driver: RequestDriver) -> tuple[BrokerDescription, ...]:
    """Every running broker, by id, from the metadata of any broker."""
    found = sorted(metadata(driver, ()).brokers, key=lambda one: one.node_id)
    return tuple(BrokerDescription(one.node_id, one.host, one.port, one.rack) for one in found)


def versions(driver: RequestDriver, nodes: Sequence[BrokerDescription]) -> dict[int, VersionRanges]:
    """The API versions that each broker supports: {node: {API key: (lowest, highest)}}."""
    request = ApiVersionsRequest(client_software_name="kohort", client_software_version=__version__)
    responses = driver.all([AdminRequest("ApiVersions", request, _endpoint(one)) for one in nodes])
    return {
        one.node: {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        for one, response in zip(nodes, responses, strict=True)
    }


def broker_configs(
    driver: RequestDriver, nodes: Sequence[BrokerDescription], names: tuple[str, ...]
) -> dict[int, Configs]:
    """These settings of each broker, without those unknown to it. Raises AuthorizationFailed."""
    if not names:  # a broker would return all settings
        return {one.node: {} for one in nodes}
    responses = driver.all(
        [
            AdminRequest("DescribeConfigs", describe_configs(BROKER, [str(one.node)], names), _endpoint(one))
            for one in nodes
        ]
    )
    return {
        one.node: _values(first_of(response.results, "DescribeConfigs", broker=str(one.node)))
        for one, response in zip(nodes, responses, strict=True)
    }


def configs(driver: RequestDriver, kind: int, names: Iterable[str]) -> dict[str, Configs]:
    """All settings of each topic or group (`kind`: TOPIC or GROUP). Raises AuthorizationFailed."""
    wanted = sorted(set(names))
    results = once_described(driver, kind, wanted) if wanted else ()
    return {one.resource_name: _values(one) for one in results}


def _values(result: DescribeConfigsResult) -> Configs:
    return {one.name: one.value for one in described_configs(result)}


def _endpoint(one: BrokerDescription) -> Endpoint:
    return Endpoint(one.host, one.port)
