"""The behaviour of the package against a stand-in for the library, which needs no cluster."""

from __future__ import annotations

import asyncio
import copy
import ctypes
import gc
import os
import pickle
import queue
import threading
import unittest
from collections.abc import Callable, Iterator
from typing import Any, Optional, cast

import obol
from obol import _library
from obol._errors import Status

WAIT_SECONDS = 60.0


class StandIn:
    """What the package calls, in Python. Handles are numbers; `freed` has those that were given back."""

    def __init__(self) -> None:
        self.status = Status.OK
        self.is_active = True
        self.lives = True
        self.excluded = False
        self.freed: list[int] = []
        self.events: queue.Queue[tuple[Status, int]] = queue.Queue()
        self.waits = threading.Event()
        self.attached = 0
        self.left = 0
        # What happens in the middle of a join.
        self.joining: Callable[[], object] = lambda: None

    def obol_last_error(self) -> bytes:
        return b"the reason"

    def obol_close(self, handle: int) -> None:
        self.freed.append(handle)

    obol_view_free = obol_views_close = obol_failures_close = obol_close

    def obol_join(self, _app: _library.Handle, _ns: int) -> Status:
        self.joining()
        return self.status

    def obol_leave(self, _app: _library.Handle, _ns: int) -> Status:
        self.left += 1
        return self.status

    def obol_incarnation(self, _app: _library.Handle) -> int:
        return 7

    def obol_is_excluded(self, _app: _library.Handle) -> bool:
        return self.excluded

    def obol_agent_lives(self, _app: _library.Handle) -> bool:
        return self.lives

    def obol_newest_view(self, _app: _library.Handle) -> int:
        return 500

    def obol_changes(self, _app: _library.Handle) -> int:
        return 1

    def obol_wait_changed(self, _app: _library.Handle, _seen: int, _ns: int) -> int:
        return 1

    def obol_check(self, _app: _library.Handle, _view: _library.Handle) -> Status:
        return Status.OK if self.is_active else Status.INACTIVE

    def obol_guard_within(self, _app: Any, view: Any, _ns: int, work: Any, context: Any) -> Status:
        work(view, context)
        return self.status

    def obol_view_id(self, _view: _library.Handle) -> int:
        return 3

    def obol_view_is_mine(self, _view: _library.Handle) -> bool:
        return True

    def obol_view_members(self, _view: _library.Handle) -> int:
        return 2

    def obol_view_member(self, _view: _library.Handle, index: int, member: Any) -> bool:
        raw = member._obj
        raw.incarnation, raw.host, raw.kind, raw.name = index + 4, 4 * index, 2 + index, b"m-%d" % index
        return True

    def obol_failures_open(self, _app: _library.Handle) -> int:
        return 900

    def obol_failures_next(self, _stream: _library.Handle, ns: int, failure: Any) -> Status:
        self.waits.set()
        try:
            status, incarnation = self.events.get(timeout=ns / 1e9)
        except queue.Empty:
            return Status.TIMEOUT
        raw = failure._obj
        raw.incarnation, raw.view, raw.accuser, raw.reason, raw.kind, raw.name = incarnation, 9, 0, 99, 3, b"app-2"
        return status


def app_of(stand_in: StandIn) -> obol.App:
    library = _library.Library(
        cast(ctypes.CDLL, stand_in), lambda app, view: app is not None and stand_in.is_active
    )

    def opened() -> _library.Handle:
        if not stand_in.lives:
            raise obol.ClusterError("no live agent")
        stand_in.attached += 1
        return _library.Handle(stand_in.attached, stand_in.obol_close)

    return obol.App(library, opened)


