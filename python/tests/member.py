"""A member, for tests/python.rs: `member.py AGENT NAME ROOT VICTIM`. It says what it sees, a line each, and ends
after the death of VICTIM, which is killed once it says `watches`."""

import asyncio
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

import obol

T = TypeVar("T")

WAIT_SECONDS = 60.0


def say(*words: object) -> None:
    print(*words, flush=True)


def refusal(act: Callable[[], object]) -> str:
    """The error of an act that has to fail."""
    try:
        act()
    except obol.Error as error:
        return type(error).__name__
    return "none"


def in_child(act: Callable[[], str]) -> str:
    """What a forked child says."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, act().encode())
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


def forks(app: obol.App, view: obol.View, arguments: tuple[str, str, str]) -> None:
    agent, name, root = arguments
    stream = app.failures()

    def child() -> str:
        acts: list[Callable[[], object]] = [
            app.join,
            app.leave,
            app.newest_view,
            app.failures,
            app.attach_again,
            stream.next,
            lambda: app.check(view),
        ]
        refused = [refusal(act) for act in acts]
        is_active = app.active(view)
        app.close()
        with obol.join(agent, f"{name}-child", root=root) as own:
            joined = repeated(own, lambda view: view.is_mine)
        return f"{' '.join(refused)} active {is_active} joins {joined}"

    # A thread of the parent is in a call at the fork, and has the stream's lock.
    waiter = threading.Thread(target=lambda: list(stream), daemon=True)
    waiter.start()
    say("child", in_child(child))
    say("parent is active", repeated(app, lambda view: view.is_mine))
    stream.close()
    waiter.join()


def repeated(app: obol.App, act: Callable[[obol.View], T]) -> T:
    """What an act returns in an active view. On a busy machine a lease may end, or a member be excluded, at any
    moment: the act does not count then, and is done again."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return act(app.wait_active(WAIT_SECONDS))
        except obol.Inactive:
            if time.monotonic() >= end:
                raise
            if app.is_excluded:
                app.join(WAIT_SECONDS)


def guards(app: obol.App) -> None:
    @app.guarded
    def serve(question: str) -> str:
        return question.upper()

    say("guarded", repeated(app, lambda _: serve("work")))
    is_same = repeated(app, lambda view: app.guard_within(WAIT_SECONDS, lambda seen: seen is view, view))
    say("guard_within", is_same)
    repeated(app, lambda view: app.confirm(view, WAIT_SECONDS))
    say("confirmed")


async def failure_of(stream: obol.Stream[obol.Failure], victim: str) -> obol.Failure:
    async for failure in stream:
        if failure.name == victim:
            return failure
    raise AssertionError("the stream has ended")


def main(agent: str, name: str, root: str, victim: str) -> None:
    say("refused", refusal(lambda: obol.attach("node-9", name, root=root)))
    say("refused", refusal(lambda: obol.attach(agent, "no name", root=root)))
    with obol.attach(agent, name, root=root) as app:
        app.join(WAIT_SECONDS)
        old = repeated(app, lambda view: view)
        say("member", [member.kind.name for member in old.members if member.name == name])
        say("refused", refusal(lambda: obol.attach(agent, name, root=root)))
        guards(app)
        forks(app, old, (agent, name, root))
        failures, views = app.failures(), app.views()
        say("first view", views.next(WAIT_SECONDS).id >= old.id)
        say("watches")
        failure = asyncio.run(asyncio.wait_for(failure_of(failures, victim), WAIT_SECONDS))
        say("failed", failure.name, failure.kind.name)
        later = next(view for view in views if view.id >= failure.view)
        say("still in the view", failure.incarnation in [member.incarnation for member in later.members])
        say("old view", repeated(app, lambda _: app.active(old)))
    say("closed", refusal(app.join), app.active(old))


if __name__ == "__main__":
    main(*sys.argv[1:])
