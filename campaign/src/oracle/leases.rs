//! Row 7, the part about decided leases: each is as an operator requested, or follows from reports of
//! late renewals that a coordinator has received. An operator's lease is not shortened automatically.

use super::violation::{Verdict, broken};
use crate::scenario::Scenario;
use obol_fabric::Nanos;
use obol_membership::View;

/// The decided leases, and what may change them.
#[derive(Debug)]
pub(crate) struct Leases {
    /// The usual lease, and the longest one that adaptation makes.
    usual: Nanos,
    most: Nanos,
    /// How long, in true time, a lease lasts at least before adaptation shortens it: on the fastest
    /// clock. Zero if clocks exceed the bound.
    calm: u64,
    /// Operators' requests. Coordinators may receive them late, and propose them for a while.
    requested: Vec<Nanos>,
    /// The lease before the first of the reports that lengthened it, if the present one follows from
    /// reports.
    grown_from: Option<Nanos>,
    /// When the lease last changed.
    changed: u64,
    /// The leases that were reported as too short, since then.
    reported: Vec<Nanos>,
    /// How many reports of each coordinator's present life are among them.
    taken: Vec<usize>,
}

impl Leases {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let timing = &scenario.config.timing;
        let calm = timing.lease_calm.0;
        let fastest = calm.saturating_sub(calm * u64::from(timing.drift_ppm) / 1_000_000 + 1);
        Self {
            usual: timing.lease,
            most: timing.lease_max,
            calm: if scenario.trial.clocks_keep() { fastest } else { 0 },
            requested: Vec::new(),
            grown_from: None,
            changed: 0,
            reported: Vec::new(),
            taken: vec![0; scenario.coordinators as usize],
        }
    }

    /// An operator requests leases of this duration.
    pub(crate) fn request(&mut self, lease: Nanos) {
        if !self.requested.contains(&lease) {
            self.requested.push(lease);
        }
    }

    /// The reports that this coordinator has received in its present life.
    pub(super) fn hear(&mut self, coordinator: u32, reports: &[Nanos]) {
        let taken = &mut self.taken[coordinator as usize];
        let new = reports.get(*taken..).unwrap_or(reports);
        *taken = reports.len();
        for lease in new {
            if !self.reported.contains(lease) {
                self.reported.push(*lease);
            }
        }
    }

    /// Checks a decided view.
    pub(super) fn follow(&mut self, old: &View, view: &View, time: u64) -> Verdict {
        let (from, to) = (old.lease, view.lease);
        if from == to {
            return Ok(());
        }
        let least = self.grown_from.map(|lease| lease.max(self.usual));
        let longer = from.saturating_mul(2).min(self.most);
        // A coordinator that has started since knows only a part of the reports, and shortens less.
        let shorter = least.map(|least| Nanos(from.0 / 2).max(least));
        let grows = to > from && to == longer && self.reported.contains(&from);
        let shrinks =
            to < from && shorter.is_some_and(|least| to >= least) && time - self.changed >= self.calm;
        if !grows && !shrinks && !self.requested.contains(&to) {
            let (why, reports) = (self.grown_from, &self.reported);
            return broken!(
                7,
                time,
                "view {} changes leases from {from} to {to} without a request; longer than {why:?} by reports, \
                 changed at {}, reported since {reports:?}",
                view.id,
                self.changed
            );
        }
        self.grown_from =
            if grows { self.grown_from.or(Some(from)) } else { self.grown_from.filter(|_| shrinks) };
        self.changed = time;
        self.reported.clear();
        Ok(())
    }
}
