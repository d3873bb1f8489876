"""Bearer tokens from the user's function or an OpenID Connect issuer.

The issuer is called with client credentials (RFC 6749 4.4), on a separate thread, because it may take long. The result
is a token or one error. AuthenticationFailed means that a retry cannot succeed. The one request, a form sent by POST
without redirections, is made by the standard library. Only brokers check tokens.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kohort.common import KohortError
from kohort.common.foreign_text import cut, parsed_json, scrubbed
from kohort.common.whole_number import whole
from kohort.network.auth.security_config import LOOPBACK, SecurityConfig
from kohort.network.auth.token_refresh import Token
from kohort.network.errors import AuthenticationFailed, ConfigError, TokenUnavailable

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector, Request

MOST_RESPONSE_BYTES = 1 << 20
LATEST_S = 1e11  # in the year 5138
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")  # RFC 6750; any other character could change the message around the token
_NAME = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")

ALLOWED_URLS = "KOHORT_SASL_OAUTH_ALLOWED_URLS"
"""The environment variable that takes the place of `sasl_oauth_allowed_urls`."""


def check(config: SecurityConfig) -> None:
    """Raises ConfigError for settings from which no token can come."""
    if (config.sasl_oauth_token is None) == (config.sasl_oauth_token_endpoint_url is None):
        raise ConfigError(
            "OAUTHBEARER needs sasl_oauth_token or sasl_oauth_token_endpoint_url, and not both",
            setting="sasl_oauth_token",
        )
    extensions_of(config.sasl_oauth_extensions)
    if config.sasl_oauth_token_endpoint_url is not None:
        _check_endpoint(config, config.sasl_oauth_token_endpoint_url)


def _check_endpoint(config: SecurityConfig, url: str) -> None:
    from urllib.parse import urlsplit

    if config.sasl_oauth_client_id is None or config.sasl_oauth_client_secret is None:
        raise ConfigError(
            "sasl_oauth_token_endpoint_url needs sasl_oauth_client_id and sasl_oauth_client_secret",
            setting="sasl_oauth_client_id",
        )
    setting = "sasl_oauth_token_endpoint_url"
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
    except ValueError:
        host = user = None
    if not host or user is not None or parts.scheme not in ("http", "https"):
        raise ConfigError(
            f"{setting} is not a valid URL", hint="use https://HOST/PATH, without a user", setting=setting
        )
    if parts.scheme == "http" and host not in LOOPBACK:
        raise ConfigError(
            f"{setting} would carry the client's secret in the clear", hint="use https://", setting=setting
        )
    # Settings may come from other users, but only the deployment sets the environment.
    deployed = os.environ.get(ALLOWED_URLS)
    if deployed is not None and url not in [one.strip() for one in deployed.split(",")]:
        raise ConfigError(
            f"{setting} is not in the environment variable {ALLOWED_URLS}",
            hint="the deployment allows token endpoints there, with commas between them",
            setting=setting,
        )
    if deployed is None and url not in config.sasl_oauth_allowed_urls:
        raise ConfigError(
            f"{setting} is not in sasl_oauth_allowed_urls",
            hint="if it is yours, allow it there: the client's secret is sent to it",
            setting=setting,
        )


def extensions_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """SASL extensions of "name=value" each (KIP-342). Raises ConfigError."""
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if wrong := wrong_extension(found):
        raise ConfigError(f"sasl_oauth_extensions: {wrong}", hint='write "name=value"', setting="sasl_oauth_extensions")
    return found


def wrong_extension(extensions: Mapping[Any, Any]) -> str | None:
    """The reason why RFC 7628 does not allow the extensions, or None."""
    for name, value in extensions.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "auth":
            return f"{name!r} is no name of an extension"
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            return f"{name} has no value that can be sent"
    return None


def fetch(config: SecurityConfig, wall_ms: Callable[[], int]) -> Token | KohortError:
    """A token, or the error. Never raises, since no code waits for its thread."""
    source = _from_function if config.sasl_oauth_token is not None else _from_endpoint
    try:
        return source(config, wall_ms)
    except KohortError as error:
        return error
    except BaseException as problem:
        return _because(problem, f"no token: {type(problem).__name__}", "please report it")


# --- the user's function


def _from_function(config: SecurityConfig, wall_ms: Callable[[], int]) -> Token | KohortError:
    try:
        made = config.sasl_oauth_token()
    except BaseException as problem:
        text = f"sasl_oauth_token raised {type(problem).__name__}"
        return _because(problem, text, "what it raised is this error's cause")
    value, expires_at, extensions = (*made, None, None)[:3] if isinstance(made, tuple) else (made, None, None)
    if hasattr(made, "__await__"):
        getattr(made, "close", lambda: None)()
        return _unusable("a coroutine", "give a plain function: it is called on a thread of its own and may wait")
    if not isinstance(value, str):
        return _unusable(type(value).__name__, "a token as str, (token, expires_at) or (token, expires_at, extensions)")
    if not _TOKEN.fullmatch(value):
        return _unusable("what is no bearer token", "letters, digits and -._~+/ (RFC 6750), nothing around them")
    if expires_at is not None and (isinstance(expires_at, bool) or not isinstance(expires_at, int | float)):
        return _unusable(
            f"an expiry of type {type(expires_at).__name__}", "seconds since 1970, as time.time() has them"
        )
    if extensions is not None and (not isinstance(extensions, Mapping) or wrong_extension(extensions)):
        return _unusable("extensions that cannot be sent", "a dict of names (letters only) to values of ASCII")
    chosen = extensions_of(config.sasl_oauth_extensions) if extensions is None else dict(extensions)
    return Token(value, _left_s(value, expires_at, wall_ms()), chosen)


def _because(problem: BaseException, text: str, hint: str) -> TokenUnavailable:
    error = TokenUnavailable(text, hint=hint)
    error.__cause__ = problem
    return error


def _unusable(what: str, hint: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"sasl_oauth_token returned {what}", hint=hint)


def _left_s(value: str, expires_at: float | None, wall_ms: int) -> float | None:
    """The remaining lifetime (s): as given, or from the `exp` of a JWT. None if it is unknown."""
    if expires_at is None:
        expires_at = _claimed_expiry(value)
    expires_at = _believed(expires_at)
    return None if expires_at is None else expires_at - wall_ms / 1000


def _believed(seconds: float | None) -> float | None:
    """Limit the seconds of a JSON response. NaN and extreme numbers would end the driver, or make its waits wrong."""
    return None if seconds is None or seconds != seconds else float(max(-LATEST_S, min(seconds, LATEST_S)))


def _claimed_expiry(value: str) -> float | None:
    import base64
    import binascii

    parts = value.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parsed_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    expires_at = claims.get("exp") if isinstance(claims, dict) else None
    return expires_at if isinstance(expires_at, int | float) and not isinstance(expires_at, bool) else None


# --- an issuer's token endpoint


def _from_endpoint(config: SecurityConfig, wall_ms: Callable[[], int]) -> Token | KohortError:
    from http.client import HTTPException
    from urllib.error import HTTPError

    url = config.sasl_oauth_token_endpoint_url or ""
    try:
        with _opener(config, url).open(_request(config, url), timeout=config.sasl_oauth_timeout_ms / 1000) as response:
            body = response.read(MOST_RESPONSE_BYTES + 1)
    except HTTPError as problem:
        return _said_no(config, url, problem)
    except (OSError, HTTPException) as problem:
        return _unreachable(config, url, problem)
    responded = _object(body)
    value = responded.get("access_token")
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        return AuthenticationFailed(
            "the response of the token endpoint has no bearer token",
            hint="check sasl_oauth_token_endpoint_url",
            url=url,
        )
    lifetime_s = responded.get("expires_in")
    if isinstance(lifetime_s, str):
        lifetime_s = whole(lifetime_s)
    if isinstance(lifetime_s, bool) or not isinstance(lifetime_s, int | float):
        lifetime_s = _left_s(value, None, wall_ms())
    return Token(value, _believed(lifetime_s), extensions_of(config.sasl_oauth_extensions))


def _request(config: SecurityConfig, url: str) -> "Request":
    import base64
    from urllib.parse import quote_plus, urlencode
    from urllib.request import Request

    client, secret = config.sasl_oauth_client_id or "", config.sasl_oauth_client_secret or ""
    if config.sasl_oauth_header_urlencode:
        client, secret = quote_plus(client), quote_plus(secret)
    form = {"grant_type": "client_credentials"} | (
        {"scope": config.sasl_oauth_scope} if config.sasl_oauth_scope else {}
    )
    headers = {
        "Authorization": "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode(),
        "Accept": "application/json",
        "User-Agent": "kohort",
    }
    return Request(url, urlencode(form).encode(), headers, method="POST")


def _opener(config: SecurityConfig, url: str) -> "OpenerDirector":
    """Open URLs without following redirections, which could leave the allowed URLs, and without a proxy for this
    machine.
    """
    import ssl
    from urllib.parse import urlsplit
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

    class Stay(HTTPRedirectHandler):
        def redirect_request(self, *_details: object) -> None:
            return None

    try:
        context = ssl.create_default_context(cafile=config.sasl_oauth_ca_path)
    except OSError as problem:
        raise AuthenticationFailed(
            f"sasl_oauth_ca_path cannot be used: {problem.strerror or type(problem).__name__}",
            hint="name a PEM file of authorities",
            path=config.sasl_oauth_ca_path,
        ) from None
    proxies = ProxyHandler({}) if urlsplit(url).hostname in LOOPBACK else ProxyHandler()
    return build_opener(Stay, proxies, HTTPSHandler(context=context))


def _secrets(config: SecurityConfig) -> tuple[str, ...]:
    """The client's secret, alone and as Basic authentication sends it (RFC 6749 2.3.1)."""
    from urllib.parse import quote_plus

    name, secret = config.sasl_oauth_client_id or "", config.sasl_oauth_client_secret or ""
    return (secret, f"{name}:{secret}", f"{quote_plus(name)}:{quote_plus(secret)}") if secret else ()


