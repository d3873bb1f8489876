"""What a Python worker keeps between tasks: in a process of its own, because it changes the process."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

ARCHIVES = ("pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.0.jar", "a_users.zip")
SETTLES = """
import gc, json, sys
from kohort.spark.worker import settle

def archives():
    return sorted({finder.archive.rpartition("/")[2] for finder in cached() if hasattr(finder, "archive")})

def cached():
    return sys.path_importer_cache.values()

sys.path += sys.argv[1:]
import inside_0, inside_1, inside_2, inside_3, package_0.inside
before, frozen_before = archives(), gc.get_freeze_count()
settle()
after, frozen = archives(), gc.get_freeze_count()
import package_0.later, package_1.later
settle()
print(json.dumps([before, after, frozen_before, frozen > 1000, gc.get_freeze_count() == frozen, archives()]))
"""


def test_sparks_own_archives_are_forgotten_and_a_users_are_not(tmp_path: Path) -> None:
    for number, name in enumerate(ARCHIVES):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr(f"inside_{number}.py", "")
            for module in ("__init__", "inside", "later"):
                archive.writestr(f"package_{number}/{module}.py", "")
    command = [sys.executable, "-c", SETTLES, *(str(tmp_path / name) for name in ARCHIVES)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    before, after, frozen_before, is_frozen, frozen_once, in_the_end = json.loads(done.stdout)
    assert (before, after) == (sorted(ARCHIVES), ["a_users.zip"])
    # What Spark brought is still found when something is imported from it, and forgotten again.
    assert (frozen_before, is_frozen, frozen_once, in_the_end) == (0, True, True, after)
