"""Permissions on a broker whose plaintext listener may grant them, by librdkafka."""

from typing import Any

from kohort.testing import RealBroker

ALICE = "User:alice"


def rule(kind: str, name: str, principal: str = ALICE) -> Any:
    from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

    return AclBinding(
        ResourceType[kind], name, ResourcePatternType.LITERAL, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW
    )


def allow(broker: RealBroker, kind: str, name: str, principal: str = ALICE) -> None:
    """Everything that can be done with a TOPIC, a GROUP, a TRANSACTIONAL_ID or the BROKER."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_acls([rule(kind, name, principal)]).values():
        future.result(120)


def forbid(broker: RealBroker, kind: str, name: str) -> None:
    """Take it away again."""
    from confluent_kafka.admin import AclBindingFilter, AdminClient

    binding = rule(kind, name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    one = AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
    for future in admin.delete_acls([one]).values():
        future.result(120)
