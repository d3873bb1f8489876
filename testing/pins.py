"""sha256 of jars that this library was tried with, by file name: a mirror that serves another one is refused."""

from collections.abc import Mapping

PINS: Mapping[str, str] = {}
