//! The views of a cluster as a stream, for programs that are not members: every decided view once,
//! in order, starting at any view that the rings still hold, with an explicit gap for views they no
//! longer hold.
//!
//! Streams need no help from other processes and change nothing: they only READ the coordinators'
//! regions. A view is known to be decided when a coordinator has published it or a later one. Then
//! the accepted value with the highest number at any majority of the acceptors is the decided one:
//! that majority shares an acceptor with the deciding one, and every value accepted under a later
//! number is the same.

use crate::consensus::{SlotState, SlotWord};
use crate::mutants::{ActiveMutant, Mutant};
use crate::poll::decode_view_area;
use crate::view::{Acceptor, View};
use crate::{Config, frame};

use obol_fabric::layout::ViewHead;
use obol_fabric::{Address, Layout, Remote, ViewId};
use std::sync::Arc;

/// Access to the coordinators' memory. Nothing here requires a coordinator to act.
pub trait Regions {
    /// The existing coordinators' regions, whether their processes are alive or not.
    fn coordinators(&mut self) -> Vec<Address>;
    /// READs `len` bytes; `None` if the region is currently unreachable. The result may be torn.
    fn read(&mut self, from: Remote, len: u32) -> Option<Vec<u8>>;
}

/// The next item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The next view.
    View(Arc<View>),
    /// These views were decided, but their slots have been reused: they are no longer readable.
    Gap {
        /// The first missing view.
        first: ViewId,
        /// The last missing view.
        last: ViewId,
    },
}

/// A reader of the stream.
#[derive(Clone, Debug)]
pub struct Stream {
    layout: Layout,
    mutant: ActiveMutant,
    /// The only view that no slot has decided.
    genesis: Arc<View>,
    /// The next view; `None` before the first, which is the newest one found.
    next: Option<ViewId>,
}

/// The state of a slot whose view is known to be decided.
enum Slot {
    Decided(Arc<View>),
    /// Reused since.
    Recycled,
    /// Too few acceptors are reachable.
    Unreachable,
}

impl Stream {
    /// A stream from view `from` on, or from the newest on. `genesis` is the cluster's first view.
    pub const fn new(from: Option<ViewId>, genesis: Arc<View>, config: &Config) -> Self {
        Self { layout: config.layout, mutant: config.mutant, genesis, next: from }
    }

    /// Where a later stream has to start to continue this one.
    pub const fn position(&self) -> Option<ViewId> {
        self.next
    }

    /// The next item, or `None` if no more is decided, or too few coordinators' memories are
    /// currently reachable.
    pub fn next(&mut self, regions: &mut impl Regions) -> Option<Item> {
        let homes = regions.coordinators();
        let newest = self.newest_of(&homes, regions)?;
        let wanted = self.next.unwrap_or(newest.id);
        if newest.id < wanted {
            return None;
        }
        // A majority of any former acceptors has moved on: words this old are not worth a READ.
        let kept = newest.id.0.saturating_sub(u64::from(self.layout.limits().slots));
        for id in wanted.0.max(kept)..newest.id.0 {
            match self.slot(ViewId(id), &homes, regions) {
                Slot::Decided(view) => return Some(self.give(wanted, view)),
                Slot::Unreachable => return None,
                Slot::Recycled => {}
            }
        }
        Some(self.give(wanted, newest))
    }

    /// Returns this view, or first the gap before it.
    fn give(&mut self, wanted: ViewId, view: Arc<View>) -> Item {
        if view.id != wanted && !self.mutant.has(Mutant::DropForSlow) {
            self.next = Some(view.id);
            return Item::Gap { first: wanted, last: ViewId(view.id.0 - 1) };
        }
        self.next = Some(view.id.next());
        Item::View(view)
    }

    /// The newest view that any coordinator has published.
    pub fn newest(&self, regions: &mut impl Regions) -> Option<Arc<View>> {
        let homes = regions.coordinators();
        self.newest_of(&homes, regions)
    }

