"""Values by the addresses of brokers. A client that runs for long sees any number of addresses."""

from typing import Final, TypeVar

from kohort.network.requests import Endpoint

V = TypeVar("V")
MOST_ADDRESSES: Final = 1_000


class AddressTable(dict[Endpoint, V]):
    """The values of the 1,000 addresses that were set last."""

    def __setitem__(self, endpoint: Endpoint, value: V) -> None:
        self.pop(endpoint, None)
        if len(self) >= MOST_ADDRESSES:
            del self[next(iter(self))]
        super().__setitem__(endpoint, value)
