//! Links that a drill has cut: memory has none that could fail by itself. The list lies in the cluster's table, where every
//! process sees it at its next operation; while it is empty, that costs one load of a word that nobody writes.
//!
//! ```text
//! 0     used   places that were ever used
//! 1..   cuts   from << 32 | to, by region; 0 where there is none
//! ```

use crate::atomic::{AtomicU64, Ordering};

/// Directions that can be cut at once.
pub const CUTS_MAX: usize = 38;
/// Words of the list.
pub(crate) const WORDS: usize = 1 + CUTS_MAX;

/// The list, in its words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuts<'a>(pub(crate) &'a [AtomicU64]);

const fn word(from: u32, to: u32) -> u64 {
    (from as u64) << 32 | to as u64
}

impl Cuts<'_> {
    /// Cuts a direction; false if there is no room.
    pub(crate) fn cut(self, from: u32, to: u32) -> bool {
        let Some((used, places)) = self.0.split_first() else { return false };
        if self.is_cut(from, to) {
            return true;
        }
        let free = places.iter().position(|place| {
            place.compare_exchange(0, word(from, to), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if let Some(at) = free {
            used.fetch_max(at as u64 + 1, Ordering::AcqRel);
        }
        free.is_some()
    }

    /// Mends a direction.
    pub(crate) fn mend(self, from: u32, to: u32) {
        for place in self.0.iter().skip(1) {
            let _ = place.compare_exchange(word(from, to), 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Mends all.
    pub(crate) fn clear(self) {
        self.0.iter().skip(1).for_each(|place| place.store(0, Ordering::Release));
    }

    /// The directions that are cut.
    pub(crate) fn all(self) -> impl Iterator<Item = (u32, u32)> {
        let words = self.0.iter().skip(1).map(|place| place.load(Ordering::Acquire));
        words.filter(|word| *word != 0).map(|word| ((word >> 32) as u32, word as u32))
    }

    /// Whether nothing gets from one region to the other.
    #[inline]
    pub(crate) fn is_cut(self, from: u32, to: u32) -> bool {
        let used = self.0.first().map_or(0, |used| used.load(Ordering::Relaxed)) as usize;
        used > 0
            && self.0.iter().skip(1).take(used).any(|place| place.load(Ordering::Relaxed) == word(from, to))
    }

    /// Whether an operation of one region's owner on the other does not come back.
    #[inline]
    pub(crate) fn is_apart(self, a: u32, b: u32) -> bool {
        self.is_cut(a, b) || self.is_cut(b, a)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn directions_are_cut_and_mended_one_by_one_until_the_list_is_full() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let cuts = Cuts(&words);
        assert!(!cuts.is_cut(8, 9));
        assert!(cuts.cut(8, 9) && cuts.cut(8, 9) && cuts.cut(9, 10));
        assert!(cuts.is_cut(8, 9) && !cuts.is_cut(9, 8) && cuts.is_apart(9, 8));
        assert_eq!(cuts.all().collect::<Vec<_>>(), [(8, 9), (9, 10)]);
        cuts.mend(8, 9);
        assert!(!cuts.is_cut(8, 9) && cuts.is_cut(9, 10));
        assert!((100..100 + CUTS_MAX as u32 - 1).all(|to| cuts.cut(1, to)));
        assert!(!cuts.cut(1, 2), "full");
        cuts.clear();
        assert_eq!(cuts.all().count(), 0);
    }
}