    /// Heads are small and show which area is worth reading. A lower number than that of the best view
    /// is of an older view only in the region of one of its acceptors: the best view may be of a set
    /// that a recovery gave up.
    fn newest_of(&self, homes: &[Address], regions: &mut impl Regions) -> Option<Arc<View>> {
        let mut best: Option<Arc<View>> = None;
        for &at in homes {
            let from = Remote { at, offset: self.layout.view() };
            let published =
                regions.read(from, size_of::<ViewHead>() as u32).and_then(|head| announced_id(&head));
            let is_older = |best: &Arc<View>, id| {
                let decides = best.acceptors.iter().any(|a| a.address.owner() == at.owner());
                id == best.id || id < best.id && decides
            };
            if published.is_none_or(|id| best.as_ref().is_some_and(|best| is_older(best, id))) {
                continue;
            }
            let area = regions.read(from, self.layout.view_bytes());
            let view = area.as_deref().and_then(decode_view_area).map(Arc::new);
            if view.as_ref().map(|view| view.rank()) > best.as_ref().map(|best| best.rank()) {
                best = view;
            }
        }
        best
    }

    /// The view decided by slot `id`, which is known to be decided.
    fn slot(&self, id: ViewId, homes: &[Address], regions: &mut impl Regions) -> Slot {
        if id == self.genesis.id {
            return Slot::Decided(Arc::clone(&self.genesis));
        }
        let offset = self.layout.slot(id.0);
        let words: Vec<(Address, Option<SlotWord>)> = homes
            .iter()
            .map(|&at| {
                let bytes = regions.read(Remote { at, offset }, 8).and_then(|b| b.try_into().ok());
                (at, bytes.map(|bytes| SlotWord::from_raw(u64::from_le_bytes(bytes))))
            })
            .collect();
        let mut accepted: Vec<(Address, SlotState)> = words
            .iter()
            .filter_map(|&(at, word)| Some((at, word?.state(id)?)))
            .filter(|(_, state)| state.accepted_proposal != 0)
            .collect();
        accepted.sort_by_key(|(_, state)| std::cmp::Reverse(state.accepted_proposal));
        let reachable = words.iter().filter(|(_, word)| word.is_some()).count();
        let lost = if reachable > homes.len() / 2 { Slot::Recycled } else { Slot::Unreachable };
        let Some(&(_, highest)) = accepted.first() else { return lost };
        // An area that is being reused at one acceptor may still be whole at another.
        let same = accepted.iter().take_while(|(_, s)| s.accepted_proposal == highest.accepted_proposal);
        let view = same.filter_map(|&(at, state)| self.value(id, at, state, regions)).next();
        let Some(view) = view else { return lost };
        // All proposals for this slot follow the same view, so any of them names the acceptors
        // whose words count.
        let of_this_lap = |acceptor: &&Acceptor| {
            let word = words.iter().find(|(at, _)| at.owner() == acceptor.address.owner());
            word.and_then(|(_, word)| (*word)?.state(id)).is_some()
        };
        let deciders = view.deciders();
        if deciders.iter().filter(of_this_lap).count() > deciders.len() / 2 {
            Slot::Decided(view)
        } else {
            lost
        }
    }

    fn value(
        &self,
        id: ViewId,
        at: Address,
        state: SlotState,
        regions: &mut impl Regions,
    ) -> Option<Arc<View>> {
        let limits = self.layout.limits();
        if state.accepted_value == 0 || u32::from(state.accepted_value) > limits.proposers {
            return None;
        }
        let from = Remote { at, offset: self.layout.value(id.0, state.accepted_value) };
        let bytes = regions.read(from, limits.value_bytes)?;
        let view = View::from_frame(frame::decode_frame_for(id, &bytes).ok()?)?;
        Some(Arc::new(view))
    }
}

/// The id in the head of a view area. It may be ahead of the body.
fn announced_id(head: &[u8]) -> Option<ViewId> {
    let at = core::mem::offset_of!(ViewHead, id_plus_one);
    let word = head.get(at..at + 8)?.try_into().ok()?;
    u64::from_le_bytes(word).checked_sub(1).map(ViewId)
}
