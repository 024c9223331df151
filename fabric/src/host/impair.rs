//! Link faults that drills inject into shared memory, which has no network that could break.
//!
//! A region's entry in the cluster's table describes the faults of its owner's links. Peers check
//! it before each operation, and the owner checks its own, so both directions are affected without
//! cooperation. A fault applies to one owner: it names the generation, and a successor's links are
//! unaffected. The kernel's death notices are not subject to it.

use crate::host::numbers::REGIONS;
use crate::types::Nanos;

/// The impairment of a region's owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Impairment {
    /// Owners reach only those of the same island. Initially all are on island 0.
    pub island: u8,
    /// The percentage of datagrams from and to it that are lost.
    pub loss_percent: u8,
    /// All multicast from and to it is lost.
    pub multicast_lost: bool,
    /// One-sided operations from and to it fail.
    pub operations_fail: bool,
    /// The region of a peer that receives nothing from this owner, while all others do; 0 for none.
    /// Operations between the two fail in both directions, because they need both.
    pub unheard_at: u16,
    /// The delay of operations and datagrams from and to it, in whole microseconds, rounded up.
    pub delay: Nanos,
}

const MULTICAST_LOST: u64 = 1 << 16;
const OPERATIONS_FAIL: u64 = 1 << 17;
const UNHEARD_SHIFT: u32 = 18;
const NANOS_PER_MICRO: u64 = 1_000;
const UNHEARD_MASK: u64 = REGIONS as u64 - 1;
const _: () = assert!(REGIONS.is_power_of_two() && UNHEARD_MASK << UNHEARD_SHIFT < 1 << 32);

impl Impairment {
    /// Encodes it as words of the table.
    pub(crate) fn words(self, generation: u32) -> [u64; 2] {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let owner = u64::from(generation) << 32;
        let what = u64::from(self.island)
            | u64::from(self.loss_percent) << 8
            | flag(self.multicast_lost, MULTICAST_LOST)
            | flag(self.operations_fail, OPERATIONS_FAIL)
            | (u64::from(self.unheard_at) & UNHEARD_MASK) << UNHEARD_SHIFT;
        let micros = u32::try_from(self.delay.0.div_ceil(NANOS_PER_MICRO)).unwrap_or(u32::MAX);
        [owner | what, owner | u64::from(micros)]
    }

    /// Decodes such words, if they are of this generation; otherwise none.
    pub(crate) fn of([word, delay]: [u64; 2], generation: u32) -> Self {
        if (word >> 32) as u32 != generation {
            return Self::default();
        }
        let delays = (delay >> 32) as u32 == generation;
        Self {
            island: word as u8,
            loss_percent: (word >> 8) as u8,
            multicast_lost: word & MULTICAST_LOST != 0,
            operations_fail: word & OPERATIONS_FAIL != 0,
            unheard_at: (word >> UNHEARD_SHIFT & UNHEARD_MASK) as u16,
            delay: if delays { Nanos(u64::from(delay as u32) * NANOS_PER_MICRO) } else { Nanos::ZERO },
        }
    }

    /// The impairment of the link from the owner of region `me` to that of `peer`.
    pub(crate) fn between(self, me: u32, other: Self, peer: u32) -> LinkImpairment {
        LinkImpairment {
            cut: self.island != other.island || u32::from(self.unheard_at) == peer,
            loss_percent: self.loss_percent.max(other.loss_percent),
            multicast_lost: self.multicast_lost || other.multicast_lost,
            operations_fail: self.operations_fail
                || other.operations_fail
                || u32::from(other.unheard_at) == me,
        }
    }
}

/// The impairment of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkImpairment {
    pub cut: bool,
    pub(crate) loss_percent: u8,
    pub(crate) multicast_lost: bool,
    pub operations_fail: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_impairment_is_of_one_owner() {
        let all = Impairment {
            island: 255,
            loss_percent: 100,
            multicast_lost: true,
            operations_fail: true,
            unheard_at: 8,
            delay: Nanos::from_secs(3),
        };
        for one in [
            all,
            Impairment { island: 3, ..Impairment::default() },
            Impairment { loss_percent: 7, ..Impairment::default() },
            Impairment { multicast_lost: true, ..Impairment::default() },
            Impairment { operations_fail: true, ..Impairment::default() },
            Impairment { unheard_at: 1023, ..Impairment::default() },
            Impairment { delay: Nanos::from_micros(1), ..Impairment::default() },
        ] {
            assert_eq!(Impairment::of(one.words(9), 9), one);
            assert_eq!(Impairment::of(one.words(9), 10), Impairment::default());
        }
        let short = Impairment { delay: Nanos(1), ..Impairment::default() };
        assert_eq!(
            Impairment::of(short.words(9), 9).delay,
            Nanos::from_micros(1),
            "never less than was asked for"
        );
    }

    #[test]
    fn who_is_on_the_same_island_is_reached() {
        let on = |island| Impairment { island, ..Impairment::default() };
        let cut = |one, other| on(one).between(8, on(other), 9).cut;
        assert!(!cut(0, 0) && !cut(2, 2) && cut(0, 1) && cut(1, 2));
    }

    #[test]
    fn a_link_can_be_cut_one_way_to_a_single_peer() {
        let (whole, mute) = (Impairment::default(), Impairment { unheard_at: 9, ..Impairment::default() });
        let there = mute.between(8, whole, 9);
        let back = whole.between(9, mute, 8);
        assert!(there.cut && !back.cut && back.operations_fail);
        assert_eq!(mute.between(8, whole, 10), whole.between(8, whole, 10));
        assert_eq!(whole.between(10, mute, 8), LinkImpairment::default());
    }
}
