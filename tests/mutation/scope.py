"""The sources that mutants are made of, and the folders of the tests that must kill them. The only list of either."""

SOURCES = (
    "coordinator_client/*.py",
    "coordinator_client/fetch/*.py",
    "coordinator_client/group/*.py",
    "coordinator_client/metrics/*.py",
    "coordinator_client/offsets/*.py",
    "network/*.py",
    "network/auth/*.py",
    "assignors/balance_py.py",  # the sticky balance core; tests hold its compiled twin to it
)
TESTS = ("tests/common", "tests/network", "tests/coordinator_client", "tests/assignors")
