"""Changes as streams: iterators, also for `async for`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Optional, TypeVar

from . import _errors
from ._library import FailureStruct, Handle, Library, nanoseconds
from ._view import Failure, View

T = TypeVar("T")

#: How long a thread waits in the library before it looks for a signal, such as Ctrl-C, or for `close`. What
#: happens meanwhile ends the wait at once.
SLICE_SECONDS = 0.1


class Stream(Generic[T]):
    """Values in order, each once. A loop over it waits for the next one, and ends when the stream is closed.

    It raises `AgentDied` when there will be no more: open another one after `attach_again`. Threads and tasks
    may share a stream; each value goes to one of them.
    """

    def __init__(self, handle: Handle, take: Callable[[Handle, int], Optional[T]]) -> None:
        self._handle: Optional[Handle] = handle
        # Waits for at most the given number of nanoseconds.
        self._take = take
        self._pid = os.getpid()
        # The library allows one thread at a time.
        self._one = threading.Lock()
        self._waiter: Optional[ThreadPoolExecutor] = None
        self._pending: Optional[Future[Optional[T]]] = None

    def next(self, timeout: Optional[float] = None) -> T:
        """Waits for the next value; for at most `timeout` seconds, and then raises `Timeout`."""
        end = None if timeout is None else time.monotonic() + nanoseconds(timeout) / 1e9
        while True:
            left = SLICE_SECONDS if end is None else max(end - time.monotonic(), 0.0)
            found = self._poll(min(left, SLICE_SECONDS))
            if found is not None:
                return found
            if end is not None and time.monotonic() >= end:
                raise _errors.Timeout(f"nothing new within {timeout} s")

    def _poll(self, seconds: float) -> Optional[T]:
        self._require_here()
        with self._one:
            if self._handle is None:
                raise _errors.Closed("this stream is closed")
            return self._take(self._handle, nanoseconds(seconds))

    def _require_here(self) -> None:
        # Before any lock: one that another thread of the parent held at the fork stays locked.
        if os.getpid() != self._pid:
            raise _errors.Forked("this stream belongs to the parent of this process")

    def close(self) -> None:
        """Ends the stream, and loops over it within a tenth of a second. It may be called twice."""
        self._handle = None

    def __iter__(self) -> Stream[T]:
        return self

    def __next__(self) -> T:
        try:
            return self.next()
        except _errors.Closed:
            raise StopIteration from None

    def __aiter__(self) -> Stream[T]:
        return self

    async def __anext__(self) -> T:
        try:
            while True:
                found = await self._poll_aside()
                if found is not None:
                    return found
        except _errors.Closed:
            raise StopAsyncIteration from None

    async def _poll_aside(self) -> Optional[T]:
        """Polls on a thread of the stream's own."""
        self._require_here()
        # What a cancelled task waited for is not lost: the next one gets it.
        if self._pending is None or self._pending.cancelled():
            if self._waiter is None:
                self._waiter = ThreadPoolExecutor(1, thread_name_prefix="obol")
            self._pending = self._waiter.submit(self._poll, SLICE_SECONDS)
        pending = self._pending
        try:
            found = await asyncio.wrap_future(pending)
        finally:
            is_first = self._pending is pending
            if is_first and pending.done():
                self._pending = None
        return found if is_first else None

    def __enter__(self) -> Stream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_one(library: Library, status: int) -> bool:
    """Whether a stream has given a value; it raises why there will be none."""
    if status != _errors.Status.TIMEOUT:
        library.checked(status)
    return status == _errors.Status.OK


def views(library: Library, app: Handle) -> Stream[View]:
    """Opens the stream of a program's views."""
    calls = library.calls

    def take(handle: Handle, ns: int) -> Optional[View]:
        pointer = ctypes.c_void_p()
        if not _is_one(library, calls.obol_views_next(handle, ns, ctypes.byref(pointer))):
            return None
        assert pointer.value is not None, "with the status OK there is a view"
        return View.of(library, pointer.value)

    return Stream(Handle(calls.obol_views_open(app), calls.obol_views_close), take)


def failures(library: Library, app: Handle) -> Stream[Failure]:
    """Opens the stream of the failures of other members."""
    calls = library.calls

    def take(handle: Handle, ns: int) -> Optional[Failure]:
        raw = FailureStruct()
        is_one = _is_one(library, calls.obol_failures_next(handle, ns, ctypes.byref(raw)))
        return Failure.of(raw) if is_one else None

    return Stream(Handle(calls.obol_failures_open(app), calls.obol_failures_close), take)
