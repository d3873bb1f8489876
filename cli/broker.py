"""`kohort broker start|stop|status`: brokers in the background, one named instance a user and name.

A background start runs this same command in the foreground in a process of its own, the keeper. The brokers live as
long as the keeper; what it started is written to a state file in the user's cache. Brokers are real Apache Kafka, or
with `--fake` the fake broker of `kohort.testing`, which lives in the keeper itself.
"""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.common.foreign_text import parsed_json
from kohort.common.named_tuple import NamedTuple
from kohort.network.process_exit import exit_on_sigterm
from kohort.testing import BrokerStartError, BrokerStateError, RealCluster
from kohort.testing.cache import cache_dir, is_locked, locked
from kohort.testing.jars import DEFAULT_VERSION, TRIED_VERSIONS, classpath
from kohort.testing.ports import check_free
from kohort.testing.process_signals import KILL

if TYPE_CHECKING:
    from kohort.testing import FakeBroker

STOP_TIMEOUT_S = 30.0
START_TIMEOUT_S = 180.0
LOCK_TIMEOUT_S = 10.0  # `status` holds the lock for moments, and brokers that stop hold it to their end
HIGHEST_PORT = 65_535
LONGEST_NAME = 200  # bytes
FAKE_VERSION = "fake"
"""The version that a `FakeBroker` shows."""

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Apache Kafka from its jars, or a fake broker, on this machine."
)

