//! Next views that a leader makes while it idles, one for the death of each other member, so that it
//! has only to propose when one dies.

use super::Coordinator;
use crate::view::{Change, Edit, Reason, View};
use obol_fabric::ViewId;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Views that are kept. In larger clusters the last members' deaths have none.
const VIEWS_MAX: usize = 64;

/// A view and its frame.
type Framed = (Arc<View>, Arc<[u8]>);

/// Successors of one view by their edits: a cache, so that machines with and without it are equal.
#[derive(Clone, Debug, Default)]
pub(super) struct Prepared {
    /// What they follow, and the CLEAR that they record.
    after: (ViewId, ViewId),
    views: Vec<(Edit, Framed)>,
}

impl PartialEq for Prepared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Prepared {}

impl Hash for Prepared {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Coordinator {
    /// The view after the newest one with this edit, and its frame.
    pub(super) fn successor(&self, edit: &Edit) -> Framed {
        let (view, mutant) = (self.view(), self.peer.config.mutant);
        let is_current = self.prepared.after == (view.id, self.cleared);
        let mut prepared = self.prepared.views.iter().filter(|_| is_current);
        let make = || Arc::new(view.successor(edit, self.cleared, mutant));
        if let Some((_, framed)) = prepared.find(|(prepared, _)| prepared == edit) {
            debug_assert_eq!(framed.0, make(), "a view is a function of its predecessor, edit and CLEAR");
            return framed.clone();
        }
        let next = make();
        let frame = next.to_frame();
        (next, frame)
    }

    /// Prepares one more view.
    pub(super) fn prepare_view(&mut self) {
        let Some(me) = self.incarnation().filter(|_| self.leading) else { return };
        let after = (self.view().id, self.cleared);
        if self.prepared.after != after {
            self.prepared = Prepared { after, views: Vec::new() };
        }
        let others = self.view().members.iter().map(|m| m.incarnation).filter(|who| *who != me);
        let next = others.take(VIEWS_MAX).nth(self.prepared.views.len());
        if let Some(accused) = next {
            let failed = Change::Failed { accused, accuser: me, reason: Reason::Deadbeat };
            let edit = Edit { remove: vec![failed], ..Edit::default() };
            let framed = self.successor(&edit);
            self.prepared.views.push((edit, framed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ActiveMutant, Config, Timing};
    use obol_fabric::{Address, Incarnation, Layout, Limits, Name, Nanos, Release};

    #[test]
    fn a_prepared_view_is_used_for_its_edit_and_no_other_and_until_a_view_or_a_clear_follows() {
        let layout = Layout::new(Limits { value_bytes: 4096, ..Limits::LEAST }).expect("in bounds");
        let (release, mutant) = (Release::THIS, ActiveMutant::NONE);
        let config = Config { release, timing: Timing::default(), layout, mutant };
        let names = ["coord-1", "coord-2", "coord-3"].map(|text| Name::new(text).expect("a name"));
        let members = [1, 2, 3].map(Address::region);
        let genesis = View::genesis(&[0, 1, 2].map(|at| (names[at], members[at])), Nanos(1), Nanos(1));
        let mut leader = Coordinator::new(config, 1, Arc::new(genesis), 7);
        let failed = |accuser, accused| Edit {
            remove: vec![Change::Failed {
                accused: Incarnation(accused),
                accuser: Incarnation(accuser),
                reason: Reason::Deadbeat,
            }],
            ..Edit::default()
        };
        let is_prepared = |leader: &Coordinator, edit: &Edit| {
            Arc::ptr_eq(&leader.successor(edit).1, &leader.successor(edit).1)
        };
        leader.prepare_view();
        assert!(!is_prepared(&leader, &failed(1, 2)), "it does not lead");
        leader.leading = true;
        (0..9).for_each(|_| leader.prepare_view());
        assert!([2, 3].into_iter().all(|accused| is_prepared(&leader, &failed(1, accused))));
        assert!(!is_prepared(&leader, &failed(3, 2)), "another accuser");
        let with_lease = Edit { lease: Some(Nanos(2)), ..failed(1, 2) };
        assert!(!is_prepared(&leader, &with_lease), "a request as well");
        leader.cleared = ViewId(1);
        assert!(!is_prepared(&leader, &failed(1, 2)), "the next view records that CLEAR");
        leader.prepare_view();
        assert!(is_prepared(&leader, &failed(1, 2)) && !is_prepared(&leader, &failed(1, 3)));
    }
}
