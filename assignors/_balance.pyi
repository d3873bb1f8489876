"""The sticky core, compiled: the same functions as `balance_py.py`, which documents them.

Arguments are buffers of the item type named by `array`: "i" everywhere, "q" for `generations`. Rows that contradict
each other raise `ValueError`.
"""

from array import array

NOBODY: int

def settle_claims(size: int, stops: array[int], claims: array[int], generations: array[int]) -> array[int]: ...
def count_classes(class_of: array[int], kinds: int) -> array[int]: ...
def count_owned(
    owners: array[int], class_of: array[int], stops: array[int], edge_members: array[int]
) -> array[int]: ...
def balance(
    supplies: array[int],
    stops: array[int],
    edge_members: array[int],
    owned: array[int],
    far: array[int],
    weights: array[int],
) -> array[int]: ...
def place(
    supplies: array[int],
    stops: array[int],
    edge_members: array[int],
    owned: array[int],
    far: array[int],
    loads: array[int],
) -> array[int]: ...
def deal(
    owners: array[int],
    class_of: array[int],
    stops: array[int],
    edge_members: array[int],
    owned: array[int],
    flow: array[int],
) -> array[int]: ...
def withhold(owners: array[int], previous: array[int], stops: array[int], claims: array[int]) -> array[int]: ...
def group_by_owner(owners: array[int], members: int) -> tuple[array[int], array[int]]: ...
def encode_rows(names: list[bytes], starts: array[int], row: array[int]) -> bytes: ...
def decode_rows(data: bytes, at: int, numbers: dict[bytes, int], starts: array[int]) -> tuple[array[int], int]: ...
