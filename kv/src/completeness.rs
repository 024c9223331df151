//! Completeness of a server's state: its position in the PUTs of a primary, the newest of those
//! PUTs, and, after an exclusion, whether the state may still be the newest.

use crate::limits::AHEAD_MAX;
use crate::store::Store;
use obol_fabric::{Incarnation, ViewId};
use obol_membership::View;
use std::collections::VecDeque;

/// A complete state: all PUTs of this primary up to this one, and all before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Position {
    pub(crate) of: Incarnation,
    pub(crate) number: u64,
}

/// A PUT as executed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Executed {
    pub(crate) key: u64,
    pub(crate) client: u64,
    pub(crate) request: u64,
    pub(crate) value: Vec<u8>,
}

/// The newest PUTs, at most [`AHEAD_MAX`]: no primary executes more before all its backups have the
/// first of them. So the difference between two backups is always in here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail(VecDeque<Executed>);

impl Tail {
    pub(crate) fn push(&mut self, key: u64, client: u64, request: u64, value: &[u8]) {
        let mut put = if self.0.len() < AHEAD_MAX { None } else { self.0.pop_front() }.unwrap_or_default();
        (put.key, put.client, put.request) = (key, client, request);
        put.value.clear();
        put.value.extend_from_slice(value);
        self.0.push_back(put);
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The newest `count`, oldest first.
    pub(crate) fn newest(&self, count: u64) -> impl Iterator<Item = &Executed> {
        let skipped = self.len().saturating_sub(count) as usize;
        self.0.iter().skip(skipped)
    }
}

/// The complete state of a server that was excluded, and its provenance.
#[derive(Clone, Debug)]
pub struct Copy {
    pub(crate) store: Store,
    pub(crate) position: Position,
    pub(crate) tail: Tail,
    pub(crate) provenance: Provenance,
}

/// The origin of a copy, from which follows whether it may be the newest.
#[derive(Clone, Debug)]
pub(crate) struct Provenance {
    /// Its server.
    pub(crate) own: Incarnation,
    /// The others that may have had a complete state in its last view.
    pub(crate) others: Vec<Incarnation>,
    /// The next free incarnation in that view.
    pub(crate) next_incarnation: Incarnation,
}

impl Provenance {
    /// Whether, by this view, no server can have answered anything that this copy lacks; `false` if
    /// unknown.
    ///
    /// Only servers with a complete state at this server's removal can have served later, or servers
    /// that received the state from them. So the copy is the newest if there were none. It also is
    /// if all of them were removed no later than this server, and no server has joined and gone
    /// since: that one could have brought a copy of its own, served, and died.
    pub(crate) fn may_be_newest(&self, view: &View, now: Incarnation) -> bool {
        if self.others.is_empty() {
            return true;
        }
        let Some(removed) = departure(view, self.own) else { return false };
        let is_here =
            |who: u64| who == now.0 || view.members.iter().any(|member| member.incarnation.0 == who);
        self.others.iter().all(|other| departure(view, *other).is_some_and(|at| at <= removed))
            && (self.next_incarnation.0..view.next_incarnation.0).all(is_here)
    }
}

/// The first view without a member, if that is known still.
pub(crate) fn departure(view: &View, who: Incarnation) -> Option<ViewId> {
    view.departed.iter().find(|gone| gone.incarnation == who).map(|gone| gone.at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric::{Name, Nanos};
    use obol_membership::Kind;
    use obol_membership::view::Departed;

    fn copy(others: &[u64]) -> Provenance {
        Provenance {
            own: Incarnation(5),
            others: others.iter().map(|other| Incarnation(*other)).collect(),
            next_incarnation: Incarnation(8),
        }
    }

    fn view(departed: &[(u64, u64)], next: u64) -> View {
        let mut view = View::genesis(&[], Nanos(1), Nanos(1));
        view.departed.extend(departed.iter().map(|(who, at)| Departed {
            token: *who,
            incarnation: Incarnation(*who),
            name: Name::default(),
            kind: Kind::App,
            at: ViewId(*at),
            left: false,
        }));
        view.next_incarnation = Incarnation(next);
        view
    }

    #[test]
    fn a_copy_is_the_newest_only_if_no_other_server_can_have_served_since() {
        let own = Incarnation(8);
        assert!(copy(&[]).may_be_newest(&view(&[], 99), own), "no other server had any of it");
        assert!(copy(&[6]).may_be_newest(&view(&[(5, 3), (6, 3)], 9), own));
        assert!(copy(&[6]).may_be_newest(&view(&[(5, 3), (6, 2)], 9), own));
        assert!(!copy(&[6]).may_be_newest(&view(&[(5, 3), (6, 4)], 9), own), "it served alone");
        assert!(!copy(&[6]).may_be_newest(&view(&[(5, 3)], 9), own), "it lives, or that is unknown");
        assert!(!copy(&[6]).may_be_newest(&view(&[(6, 3)], 9), own), "no longer known");
        assert!(!copy(&[6]).may_be_newest(&view(&[(5, 3), (6, 3)], 10), own), "one came and went");
    }

    #[test]
    fn a_tail_has_the_newest_puts() {
        let mut tail = Tail::default();
        for request in 0..2 * AHEAD_MAX as u64 {
            tail.push(request % 3, 1, request, &request.to_le_bytes());
        }
        assert_eq!(tail.len(), AHEAD_MAX as u64);
        let newest: Vec<u64> = tail.newest(2).map(|put| put.request).collect();
        assert_eq!(newest, [2 * AHEAD_MAX as u64 - 2, 2 * AHEAD_MAX as u64 - 1]);
        assert_eq!(tail.newest(u64::MAX).count(), AHEAD_MAX);
    }
}
