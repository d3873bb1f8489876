"""Translates security settings of Java clients: a JAAS line, and key and trust stores in PEM.

Spark's own Kafka source passes `kafka.` options to a Java client. Jobs that move from it have
`kafka.sasl.jaas.config` and `kafka.ssl.truststore.location`, which only Java clients have.
"""

import re
from collections.abc import Mapping
from typing import Any

from kohort.spark.errors import TAPE_REFUSED, OptionError

_LOGIN = re.compile(
    r"^\s*(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)\b(?P<rest>.*?);?\s*$", re.DOTALL
)
_PAIR = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|(\S+))")
_PASSWORD = {"username": "sasl.username", "password": "sasl.password"}
# By login module: its required options -> Kafka's settings.
_MODULES: Mapping[str, Mapping[str, str]] = {
    "PlainLoginModule": _PASSWORD,
    "ScramLoginModule": _PASSWORD,
    "OAuthBearerLoginModule": {
        "clientId": "sasl.oauthbearer.client.credentials.client.id",
        "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    },
}
# Java's Kerberos module: a switch, the option with its file, and the setting for the file.
_KERBEROS = (
    ("useKeyTab", "keyTab", "sasl.kerberos.keytab"),
    ("useTicketCache", "ticketCache", "kohort.sasl.kerberos.ccache"),
)
_KERBEROS_NAMES = {"principal": "sasl.kerberos.principal", "serviceName": "sasl.kerberos.service.name"}
_OAUTH_SCOPE, _OAUTH_EXTENSION = "scope", "extension_"
_OAUTH_HANDLER = "sasl.login.callback.handler.class"
# Kafka's prefix of a PEM store's settings -> the settings for its content.
_STORES = {
    "ssl.truststore": ("ssl.ca.location",),
    "ssl.keystore": ("ssl.certificate.location", "ssl.key.location"),
}
# Settings of Java's implementation, without effect here.
_MEANINGLESS = frozenset(
    {
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.provider",
        "security.providers",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)


def by_lower_name(options: Mapping[str, Any]) -> dict[str, str]:
    """Options by their names in lower case. Numbers of Kafka's settings become text, as by `DataFrameWriter.option`.

    Raises OptionError for any other value that is no string.
    """
    found = {}
    for name, value in options.items():
        lower = str(name).lower()
        is_kafkas = lower.startswith("kafka.")
        if is_kafkas and isinstance(value, int | float):
            value = str(value).lower()
        if not isinstance(value, str):
            shown = type(value).__name__ if is_kafkas else repr(value)  # it may be a password
            raise OptionError(f"{name} must be a string, not {shown}", option=name)
        found[lower] = value
    return found


def kafka_settings(options: Mapping[str, str]) -> dict[str, str]:
    """The settings in the `kafka.` options of a reader or writer. Raises OptionError without brokers, or for a tape."""
    if "kafka.bootstrap.servers" not in options:
        raise OptionError(
            "no broker is named",
            hint='set option("kafka.bootstrap.servers", "host:port")',
            option="kafka.bootstrap.servers",
        )
    if "kafka.kohort.tape" in options:
        raise OptionError(TAPE_REFUSED, hint="omit it", option="kafka.kohort.tape")
    return in_our_words({name.removeprefix("kafka."): v for name, v in options.items() if name.startswith("kafka.")})


def in_our_words(properties: Mapping[str, str]) -> dict[str, str]:
    """Translate settings that only Java clients have. Raises OptionError if there is no equivalent setting."""
    found = {name: value for name, value in properties.items() if name not in _MEANINGLESS}
    if (line := found.pop("sasl.jaas.config", None)) is not None:
        found |= _login(line)
    if found.get(_OAUTH_HANDLER, "").endswith(".OAuthBearerLoginCallbackHandler"):
        del found[_OAUTH_HANDLER]  # a token endpoint has the same effect here
    for store, names in _STORES.items():
        place, kind = found.pop(f"{store}.location", None), found.pop(f"{store}.type", "JKS")
        if place is None:
            continue
        if kind.upper() != "PEM":
            raise OptionError(
                f"a {kind} store can only be read by Java",
                hint=f"export it as PEM (keytool, openssl pkcs12) and add kafka.{store}.type=PEM, or set "
                + " and ".join(f"kafka.{name}" for name in names),
                option=f"kafka.{store}.location",
            )
        found |= dict.fromkeys(names, place)
    if "ssl.endpoint.identification.algorithm" in found:
        checks = found.pop("ssl.endpoint.identification.algorithm") != ""
        found["kohort.ssl.check.hostname"] = str(checks).lower()
    return found


def _login(line: str) -> dict[str, str]:
    parsed = _LOGIN.match(line)
    module = parsed["module"].rpartition(".")[2] if parsed else ""
    pairs = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in _PAIR.findall(parsed["rest"] if parsed else "")
    }
    if module == "Krb5LoginModule":
        return _kerberos(pairs)
    needed = _MODULES.get(module)
    if needed is None or not needed.keys() <= pairs.keys():
        # The line itself holds a password and is not shown.
        wanted = " and ".join(needed or ("username", "password"))
        raise OptionError(
            f"{module or 'the JAAS line'} is not supported, or has no {wanted}",
            hint=f"use {', '.join(_MODULES)} or Krb5LoginModule, or set kafka.sasl.username and kafka.sasl.password",
            option="kafka.sasl.jaas.config",
        )
    found = {setting: pairs[name] for name, setting in needed.items()}
    if needed is not _PASSWORD:
        extensions = [
            f"{name.removeprefix(_OAUTH_EXTENSION)}={value}"
            for name, value in pairs.items()
            if name.startswith(_OAUTH_EXTENSION)
        ]
        found |= {"sasl.oauthbearer.scope": pairs[_OAUTH_SCOPE]} if _OAUTH_SCOPE in pairs else {}
        found |= {"sasl.oauthbearer.extensions": ",".join(extensions)} if extensions else {}
    return found


def _kerberos(pairs: Mapping[str, str]) -> dict[str, str]:
    on = [(file, setting) for switch, file, setting in _KERBEROS if pairs.get(switch, "").lower() == "true"]
    if not on:
        raise OptionError(
            "Krb5LoginModule without a keytab or a ticket cache would prompt for a password",
            hint="set useKeyTab=true with keyTab and principal, or useTicketCache=true",
            option="kafka.sasl.jaas.config",
        )
    # As in Java, the keytab is used if the cache has no ticket. krb5 keeps a keytab's tickets in a separate cache.
    named = [(setting, pairs[file]) for file, setting in on if file in pairs][:1]
    return dict(named) | {setting: pairs[name] for name, setting in _KERBEROS_NAMES.items() if name in pairs}
