//! The gate of a rollout: figures of a cluster before it and since its begin, limits on them, and
//! a verdict. It reads the cluster and changes nothing but through the command that rolls out.

mod command;
mod forwarder;
mod gate;
mod judge;
mod limit;
mod period;
mod report;
mod roster;
#[cfg(test)]
mod scenarios;
mod track;
mod watcher;

pub use gate::{Gate, Plan, Progress};
pub use judge::{Ahead, Compared, Periods, judge};
pub use limit::{Bound, Limit, LimitError, Subject};
pub use period::Period;
pub use report::{Ended, Outcome, Report};
pub use roster::{Looks, Roster};
pub use watcher::Watcher;

use obol_observe::named_enum;
use obol_term::output::{INTERRUPTED, VOID};

named_enum! {
    /// How a rollout ended.
    Verdict {
        /// The command succeeded, and every limit held.
        Passed = "passed",
        /// A limit did not hold, the end was worse than the beginning, or what was exercised failed afterwards.
        Failed = "failed",
        CommandFailed = "command-failed",
        /// A limit could not hold any more, and the command was ended.
        Aborted = "aborted",
        /// A signal ended it.
        Interrupted = "interrupted",
        /// A limit could not be judged, because there were too few samples.
        Void = "void",
    }
}

impl Verdict {
    /// The exit code of the program.
    pub const fn code(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed => 1,
            Self::CommandFailed => 3,
            Self::Aborted => 4,
            Self::Interrupted => INTERRUPTED,
            Self::Void => VOID,
        }
    }

    /// Whether the rollout should be undone: all but a success and an unknown outcome.
    pub const fn is_bad(self) -> bool {
        !matches!(self, Self::Passed | Self::Void)
    }
}
