//! Why a handle shows nothing new any more, and why a view is not active: what a program has to
//! know to do something about it.

use obol_fabric::Name;
use thiserror::Error;

/// Why nothing more comes from a handle: of a program, of a stream, of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// The program's agent died. The membership goes with it: attach again, to the agent's
    /// successor or to another.
    #[error("{0}, the agent of this node, died; attach again when it is back")]
    AgentDied(Name),
    /// The core that the program embeds has ended.
    #[error("the core of {0} has ended; start it again")]
    CoreEnded(Name),
    /// The handle belongs to the process that this one was forked from, which alone is the member.
    #[error(
        "this process was forked from the one that opened the handle, which alone is the member; \
         attach, embed or observe after the fork"
    )]
    Forked,
}

/// Why a view is not active for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Inactive {
    /// Nothing more comes from this handle.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The program is no member of this view. A newer one may have it; if not, it joins again.
    #[error("this program is no member of this view; look at the newest, or join again")]
    NotMine,
    /// There is no lease on this view now: it has not begun, has ended, or a later view is active.
    #[error("there is no lease on this view now; look at the newest, and wait until it is active")]
    NoLease,
}
