//! `obol tune`: sweeps leases and heartbeats on clusters of its own, without and with load, and
//! writes a profile.

mod network;

use clap::Args;
use obol_chaos::drills::studies::tune::Tuned;
use obol_chaos::drills::studies::tune_network::{EVERY_MIN, confidence};
use obol_chaos::drills::studies::tuning;
use obol_config::duration;
use obol_fabric::Name;
use obol_profiles::Profile;
use obol_supervise::signals;
use obol_term::file;
use obol_term::output::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Find the lease and the heartbeat that this machine sustains, and write a profile
#[derive(Debug, Args)]
#[command(
    after_help = "Starts clusters of its own: leases and heartbeats of rising length, without load and with all \
    cores and memory busy (stress-ng where it is installed), as in uKharon's Figure 3. What is recommended is tried \
    before it is written.\n\
    \nA percentage is a lower bound with 95 % confidence, in the sweep and in the trial: 99.99 % needs 29,958 timely renewals in a row. \
    The trial of a profile that renews seldom lasts longer than a step, until it has that many.\n\
    \nExit codes: 0 a profile is recommended, 1 none is, or its trial failed, 2 refused.\n\
    With --network no cluster is started: the longest gap between two pulses in each second of the running one is \
    counted, or extrapolated with a bound. What the samples do not bear is refused.\n\
    \nTry: obol tune --out mine.toml --html tune.html && obol up --profile ./mine.toml\n     obol tune --network --every 1mo --out mine.toml\n     obol tune --network --record network.rec && obol sim detectors --recording network.rec"
)]
pub(crate) struct Tune {
    /// Percentage of renewals that must be in time
    #[arg(long, alias = "share", value_name = "PERCENT", default_value_t = 99.99, value_parser = percent)]
    pub(crate) timely: f64,
    /// How long each step is measured, and at least the trial; one that can no longer reach the percentage
    /// ends early [default: 15s]. With --record, how long it records [default: 30s]
    #[arg(long = "for", alias = "time", value_name = "TIME", value_parser = duration::argument)]
    pub(crate) time: Option<Duration>,
    /// The profile to start from: a name that `obol profile list` knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(crate) profile: String,
    /// Write the recommended profile to this file, which must not exist yet
    #[arg(long = "out", alias = "write", value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Write the evidence to this file, as a page that needs no other
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Derive period and timeout of the pulses of the running cluster from what its gateways have
    /// measured
    #[arg(long, conflicts_with_all = ["timely", "profile"])]
    pub(crate) network: bool,
    /// The wanted time between two false suspicions in the whole cluster
    #[arg(long, value_name = "TIME", default_value = "1mo", requires = "network", value_parser = duration::at_least(EVERY_MIN))]
    pub(crate) every: Duration,
    /// The confidence of that, in percent
    #[arg(long, value_name = "PERCENT", default_value = "95", requires = "network", value_parser = confidence)]
    pub(crate) confidence: f64,
    /// The number of another host and a copy of its cluster's directory, with what its gateway has
    /// measured
    #[arg(long, value_name = "HOST=DIRECTORY", requires = "network", value_parser = samples)]
    pub(crate) samples: Vec<(u8, PathBuf)>,
    /// Record each pulse that arrives at this host to this file, which must not exist yet, instead of
    /// deriving anything; `obol sim detectors --recording` reads it
    #[arg(long, value_name = "FILE", requires = "network", conflicts_with_all = ["write", "html", "every", "confidence", "samples", "json"])]
    pub(crate) record: Option<PathBuf>,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long a step is measured unless said otherwise.
const STEP: Duration = Duration::from_secs(15);

/// A host and a directory.
fn samples(text: &str) -> Result<(u8, PathBuf), String> {
    let wanted = || format!("`{text}` is not a HOST=DIRECTORY such as 2=/tmp/host-2");
    let (host, directory) = text.split_once('=').ok_or_else(wanted)?;
    Ok((host.parse().map_err(|_| wanted())?, directory.into()))
}

/// A percentage that some number of samples can claim.
fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent < 100.0 => Ok(percent),
        _ => Err("a number between 0 and 100, such as 99.99".to_owned()),
    }
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Tune) -> Result<ExitCode, Failure> {
    if options.network {
        if options.record.is_none() && options.time.is_some() {
            return Err(Failure::Refused(
                "--for is how long steps are measured, or how long --record records; with --network alone, what the gateways \
                 have measured is all there is"
                    .to_owned(),
            ));
        }
        return network::run(root, cluster, options);
    }
    let base = Profile::load(&options.profile).map_err(Failure::refused)?;
    if let Some(path) = options.write.iter().chain(&options.html).find(|path| path.exists()) {
        return Err(Failure::Refused(format!("{} exists; nothing is overwritten", path.display())));
    }
    let stop = signals::ending()?;
    let (tuned, profile) = tuning::sweep(root, &base, options.time.unwrap_or(STEP), options.timely, &stop)?;
    // What took minutes is shown whatever becomes of the files.
    let said = output::json_or(options.json, &tuned, print);
    if let Some(path) = &options.html {
        output::kept("evidence", path, file::replace(path, tuned.html().as_bytes()));
    }
    if let (Some(path), Some(profile)) = (&options.write, profile.filter(|_| tuned.holds())) {
        // Scripts continue with it, so without it this has failed.
        output::file(path, profile.to_toml())?;
        output::remark(format_args!("the profile is in {0}; try it: obol up --profile {0}", path.display()))?;
    }
    let code = if tuned.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(output::verdict(code, said))
}

fn print(tuned: &Tuned) -> std::io::Result<()> {
    let heads = ["PAUSE", "RENEWALS", "LATE", "IN TIME", "CLAIMED", "SUSPICIONS"];
    let [pause, renewals, late, timely, claimed, suspicions] = heads;
    output::line(format_args!(
        "{pause:>8} {renewals:>9} {late:>7} {timely:>11} {claimed:>11} {suspicions:>10}  LOAD"
    ))?;
    let tried = tuned.recommended.iter().flat_map(|found| &found.tried);
    for (n, m) in tuned.sweep.iter().chain(tried).enumerate() {
        if n == tuned.sweep.len() {
            output::line("the recommended profile, tried:")?;
        }
        let (pause, [renewals, late, timely, claimed, suspicions]) =
            (m.pause_us.to_string(), m.cells("none up"));
        output::line(format_args!(
            "{pause:>8} {renewals:>9} {late:>7} {timely:>11} {claimed:>11} {suspicions:>10}  {}",
            m.load
        ))?;
    }
    output::line(tuned.advice())
}
