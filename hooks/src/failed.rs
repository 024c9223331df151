//! Why an attempt to deliver failed.

use std::time::Duration;

/// Why an event was not delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// Another attempt may succeed.
    #[error("{why}")]
    Later {
        /// Why not.
        why: String,
        /// The pause that the receiver asks for.
        after: Option<Duration>,
    },
    /// No other attempt will.
    #[error("{why}; that will not change")]
    Never {
        /// Why not.
        why: String,
    },
}
