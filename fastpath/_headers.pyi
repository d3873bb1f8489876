from typing import NamedTuple

MOST_OFFSET: int

class HeaderLayout(NamedTuple):
    total: int
    present: memoryview
    offsets: memoryview
    name_offsets: memoryview
    names: memoryview
    value_offsets: memoryview
    values: memoryview
    validity: memoryview
