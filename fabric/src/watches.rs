//! The watches of a process on others. All backends report a death alike: once as a suspicion, once as
//! a proof, and never a proof without the suspicion before it. What differs is by what a death is
//! proved; each backend keeps that in [`Watch::proof`].

use crate::contract::Evidence;
use crate::types::Address;
use std::collections::VecDeque;

/// Reported deaths that were not taken yet.
pub type Deaths = VecDeque<(Address, Evidence)>;

/// A watch on one process.
#[derive(Debug)]
pub struct Watch<P> {
    /// The process.
    pub whom: Address,
    /// How its death is proved.
    pub proof: P,
    reported: Option<Evidence>,
}

impl<P> Watch<P> {
    /// Reports what is not reported yet.
    pub fn report(&mut self, evidence: Evidence, deaths: &mut Deaths) {
        if evidence == Evidence::Proof {
            self.report(Evidence::Suspicion, deaths);
        }
        if !self.has_reported(evidence) {
            self.reported = Some(evidence);
            deaths.push_back((self.whom, evidence));
        }
    }

    /// Whether this, or what is more certain, was reported.
    pub fn has_reported(&self, evidence: Evidence) -> bool {
        self.reported >= Some(evidence)
    }

    /// Whether the process is known to be dead.
    pub fn is_proved(&self) -> bool {
        self.has_reported(Evidence::Proof)
    }

    /// It is alive after all: its death has to be reported again. A proof stays.
    pub fn renew(&mut self) {
        if !self.is_proved() {
            self.reported = None;
        }
    }
}

/// All watches of a process, or those on one host; an address has one at most.
#[derive(Debug)]
pub struct Watches<P>(Vec<Watch<P>>);

impl<P> Default for Watches<P> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<P> Watches<P> {
    /// `None` if the process is watched already.
    pub fn add(&mut self, whom: Address, proof: P) -> Option<&mut Watch<P>> {
        if self.get_mut(whom).is_some() {
            return None;
        }
        self.0.push(Watch { whom, proof, reported: None });
        self.0.last_mut()
    }

    /// Ends a watch, and drops what was not taken of its reports.
    pub fn remove(&mut self, whom: Address, deaths: &mut Deaths) -> Option<P> {
        deaths.retain(|(address, _)| *address != whom);
        let at = self.0.iter().position(|watch| watch.whom == whom)?;
        Some(self.0.remove(at).proof)
    }

    /// The watch on an address.
    pub fn get_mut(&mut self, whom: Address) -> Option<&mut Watch<P>> {
        self.0.iter_mut().find(|watch| watch.whom == whom)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Watch<P>> {
        self.0.iter()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Watch<P>> {
        self.0.iter_mut()
    }

    /// Those on processes of a region.
    pub fn in_region(&mut self, region: u32) -> impl Iterator<Item = &mut Watch<P>> {
        self.0.iter_mut().filter(move |watch| watch.whom.region == region)
    }

    /// Those on processes that are not known to be dead.
    pub fn unproved(&self) -> impl Iterator<Item = &Watch<P>> {
        self.0.iter().filter(|watch| !watch.is_proved())
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
    fn a_death_is_reported_once_and_a_proof_after_a_suspicion() {
        let (mut watches, mut deaths) = (Watches::default(), Deaths::default());
        let watch = watches.add(WHOM, ()).expect("a new one");
        for evidence in [Evidence::Silence, Evidence::Silence, Evidence::Suspicion, Evidence::Silence] {
            watch.report(evidence, &mut deaths);
        }
        assert_eq!(taken(&mut deaths), [Evidence::Silence, Evidence::Suspicion]);
        watch.renew();
        watch.report(Evidence::Proof, &mut deaths);
        assert_eq!(taken(&mut deaths), [Evidence::Suspicion, Evidence::Proof]);
        watch.renew();
        watch.report(Evidence::Suspicion, &mut deaths);
        assert!(deaths.is_empty() && watch.is_proved(), "a proof stays");
    }

    #[test]
    fn an_ended_watch_is_silent() {
        let (mut watches, mut deaths) = (Watches::default(), Deaths::default());
        let far = Address { host: 1, ..WHOM };
        for whom in [WHOM, far] {
            watches.add(whom, ()).expect("a new one").report(Evidence::Suspicion, &mut deaths);
        }
        assert!(watches.add(WHOM, ()).is_none());
        assert!(watches.remove(WHOM, &mut deaths).is_some() && watches.remove(WHOM, &mut deaths).is_none());
        assert_eq!(Vec::from(deaths), [(far, Evidence::Suspicion)]);
        assert_eq!(watches.unproved().count(), 1);
    }
}
