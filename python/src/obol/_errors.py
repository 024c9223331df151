"""What can go wrong, and what to do next."""

from __future__ import annotations

import enum
from typing import ClassVar, Optional


class Status(enum.IntEnum):
    """The result of a call of the library, as `obol_status` in `obol.h`."""

    OK = 0
    ARGUMENT = 1
    CLUSTER = 2
    AGENT_DIED = 3
    TIMEOUT = 4
    FORKED = 5
    INACTIVE = 6
    UNKNOWN = 7


class Error(Exception):
    """An error of obol. Its text says what happened, and what to do next.

    `status` is that of the library, one of `Status` or of a later version; `None` if the library was not asked.
    """

    status: Optional[int] = None
    #: What to do next; part of the text.
    next_step: ClassVar[str] = "`obol status` shows the state of the cluster"

    def __init__(self, text: str) -> None:
        super().__init__(f"{text}; {self.next_step}")
        #: What happened, without what to do next.
        self.text = text


class LibraryError(Error, ImportError):
    """`libobol` is not to be found, or does not fit this package."""

    next_step = (
        "install the package libobol0 (rpm: libobol), or let OBOL_LIBRARY be the path of a libobol.so: "
        "`capi/install PREFIX` of obol's sources makes PREFIX/lib/libobol.so"
    )


class ArgumentError(Error, ValueError):
    """An argument is not a valid name or text."""

    status = Status.ARGUMENT
    next_step = "correct this argument"


class ClusterError(Error):
    """The cluster cannot be used: it does not run here, has no live agent of that name, keeps the name for
    another process, or has no seat left."""

    status = Status.CLUSTER
    next_step = "`obol status` shows whether the cluster runs under this root, and who is a member"


class AgentDied(Error):
    """The agent of this node died, or the program's own core ended. The membership is over."""

    status = Status.AGENT_DIED
    next_step = "call `attach_again` and then `join`, and open streams anew"


class Timeout(Error, TimeoutError):
    """The operation did not complete in the given time."""

    status = Status.TIMEOUT
    next_step = "call it again or allow more time; `obol status` shows what the cluster lacks"


class Forked(Error):
    """The handle belongs to the parent of this forked process, which alone is the member."""

    status = Status.FORKED
    next_step = "attach in the child, under a name of its own"


class Inactive(Error):
    """The view is not active now: there is no lease on it, or this program is not a member of it. Work that was
    done in it does not count."""

    status = Status.INACTIVE
    next_step = "discard the work, and get a view by `wait_active`; call `join` first if `is_excluded`"


class Closed(Error):
    """The handle or stream was closed."""

    next_step = "open another one"


_BY_STATUS: dict[int, type[Error]] = {
    int(kind.status): kind
    for kind in (ArgumentError, ClusterError, AgentDied, Timeout, Forked, Inactive)
    if kind.status is not None
}


def of_status(status: int, text: str) -> Error:
    """The exception for a status other than `OK`."""
    if status in _BY_STATUS:
        return _BY_STATUS[status](text)
    error = Error(f"status {status}: {text}")
    error.status = status
    return error
