//! Who has the name of a process that is not admitted because another member has it: a live process of
//! another host, so that this one is refused, or one whose end is not known yet, so that this one waits.

use crate::{Observer, Process};
use obol_fabric::{Incarnation, Name};
use obol_node::Site;
use obol_term::output::Failure;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pause between two searches. Each READs the other hosts.
const SEARCH_EVERY: Duration = Duration::from_secs(1);

/// Searches the other hosts for the live holder of a name.
pub struct Namesakes {
    root: PathBuf,
    cluster: Name,
    name: Name,
    search_at: Option<Instant>,
}

impl Namesakes {
    /// Those of a process of this site.
    pub fn of(site: &Site, name: Name) -> Self {
        let dir = site.cluster.dir();
        let root = dir.parent().unwrap_or(dir).to_owned();
        Self { root, cluster: site.cluster.name(), name, search_at: None }
    }

    /// The refusal of the process that waits for its name, if the holder is alive. Blocks while other
    /// hosts are READ, once per second.
    pub fn refusal(&mut self) -> Option<String> {
        let now = Instant::now();
        if self.search_at.is_some_and(|at| now < at) {
            return None;
        }
        self.search_at = Some(now + SEARCH_EVERY);
        // What cannot be read now may be at the next search.
        refusal_by_member(&self.root, self.cluster, self.name).ok().flatten()
    }
}

/// Refuses a name that a live process of another host has: claims of names reach as far as a host.
pub fn unused_elsewhere(root: &Path, cluster: Name, name: Name) -> Result<(), Failure> {
    let refusal = refusal_elsewhere(root, cluster, name)?;
    refusal.map_or(Ok(()), |refusal| Err(Failure::Refused(refusal)))
}

/// The refusal of a name that a live process of another host has; the error says why that cannot be looked
/// for.
pub fn refusal_elsewhere(root: &Path, cluster: Name, name: Name) -> Result<Option<String>, Failure> {
    refusal_of(root, cluster, name, |_| true)
}

/// The refusal of a name that a member of another host has, which is alive.
fn refusal_by_member(root: &Path, cluster: Name, name: Name) -> Result<Option<String>, Failure> {
    // Others that wait for the name do not have it.
    refusal_of(root, cluster, name, |holder| holder.incarnation != Incarnation::NONE)
}

/// The refusal of a name that a live process of another host has, which also `is_holder`.
fn refusal_of(
    root: &Path,
    cluster: Name,
    name: Name,
    is_holder: impl Fn(&Process) -> bool,
) -> Result<Option<String>, Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let seen = observer.snapshot();
    let here = |other: &Process| seen.processes.iter().any(|here| here.process == other.process);
    let mut namesakes = seen.all_processes().filter(|other| other.alive && other.name == name);
    let holder = namesakes.find(|other| is_holder(other) && !here(other));
    Ok(holder.map(|holder| {
        let (pid, host) = (holder.process.pid, holder.host);
        let place = if host == 0 { "another host".to_owned() } else { format!("host {host}") };
        format!("{name} runs already (pid {pid} of {place})")
    }))
}
