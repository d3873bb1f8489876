"""The classes of error codes of transactions (KIP-1050), compared with the exceptions in Kafka's jar."""

import struct
import zipfile

import pytest

from kohort.producer.transaction_manager import ERROR_CLASSES, TransactionErrorClass
from kohort.protocol.errors import error_name
from kohort.testing import jars

PACKAGE = "org/apache/kafka/common/errors/"
ABRIDGED = {
    "InvalidProducerIdMapping": "InvalidPidMapping",
    "InvalidTransactionTimeout": "InvalidTxnTimeout",
    "TransactionalIdAuthorizationFailed": "TransactionalIdAuthorization",
    "ClusterAuthorizationFailed": "ClusterAuthorization",
}
OF_KAFKA = {
    "RefreshRetriableException": TransactionErrorClass.REFRESH_RETRIABLE,
    "RetriableException": TransactionErrorClass.RETRIABLE,
    "TransactionAbortableException": TransactionErrorClass.ABORTABLE,
    "ApplicationRecoverableException": TransactionErrorClass.APPLICATION_RECOVERABLE,
    "InvalidConfigurationException": TransactionErrorClass.INVALID_CONFIGURATION,
    "ApiException": TransactionErrorClass.FATAL,
}
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


def parent(data: bytes) -> str:
    """The name of a class file's superclass."""
    (count,) = struct.unpack_from(">H", data, 8)
    texts: dict[int, str] = {}
    names: dict[int, int] = {}
    at, number = 10, 1
    while number < count:
        tag = data[at]
        if tag == 1:
            (size,) = struct.unpack_from(">H", data, at + 1)
            texts[number] = data[at + 3 : at + 3 + size].decode(errors="replace")
            at += 3 + size
        else:
            if tag == 7:
                (names[number],) = struct.unpack_from(">H", data, at + 1)
            at += 1 + SIZES[tag]
        number += 2 if tag in (5, 6) else 1
    (found,) = struct.unpack_from(">H", data, at + 4)
    return texts[names[found]].rpartition("/")[2]


@pytest.fixture(scope="module")
def jar() -> zipfile.ZipFile:
    (found,) = [one for one in jars.clients("4.3.1") if one.name == "kafka-clients-4.3.1.jar"]
    return zipfile.ZipFile(found)


@pytest.mark.parametrize("code", sorted(ERROR_CLASSES), ids=error_name)
def test_a_code_is_of_the_class_of_its_exception(code: int, jar: zipfile.ZipFile) -> None:
    words = "".join(word.capitalize() for word in error_name(code).split("_"))
    name = ABRIDGED.get(words, words) + "Exception"
    while name not in OF_KAFKA:
        name = parent(jar.read(f"{PACKAGE}{name}.class"))
    assert ERROR_CLASSES[code] is OF_KAFKA[name]
