//! Watches of a process on processes of another host. That host's gateway reports their deaths; of
//! a host that falls silent only that is reported.

use super::frame::Seat;
use obol_fabric::contract::Evidence;
use obol_fabric::types::Address;
use std::collections::VecDeque;

#[derive(Debug)]
struct Watch {
    whom: Address,
    /// What was reported since its host last began to answer.
    reported: Option<Evidence>,
}

/// The watches on processes of one host.
#[derive(Debug, Default)]
pub(super) struct Watches(Vec<Watch>);

/// Deaths that were not taken yet.
pub(super) type Deaths = VecDeque<(Address, Evidence)>;

impl Watch {
    /// Reports what is not reported yet. A proof comes after a suspicion.
    fn report(&mut self, evidence: Evidence, deaths: &mut Deaths) {
        if evidence == Evidence::Proof {
            self.report(Evidence::Suspicion, deaths);
        }
        if self.reported < Some(evidence) {
            self.reported = Some(evidence);
            deaths.push_back((self.whom, evidence));
        }
    }

    fn is_proved(&self) -> bool {
        self.reported == Some(Evidence::Proof)
    }
}

impl Watches {
    /// `false` if it is watched already.
    pub(super) fn add(&mut self, whom: Address) -> bool {
        let new = self.0.iter().all(|watch| watch.whom != whom);
        if new {
            self.0.push(Watch { whom, reported: None });
        }
        new
    }

    /// Whether its gateway need not watch it any longer. (Two addresses may name one process.)
    pub(super) fn remove(&mut self, whom: Address) -> bool {
        let before = self.0.len();
        self.0.retain(|watch| watch.whom != whom);
        self.0.len() < before && self.0.iter().all(|watch| Seat::of(watch.whom) != Seat::of(whom))
    }

    /// A death that the gateway reports.
    pub(super) fn report(&mut self, seat: Seat, evidence: Evidence, deaths: &mut Deaths) {
        for watch in self.0.iter_mut().filter(|watch| Seat::of(watch.whom) == seat) {
            watch.report(evidence, deaths);
        }
    }

    /// The host does not answer.
    pub(super) fn silent(&mut self, deaths: &mut Deaths) {
        for watch in &mut self.0 {
            watch.report(Evidence::Silence, deaths);
        }
    }

    /// The host answers again: those that its gateway has to watch. A death has to be reported
    /// again.
    pub(super) fn renew(&mut self) -> impl Iterator<Item = Seat> {
        self.0.iter_mut().filter(|watch| !watch.is_proved()).map(|watch| {
            watch.reported = None;
            Seat::of(watch.whom)
        })
    }

    /// Those in a region that are not known to be dead.
    pub(super) fn of_region(&self, region: u32) -> Vec<Seat> {
        let alive = self.0.iter().filter(|watch| watch.whom.region == region && !watch.is_proved());
        alive.map(|watch| Seat::of(watch.whom)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(Watch::is_proved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOM: Address = Address { generation: 3, ..Address::region(70) };

    fn taken(deaths: &mut Deaths) -> Vec<Evidence> {
        deaths.drain(..).map(|(_, evidence)| evidence).collect()
    }

    #[test]
    fn a_death_is_reported_once_whoever_reports_it() {
        let (mut watches, mut deaths) = (Watches::default(), Deaths::default());
        assert!(watches.add(WHOM) && !watches.add(WHOM));
        watches.silent(&mut deaths);
        watches.silent(&mut deaths);
        assert_eq!(taken(&mut deaths), [Evidence::Silence]);
        watches.report(Seat::of(WHOM), Evidence::Suspicion, &mut deaths);
        watches.silent(&mut deaths);
        assert_eq!(taken(&mut deaths), [Evidence::Suspicion]);
        assert_eq!(watches.renew().count(), 1);
        watches.report(Seat::of(Address { generation: 4, ..WHOM }), Evidence::Proof, &mut deaths);
        assert_eq!(taken(&mut deaths), []);
        watches.report(Seat::of(WHOM), Evidence::Proof, &mut deaths);
        watches.report(Seat::of(WHOM), Evidence::Proof, &mut deaths);
        watches.silent(&mut deaths);
        assert_eq!(taken(&mut deaths), [Evidence::Suspicion, Evidence::Proof]);
        assert!(watches.is_empty() && watches.renew().count() == 0);
    }

    #[test]
    fn a_process_with_two_addresses_is_watched_until_both_are_removed() {
        let mut watches = Watches::default();
        let far = Address { host: 1, port: 2, ..WHOM };
        assert!(watches.add(WHOM) && watches.add(far));
        assert!(!watches.remove(WHOM) && watches.remove(far) && !watches.remove(far));
    }
}
