"""CRC-32C by the compiled part of the crc32c package alone.

On import, the package itself reads its version from the metadata of all installed packages, and loads a command line.
That takes longer than joining a group, and a checksum does not need it.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any


@cache
def crc32c_function() -> Callable[[Any], int]:
    """Return `crc32c(data, value=0)`. It uses hardware instructions if present, and releases the GIL."""
    home = PathFinder.find_spec("crc32c")
    places = home.submodule_search_locations if home is not None else None
    spec = PathFinder.find_spec("_crc32c", places) if places else None
    if spec is None or spec.loader is None:  # another layout of the package
        module = import_module("crc32c")
    else:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    function: Callable[[Any], int] = module.crc32c
    return function
