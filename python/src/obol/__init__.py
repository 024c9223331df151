"""Membership for microsecond clusters: who is alive, and whether this program may act now.

    import obol

    with obol.join("node-1", "web-1") as app:
        view = app.wait_active()
        with app.guard(view):
            answer = serve()
        for failure in app.failures():
            print(failure.name, failure.reason.name)

It is a thin layer over `libobol`, by `ctypes`: it installs without a compiler. docs/python.md says more.
"""

from __future__ import annotations

from ._app import App, Embedded, Guard, attach, embed, join, library_version
from ._errors import (
    AgentDied,
    ArgumentError,
    Closed,
    ClusterError,
    Error,
    Forked,
    Inactive,
    LibraryError,
    Status,
    Timeout,
)
from ._streams import Stream
from ._version import VERSION as __version__
from ._view import Failure, Kind, Member, Reason, View

__all__ = [
    "AgentDied",
    "App",
    "ArgumentError",
    "Closed",
    "ClusterError",
    "Embedded",
    "Error",
    "Failure",
    "Forked",
    "Guard",
    "Inactive",
    "Kind",
    "LibraryError",
    "Member",
    "Reason",
    "Status",
    "Stream",
    "Timeout",
    "View",
    "__version__",
    "attach",
    "embed",
    "join",
    "library_version",
]
