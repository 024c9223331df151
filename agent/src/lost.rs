//! Why a handle is no longer usable, and why a view is not active, so that a program can react.

use obol_fabric::Name;
use thiserror::Error;

/// Why a handle (of a program, a stream or an observer) is no longer usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Lost {
    /// The program's agent died, and the membership with it: attach again, to the agent's successor
    /// or to another agent.
    #[error("{0}, the agent of this node, died; attach again when it is back")]
    AgentDied(Name),
    /// The program's embedded core has ended.
    #[error("the core of {0} has ended; start it again")]
    CoreEnded(Name),
    /// The handle belongs to the parent of this forked process, which alone is the member.
    #[error(
        "this process was forked from the one that opened the handle, which alone is the member; \
         attach, embed or observe after the fork"
    )]
    Forked,
}

/// Why a view is not active for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Inactive {
    /// The handle is no longer usable.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The program is not a member of this view. A newer one may include it; if not, it joins again.
    #[error("this program is not a member of this view; take the newest view, or join again")]
    NotMine,
    /// There is no valid lease on this view: it has not begun, has ended, or a later view is
    /// active.
    #[error("there is no lease on this view now; take the newest view, and wait until it is active")]
    NoLease,
}
