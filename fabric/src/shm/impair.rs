//! Faults of links that a drill injects into shared memory, where no network is that could be broken.
//!
//! A region's entry in the cluster's table says what its owner's links suffer. Peers look at it before each operation, and
//! the owner at its own, so that both directions are hit and nobody has to be asked. A fault is of one owner: it names
//! the generation, and a successor's links are whole. The kernel's notices of deaths are no network, and come through.

/// What the links of a region's owner suffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Owners reach only those of the same island. All are on island 0 at first.
    pub island: u8,
    /// So many of a hundred datagrams from and to it are lost.
    pub loss_percent: u8,
    /// All multicast from and to it is lost.
    pub multicast_lost: bool,
    /// One-sided operations from and to it fail.
    pub operations_fail: bool,
}

const MULTICAST_LOST: u64 = 1 << 16;
const OPERATIONS_FAIL: u64 = 1 << 17;

impl Impairment {
    /// As a word of the table.
    pub(crate) fn word(self, generation: u32) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        u64::from(generation) << 32
            | u64::from(self.island)
            | u64::from(self.loss_percent) << 8
            | flag(self.multicast_lost, MULTICAST_LOST)
            | flag(self.operations_fail, OPERATIONS_FAIL)
    }

    /// From such a word, if it is about this generation; else none.
    pub(crate) fn of(word: u64, generation: u32) -> Self {
        if (word >> 32) as u32 != generation {
            return Self::default();
        }
        Self {
            island: word as u8,
            loss_percent: (word >> 8) as u8,
            multicast_lost: word & MULTICAST_LOST != 0,
            operations_fail: word & OPERATIONS_FAIL != 0,
        }
    }

    /// What lies between two owners.
    pub(crate) fn between(self, other: Self) -> Between {
        Between {
            cut: self.island != other.island,
            loss_percent: self.loss_percent.max(other.loss_percent),
            multicast_lost: self.multicast_lost || other.multicast_lost,
            operations_fail: self.operations_fail || other.operations_fail,
        }
    }
}

/// What a link suffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Between {
    pub(crate) cut: bool,
    pub(crate) loss_percent: u8,
    pub(crate) multicast_lost: bool,
    pub(crate) operations_fail: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impairment_is_of_one_owner() {
        let all = Impairment { island: 255, loss_percent: 100, multicast_lost: true, operations_fail: true };
        for one in [
            all,
            Impairment { island: 3, ..Impairment::default() },
            Impairment { loss_percent: 7, ..Impairment::default() },
            Impairment { multicast_lost: true, ..Impairment::default() },
            Impairment { operations_fail: true, ..Impairment::default() },
        ] {
            assert_eq!(Impairment::of(one.word(9), 9), one);
            assert_eq!(Impairment::of(one.word(9), 10), Impairment::default());
        }
    }

    #[test]
    fn who_is_on_the_same_island_is_reached() {
        let on = |island| Impairment { island, ..Impairment::default() };
        assert!(!on(0).between(on(0)).cut && !on(2).between(on(2)).cut);
        assert!(on(0).between(on(1)).cut && on(1).between(on(2)).cut);
    }
}
