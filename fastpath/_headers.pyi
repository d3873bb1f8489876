from typing import NamedTuple

class HeaderLayout(NamedTuple):
    total: int
    present: memoryview
    offsets: memoryview
    name_offsets: memoryview
    names: memoryview
    value_offsets: memoryview
    values: memoryview
    validity: memoryview
