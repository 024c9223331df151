//! Programs in seats that compute by themselves whether a view is active for them, from what the
//! coordinators' regions show and from their agent's page, by the rule that ships
//! (`membership::successor_lease`). They look when a region changes, and ask some time later,
//! repeatedly, by what they have seen then. They may stop between any two reads.
//!
//! What the oracle makes of it: [`Oracle::used`](crate::oracle::Oracle::used).

use super::{Driver, PROGRAMS};
use crate::marks::Mark;
use crate::oracle::Verdict;
use obol_fabric::layout::{PROPOSERS_MAX, ViewHead};
use obol_fabric::{Address, Page, SeatStatus, ViewId, memory, page};
use obol_fabric_sim::Program;
use obol_membership::successor_lease::Reading;
use obol_membership::view::Numbers;
use obol_membership::{Change, Mutant, View, poll};
use obol_rng::Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// This share of what programs read is of the other side of a recovery, in permille. The numbers of
/// the two sides never meet in a cluster, so that only a forged view shows that the rule does not
/// need this.
const OTHER_SIDE_PERMILLE: u32 = 30;

/// In one run of this many, the cluster has been recovered before.
const RECOVERED_EVERY: u64 = 3;

/// A number that no coordinator of a run has.
const GIVEN_UP: u16 = PROPOSERS_MAX as u16;

/// The coordinators given up before the first view of a run.
pub(crate) fn given_up_before(seed: u64, coordinators: u32) -> Numbers {
    let is_recovered = seed.is_multiple_of(RECOVERED_EVERY) && coordinators < u32::from(GIVEN_UP);
    if is_recovered { Numbers::NONE.with(GIVEN_UP) } else { Numbers::NONE }
}

/// A program that asks.
#[derive(Clone, Debug)]
struct Use {
    node: u32,
    seat: u16,
    who: Address,
    view: Arc<View>,
    cleared: ViewId,
    /// The fence, if a planted bug makes it read that first.
    early: Option<ViewId>,
    call: Option<Call>,
    /// When it goes on, in true time.
    due: u64,
}

/// What it has read in this call.
#[derive(Clone, Copy, Debug)]
struct Call {
    page: Page,
    fence: Option<ViewId>,
    /// No view below this may have been active when the call began.
    floor: ViewId,
}

/// All programs that ask.
#[derive(Debug)]
pub(crate) struct Uses {
    rng: Rng,
    /// What each coordinator's region showed last: view and CLEAR.
    shown: Vec<(ViewId, ViewId)>,
    pending: Vec<Use>,
}

impl Uses {
    pub(crate) fn new(seed: u64, coordinators: u32) -> Self {
        let nothing = (ViewId::GENESIS, ViewId::GENESIS);
        Self {
            rng: Rng::new(seed ^ 0x05e5_0fa7_1e45_0000),
            shown: vec![nothing; coordinators as usize],
            pending: Vec::new(),
        }
    }
}

impl Driver {
    /// Lets programs read what a step has changed, and go on with what they have begun.
    pub(crate) fn use_views(&mut self, node: u32) -> Verdict {
        if !self.scenario.trial.clocks_keep() {
            return Ok(());
        }
        if node < self.scenario.coordinators {
            self.look_at(node);
        }
        let now = self.cluster.now();
        let mut at = 0;
        while at < self.uses.pending.len() {
            let pending = &self.uses.pending[at];
            let (due, who) = (pending.due, pending.who);
            let worker = self.worker(pending.node, pending.seat).filter(|worker| worker.who == who);
            match worker.map(|worker| worker.runs) {
                None => drop(self.uses.pending.swap_remove(at)),
                Some(true) if due <= now => {
                    let pending = self.uses.pending.swap_remove(at);
                    let again = self.go_on(pending)?;
                    self.uses.pending.extend(again);
                }
                Some(_) => at += 1,
            }
        }
        Ok(())
    }

    /// Some programs read a coordinator's region if it has changed.
    fn look_at(&mut self, coordinator: u32) {
        let layout = self.scenario.config.layout;
        let words = self.cluster.memory(coordinator);
        let word = |offset: usize| {
            words[(layout.view() as usize + offset) / size_of::<u64>()].load(Ordering::Acquire)
        };
        let id = word(std::mem::offset_of!(ViewHead, id_plus_one)).wrapping_sub(1);
        let cleared = ViewId(word(std::mem::offset_of!(ViewHead, cleared)));
        let shown = (ViewId(id), cleared);
        if std::mem::replace(&mut self.uses.shown[coordinator as usize], shown) == shown {
            return;
        }
        let Some(area) = memory::span(words, layout.view(), layout.view_bytes() as usize) else { return };
        let mut bytes = vec![0; layout.view_bytes() as usize];
        memory::copy_out(area, &mut bytes);
        let Some(view) = poll::decode_view_area(&bytes).map(Arc::new) else { return };
        for node in self.scenario.coordinators..self.scenario.nodes() {
            for seat in 1..=PROGRAMS {
                if self.is_member(node, seat) && self.uses.rng.coin() {
                    self.begin_use(node, seat, &view, cleared);
                }
            }
        }
    }

