"""Views: the members of the cluster."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import functools
from typing import Optional

from ._library import FailureStruct, Handle, Library, MemberStruct


class Kind(enum.IntEnum):
    """What a member is."""

    #: No longer recorded, or of a kind that only a later version of this package knows.
    UNKNOWN = 0
    COORDINATOR = 1
    AGENT = 2
    APP = 3
    LEASE_CACHE = 4

    @classmethod
    def _missing_(cls, value: object) -> Kind:
        return cls.UNKNOWN


class Reason(enum.IntEnum):
    """Why a member was reported as failed."""

    #: The view that names it was superseded before the program polled.
    UNKNOWN = 0
    #: The kernel reported the end of the process.
    DEADBEAT = 1
    #: Its heartbeat stood still.
    HEARTBEAT = 2
    #: Its host did not answer.
    TIMEOUT = 3
    #: It was removed with its agent.
    HOST = 4
    #: A later process took its place.
    REPLACED = 5
    #: Its process lives, but it broke its promise of progress.
    PROGRESS = 6

    @classmethod
    def _missing_(cls, value: object) -> Reason:
        return cls.UNKNOWN


@dataclasses.dataclass(frozen=True)
class Member:
    """One life of one process in the cluster."""

    #: Its identity; never used again for another.
    incarnation: int
    #: What operators call it.
    name: str
    kind: Kind
    #: The agent whose lease it acts under; `None` if it has its own.
    host: Optional[int]

    @classmethod
    def of(cls, raw: MemberStruct) -> Member:
        return cls(raw.incarnation, raw.name.decode(), Kind(raw.kind), raw.host or None)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A member that was removed because it failed."""

    incarnation: int
    #: Empty if it joined and failed between two polls.
    name: str
    kind: Kind
    reason: Reason
    #: The first view without it.
    view: int
    #: Who reported it; `None` if the view that says so was superseded before the program polled.
    accuser: Optional[int]

    @classmethod
    def of(cls, raw: FailureStruct) -> Failure:
        name = raw.name.decode()
        return cls(raw.incarnation, name, Kind(raw.kind), Reason(raw.reason), raw.view, raw.accuser or None)


@dataclasses.dataclass(frozen=True)
class View:
    """The members of the cluster, as the program that read the view sees it. Threads may share it."""

    #: 1 more than its predecessor's.
    id: int
    #: Whether the program is a member of it. Only then can it be active for the program.
    is_mine: bool
    _library: Library = dataclasses.field(repr=False, compare=False)
    _handle: Handle = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls, library: Library, pointer: int) -> View:
        """Takes over a view that the library has given."""
        calls = library.calls
        handle = Handle(pointer, calls.obol_view_free)
        return cls(calls.obol_view_id(handle), calls.obol_view_is_mine(handle), library, handle)

    @functools.cached_property
    def members(self) -> tuple[Member, ...]:
        """The members in the order of their incarnations: the oldest is the first."""
        calls, raw, found = self._library.calls, MemberStruct(), []
        for index in range(calls.obol_view_members(self._handle)):
            if calls.obol_view_member(self._handle, index, ctypes.byref(raw)):
                found.append(Member.of(raw))
        return tuple(found)
