//! Positions in the log: indexes, terms, and offsets.

use derive_more::Display;

/// The number of an entry, from 1; 0 stands for before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
pub struct Index(pub u64);

impl Index {
    /// The index after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// The period of one leader. Later leaders have higher terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Display)]
pub struct Term(pub u64);

/// An offset in the log, in bytes since its beginning, with the gaps at the ends of laps: it is the
/// same in every ring, and says in which lap and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Offset(pub(crate) u64);

/// A prefix of the log: up to this entry, which ends at this offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Point {
    /// The last entry.
    pub(crate) index: Index,
    /// Where it ends.
    pub(crate) at: Offset,
}
