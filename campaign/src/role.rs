//! A node's state machine in the simulator, with a tap on the messages that it receives, because
//! some paths leave no other trace.

use super::marks::{Mark, Marks};
use obol_cluster_sim::{ClusterMachine, Process};
use obol_fabric::{Event, Fabric, Instant, Machine, Nanos, ViewId};
use obol_membership::wire::{Message, Refusal};
use obol_membership::{Coordinator, Member, View};
use std::sync::Arc;

/// The first bytes of messages with a mark: CLEAR, a join's reply, a nudge, an announcement by
/// number, and others.
const TAPPED: [u8; 10] = [2, 3, 6, 8, 13, 15, 16, 19, 22, 23];

/// The simulated world of a campaign.
pub(crate) type World = obol_fabric_sim::World<Instrumented>;

/// A machine with the marks seen at it.
#[derive(Debug)]
pub(crate) struct Instrumented {
    pub(crate) process: Process<Member>,
    pub(crate) marks: Marks,
    /// The leases that were reported to it as too short.
    pub(crate) reports: Vec<Nanos>,
}

impl Instrumented {
    pub(crate) const fn new(process: Process<Member>) -> Self {
        Self { process, marks: Marks::NONE, reports: Vec::new() }
    }

    /// The newest view that the machine knows.
    pub(crate) fn view(&self) -> &Arc<View> {
        self.process.view()
    }

    pub(crate) const fn coordinator(&self) -> Option<&Coordinator> {
        self.process.coordinator()
    }

    pub(crate) const fn member(&self) -> Option<&Member> {
        self.process.member()
    }

    fn tap(&mut self, bytes: &[u8]) {
        // Only messages with a mark are decoded.
        if !bytes.first().is_some_and(|kind| TAPPED.contains(kind)) {
            return;
        }
        match Message::decode(bytes) {
            Ok(Message::Clear(base)) if self.member().is_some() && base < self.view().base => {
                self.marks.hit(Mark::LateClear);
            }
            Ok(Message::Clear(base)) if self.member().is_some() && base > ViewId(self.view().id.0) => {
                self.marks.hit(Mark::EarlyClear);
            }
            Ok(Message::View { cleared: true, .. }) => self.marks.hit(Mark::ClearedView),
            Ok(Message::JoinReply { outcome: Err(refusal), .. }) => self.marks.hit(match refusal {
                Refusal::Stale => Mark::RefusedStale,
                Refusal::NoHost => Mark::RefusedNoHost,
                Refusal::Full => Mark::RefusedFull,
                Refusal::OnHold(_) => Mark::OnHold,
                Refusal::Departed | Refusal::Release(_) => Mark::RefusedOther,
                Refusal::NameTaken => Mark::RefusedName,
                Refusal::Unreachable => return,
            }),
            Ok(Message::Settle(_)) => self.marks.hit(Mark::Nudge),
            Ok(Message::Step { .. }) => self.marks.hit(Mark::AnnouncedByStep),
            Ok(Message::Decided(_)) => self.marks.hit(Mark::AnnouncedByNumber),
            Ok(Message::LeaseTooShort(lease)) => {
                self.marks.hit(Mark::LateRenewals);
                self.reports.push(lease);
            }
            Ok(Message::WhoDecides(_)) => self.marks.hit(Mark::AskedWhoDecides),
            Ok(Message::Deciders { .. }) => self.marks.hit(Mark::DecidersSent),
            Ok(Message::Raised { raised, .. }) if raised.iter().all(|bits| *bits == 0) => {
                self.marks.hit(Mark::FanOutRefused);
            }
            _ => {}
        }
    }

    /// Paths that only the machine itself knows.
    fn check(&mut self) {
        let reads_rings = match &self.process {
            Process::Coordinator(c) => c.reads_rings(),
            Process::Member(m) => m.reads_rings(),
        };
        if reads_rings {
            self.marks.hit(Mark::RingsRead);
        }
        if self.coordinator().is_some_and(Coordinator::has_lost_quorum) {
            self.marks.hit(Mark::LostQuorum);
        }
        if self.coordinator().is_some_and(Coordinator::caches_timed_out) {
            self.marks.hit(Mark::FanOutOverdue);
        }
    }
}

impl ClusterMachine for Instrumented {
    type Member = Member;

    fn process(&self) -> &Process<Member> {
        &self.process
    }
}

impl Machine for Instrumented {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.process.start(now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        if let Event::Datagram { bytes, .. } = event {
            self.tap(bytes);
        }
        self.process.handle(now, event, fabric);
        self.check();
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.process.tick(now, fabric);
        self.check();
    }

    fn deadline(&self) -> Instant {
        self.process.deadline()
    }
}
