//! `obol lease`: how long leases last now, and another duration.

use clap::Subcommand;
use obol_fabric::Name;
use obol_supervise::leases::{LeaseLength, Leases};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::process::ExitCode;

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
        #[arg(value_name = "TIME|default|max", value_parser = lease_length)]
        length: LeaseLength,
        /// Let it be longer than the profile's lease.max
        #[arg(long)]
        beyond_max: bool,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
}

fn lease_length(text: &str) -> Result<LeaseLength, String> {
    match text {
        // `usual` is its earlier name.
        "default" | "usual" => Ok(LeaseLength::Default),
        "max" => Ok(LeaseLength::Max),
        _ => crate::values::span(text).map(LeaseLength::Span),
    }
}

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
    let (leases, json) = match *what {
        Lease::Show { json } => (Leases::of(root, cluster)?, json),
        Lease::Set { length, beyond_max, json } => (Leases::set(root, cluster, length, beyond_max)?, json),
    };
    let (view, timing) = (&leases.view, &leases.profile.timing);
    let shown = LeaseJson {
        view: view.id.0,
        lease_us: view.lease.as_micros_f64(),
        usual_us: timing.lease.as_micros_f64(),
        max_us: timing.lease_max.as_micros_f64(),
        cache_lease_us: view.cache_lease.as_micros_f64(),
        reach_us: view.run_reach.as_micros_f64(),
        adapts: leases.adapt(),
    };
    output::json_or(json, &shown, |_| show(&leases))?;
    Ok(ExitCode::SUCCESS)
}

fn show(leases: &Leases) -> io::Result<()> {
    let Leases { view, profile } = leases;
    output::line(format_args!("leases last {} as of view {}", view.lease, view.id))?;
    let (default, max) = (profile.timing.lease, profile.timing.lease_max);
    if leases.adapt() {
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
    ))
}
