//! `obol bench --vs`: failovers of obol and of systems that others use for membership, in turns on
//! this host. Each is tuned to react as fast as it can, and its settings are printed.

mod etcd;
mod serf;
mod zookeeper;

use super::cluster::{cluster, drill};
use clap::ValueEnum;
use obol_chaos::drills::{Host, Victims};
use obol_fabric::{Name, Nanos};
use obol_observe::stats::{Distribution, Summary, shown};
use obol_supervise::running::Reaper;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What obol is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Against {
    /// Three members, their leader killed
    Etcd,
    /// A client with a session of 20 ms killed
    Zookeeper,
    /// Three agents, one killed
    Serf,
}

/// Each system has its turn in each round.
const ROUNDS: u32 = 5;
/// A server that has not done something by then hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_micros(500);

/// A system beside obol.
trait Rival {
    /// Which failure of obol's corresponds to the one that is measured.
    fn counterpart(&self) -> Victims;
    /// What is killed, and what ends the time.
    fn measured(&self) -> &'static str;
    /// How it was set up.
    fn settings(&self) -> String;
    /// How many times as long as obol it must take; `None` where nothing is demanded.
    fn must(&self) -> Option<f64> {
        None
    }
    /// Failovers in one turn.
    fn share(&self) -> u32;
    /// Starts it, measures `share` failovers, and ends it.
    fn turn(&self, folder: &Path, times: &mut Distribution) -> Result<(), Failure>;
}

/// The version that a program prints, `None` if it is not installed.
fn version_of(program: &str, argument: &str) -> Option<String> {
    let out = std::process::Command::new(program).arg(argument).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned)
}

fn rival(of: Against) -> Option<(&'static str, Box<dyn Rival>)> {
    match of {
        Against::Etcd => etcd::Etcd::installed().map(|found| ("etcd", Box::new(found) as Box<dyn Rival>)),
        Against::Zookeeper => {
            zookeeper::Zookeeper::installed().map(|found| ("ZooKeeper", Box::new(found) as Box<dyn Rival>))
        }
        Against::Serf => serf::Serf::installed().map(|found| ("Serf", Box::new(found) as Box<dyn Rival>)),
    }
}

/// Which Debian package a system comes from.
const fn package(of: Against) -> &'static str {
    match of {
        Against::Etcd => "etcd-server",
        Against::Zookeeper => "zookeeper",
        Against::Serf => "serf",
    }
}

#[derive(Serialize)]
struct Row {
    system: &'static str,
    measured: &'static str,
    settings: String,
    failover_us: Summary,
    /// What is killed in obol's cluster.
    obol: &'static str,
    obol_us: Summary,
    /// The medians.
    ratio: f64,
    /// What the ratio must be at least.
    must: Option<f64>,
    met: bool,
}

#[derive(Serialize)]
struct Report {
    bench: &'static str,
    against: Vec<Row>,
    /// Asked for, but not installed.
    skipped: Vec<&'static str>,
    host: Host,
    profile: &'static str,
}

/// Tries until it succeeds; the error is the last one of `attempt`.
fn retry<T, E: Display>(what: &str, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, Failure> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if Instant::now() > end => {
                return Err(Failure::Failed(format!("{what}: {error}, for {} s", TIMEOUT.as_secs())));
            }
            Err(_) => std::thread::sleep(RETRY_INTERVAL),
        }
    }
}

/// A summary's median.
fn p50(summary: &Summary) -> f64 {
    summary.p50.unwrap_or(summary.max)
}