Name = Annotated[str, typer.Option(help="The instance, if several run at the same time.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@contextmanager
def _files() -> Iterator[None]:
    """Raise BrokerStateError with a hint for a file or folder that cannot be used."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.ENOENT):
            raise  # not of a file: a closed pipe, for example
        raise BrokerStateError(
            error.strerror or str(error),
            hint="set KOHORT_CACHE (the cache) and TMPDIR to folders with space that this user can write",
            path=error.filename,
        ) from error


class InstanceOptions(NamedTuple):
    """An instance to start, by the options of `start`."""

    name: str
    fake: bool
    version: str
    brokers: int
    port: int
    tls: bool
    users: Mapping[str, str]

    @property
    def arguments(self) -> list[str]:
        """The options that give the same instance."""
        given = ["--name", self.name, "--version", self.version, "--brokers", str(self.brokers)]
        given += ["--port", str(self.port), *(["--fake"] if self.fake else []), *(["--tls"] if self.tls else [])]
        return given + [part for user, password in self.users.items() for part in ("--sasl", f"{user}:{password}")]

    @property
    def ports(self) -> tuple[int, ...]:
        """The brokers' ports; empty if free ones are selected."""
        return tuple(range(self.port, self.port + self.brokers)) if self.port else ()

    def open(self) -> "RealCluster | FakeBroker":
        """Start the brokers."""
        if self.fake:
            from kohort.testing import FakeBroker  # a real broker needs no codec

            return FakeBroker(nodes=self.brokers, ports=self.ports, keep_calls=False)
        return RealCluster(self.brokers, version=self.version, tls=self.tls, users=self.users, ports=self.ports)


@app.command()
@_files()
def start(
    version: Annotated[str, typer.Option(help=f"Apache Kafka's version; tried: {', '.join(TRIED_VERSIONS)}.")] = (
        DEFAULT_VERSION
    ),
    brokers: Annotated[int, typer.Option(min=1, max=9, help="The number of brokers.")] = 1,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=HIGHEST_PORT,
            help="Port of the first broker; the others get the next ports. 0 selects free ports.",
        ),
    ] = 0,
    fake: Annotated[
        bool, typer.Option("--fake", help="Serve the fake broker: without a JDK, in one process, records in memory.")
    ] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Add a TLS listener.")] = False,
    sasl: Annotated[
        list[str] | None, typer.Option(help="NAME:PASSWORD; adds a SASL listener. May be repeated.")
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay until Ctrl-C.")] = False,
    name: Name = "default",
    as_json: AsJson = False,
) -> None:
    """Start a broker or a cluster, and print its addresses when it is ready.

    Example: kohort broker start --version 3.9.1 --port 9092

    Example: kohort broker start --fake --port 9092
    """
    if fake and (tls or sasl or version != DEFAULT_VERSION):
        raise typer.BadParameter("excludes --version, --tls and --sasl", param_hint="--fake")
    options = InstanceOptions(name, fake, version, brokers, port, tls, dict(_user(entry) for entry in sasl or []))
    if max(options.ports, default=0) > HIGHEST_PORT:
        raise typer.BadParameter(f"the last of {brokers} brokers has a port above {HIGHEST_PORT}", param_hint="--port")
    if foreground:
        _prepare(options)
        _keep(options, as_json)
        return
    # A second start waits for the first. It must not take the first one's brokers for its own.
    with locked(_state_file(name).with_suffix(".start")):
        _prepare(options)
        state = _keep_in_background(options)
    _show(state, as_json)


@app.command()
@_files()
def stop(name: Name = "default", as_json: AsJson = False) -> None:
    """Stop the brokers of `start` and remove their data.

    Example: kohort broker stop --name default
    """
    state = _read(name)
    if state is None:
        raise BrokerStateError(f"no broker named {name!r} runs", hint="list the brokers with `kohort broker status`")
    keeper = int(str(state["pid"]))
    with suppress(ProcessLookupError):  # another process has stopped it
        os.kill(keeper, signal.SIGTERM)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while is_locked(_lock_file(name)):
            if time.monotonic() > deadline:
                os.kill(keeper, KILL)  # the supervisors stop the brokers
                break
            time.sleep(0.05)
    print(json.dumps({"name": name, "running": False}) if as_json else f"{name}: stopped")


@app.command()
@_files()
def status(as_json: AsJson = False) -> None:
    """List the running instances.

    Example: kohort broker status --json
    """
    names = [file.stem for file in sorted(_folder().glob("*.json")) if _is_name(file.stem)]
    running = [state for name in names if (state := _read(name)) is not None]
    if as_json:
        print(json.dumps({"brokers": running}))
    elif not running:
        print("no broker runs; `kohort broker start` starts one")
    for state in running if not as_json else ():
        _show(state, as_json=False)


def _prepare(options: InstanceOptions) -> None:
    """Check what can be checked before the start, and fetch the jars in this process, which shows the progress."""
    state = _read(options.name)
    if state is not None:
        raise BrokerStateError(
            f"{options.name!r} runs already",
            hint=f"stop it with `kohort broker stop --name {options.name}`",
            bootstrap=state["bootstrap"],
        )
    check_free(options.ports)
    if not options.fake:
        classpath(options.version)


def _keep_in_background(options: InstanceOptions) -> dict[str, object]:
    """Start a keeper, and return the state when the brokers serve. No keeper is left after an error or a signal."""
    # -P: a module of the current folder must not take the place of a library's.
    command = [sys.executable, "-P", "-m", "kohort.cli.main", "broker", "start", "--foreground", *options.arguments]
    log = _folder() / f"{options.name}.log"
    with exit_on_sigterm():
        with log.open("wb") as output:
            keeper = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            return _served(keeper, options.name, log)
        except BaseException:
            keeper.terminate()
            with suppress(subprocess.TimeoutExpired):
                keeper.wait(STOP_TIMEOUT_S)
            raise


def _served(keeper: "subprocess.Popen[bytes]", name: str, log: Path) -> dict[str, object]:
    """Wait until the brokers serve, and return the state. Raises BrokerStartError if the keeper ends before."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while (state := _read(name)) is None:
        if keeper.poll() is not None:
            printed = log.read_text(errors="replace").strip()[-3000:] or "it printed nothing"
            raise BrokerStartError(f"it did not start: {printed}", log=log)
        if time.monotonic() > deadline:
            raise BrokerStartError(f"it did not serve within {START_TIMEOUT_S:g} s", log=log)
        time.sleep(0.1)
    return state


def _keep(options: InstanceOptions, as_json: bool) -> None:
    """Run the brokers until a signal. The state file exists exactly while they serve."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    file = _state_file(options.name)
    with ExitStack() as stack:
        try:  # the lock is held while this process lives, as a sign of life
            stack.enter_context(locked(_lock_file(options.name), timeout_s=LOCK_TIMEOUT_S))
        except TimeoutError:
            raise BrokerStateError(
                f"{options.name!r} is being started or stopped by another process",
                hint="list the brokers with `kohort broker status`",
            ) from None
        cluster = options.open()
        stack.enter_context(cluster)
        state = _state(options, cluster)
        scratch = file.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(state))
        scratch.rename(file)
        try:
            _show(state, as_json)
            while not isinstance(cluster, RealCluster) or all(node.running for node in cluster.nodes):
                time.sleep(0.5)
            raise next(node for node in cluster.nodes if not node.running).failed("a broker process ended")
        except KeyboardInterrupt:
            pass
        finally:
            file.unlink(missing_ok=True)


