"""The sources that mutants are made of, and the folders of the tests that must kill them. The only list of either."""

SOURCES = (
    "coordinator_client/*.py",
    "fastpath/balance_py.py",  # the sticky balance core; tests hold its compiled twin to it
)
TESTS = ("tests/coordinator_client", "tests/assignors")
