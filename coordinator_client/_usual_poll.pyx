# cython: freethreading_compatible=True
# cython: language_level=3
"""The usual poll: no hook, callback or error is due, and records are buffered or come. `PollLoop` does all other polls.

A signal handler may raise in any wait and call here. Nothing is taken from the buffer, so nothing is lost.
"""

from kohort.coordinator_client.fetch._fetch_buffer cimport FetchBuffer
from kohort.network._guard cimport Bell


cdef bint _is_due(core) except -1:
    hook = core._hook
    if hook is not None and hook.serial != core._hook_over:
        return True
    if core.commits.callbacks or core.unreported or core._errors or core.positions.errors:
        return True
    if core._fatal is not None or not core.may_read:
        return True
    view = core.view
    return view is not None and view.fatal is not None and core.subscription is not None


def action_is_due(core):
    """A poll has more to do than to look for records: a hook, a callback or an error."""
    return _is_due(core)


def readable(core, double now):
    """As `ConsumerCore.readable`."""
    view = core.view
    if view is None or core.subscription is None or now < <double>view.ownership_deadline:
        return core.allowed
    return None


cdef bint _is_unusual(session, core, driver, collector) except -1:
    if session.outcome is not None or session._callback is not None or session.error is not None:
        return True
    if session._observer is not None or collector.decoded:
        return True
    return core.owes_loss or _is_due(core)


def usual_poll(session, double until, Py_ssize_t most):
    """Wait until records come, and collect at most `most` slices. None at the time `until` (monotonic s), and if
    anything else is due or unusual: the poll goes on in `PollLoop`, which looks at everything again."""
    core, driver, collector = session.core, session.driver, session.collector
    cdef Bell bell = driver.bell
    cdef FetchBuffer buffered = core.fetcher.parked
    cdef unsigned long seen
    cdef long long turns = -1, turns_now
    cdef double left
    while True:
        seen = bell._rings
        core.has_updates = False
        if session._wakeup or session.closed or driver.crashed is not None:
            return None
        turns_now = driver.turns
        if turns_now != turns:  # only a turn changes the rest
            if _is_unusual(session, core, driver, collector):
                return None
            turns = turns_now
        if buffered.has_slices():
            return collector.collect_usual(most)
        left = until - <double>driver.now()
        if left <= 0:
            return None
        if not core.has_updates:
            bell.wait(seen, left)
