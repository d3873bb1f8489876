"""The poll of several parts of a client: all their requests in order, and the earliest time that is still to come."""

import pytest

from kohort.network.request_manager import earliest, poll_all
from kohort.network.requests import ConnectionPurpose, PendingRequest, PollResult, UnsentRequest


class Part:
    """Returns one request and a time."""

    def __init__(self, api: str, next_poll_at: float | None) -> None:
        request = PendingRequest(api, None, lambda _outcome, _now: None, 1.0)
        self.result = PollResult((UnsentRequest(ConnectionPurpose.CONTROL, None, request),), next_poll_at)

    def poll(self, _now: float) -> PollResult:
        return self.result


@pytest.mark.parametrize(
    ("times", "found"),
    [((), None), ((None,), None), ((9.0, 10.0), None), ((None, 9.0, 12.0, 11.0), 11.0), ((float("-inf"), 12.0), 12.0)],
)
@pytest.mark.proves("I14")
def test_a_time_that_has_passed_hides_no_later_one(times: tuple[float | None, ...], found: float | None) -> None:
    assert earliest(10.0, times) == found


def test_requests_of_all_parts_are_returned_in_the_order_of_the_parts() -> None:
    result = poll_all((Part("A", None), Part("B", 12.0), Part("C", 11.0)), 10.0)
    assert [one.request.api for one in result.requests] == ["A", "B", "C"]
    assert (result.next_poll_at, result.job) == (11.0, None)
