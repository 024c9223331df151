//! What becomes of the store when `obol stop` has ended a replica.

use obol_fabric::Name;
use obol_observe::Observer;
use obol_observe::replicas::Replicas;
use obol_smr::REPLICA_PREFIX;
use obol_term::output::Failure;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the other replicas have to serve.
const SERVE_WITHIN: Duration = Duration::from_secs(3);
/// Interval of looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Watches the store whose replica is to be stopped.
pub struct Departure {
    observer: Observer,
    name: Name,
}

impl Departure {
    /// `None` if this is not a replica that has the store.
    pub fn of(root: &Path, cluster: Name, name: Name) -> Result<Option<Self>, Failure> {
        if !name.as_str().starts_with(REPLICA_PREFIX) {
            return Ok(None);
        }
        let observer = Observer::open(root, cluster).map_err(Failure::refused)?.read_replicas();
        let mut departure = Self { observer, name };
        let has = |of: Replicas| of.replicas.iter().any(|one| one.name == name && one.log.is_some());
        Ok(departure.read().is_some_and(has).then_some(departure))
    }

    fn read(&mut self) -> Option<Replicas> {
        let snapshot = self.observer.snapshot();
        Replicas::read(&mut self.observer, &snapshot)
    }

    /// Once it has ended: what an operator has to know, if the others do not serve.
    pub fn warning(mut self) -> Option<String> {
        let name = self.name;
        let end = Instant::now() + SERVE_WITHIN;
        loop {
            let of = self.read()?;
            if of.leader.is_some() {
                return None;
            }
            let has_store = of.replicas.iter().any(|one| one.log.is_some());
            if !has_store {
                return Some(format!("{name} had the last copy of the store, which has ended with it"));
            }
            if Instant::now() > end {
                let remedy = of.remedy().unwrap_or_default();
                return Some(format!("the replicas that are left do not serve: {remedy}"));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
