"""Text of brokers, token issuers, producers and members, made safe to show: escaped, cut, and without secrets."""

from collections.abc import Iterable
from typing import Any

MOST_CHARACTERS = 300
"""Of a foreign text inside a message."""

MOST_NOTICE_CHARACTERS = 1_000

_LINES = {0x09: "\\t", 0x0A: "\\n"}
_ORDERS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in _LINES}
# Line and paragraph separators, and what changes the direction of the text that follows.
_LAYOUT = {code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))}


_BASE64 = "A-Za-z0-9+/_-"


class _Escapes(dict[int, str]):
    def __missing__(self, code: int) -> str:
        if 0xD800 <= code <= 0xDFFF:  # a lone surrogate, which no UTF-8 terminal or file takes
            return f"\\u{code:04x}"
        raise LookupError(code)


_IN_LINES = _Escapes(_ORDERS | _LAYOUT)
_IN_ONE_LINE = _Escapes(_ORDERS | _LAYOUT | _LINES)


def escaped(text: str, *, lines: bool = False) -> str:
    """`text` with control characters, separators, bidirectional controls and lone surrogates as escapes.

    `lines`: line breaks and tabs stay.
    """
    return text if text.isprintable() else text.translate(_IN_LINES if lines else _IN_ONE_LINE)


def exception_text(error: BaseException) -> str:
    """The kind and the text of an exception of a user's code. Its text may raise as well."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """At most `most` characters, with a note of how many are left out."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text) - most} more characters)"


def cut_inside(text: str, most: int) -> str:
    """As `cut`, but the end of the text is kept, and a part of its begin."""
    head = most // 4
    left_out = len(text) - most
    return text if left_out <= 0 else f"{text[:head]}... ({left_out} characters left out) ...{text[head - most :]}"


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """`text` with every secret as `***`, also where it is quoted for a URL, in hex or within base64.

    A secret may stand in base64 alone or behind other bytes; the longest spelling goes first.
    """
    import re  # loaded when a login failed
    from urllib.parse import quote, quote_plus

    spellings = dict[str, str]()
    for secret in filter(None, secrets):
        # The characters beside those of base64 hold bits of the secret too.
        spellings |= {spelling: f"[{_BASE64}]?{re.escape(spelling)}[{_BASE64}]?=*" for spelling in _in_base64(secret)}
        raw = secret.encode("utf-8", "surrogatepass")
        quoted = quote(secret, safe=""), quote(secret), quote_plus(secret), "".join(f"%{byte:02x}" for byte in raw)
        spellings |= {spelling: f"(?i:{re.escape(spelling)})" for spelling in (*quoted, raw.hex())}
        spellings[secret] = re.escape(secret)
    for spelling in sorted(spellings, key=len, reverse=True):
        text = re.sub(spellings[spelling], "***", text)
    return text


def _in_base64(secret: str) -> Iterable[str]:
    """The characters of base64 that depend on the secret alone, for each of its three places in a group."""
    import base64

    raw = secret.encode("utf-8", "surrogatepass")
    for before in range(3):
        # The first characters depend on what stands before the secret, the last ones on what follows.
        whole = base64.b64encode(bytes(before) + raw).decode()
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        if last - first >= 4:
            yield whole[first:last]
            yield whole[first:last].replace("+", "-").replace("/", "_")


def parsed_json(data: str | bytes, **options: Any) -> Any:
    """`json.loads`, with ValueError also for text that is nested too deeply for Python's parser."""
    import json

    try:
        return json.loads(data, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None
