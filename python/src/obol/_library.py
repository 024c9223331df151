"""`libobol`: where it is, whether it fits, and its functions as `obol.h` declares them."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, Optional

from . import _errors, _version

#: Names the file of the library, before the places where the system looks.
VARIABLE = "OBOL_LIBRARY"
NAME_BYTES = 24
_NS_MAX = 2**64 - 1


class MemberStruct(ctypes.Structure):
    """`obol_member`."""

    _fields_ = [
        ("incarnation", ctypes.c_uint64),
        ("host", ctypes.c_uint64),
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char * NAME_BYTES),
    ]


class FailureStruct(ctypes.Structure):
    """`obol_failure`."""

    _fields_ = [
        ("incarnation", ctypes.c_uint64),
        ("view", ctypes.c_uint64),
        ("accuser", ctypes.c_uint64),
        ("reason", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char * NAME_BYTES),
    ]


WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

_HANDLE = ctypes.c_void_p
_HANDLE_OUT = ctypes.POINTER(ctypes.c_void_p)
_TEXT = ctypes.c_char_p
_STATUS = ctypes.c_int
_NS = ctypes.c_uint64

#: The result and the arguments of each function that this package calls.
SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "obol_version": (_TEXT, []),
    "obol_last_error": (_TEXT, []),
    "obol_attach": (_STATUS, [_TEXT, _TEXT, _TEXT, _TEXT, _HANDLE_OUT]),
    "obol_embed": (_STATUS, [_TEXT, _TEXT, _TEXT, _HANDLE_OUT]),
    "obol_join": (_STATUS, [_HANDLE, _NS]),
    "obol_leave": (_STATUS, [_HANDLE, _NS]),
    "obol_close": (None, [_HANDLE]),
    "obol_incarnation": (ctypes.c_uint64, [_HANDLE]),
    "obol_is_excluded": (ctypes.c_bool, [_HANDLE]),
    "obol_agent_lives": (ctypes.c_bool, [_HANDLE]),
    "obol_newest_view": (_HANDLE, [_HANDLE]),
    "obol_active": (ctypes.c_bool, [_HANDLE, _HANDLE]),
    "obol_check": (_STATUS, [_HANDLE, _HANDLE]),
    "obol_confirm": (_STATUS, [_HANDLE, _HANDLE, _NS]),
    "obol_guard_within": (_STATUS, [_HANDLE, _HANDLE, _NS, WORK, ctypes.c_void_p]),
    "obol_changes": (ctypes.c_uint32, [_HANDLE]),
    "obol_wait_changed": (ctypes.c_uint32, [_HANDLE, ctypes.c_uint32, _NS]),
    "obol_promise_progress": (None, [_HANDLE, _NS]),
    "obol_progress": (None, [_HANDLE]),
    "obol_views_open": (_HANDLE, [_HANDLE]),
    "obol_views_next": (_STATUS, [_HANDLE, _NS, _HANDLE_OUT]),
    "obol_views_close": (None, [_HANDLE]),
    "obol_failures_open": (_HANDLE, [_HANDLE]),
    "obol_failures_next": (_STATUS, [_HANDLE, _NS, ctypes.POINTER(FailureStruct)]),
    "obol_failures_close": (None, [_HANDLE]),
    "obol_view_id": (ctypes.c_uint64, [_HANDLE]),
    "obol_view_is_mine": (ctypes.c_bool, [_HANDLE]),
    "obol_view_members": (ctypes.c_size_t, [_HANDLE]),
    "obol_view_member": (ctypes.c_bool, [_HANDLE, ctypes.c_size_t, ctypes.POINTER(MemberStruct)]),
    "obol_view_free": (None, [_HANDLE]),
}


class Handle(ctypes.c_void_p):
    """Owns what the library has given, and gives it back with the last reference.

    A call holds a reference to its arguments, so nothing is freed while another thread uses it.
    """

    def __init__(self, value: int, release: Callable[[int], object]) -> None:
        super().__init__(value)
        self._release = release
        self._pid = os.getpid()

    # The module may be gone when the interpreter ends.
    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        # A child frees nothing of its parent: a lock of the library that another thread held at the fork
        # would never be released.
        if self.value is not None and getpid() == self._pid:
            self._release(self.value)


class Library:
    """The loaded library. `calls` releases the GIL in each call."""

    def __init__(self, calls: ctypes.CDLL, active: Callable[[Optional[Handle], Handle], bool]) -> None:
        self.calls = calls
        #: `obol_active` without a conversion of arguments: they must be handles.
        self.active = active

    def checked(self, status: int) -> None:
        """Raises the error of the last call, which this thread made."""
        if status != _errors.Status.OK:
            text: bytes = self.calls.obol_last_error()
            raise _errors.of_status(status, text.decode("utf-8", "replace"))


def soname() -> str:
    """What the dynamic linker knows the library by."""
    return f"libobol.so.{_version.numbers(_version.VERSION)[0]}"


def declare(calls: ctypes.CDLL, path: str) -> None:
    """Gives the functions their types, and refuses a library of another version."""
    for name, (result, arguments) in SIGNATURES.items():
        try:
            function = getattr(calls, name)
        except AttributeError:
            raise _errors.LibraryError(
                f"{path} has no function {name}: it is older than this package ({_version.VERSION}), "
                "or not libobol"
            ) from None
        function.restype, function.argtypes = result, arguments
    version: str = calls.obol_version().decode()
    if not _version.is_fit(version):
        raise _errors.LibraryError(
            f"{path} has version {version}, and this package needs {_version.VERSION} or a later one of the "
            "same major version"
        )


@functools.cache
def load() -> Library:
    """Finds the library: the file that `OBOL_LIBRARY` names, or else where the dynamic linker looks."""
    chosen = os.environ.get(VARIABLE)
    path = chosen or soname()
    try:
        calls = ctypes.CDLL(path)
        # It costs less with the GIL held, and makes no system call.
        quick = ctypes.PyDLL(path)
    except OSError as error:
        source = f"{VARIABLE}={chosen}" if chosen else soname()
        raise _errors.LibraryError(f"{source} cannot be loaded: {error}") from error
    declare(calls, path)
    active = quick.obol_active
    active.restype = ctypes.c_bool
    return Library(calls, active)


def text(what: str, value: Optional[str]) -> Optional[bytes]:
    """A text argument; `None` selects the library's default."""
    if value is None:
        return None
    if "\0" in value:
        raise _errors.ArgumentError(f"{what} {value!r} has a zero byte")
    return value.encode("utf-8", "surrogateescape")


def nanoseconds(seconds: float) -> int:
    """A duration for the library; beyond 584 years it is that."""
    if not seconds >= 0:
        raise _errors.ArgumentError(f"a duration of {seconds} s is negative or no number")
    return _NS_MAX if seconds >= _NS_MAX / 1e9 else int(seconds * 1e9)
