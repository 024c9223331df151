//! Why a handle shows nothing new any more, and why a view is not active: what a program has to
//! know to do something about it.

use obol_fabric::Name;
use std::fmt;

/// Why nothing more comes from a handle: of a program, of a stream, of an observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The program's agent died. The membership goes with it: attach again, to the agent's
    /// successor or to another.
    AgentDied(Name),
    /// The core that the program embeds has ended.
    CoreEnded(Name),
    /// The handle belongs to the process that this one was forked from, which alone is the member.
    Forked,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentDied(agent) => {
                write!(f, "{agent}, the agent of this node, died; attach again when it is back")
            }
            Self::CoreEnded(name) => write!(f, "the core of {name} has ended; start it again"),
            Self::Forked => f.write_str(
                "this process was forked from the one that opened the handle, which alone is the member; \
                 attach, embed or observe after the fork",
            ),
        }
    }
}

impl std::error::Error for Lost {}

/// Why a view is not active for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// Nothing more comes from this handle.
    Lost(Lost),
    /// The program is no member of this view. A newer one may have it; if not, it joins again.
    NotMine,
    /// There is no lease on this view now: it has not begun, has ended, or a later view is active.
    NoLease,
}

impl fmt::Display for Inactive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::NotMine => {
                f.write_str("this program is no member of this view; look at the newest, or join again")
            }
            Self::NoLease => f.write_str(
                "there is no lease on this view now; look at the newest, and wait until it is active",
            ),
        }
    }
}

impl std::error::Error for Inactive {}

impl From<Lost> for Inactive {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}