def _state(options: InstanceOptions, cluster: "RealCluster | FakeBroker") -> dict[str, object]:
    """The addresses of a running instance, as `status` shows them."""
    state: dict[str, object] = {
        "name": options.name,
        "pid": os.getpid(),
        "version": cluster.version,
        "bootstrap": cluster.bootstrap,
    }
    if isinstance(cluster, RealCluster):
        state["logs"] = [str(log) for log in cluster.logs]
        if options.tls:
            state |= {"bootstrap_tls": cluster.bootstrap_tls, "ca_file": str(cluster.ca_file)}
        if options.users:
            state["bootstrap_sasl"] = cluster.bootstrap_sasl
        if options.tls and options.users:
            state["bootstrap_sasl_tls"] = cluster.bootstrap_sasl_tls
    return state


def _folder() -> Path:
    folder = cache_dir() / "brokers"
    folder.mkdir(exist_ok=True)
    return folder


def _is_name(name: str) -> bool:
    return name.replace("-", "").replace("_", "").isalnum() and len(name.encode()) <= LONGEST_NAME


def _state_file(name: str) -> Path:
    if not _is_name(name):
        raise BrokerStateError(
            f"{name!r} is not a valid name of an instance",
            hint=f"use letters, digits, - and _, at most {LONGEST_NAME} of them",
        )
    return _folder() / f"{name}.json"


def _lock_file(name: str) -> Path:
    return _state_file(name).with_suffix(".lock")


def _read(name: str) -> dict[str, object] | None:
    """Return the state of a running instance. The state of a dead keeper is removed."""
    file = _state_file(name)
    if not is_locked(_lock_file(name)):
        file.unlink(missing_ok=True)
        return None
    try:
        state: dict[str, object] = parsed_json(file.read_text())
    except FileNotFoundError:
        return None
    return state


def _user(entry: str) -> tuple[str, str]:
    user, colon, password = entry.partition(":")
    if not (user and colon and password):
        raise typer.BadParameter("use NAME:PASSWORD", param_hint="--sasl")
    return user, password


def _show(state: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(state), flush=True)
        return
    is_fake = state["version"] == FAKE_VERSION
    kind = "a fake broker in memory" if is_fake else f"Apache Kafka {state['version']}"
    print(f"{state['name']}: {kind} at {state['bootstrap']}", flush=True)
    if is_fake:
        print("  One process. Its records and groups end with it. It has no TLS, login, disk or replicas.", flush=True)
    for label in ("bootstrap_tls", "bootstrap_sasl", "bootstrap_sasl_tls", "ca_file"):
        if label in state:
            print(f"  {label}: {state[label]}", flush=True)
