"""A program as a member: attached to its node's agent, or with a core of its own."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn, Optional, TypeVar, Union, cast

from . import _errors, _streams
from ._library import WORK, Handle, Library, load, nanoseconds, text
from ._view import Failure, View

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
PathLike = Union[str, "os.PathLike[str]"]

#: A lease that begins wakes nobody up, so a wait for it polls at this interval, as `obol.h` advises.
_LEASE_POLL_SECONDS = 0.001
#: How often `attach_again` asks for the agent's successor.
_ATTACH_POLL_SECONDS = 0.01
#: How long the end of a `with` block waits for the leave.
_LEAVE_SECONDS = 5.0


class App:
    """A program of the cluster, made by `attach` or `embed`. Threads may share it.

    As a context manager it leaves gracefully at the end of the block. If an exception ends the block it only
    closes, which others see as a failure of this program.
    """

    def __init__(self, library: Library, opened: Callable[[], Handle]) -> None:
        self._library = library
        self._opened = opened
        self._changing = threading.Lock()
        self._pid = os.getpid()
        self._is_closed = False
        self._handle: Optional[Handle] = opened()

    # Membership

    def join(self, timeout: float = 20.0) -> int:
        """Becomes a member, and returns the incarnation. Waits for at most `timeout` seconds, and a signal such as
        Ctrl-C is not handled meanwhile.

        An embedded program joins by itself, and this waits for it.
        """
        self._checked(self._calls.obol_join(self._live(), nanoseconds(timeout)))
        return self.incarnation

    def leave(self, timeout: float = _LEAVE_SECONDS) -> None:
        """Leaves the cluster gracefully, which does not count as a failure. An embedded program leaves by
        `close`."""
        self._checked(self._calls.obol_leave(self._live(), nanoseconds(timeout)))

    def close(self) -> None:
        """Ends the membership. An attached program that has not left is reported to the others as failed.

        Views and streams outlive it. A call of another thread that still runs ends first. In the child of a fork
        it does not affect the parent. It may be called twice.
        """
        # In a child, a lock that another thread of the parent held at the fork stays locked.
        with self._changing if os.getpid() == self._pid else contextlib.nullcontext():
            self._is_closed = True
            self._handle = None

    def attach_again(self, timeout: float = 60.0) -> None:
        """After its agent's death: attaches to the successor, and waits for one for at most `timeout` seconds.
        Call `join` afterwards, and open streams anew. Does nothing while the agent lives."""
        end = time.monotonic() + nanoseconds(timeout) / 1e9
        while True:
            self._require_here()
            try:
                return self._attach_once()
            except _errors.ClusterError as error:
                if time.monotonic() >= end:
                    raise _errors.Timeout(f"not attached again within {timeout} s: {error.text}") from error
            time.sleep(_ATTACH_POLL_SECONDS)

    def _attach_once(self) -> None:
        with self._changing:
            if self._is_closed:
                self._refuse()
            if self._handle is not None and self.agent_lives:
                return
            # The name is free as soon as no call of another thread uses the handle any more.
            self._handle = None
            self._handle = self._opened()

    @property
    def incarnation(self) -> int:
        """This program's identity as a member; 0 while it is not one."""
        return int(self._calls.obol_incarnation(self._live()))

    @property
    def is_excluded(self) -> bool:
        """Whether the program has to join again: the cluster removed it, or its agent died."""
        return bool(self._calls.obol_is_excluded(self._live()))

    @property
    def agent_lives(self) -> bool:
        """Whether the program's agent, or its own core, still runs. If not, call `attach_again`."""
        return bool(self._calls.obol_agent_lives(self._live()))

    # Views

    def newest_view(self) -> Optional[View]:
        """The newest view that is known to be decided; `None` before the first."""
        pointer: Optional[int] = self._calls.obol_newest_view(self._live())
        return None if pointer is None else View.of(self._library, pointer)

    def active(self, view: View) -> bool:
        """Whether `view` is active for this program now: it is a member, and no later view that excludes an
        application has been active anywhere. Never waits; false in the child of a fork, and after `close`."""
        return self._library.active(self._handle, view._handle)

    def check(self, view: View) -> None:
        """As `active`; if the view is not active, raises the reason: `Inactive`, `AgentDied` or `Forked`."""
        if not self.active(view):
            self._checked(self._calls.obol_check(self._live(), view._handle))

    def confirm(self, view: View, timeout: float) -> None:
        """As `check`, also where the lease has expired: then the coordinators are asked, which takes a round trip.
        If it returns, `view` was active at some moment of the call."""
        self._checked(self._calls.obol_confirm(self._live(), view._handle, nanoseconds(timeout)))

    def wait_active(self, timeout: float = 20.0) -> View:
        """Waits until the newest view is active for this program, and returns it."""
        end = time.monotonic() + nanoseconds(timeout) / 1e9
        while True:
            seen: int = self._calls.obol_changes(self._live())
            view = self.newest_view()
            if view is not None and self.active(view):
                return view
            if not self.agent_lives:
                raise _errors.AgentDied("no view becomes active: the agent of this program has died")
            if self.is_excluded:
                raise _errors.Inactive("no view becomes active: the cluster has removed this program")
            if time.monotonic() >= end:
                raise _errors.Timeout(f"no view was active for this program within {timeout} s")
            self._calls.obol_wait_changed(self._live(), seen, nanoseconds(_LEASE_POLL_SECONDS))

    # Work that only counts while a view is active

    def guard(self, view: Optional[View] = None) -> Guard:
        """A block whose effect counts only if it ends without an exception: `with app.guard() as view:`.

        It raises `Inactive` at the beginning if `view` (the newest one, unless it is given) is not active, and
        at the end if it is not active any more.
        """
        return Guard(self, view)

    def guarded(self, function: F) -> F:
        """A decorator: the function runs only while the newest view is active; see `guard`. A coroutine function
        is guarded from its first step to its last."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(
                f"{function.__qualname__} is a generator, whose caller acts between its steps; guard each step"
            )
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def guarded_coroutine(*args: Any, **kwargs: Any) -> Any:
                with self.guard():
                    return await function(*args, **kwargs)

            return cast(F, guarded_coroutine)

        @functools.wraps(function)
        def guarded_function(*args: Any, **kwargs: Any) -> Any:
            with self.guard():
                return function(*args, **kwargs)

        return cast(F, guarded_function)

    def guard_within(self, timeout: float, work: Callable[[View], R], view: Optional[View] = None) -> R:
        """Returns `work(view)`, also where leases are too short for the delays: the work begins once older leases
        are over, and then the coordinators are asked. It counts only if this returns. Waits for at most
        `timeout` seconds, not counting the work."""
        chosen = self._chosen(view)
        results: list[R] = []
        errors: list[BaseException] = []

        def call(_view: object, _context: object) -> None:
            # No exception may pass through the library.
            try:
                results.append(work(chosen))
            except BaseException as error:
                errors.append(error)

        callback = WORK(call)
        ns = nanoseconds(timeout)
        status = self._calls.obol_guard_within(self._live(), chosen._handle, ns, callback, None)
        if errors:
            raise errors[0]
        self._checked(status)
        return results[0]

    # Streams

    def views(self) -> _streams.Stream[View]:
        """The stream of views, beginning with the newest. Those that are superseded before they are read are
        skipped."""
        return _streams.views(self._library, self._live())

    def failures(self) -> _streams.Stream[Failure]:
        """The stream of the failures of other members from now on, each once."""
        return _streams.failures(self._library, self._live())

    # Progress

    def promise_progress(self, within: float) -> None:
        """Promises to call `progress` at least every `within` seconds; 0 cancels the promise. A member that breaks
        it is removed, although its process lives."""
        self._calls.obol_promise_progress(self._live(), nanoseconds(within))

    def progress(self) -> None:
        """Reports that the program makes progress."""
        self._calls.obol_progress(self._live())

    def __enter__(self) -> App:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            is_here = os.getpid() == self._pid and not self._is_closed
            if error is None and is_here and self._leaves and self.agent_lives and self.incarnation:
                self.leave()
        finally:
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a membership belongs to its process and cannot be sent to another: attach there")

    #: Whether the program leaves by `leave`, and not by `close`.
    _leaves = True

    @property
    def _calls(self) -> ctypes.CDLL:
        return self._library.calls

    def _checked(self, status: int) -> None:
        self._library.checked(status)

    def _chosen(self, view: Optional[View]) -> View:
        chosen = self.newest_view() if view is None else view
        if chosen is None:
            raise _errors.Inactive("there is no view yet")
        return chosen

    def _require_here(self) -> None:
        if os.getpid() != self._pid:
            raise _errors.Forked(f"this membership belongs to process {self._pid}, the parent of this one")

    def _refuse(self) -> NoReturn:
        if self._is_closed:
            raise _errors.Closed("this membership was closed")
        raise _errors.AgentDied("the agent of this program has died, and it is not attached again")

    def _live(self) -> Handle:
        self._require_here()
        handle = self._handle
        if handle is None:
            self._refuse()
        return handle


class Embedded(App):
    """A program with a core of its own, made by `embed`."""

    _leaves = False


class Guard:
    """A block that counts only if a view was active before and after it; made by `App.guard`."""

    def __init__(self, app: App, view: Optional[View]) -> None:
        self._app = app
        self._view = view

    def __enter__(self) -> View:
        self._view = self._app._chosen(self._view)
        self._app.check(self._view)
        return self._view

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if error is None and self._view is not None:
            self._app.check(self._view)


def _place(root: Optional[PathLike], cluster: Optional[str]) -> tuple[Optional[bytes], Optional[bytes]]:
    return text("root", None if root is None else os.fspath(root)), text("cluster", cluster)


def attach(agent: str, name: str, *, root: Optional[PathLike] = None, cluster: Optional[str] = None) -> App:
    """Takes a seat at the agent `agent` of this node, under the name `name`. The program becomes a member by
    `App.join`.

    A name has 1 to 23 characters of `a-z A-Z 0-9 . _ -`, and one live process. `root` is the directory of this
    host's clusters; it and `cluster` have the defaults of the command `obol`.
    """
    library = load()
    place = _place(root, cluster)
    names = text("agent", agent), text("name", name)

    def opened() -> Handle:
        pointer = ctypes.c_void_p()
        library.checked(library.calls.obol_attach(*place, *names, ctypes.byref(pointer)))
        assert pointer.value is not None, "with the status OK there is a handle"
        return Handle(pointer.value, library.calls.obol_close)

    return App(library, opened)


def embed(name: str, *, root: Optional[PathLike] = None, cluster: Optional[str] = None) -> Embedded:
    """Starts a core of the program's own on a thread, without an agent, under the name `name`. It joins by
    itself, now and whenever it was removed; `App.join` waits for that. Arguments are as with `attach`."""
    library = load()
    place = _place(root, cluster)
    own = text("name", name)

    def opened() -> Handle:
        pointer = ctypes.c_void_p()
        library.checked(library.calls.obol_embed(*place, own, ctypes.byref(pointer)))
        assert pointer.value is not None, "with the status OK there is a handle"
        return Handle(pointer.value, library.calls.obol_close)

    return Embedded(library, opened)


def join(
    agent: str,
    name: str,
    *,
    root: Optional[PathLike] = None,
    cluster: Optional[str] = None,
    timeout: float = 20.0,
) -> App:
    """Attaches and joins: `with obol.join("node-1", "web-1") as app:`."""
    app = attach(agent, name, root=root, cluster=cluster)
    try:
        app.join(timeout)
    except BaseException:
        app.close()
        raise
    return app


def library_version() -> str:
    """The version of the library that is used."""
    version: bytes = load().calls.obol_version()
    return version.decode()
