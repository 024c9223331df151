//! How long the leases of a cluster last, changed while it runs. It is a decided view like any other, so
//! nothing has to be stopped for it, and leases that were given out before are waited for where they have
//! to be.

use obol_coordinator::Operator;
use obol_fabric::{Name, Nanos};
use obol_membership::View;
use obol_membership::timing::{LEASE_MAX, LEASE_MIN};
use obol_node::Site;
use obol_observe::{Deciders, Observer, Process, Snapshot};
use obol_profiles::Profile;
use obol_term::output::Failure;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A duration of leases, as an operator gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseLength {
    /// The profile's `lease.duration`.
    Default,
    /// The profile's `lease.max`.
    Max,
    Span(Nanos),
}

/// A cluster that has not decided after this long is given up.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The leases of a cluster.
pub struct Leases {
    /// Its newest view.
    pub view: Arc<View>,
    pub profile: Profile,
}

impl Leases {
    /// As they are now.
    pub fn of(root: &Path, cluster: Name) -> Result<Self, Failure> {
        let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
        let site = Site::open(root, cluster).map_err(Failure::refused)?;
        Ok(Self { view: newest(&observer.snapshot())?, profile: site.deployment.profile })
    }

    /// Gives them another length, which is longer than the longest of the profile only if that is meant.
    pub fn set(root: &Path, cluster: Name, length: LeaseLength, beyond_max: bool) -> Result<Self, Failure> {
        let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
        let site = Site::open(root, cluster).map_err(Failure::refused)?;
        let wanted = wanted(&site.deployment.profile, length, beyond_max)?;
        set(&site, &mut observer, wanted)?;
        Ok(Self { view: newest(&observer.snapshot())?, profile: site.deployment.profile })
    }

    /// Whether they adapt to delays.
    pub fn adapt(&self) -> bool {
        self.profile.timing.lease_max > self.profile.timing.lease
    }
}

fn newest(snapshot: &Snapshot) -> Result<Arc<View>, Failure> {
    let none = || Failure::Refused("no process of the cluster knows a view yet".to_owned());
    snapshot.view.clone().ok_or_else(none)
}

/// The duration that is meant, unless the cluster should not have it.
fn wanted(profile: &Profile, length: LeaseLength, beyond_max: bool) -> Result<Nanos, Failure> {
    let (default, max) = (profile.timing.lease, profile.timing.lease_max);
    let wanted = match length {
        LeaseLength::Default => default,
        LeaseLength::Max => max,
        LeaseLength::Span(span) => span,
    };
    if !(LEASE_MIN..=LEASE_MAX).contains(&wanted) {
        return Err(Failure::Refused(format!(
            "a lease of {wanted} is not possible: {LEASE_MIN} to {LEASE_MAX} are"
        )));
    }
    if wanted > max && !beyond_max {
        return Err(Failure::Refused(format!(
            "{wanted} is longer than lease.max of profile {}, {max}; a failover may wait as long for a member that cannot \
             be reached. If that is meant, add --beyond-max",
            profile.name
        )));
    }
    if let Some(why) = profile.lease_trouble(wanted) {
        return Err(Failure::Refused(format!("leases of {wanted} would lapse repeatedly: {why}")));
    }
    Ok(wanted)
}

/// Repeats the wish until a view has it.
fn set(site: &Site, observer: &mut Observer, wanted: Nanos) -> Result<(), Failure> {
    let mut operator = Operator::open(site).map_err(Failure::refused)?;
    let end = Instant::now() + TIMEOUT;
    let pause = site.deployment.profile.timing.join_every.to_std();
    let mut asked = false;
    loop {
        let snapshot = observer.snapshot();
        let view = newest(&snapshot)?;
        if view.lease == wanted {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Failure::Failed(format!(
                "no view with leases of {wanted} within {} s: the newest, {}, has {}; a majority of coordinators must \
                 run, see `obol status`. {}",
                TIMEOUT.as_secs(),
                view.id,
                view.lease,
                if asked {
                    "The request has ended, but a coordinator that was stopped meanwhile may still decide it"
                } else {
                    "No change was requested"
                }
            )));
        }
        // A request to a frozen coordinator waits until it is continued.
        if may_decide(&snapshot, &observer.deciders(Some(&view))) {
            asked = true;
            operator.set_lease(wanted, &view);
        }
        operator.wait(pause);
    }
}

/// Whether these coordinators can decide a view, as far as they are seen: a majority of them can be
/// reached, and one runs.
fn may_decide(snapshot: &Snapshot, deciders: &Deciders) -> bool {
    let seen = |name: &String| snapshot.all_processes().find(|p| p.name.as_str() == name);
    let found: Vec<&Process> = deciders.names().iter().filter_map(seen).collect();
    let alive = found.iter().filter(|p| p.alive).count();
    let runs = found.iter().any(|p| p.alive && !p.frozen);
    found.len() < deciders.names().len() || runs && deciders.spare(alive).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(length: LeaseLength, beyond_max: bool) -> String {
        match wanted(&Profile::default(), length, beyond_max) {
            Err(failure) => failure.to_string(),
            Ok(span) => panic!("{span} is let through"),
        }
    }

    #[test]
    fn what_would_harm_is_refused_with_the_reason() {
        let span = |millis| LeaseLength::Span(Nanos::from_millis(millis));
        assert!(refusal(span(1), false).contains("lapse repeatedly"), "{}", refusal(span(1), false));
        assert!(refusal(span(5_000), false).contains("add --beyond-max"), "{}", refusal(span(5_000), false));
        assert!(refusal(span(100_000), true).contains("is not possible"), "{}", refusal(span(100_000), true));
        let profile = Profile::default();
        for length in [LeaseLength::Default, LeaseLength::Max, span(40)] {
            assert!(wanted(&profile, length, false).is_ok(), "{length:?}");
        }
        assert!(wanted(&profile, span(5_000), true).is_ok());
    }
}
