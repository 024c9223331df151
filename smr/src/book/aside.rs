//! What a book keeps besides its state: a save that is under way, and what is to be dropped.

use super::{Asks, Bids, Orders, Side};
use core::cmp::Reverse;
use core::hash::{Hash, Hasher};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Orders or levels of one map that [`Aside::work`] drops at once.
const DROPPED: usize = 64;

/// An order that rests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) side: Side,
    pub(super) price: u64,
    pub(super) quantity: u64,
}

/// A save that is under way, of the orders up to the newest one when it began.
#[derive(Clone, Debug)]
struct Save {
    newest: u64,
    /// All orders up to this one are written.
    upto: u64,
    is_begun: bool,
    /// Orders that are not written yet, and were changed or taken out since the save began, as they were.
    kept: BTreeMap<u64, Image>,
}

/// Where a save is.
#[derive(Clone, Copy)]
pub(super) struct Former {
    pub(super) newest: u64,
    pub(super) upto: u64,
    /// It has written something.
    pub(super) is_begun: bool,
}

/// The maps of a book that is not needed any more.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    pub(super) bids: Bids,
    pub(super) asks: Asks,
    pub(super) bid_levels: BTreeMap<Reverse<u64>, u128>,
    pub(super) ask_levels: BTreeMap<u64, u128>,
    pub(super) orders: Orders,
}

/// What does not belong to the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Aside {
    save: Option<Save>,
    /// Nothing was loaded yet.
    is_blank: bool,
    dropped: Vec<Rest>,
    dropped_kept: Vec<BTreeMap<u64, Image>>,
    #[cfg(feature = "mutants")]
    saves_late: bool,
}

impl PartialEq for Aside {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Aside {}

impl Hash for Aside {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Aside {
    /// Of a book to load parts into.
    pub(super) fn blank() -> Self {
        Self { is_blank: true, ..Self::default() }
    }

    pub(super) const fn is_blank(&self) -> bool {
        self.is_blank
    }

    pub(super) const fn set_loaded(&mut self) {
        self.is_blank = false;
    }

    pub(super) fn begin_save(&mut self, newest: u64) {
        self.end_save();
        self.save = Some(Save { newest, upto: 0, is_begun: false, kept: BTreeMap::new() });
    }

    /// Whether a save needs this order, and does not have it as it was.
    pub(super) fn needs(&self, order: u64) -> bool {
        #[cfg(feature = "mutants")]
        if self.saves_late {
            return false;
        }
        let is_needed = |save: &Save| order > save.upto && order <= save.newest;
        self.save.as_ref().is_some_and(|save| is_needed(save) && !save.kept.contains_key(&order))
    }

    /// Keeps an order as it is.
    pub(super) fn keep(&mut self, order: u64, image: Image) {
        if let Some(save) = &mut self.save {
            save.kept.insert(order, image);
        }
    }

    /// Where the save is, if one is under way.
    pub(super) fn former(&self) -> Option<Former> {
        self.save.as_ref().map(|&Save { newest, upto, is_begun, .. }| Former { newest, upto, is_begun })
    }

    /// The first order that is kept.
    pub(super) fn first_kept(&self) -> Option<u64> {
        self.save.as_ref()?.kept.first_key_value().map(|(order, _)| *order)
    }

    /// That order as it was, which is written now.
    pub(super) fn take_kept(&mut self) -> Option<Image> {
        self.save.as_mut()?.kept.pop_first().map(|(_, image)| image)
    }

    /// The orders up to this one are written; `None` for all of them. Returns whether that was the last part.
    pub(super) fn saved(&mut self, upto: Option<u64>) -> bool {
        match (upto, &mut self.save) {
            (Some(upto), Some(save)) => (save.upto, save.is_begun) = (upto, true),
            _ => self.end_save(),
        }
        upto.is_none()
    }

    /// Ends a save that is not needed any more.
    pub(super) fn end_save(&mut self) {
        let kept = self.save.take().map(|save| save.kept).filter(|kept| !kept.is_empty());
        self.dropped_kept.extend(kept);
    }

    /// Takes what is not needed any more, to drop it in steps.
    pub(super) fn discard(&mut self, rest: Rest, mut of: Self) {
        of.end_save();
        self.dropped.append(&mut of.dropped);
        self.dropped_kept.append(&mut of.dropped_kept);
        self.dropped.push(rest);
    }

    /// Drops some of it. Returns whether more is left.
    pub(super) fn work(&mut self) -> bool {
        if let Some(rest) = self.dropped.last_mut() {
            if rest.drop_some() {
                self.dropped.pop();
            }
        } else if let Some(kept) = self.dropped_kept.last_mut()
            && has_dropped_all(kept, DROPPED)
        {
            self.dropped_kept.pop();
        }
        !self.dropped.is_empty() || !self.dropped_kept.is_empty()
    }

    /// Has saves see what is changed after they began.
    #[cfg(feature = "mutants")]
    pub(super) const fn save_late(&mut self) {
        self.saves_late = true;
    }
}

impl Rest {
    /// Returns whether nothing is left.
    fn drop_some(&mut self) -> bool {
        has_dropped_all(&mut self.bids, DROPPED)
            && has_dropped_all(&mut self.asks, DROPPED)
            && has_dropped_all(&mut self.orders, DROPPED)
            && has_dropped_all(&mut self.bid_levels, DROPPED)
            && has_dropped_all(&mut self.ask_levels, DROPPED)
    }
}

/// Drops some entries of a map; returns whether there are no others.
fn has_dropped_all<K: Ord, V>(map: &mut BTreeMap<K, V>, most: usize) -> bool {
    (0..most).any(|_| map.pop_first().is_none())
}

/// An order of a level has another quantity. A level without an order is removed.
pub(super) fn count<K: Ord>(levels: &mut BTreeMap<K, u128>, price: K, before: u64, now: u64) {
    let (before, now) = (u128::from(before), u128::from(now));
    match levels.entry(price) {
        Entry::Vacant(level) => {
            level.insert(now);
        }
        Entry::Occupied(mut level) => match *level.get() - before + now {
            0 => {
                level.remove();
            }
            sum => *level.get_mut() = sum,
        },
    }
}
