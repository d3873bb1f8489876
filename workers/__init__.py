"""Handlers that run side by side on the records of one consumer: see `run` and `run_async`."""

from kohort.workers.errors import HandlerFailed
from kohort.workers.retry import Retry
from kohort.workers.run import run
from kohort.workers.run_async import run_async
from kohort.workers.run_state import RunTotals

__all__ = ["HandlerFailed", "Retry", "RunTotals", "run", "run_async"]