pub(super) fn run(root: &Path, against: &[Against], count: u32, as_json: bool) -> Result<ExitCode, Failure> {
    let (mut rivals, mut skipped) = (Vec::new(), Vec::new());
    for of in against {
        if let Some((name, rival)) = rival(*of) {
            rivals.push((name, rival, Distribution::new()));
        } else {
            output::remark(format_args!(
                "obol: {of:?} is not installed, so it is left out (Debian: apt install {})",
                package(*of)
            ))?;
            skipped.push(package(*of));
        }
    }
    if rivals.is_empty() {
        return Err(Failure::Refused("nothing that --vs names is installed".to_owned()));
    }
    let folder = std::env::temp_dir().join(format!("obol-bench-vs-{}", std::process::id()));
    let cleanup = Name::new(&format!("vs-{}", std::process::id())).map_err(Failure::failed)?;
    let _cleanup = Reaper::of_own_cluster(root, cleanup, Some(&folder))?;
    let kinds = [Victims::App, Victims::Leader];
    let mut own = kinds.map(|_| Distribution::new());
    for round in 1..=ROUNDS {
        let say = |what: &str| {
            // Informative only: the benchmark continues without it.
            let _ = output::remark(format_args!("bench: round {round} of {ROUNDS}: {what}"));
        };
        say("obol");
        obol(root, kinds, count.div_ceil(ROUNDS), &mut own)?;
        for (name, rival, times) in &mut rivals {
            say(name);
            let files = folder.join(format!("{name}-{round}"));
            std::fs::create_dir_all(&files).map_err(Failure::failed)?;
            rival.turn(&files, times)?;
        }
    }
    let against = rivals
        .iter()
        .map(|(system, rival, times)| {
            let leader = rival.counterpart() == Victims::Leader;
            let (failover_us, obol_us) = (times.summary(), own[usize::from(leader)].summary());
            let ratio = p50(&failover_us) / p50(&obol_us);
            let must = rival.must();
            Row {
                system,
                measured: rival.measured(),
                settings: rival.settings(),
                failover_us,
                obol: if leader { "leading coordinator" } else { "app" },
                obol_us,
                ratio,
                must,
                met: is_met(ratio, must),
            }
        })
        .collect();
    let report = Report { bench: "obol --vs", against, skipped, host: Host::this(), profile: super::PROFILE };
    output::json_or(as_json, &report, print)?;
    Ok(if report.against.iter().all(|row| row.met) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a system's failovers last long enough beside those of obol. Without samples the ratio is not
/// a number.
fn is_met(ratio: f64, must: Option<f64>) -> bool {
    must.is_none_or(|must| ratio >= must)
}

/// Failovers of obol's own cluster, which runs only for them: an idle one would still take some of
/// the others' time.
fn obol(root: &Path, kinds: [Victims; 2], count: u32, own: &mut [Distribution; 2]) -> Result<(), Failure> {
    let running = cluster(root)?;
    for (victims, times) in kinds.into_iter().zip(own) {
        for trial in drill(&running, victims, count)? {
            times.add(Nanos(trial.failover_ns.unwrap_or_default()));
        }
    }
    Ok(())
}

fn print(report: &Report) -> std::io::Result<()> {
    output::line(format_args!(
        "{:<10} {:>5} {:>9} {:>9} {:>5} {:>9} {:>9} {:>7} {:>7}",
        "SYSTEM", "RUNS", "P50", "MAX", "RUNS", "OBOL P50", "OBOL MAX", "RATIO", "MUST"
    ))?;
    for row in &report.against {
        output::line(format_args!(
            "{:<10} {:>5} {:>9} {:>9} {:>5} {:>9} {:>9} {:>6.0}x {:>7}  {}",
            row.system,
            row.failover_us.n,
            shown(p50(&row.failover_us)),
            shown(row.failover_us.max),
            row.obol_us.n,
            shown(p50(&row.obol_us)),
            shown(row.obol_us.max),
            row.ratio,
            row.must.map_or_else(|| "--".to_owned(), |must| format!(">= {must}x")),
            crate::verdict(row.met)
        ))?;
    }
    for row in &report.against {
        output::line(format_args!("{}: {}; {}", row.system, row.measured, row.settings))?;
        output::line(format_args!(
            "  obol beside it: {} killed, until the last survivor is active",
            row.obol
        ))?;
    }
    output::line(format_args!(
        "profile {}, {} cores, kernel {}; in turns, {ROUNDS} rounds, all on this host",
        report.profile, report.host.cores, report.host.kernel
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_is_too_small_or_was_not_measured_is_missed() {
        assert!(is_met(10.0, Some(10.0)) && is_met(1.0, None));
        for ratio in [9.99, 0.0, f64::NAN] {
            assert!(!is_met(ratio, Some(10.0)), "{ratio}");
        }
    }
}
