"""CRC-32C by the crc32c package's compiled part alone.

The package itself, when it is imported, looks its own version up in the metadata of all that is installed, and loads a
command line: longer than joining a group takes. Nothing of that is needed to compute a checksum.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any


@cache
def crc32c_function() -> Callable[[Any], int]:
    """`crc32c(data, value=0)`: hardware instructions where there are any; releases the GIL."""
    home = PathFinder.find_spec("crc32c")
    places = home.submodule_search_locations if home is not None else None
    spec = PathFinder.find_spec("_crc32c", places) if places else None
    if spec is None or spec.loader is None:  # packaged in another way
        module = import_module("crc32c")
    else:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    function: Callable[[Any], int] = module.crc32c
    return function
