//! What becomes of the store when a replica leaves.

/// What becomes of the store when a replica leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Departure {
    /// The others continue, or this replica had nothing.
    Left,
    /// No other replica has the store.
    Last,
    /// The others cannot continue, at least not yet.
    Pending,
}