    fn begin_use(&mut self, node: u32, seat: u16, view: &Arc<View>, cleared: ViewId) {
        let Some(worker) = self.worker(node, seat).filter(|worker| worker.runs) else { return };
        let (who, fence) = (worker.who, page::fenced(worker.words));
        let on = page::load(worker.words).unwrap_or_default().view;
        let early = self.scenario.config.mutant.has(Mutant::FenceBeforePage).then_some(fence);
        let is_other_side = self.uses.rng.permille(OTHER_SIDE_PERMILLE);
        let view = if is_other_side { self.other_side(view, on.next()) } else { Arc::clone(view) };
        let cleared = cleared.max(if is_other_side { view.base } else { ViewId::GENESIS });
        let due = self.cluster.now() + self.pause_of_use();
        self.uses.pending.push(Use { node, seat, who, view, cleared, early, call: None, due });
    }

    /// A view of this number with the same members, of the set that a recovery has given up, or made
    /// by a recovery.
    fn other_side(&mut self, view: &View, id: ViewId) -> Arc<View> {
        let is_given_up = view.retired != Numbers::NONE && self.uses.rng.coin();
        let (retired, changes) = match view.acceptors.first() {
            Some(acceptor) if !is_given_up => {
                (view.retired.with(acceptor.proposer), vec![Change::Recovered(view.id)])
            }
            _ => (Numbers::NONE, vec![Change::Settled]),
        };
        Arc::new(View { id, base: id, retired, changes, ..view.clone() })
    }

    /// How long a program does something else: mostly not at all, sometimes longer than a lease.
    fn pause_of_use(&mut self) -> u64 {
        let unit = self.scenario.config.timing.lease.0;
        let rng = &mut self.uses.rng;
        match rng.below(10) {
            0..=4 => 0,
            5..=7 => rng.below(unit),
            _ => rng.below(3 * unit),
        }
    }

    /// The next read of a program that asks; the program itself, if it goes on.
    fn go_on(&mut self, mut asks: Use) -> Result<Option<Use>, crate::oracle::Violation> {
        let Some(worker) = self.worker(asks.node, asks.seat) else { return Ok(None) };
        let (now, words) = (worker.now, worker.words);
        let (shown, fence) = (page::load(words).unwrap_or_default(), page::fenced(words));
        match &mut asks.call {
            None => {
                let floor = self.oracle.floor(&self.cluster)?;
                asks.call = Some(Call { page: shown, fence: asks.early, floor });
            }
            Some(Call { fence: read @ None, .. }) => *read = Some(fence),
            Some(Call { page, fence: Some(fence), floor }) => {
                let (page, fence, floor) = (*page, *fence, *floor);
                let status = self.cluster.program(asks.node, asks.seat).and_then(Program::status);
                let Some(SeatStatus::Member(own)) = status else { return Ok(None) };
                let (view, cleared) = (&*asks.view, asks.cleared);
                let timing = &self.scenario.config.timing;
                let read = Reading { view, cleared, own, page, fence, now };
                if read.is_active(timing.drift_ppm, self.scenario.config.mutant) {
                    self.note_use(&asks, page, shown);
                    self.oracle.used(&self.cluster, asks.node, asks.who, &asks.view, page.view, floor)?;
                }
                asks.call = None;
                if page.view > asks.view.id.next() || self.uses.rng.permille(300) {
                    return Ok(None);
                }
            }
        }
        asks.due = self.cluster.now() + self.pause_of_use();
        Ok(Some(asks))
    }

    fn note_use(&mut self, asks: &Use, read: Page, shown: Page) {
        let view = asks.view.id;
        if shown.view < view {
            self.oracle.marks.hit(Mark::UsedBeforeAgent);
        }
        if read.view == view && self.cluster.to_true(asks.node, read.start) > self.cluster.now() {
            self.oracle.marks.hit(Mark::UsedBeforeClear);
        }
        let Use { node, seat, .. } = asks;
        let on = read.view;
        self.log(format_args!("seat {seat} of node {node} uses view {view} by the page of view {on}"));
    }
}
