//! The recent views of a coordinator, each with the time at which it learned of the view: who may
//! hold which lease.

use crate::view::View;
use obol_fabric::{Instant, ViewId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Views kept. A coordinator that must clear older leases waits for them instead.
pub const LOG_VIEWS_MAX: usize = 64;

/// A view and when it was learned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    pub view: Arc<View>,
    /// When this coordinator learned that it is decided.
    pub learned: Instant,
}

/// Consecutive views, oldest first; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Log(VecDeque<Entry>);

impl Log {
    /// A log of one view.
    pub fn new(view: Arc<View>, learned: Instant) -> Self {
        Self(VecDeque::from([Entry { view, learned }]))
    }

    /// The newest view.
    pub fn newest(&self) -> &Entry {
        &self.0[self.0.len() - 1]
    }

    /// Adds a later view. After a gap, the earlier entries are dropped.
    pub fn push(&mut self, view: Arc<View>, learned: Instant) {
        let newest = self.newest();
        assert!(view.id > newest.view.id, "views are learned in order");
        if view.id != newest.view.id.next() {
            self.0.clear();
        } else if self.0.len() == LOG_VIEWS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Entry { view, learned });
        assert!(self.0.len() <= LOG_VIEWS_MAX);
    }

    /// Replaces the newest view by an equal copy, to share its memory.
    pub fn share_newest(&mut self, same: &Arc<View>) {
        if let Some(newest) = self.0.back_mut() {
            assert_eq!(newest.view.id, same.id);
            newest.view = Arc::clone(same);
        }
    }

    /// The view with this id, if it is kept.
    pub fn get(&self, id: ViewId) -> Option<&Entry> {
        let first = self.0.front()?.view.id;
        let entry = self.0.get(usize::try_from(id.0.checked_sub(first.0)?).ok()?)?;
        assert_eq!(entry.view.id, id, "kept views are consecutive");
        Some(entry)
    }

    /// Views that name every holder of the views in `[from, to)`, or `None` if the log does not
    /// know them.
    ///
    /// Missing views do not matter if they are of the same run as the oldest one kept: that one
    /// names the same holders.
    pub fn range(&self, from: ViewId, to: ViewId) -> Option<impl Iterator<Item = &Entry>> {
        let oldest = &self.0.front()?.view;
        if from < oldest.base || from > self.newest().view.id {
            return None;
        }
        Some(self.0.iter().filter(move |e| from <= e.view.id && e.view.id < to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::ActiveMutant;
    use crate::view::Edit;
    use obol_fabric::{Address, Name, Nanos};

    #[test]
    fn a_run_is_known_by_any_of_its_views() {
        let name = Name::new("coord-1").expect("a name");
        let genesis = View::genesis(&[(name, Address::region(1))], Nanos(10), Nanos(10));
        let settle = |view: &View| view.successor(&Edit::default(), view.cleared, ActiveMutant::NONE);
        let two = settle(&settle(&genesis));
        // Only the newest view of the run is kept, as after a jump.
        let log = Log::new(Arc::new(two.clone()), Instant(5));
        assert_eq!(log.range(ViewId(0), ViewId(3)).map(Iterator::count), Some(1));
        let other_run = View { base: ViewId(2), ..two };
        let log = Log::new(Arc::new(other_run), Instant(5));
        assert!(log.range(ViewId(1), ViewId(3)).is_none(), "holders of an earlier run are not known");
    }
}
