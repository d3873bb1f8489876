"""Runs one command and ends it when the process that started the supervisor is gone, even by SIGKILL.

Started as a script of its own, with the standard library only and a pipe as its standard input. The pipe's end, or a
new parent, means that the starting process died: the command is killed and its scratch folder removed. A child
forked by the starting process may hold the pipe open for longer, hence the second sign.

    python -I -S supervisor.py ASKER_PID FOLDER_TO_REMOVE COMMAND...        (an empty folder name removes nothing)
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

LOOK_EVERY_S = 0.5


def _let_pass(number: int, frame: object) -> None:
    pass


def _read_to_the_end(pipe: int, then: Callable[[], object]) -> None:
    while os.read(pipe, 1024):
        pass
    then()


def main(driver: int, folder: str, command: list[str]) -> int:
    """Returns the command's exit code, or 1 after it was killed because the starting process died."""
    for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        # A terminal's Ctrl-C is for the starting process. A function, because an ignored signal would stay ignored in
        # the child, which needs SIGTERM.
        signal.signal(number, _let_pass)
    # The output is a pipe of which the starting process reads one line. A full pipe would block a JVM that prints its
    # threads.
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)
    print(child.pid, flush=True)
    closed = threading.Event()
    threading.Thread(target=_read_to_the_end, args=(sys.stdin.fileno(), closed.set), daemon=True).start()
    while child.poll() is None:
        # On Windows the parent may be the launcher of a virtual environment.
        if closed.wait(LOOK_EVERY_S) or (sys.platform != "win32" and os.getppid() != driver):
            if sys.platform != "win32":
                os.killpg(child.pid, signal.SIGKILL)  # a script's own children, too
            else:
                child.kill()
            child.wait()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            return 1
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
