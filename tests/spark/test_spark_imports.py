"""Modules that Spark loads again and again stay light: it starts a Python to check options, another to plan, and so
on."""

import subprocess
import sys


def test_checking_options_needs_no_consumer() -> None:
    code = (
        "import sys; from kohort.spark.source import KohortSource\n"
        "options = {'kafka.bootstrap.servers': 'b:1', 'subscribe': 't'}\n"
        "KohortSource(options).reader(KohortSource(options).schema())\n"
        "print([name for name in sys.modules if name in ('kohort.coordinator_client.consumer', 'asyncio')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
