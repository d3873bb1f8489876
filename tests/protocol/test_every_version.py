"""Every declared message in every version: what is written is read back, and both codecs write the same."""

from typing import Any

import pytest

from kohort.protocol.catalogue import API, APIS
from kohort.protocol.codec import Message

EVERY = [
    pytest.param(message, version, id=f"{message.name}-v{version}")
    for api in APIS
    for message in (api.request, api.response)
    for version in range(message.versions[0], message.versions[1] + 1)
]


@pytest.mark.parametrize(("message", "version"), EVERY)
def test_the_zero_value_survives_both_codecs(message: Message[Any], version: int) -> None:
    value = message.struct._zero()
    data = message.reference(version).write(value)
    assert message.reference(version).read(data, 0) == (value, len(data))
    assert message.build(value, version) == data
    assert message.parse(data, version) == value


def test_key_and_name_lead_to_the_same_api() -> None:
    assert [api.key for api in APIS] == sorted(key for key in API if isinstance(key, int))
    for api in APIS:
        assert API[api.key] is API[api.name] is api
        assert (api.request.key, api.response.key) == (api.key, api.key)
        assert api.request.versions == api.response.versions
