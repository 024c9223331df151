//! What `up` does so that one failure at a time needs no operator: where a coordinator that decides
//! has been missing for as long as the profile says, and no spare is there, it starts one. The
//! leader decides what becomes of it.

use obol_fabric::{Instant, Name};
use obol_membership::replace::{Vacancies, vacant};
use obol_membership::view::coordinator_name;
use obol_membership::{Config, View};
use obol_node::Deployment;

/// Starts spare coordinators, in a while.
pub(super) struct Spares {
    config: Config,
    /// The largest number that a coordinator can have.
    limit: u16,
    vacancies: Vacancies,
    /// When the last one was started.
    started: Option<Instant>,
}

/// A spare coordinator that was started.
pub struct Spare {
    pub name: Name,
    pub pid: u32,
    /// The names of the coordinators that are missing.
    pub missing: Vec<String>,
}

impl Spare {
    pub(super) fn of(number: u16, pid: u32, view: &View) -> Self {
        let missing = vacant(view).map(|number| coordinator_name(number).to_string()).collect();
        Self { name: coordinator_name(number), pid, missing }
    }
}

impl Spares {
    /// None where the profile does not ask for it.
    pub(super) fn new(deployment: &Deployment) -> Option<Self> {
        let config = deployment.config().ok()?;
        let limit = u16::try_from(deployment.profile.limits.proposers).ok()?;
        config.timing.replace.then(|| Self { config, limit, vacancies: Vacancies::default(), started: None })
    }

    /// The number of the coordinator that is to be started now. `runs` returns whether one has a
    /// process, in whatever state.
    pub(super) fn wanted(&mut self, view: &View, now: Instant, runs: impl Fn(u16) -> bool) -> Option<u16> {
        self.vacancies.update(view, &self.config, now);
        let started = self.started;
        let number = self.vacancies.missing_spare(view, &self.config, now, started, self.limit, runs)?;
        // If it cannot be started, trying again at once would not help.
        self.started = Some(now);
        Some(number)
    }
}
