"""`pytest tests/conformance --bootstrap HOST:PORT` judges that broker; without it, the one the test session starts."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bootstrap", default="", help="the broker to run the conformance checks against")
