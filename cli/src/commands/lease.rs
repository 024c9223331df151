//! `obol lease`: how long leases last now, and another duration. It is a decided view like any
//! other, so nothing has to be stopped for it, and whatever leases were given out before are waited
//! for where they have to be.

use clap::Subcommand;
use obol_coordinator::Operator;
use obol_fabric::{Name, Nanos};
use obol_membership::View;
use obol_membership::timing::{LEASE_MAX, LEASE_MIN};
use obol_node::Site;
use obol_observe::{Deciders, Observer, Process, Snapshot};
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Show how long leases last, or change it while the cluster runs
#[derive(Debug, Subcommand)]
pub(crate) enum Lease {
    /// Show how long leases last now, and within which limits they adapt
    #[command(after_help = "Exit codes: 0 shown, 2 no such cluster, or it knows no view.")]
    Show {
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Change the lease duration by a decided view; running leases are not disturbed
    #[command(
        after_help = "Longer leases outlast longer delays. A failover waits for them only where a member can be neither \
        fenced nor proved dead.\n\
        \nIf the profile's lease.max is longer than its lease.duration, leases continue to adapt from there.\n\
        \nTry: obol lease set 40ms; obol lease set default\n\
        \nExit codes: 0 done, 1 not done in time (the request expires, unless a \
        coordinator was stopped by a signal meanwhile), 2 refused."
    )]
    Set {
        /// The duration, such as 40ms; or default, or max: the profile's values
        #[arg(value_name = "DURATION|default|max", value_parser = lease_length)]
        length: LeaseLength,
        /// Let it be longer than the profile's lease.max
        #[arg(long)]
        beyond_max: bool,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
}

/// A duration of leases, as an operator gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseLength {
    /// The profile's `lease.duration`.
    Default,
    /// The profile's `lease.max`.
    Max,
    /// This one.
    Span(obol_fabric::Nanos),
}

fn lease_length(text: &str) -> Result<LeaseLength, String> {
    match text {
        // `usual` is its earlier name.
        "default" | "usual" => Ok(LeaseLength::Default),
        "max" => Ok(LeaseLength::Max),
        _ => crate::values::span(text).map(LeaseLength::Span),
    }
}

/// A cluster that has not decided after this long is given up.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Leases as they are, in JSON. Durations are in microseconds.
#[derive(Debug, Serialize)]
struct LeaseJson {
    view: u64,
    lease_us: f64,
    usual_us: f64,
    max_us: f64,
    cache_lease_us: f64,
    /// How long a failover waits at most for a holder that can be neither fenced nor proved dead.
    reach_us: f64,
    adapts: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, what: &Lease) -> Result<ExitCode, Failure> {
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let profile = &site.deployment.profile;
    let json = match *what {
        Lease::Show { json } => json,
        Lease::Set { length, beyond_max, json } => {
            let wanted = wanted(profile, length, beyond_max)?;
            set(&site, &mut observer, wanted)?;
            json
        }
    };
    let view = newest(&observer.snapshot())?;
    if json {
        output::json(&LeaseJson {
            view: view.id.0,
            lease_us: view.lease.as_micros_f64(),
            usual_us: profile.timing.lease.as_micros_f64(),
            max_us: profile.timing.lease_max.as_micros_f64(),
            cache_lease_us: view.cache_lease.as_micros_f64(),
            reach_us: view.run_reach.as_micros_f64(),
            adapts: adapts(profile),
        })?;
    } else {
        output::line(format_args!("leases last {} as of view {}", view.lease, view.id))?;
        let (default, max) = (profile.timing.lease, profile.timing.lease_max);
        if adapts(profile) {
            output::line(format_args!(
                "profile {}: {default}, and up to {max} while renewals come late",
                profile.name
            ))?;
        } else {
            output::line(format_args!("profile {}: {default}, whatever the delays", profile.name))?;
        }
        output::line(format_args!(
            "a failover waits {} at most for a member that can be neither fenced nor proved dead",
            view.run_reach
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn adapts(profile: &Profile) -> bool {
    profile.timing.lease_max > profile.timing.lease
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
