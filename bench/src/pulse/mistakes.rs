//! How often pulses suspect a host by mistake, beside programs that never sleep. No host is stopped, so
//! each suspicion is a mistake.

use super::super::Figure;
use super::super::hogs::Hogs;
use super::{BenchPulse, HOSTS, Hosts};
use obol_chaos::drills::studies::tune_network::NetworkTuned;
use obol_fabric::Nanos;
use obol_fabric_ip::GatewayCounter;
use obol_observe::figures::total;
use obol_observe::pulse::samples;
use obol_observe::tail::Wanted;
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The timeout while the network is measured: nothing is suspected.
const LOOSE: Nanos = Nanos::from_millis(500);
/// How long a cluster runs before anything counts.
const SETTLE: Duration = Duration::from_secs(5);
/// Between two lines about the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(60);
/// The confidence of the derived timeout.
const CONFIDENCE: f64 = 0.95;

fn progress(text: impl std::fmt::Display) {
    // The figures do not depend on whether anybody reads this.
    let _ = output::remark(format_args!("bench: {text}"));
}

/// Derives the timeout from a measurement of this cluster.
fn derived(root: &Path, base: &Profile, options: &BenchPulse) -> Result<Profile, Failure> {
    let mut loose = base.clone();
    loose.pulse.timeout = LOOSE;
    progress(format_args!("measuring for {:?}", options.measure));
    let hosts = Hosts::start(root, &loose)?;
    thread::sleep(SETTLE + options.measure);
    let mut reports = Vec::new();
    for host in 1..=HOSTS {
        let mut all = samples(hosts.cluster(host)?.dir()).map_err(Failure::failed)?;
        // The cluster was starting.
        all.drain(..all.len().min(SETTLE.as_secs() as usize));
        reports.push((host, all));
    }
    let wanted = Wanted { every_seconds: options.every.as_secs_f64(), confidence: CONFIDENCE };
    let tuned = NetworkTuned::of(&reports, usize::from(HOSTS), wanted);
    let profile = tuned.profile(base).map_err(Failure::failed)?;
    let profile = profile.ok_or_else(|| {
        let said: Vec<_> =
            tuned.directions.iter().map(|of| format!("{} to {}: {}", of.from, of.to, of.text())).collect();
        Failure::Failed(format!("no timeout can be derived: {}\n{}", tuned.advice(), said.join("\n")))
    })?;
    progress(tuned.text());
    progress(format_args!("derived: period {}, timeout {}", profile.pulse.period, profile.pulse.timeout));
    Ok(profile)
}

/// Suspicions, and losses of paths, of all hosts so far.
fn counted(hosts: &Hosts) -> Result<[u64; 2], Failure> {
    let counted = |counter| (1..=HOSTS).map(move |host| hosts.counted(host, counter));
    let sum = |counter| counted(counter).collect::<Result<Vec<_>, _>>().map(total);
    Ok([sum(GatewayCounter::PulseSilences)?, sum(GatewayCounter::PulsePathsLost)?])
}

/// The longest gap between two pulses since `from` seconds ago, in microseconds.
fn longest(hosts: &Hosts, seconds: usize) -> Result<f64, Failure> {
    let mut most = 0;
    for host in 1..=HOSTS {
        let all = samples(hosts.cluster(host)?.dir()).map_err(Failure::failed)?;
        let last = all.iter().rev().take(seconds);
        let gaps =
            last.flat_map(|report| &report.peers).filter_map(|peer| Some(peer.block.as_ref()?.gap_max));
        most = gaps.fold(most, u64::max);
    }
    Ok(Nanos(most).as_micros_f64())
}

pub(super) fn run(
    root: &Path,
    base: &Profile,
    options: &BenchPulse,
    (hogs, span): (u32, Duration),
) -> Result<Vec<Figure>, Failure> {
    let _hogs = Hogs::start(hogs)?;
    let profile = if options.profile.is_some() { base.clone() } else { derived(root, base, options)? };
    let hosts = Hosts::start(root, &profile)?;
    thread::sleep(SETTLE);
    let before = counted(&hosts)?;
    let began = Instant::now();
    let suspected = loop {
        let left = span.saturating_sub(began.elapsed());
        thread::sleep(left.min(PROGRESS_EVERY));
        let [silences, paths] = counted(&hosts)?;
        let (silences, paths) = (silences - before[0], paths - before[1]);
        progress(format_args!(
            "{} s with {hogs} hogs: {silences} false suspicions, {paths} false losses of a path",
            began.elapsed().as_secs()
        ));
        if began.elapsed() >= span {
            break [silences, paths];
        }
    };
    let timeout = profile.pulse.timeout.as_micros_f64();
    let gap = longest(&hosts, span.as_secs() as usize)?;
    let [silences, paths] = suspected.map(|count| count as f64);
    let hours = span.as_secs_f64() / 3600.0;
    progress(format_args!("period {}, timeout {}", profile.pulse.period, profile.pulse.timeout));
    Ok(vec![
        Figure::at_most("false suspicions of a host", "", silences, 0.0),
        Figure::at_most("false losses of a path", "", paths, 0.0),
        Figure::against("longest gap between pulses, against timeout", "us", gap, timeout, 1.0),
        Figure::at_least("hours in which they were counted", "h", hours, 0.0),
    ])
}