def _said_no(config: SecurityConfig, url: str, problem: "HTTPError") -> KohortError:
    with problem:
        try:
            responded = _object(problem.read(MOST_RESPONSE_BYTES))
        except OSError:
            responded = {}
    said = ": ".join(str(responded[name]) for name in ("error", "error_description") if name in responded)
    said = cut(scrubbed(said, _secrets(config)))
    text = f"the token endpoint responded with {problem.code}{f' ({said})' if said else ''}"
    if problem.code in TEMPORARY:
        return TokenUnavailable(text, url=url)
    if 300 <= problem.code < 400:
        return AuthenticationFailed(text, hint="redirections are not followed: give the address itself", url=url)
    hint = "check sasl_oauth_client_id, sasl_oauth_client_secret and sasl_oauth_scope"
    return AuthenticationFailed(text, hint=hint if problem.code != 404 else "check the URL", url=url)


def _unreachable(config: SecurityConfig, url: str, problem: Exception) -> KohortError:
    import ssl

    reason = getattr(problem, "reason", problem)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return AuthenticationFailed(
            f"the token endpoint's certificate is not good: {reason.verify_message}",
            hint="check sasl_oauth_ca_path, and that the certificate names this host",
            url=url,
        )
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    text = cut(scrubbed(text, _secrets(config)))  # http.client quotes a status line that it cannot read
    return TokenUnavailable(
        f"the token endpoint cannot be reached: {text}", hint="check that the issuer runs and can be reached", url=url
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = parsed_json(body) if len(body) <= MOST_RESPONSE_BYTES else None
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
