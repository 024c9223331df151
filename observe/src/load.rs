//! What observing costs.

use std::ops::{AddAssign, Sub};

/// What an observer has read: the load of observing on the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// READs of a part of a region.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// READs repeated because of a concurrent writer.
    pub torn: u64,
}

impl Sub for Load {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(other.reads),
            bytes: self.bytes.saturating_sub(other.bytes),
            torn: self.torn.saturating_sub(other.torn),
        }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.bytes += other.bytes;
        self.torn += other.torn;
    }
}

impl Load {
    pub(crate) const fn read(&mut self, bytes: usize) {
        self.reads += 1;
        self.bytes += bytes as u64;
    }
}
