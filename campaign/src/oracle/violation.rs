//! What the oracle says after a step: that an invariant is violated, and what it saw.

use std::fmt;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The row of the table of invariants.
    pub row: u8,
    /// True time in nanoseconds.
    pub time: u64,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} at {} ns: {}", self.row, self.time, self.what)
    }
}

/// The result of a check.
pub(crate) type Verdict = Result<(), Violation>;

/// A violation: row, time, and description, as for [`format!`].
macro_rules! broken {
    ($row:expr, $time:expr, $($what:tt)+) => {
        Err($crate::oracle::Violation { row: $row, time: $time, what: format!($($what)+) })
    };
}
pub(crate) use broken;

/// An observation that can trigger a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// A holder renewed its lease or took one.
    Renewed(u32),
    /// This coordinator is about to propose a value in a slot.
    Proposed(u32),
    /// An acceptor that has accepted a value promised this coordinator a higher number.
    Outbid(u32),
    /// An acceptor was the first to accept a value in a slot.
    Accepted,
    /// A view was decided.
    Chosen,
    ClearSent,
    /// A coordinator began to lead.
    Takeover,
}