def child_says(act: Callable[[], str]) -> str:
    """What a forked child says of an act."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, act().encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


class Tests(unittest.TestCase):
    def setUp(self) -> None:
        self.library = StandIn()
        self.app = app_of(self.library)


class Handles(Tests):
    def test_an_error_has_the_reason_of_the_library(self) -> None:
        self.library.status = Status.TIMEOUT
        with self.assertRaisesRegex(obol.Timeout, "the reason; call it again"):
            self.app.join()

    def test_close_frees_once_and_later_calls_are_refused(self) -> None:
        view = self.app.newest_view()
        assert view is not None
        self.app.close()
        self.app.close()
        self.assertEqual(self.library.freed, [1])
        self.assertFalse(self.app.active(view))
        acts: list[Callable[[], object]] = [self.app.join, self.app.failures, self.app.attach_again]
        acts.append(lambda: self.app.incarnation)
        for act in acts:
            with self.assertRaises(obol.Closed):
                act()
        self.assertEqual(len(view.members), 2)
        del view
        self.assertEqual(self.library.freed, [1, 500])

    def test_a_handle_is_freed_after_the_calls_that_use_it(self) -> None:
        entered, proceed = threading.Event(), threading.Event()
        during: list[int] = []

        def joining() -> None:
            entered.set()
            proceed.wait(WAIT_SECONDS)
            during.extend(self.library.freed)

        self.library.joining = joining
        thread = threading.Thread(target=self.app.join)
        # The incarnation is asked for after the close.
        threading.excepthook, kept = lambda _: None, threading.excepthook
        try:
            thread.start()
            self.assertTrue(entered.wait(WAIT_SECONDS))
            self.app.close()
            proceed.set()
            thread.join(WAIT_SECONDS)
        finally:
            threading.excepthook = kept
        gc.collect()
        self.assertEqual((during, self.library.freed), ([], [1]))

    def test_a_block_leaves_unless_it_fails(self) -> None:
        with self.app:
            pass
        self.assertEqual((self.library.left, self.library.freed), (1, [1]))
        other = app_of(self.library)
        with self.assertRaises(KeyError), other:
            raise KeyError
        self.assertEqual((self.library.left, self.library.freed), (1, [1, 2]))

    def test_it_is_not_sent_to_another_process(self) -> None:
        acts: list[Callable[[obol.App], object]] = [pickle.dumps, copy.copy]
        for act in acts:
            with self.assertRaisesRegex(TypeError, "attach there"):
                act(self.app)

    def test_it_attaches_again_only_if_the_agent_has_died(self) -> None:
        self.app.attach_again()
        self.assertEqual(self.library.attached, 1)
        self.library.lives = False
        with self.assertRaisesRegex(obol.Timeout, "not attached again within 0 s: no live agent;"):
            self.app.attach_again(0)
        self.assertEqual(self.library.freed, [1])
        with self.assertRaises(obol.AgentDied):
            self.app.join()
        self.library.lives = True
        self.app.attach_again()
        self.assertEqual((self.library.attached, self.app.join()), (2, 7))


class Forks(Tests):
    def test_a_child_is_refused_and_frees_nothing(self) -> None:
        stream = self.app.failures()

        def child() -> str:
            said = []
            acts: list[Callable[[], object]] = [self.app.join, self.app.attach_again, stream.next]
            acts.append(lambda: asyncio.run(anext_of(stream)))
            for act in acts:
                try:
                    act()
                except obol.Forked:
                    said.append("forked")
            stream.close()
            self.app.close()
            gc.collect()
            return f"{said} {self.library.freed}"

        self.assertEqual(child_says(child), f"{['forked'] * 4} []")
        self.assertEqual(self.app.join(), 7)

    def test_a_child_waits_for_no_lock_that_another_thread_had(self) -> None:
        stream = self.app.failures()
        with self.app._changing, stream._one:

            def child() -> str:
                try:
                    stream.next()
                except obol.Forked:
                    pass
                stream.close()
                self.app.close()
                return "done"

            self.assertEqual(child_says(child), "done")


class Views(Tests):
    def test_members_are_typed(self) -> None:
        view = self.app.wait_active()
        self.assertEqual((view.id, view.is_mine), (3, True))
        self.assertEqual(
            view.members,
            (
                obol.Member(4, "m-0", obol.Kind.AGENT, None),
                obol.Member(5, "m-1", obol.Kind.APP, 4),
            ),
        )
        self.assertEqual(repr(view), "View(id=3, is_mine=True)")

    def test_waiting_ends_with_the_reason(self) -> None:
        self.library.is_active = False
        with self.assertRaisesRegex(obol.Timeout, "no view was active for this program within 0 s"):
            self.app.wait_active(0)
        self.library.excluded = True
        with self.assertRaises(obol.Inactive):
            self.app.wait_active()
        self.library.lives = False
        with self.assertRaises(obol.AgentDied):
            self.app.wait_active()

    def test_kinds_and_reasons_of_later_versions_are_unknown(self) -> None:
        self.assertEqual((obol.Kind(99), obol.Reason(99)), (obol.Kind.UNKNOWN, obol.Reason.UNKNOWN))


class Guards(Tests):
    def set_active(self, is_active: bool) -> str:
        self.library.is_active = is_active
        return "done"

    def test_work_runs_only_in_an_active_view(self) -> None:
        self.library.is_active = False
        ran: list[int] = []
        with self.assertRaises(obol.Inactive), self.app.guard():
            ran.append(1)
        with self.assertRaises(obol.Inactive):
            self.app.guarded(ran.append)(2)
        self.assertEqual(ran, [])

    def test_work_does_not_count_if_the_view_ends_meanwhile(self) -> None:
        with self.app.guard() as view:
            self.assertEqual(view.id, 3)
        with self.assertRaises(obol.Inactive), self.app.guard(view):
            self.set_active(False)
        self.set_active(True)
        self.assertEqual(self.app.guarded(self.set_active)(True), "done")
        with self.assertRaises(obol.Inactive):
            self.app.guarded(self.set_active)(False)

    def test_an_error_of_the_work_comes_first(self) -> None:
        with self.assertRaises(KeyError), self.app.guard():
            self.set_active(False)
            raise KeyError

    def test_a_coroutine_is_guarded_to_its_end(self) -> None:
        @self.app.guarded
        async def serve(ends: bool) -> str:
            await asyncio.sleep(0)
            return self.set_active(not ends)

        self.assertEqual(asyncio.run(serve(False)), "done")
        with self.assertRaises(obol.Inactive):
            asyncio.run(serve(True))

    def test_generators_are_refused(self) -> None:
        def steps() -> Iterator[int]:
            yield 1

        with self.assertRaisesRegex(TypeError, "steps is a generator"):
            self.app.guarded(steps)

    def test_guard_within_returns_what_the_work_does_if_it_counts(self) -> None:
        self.assertEqual(self.app.guard_within(1, lambda view: view.id + 1), 4)
        self.library.status = Status.TIMEOUT
        with self.assertRaises(obol.Timeout):
            self.app.guard_within(1, lambda view: view.id)
        with self.assertRaises(ZeroDivisionError):
            self.app.guard_within(1, lambda view: view.id / 0)


async def anext_of(stream: obol.Stream[obol.Failure]) -> Optional[obol.Failure]:
    """The next value; `None` at the end."""
    async for value in stream:
        return value
    return None


class Streams(Tests):
    def setUp(self) -> None:
        super().setUp()
        self.stream = self.app.failures()

    def happens(self, incarnation: int, status: Status = Status.OK) -> None:
        self.library.events.put((status, incarnation))

    def test_values_come_in_order_and_typed(self) -> None:
        self.happens(5)
        self.happens(6)
        first = next(self.stream)
        self.assertEqual(first, obol.Failure(5, "app-2", obol.Kind.APP, obol.Reason.UNKNOWN, 9, None))
        self.assertEqual(self.stream.next(WAIT_SECONDS).incarnation, 6)

    def test_waiting_is_bounded(self) -> None:
        for timeout in [0, 0.01]:
            with self.assertRaises(obol.Timeout):
                self.stream.next(timeout)

    def test_a_loop_ends_when_the_stream_is_closed_and_raises_when_the_agent_dies(self) -> None:
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.extend(f.incarnation for f in self.stream))
        thread.start()
        self.happens(5)
        self.assertTrue(self.library.waits.wait(WAIT_SECONDS))
        while not self.library.events.empty():
            pass
        self.stream.close()
        thread.join(WAIT_SECONDS)
        self.assertEqual((thread.is_alive(), seen), (False, [5]))
        self.assertEqual(self.library.freed, [900])
        with self.assertRaises(obol.Closed):
            self.stream.next(0)
        self.happens(0, Status.AGENT_DIED)
        with self.assertRaises(obol.AgentDied), self.app.failures() as other:
            next(other)

    def test_tasks_get_each_value_once(self) -> None:
        async def both() -> list[Optional[obol.Failure]]:
            tasks = [asyncio.ensure_future(anext_of(self.stream)) for _ in range(2)]
            await asyncio.sleep(0)
            self.happens(5)
            self.happens(6)
            return list(await asyncio.gather(*tasks))

        found = asyncio.run(asyncio.wait_for(both(), WAIT_SECONDS))
        self.assertEqual(sorted(failure.incarnation for failure in found if failure), [5, 6])

    def test_a_cancelled_task_loses_nothing(self) -> None:
        async def cancelled() -> None:
            task = asyncio.ensure_future(anext_of(self.stream))
            while not self.library.waits.is_set():
                await asyncio.sleep(0)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        self.happens(5)
        found = asyncio.run(asyncio.wait_for(anext_of(self.stream), WAIT_SECONDS))
        self.assertEqual(found and found.incarnation, 5)

    def test_async_loops_end_as_others_do(self) -> None:
        self.happens(0, Status.AGENT_DIED)
        with self.assertRaises(obol.AgentDied):
            asyncio.run(anext_of(self.stream))
        self.stream.close()
        self.assertIsNone(asyncio.run(anext_of(self.stream)))


if __name__ == "__main__":
    unittest.main()
