//! `obol smr check`: what is checked, and what came out of it.

use super::preset::{PresetName, VictimName};
use clap::Args;
use obol_config::duration;
use obol_fabric::Nanos;
use obol_node::Site;
use obol_observe::stats::shown;
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use obol_workload::smr::check::{self, Checked, Growth, Summary, check};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    time: Duration,
    /// Replicas, all of which vote
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=7))]
    replicas: u32,
    /// How the replicas exclude an earlier leader; of several, separated by
    /// commas, each is checked for the whole time, one after the other
    #[arg(long, value_name = "PRESETS", value_enum, value_delimiter = ',', default_value = "view")]
    preset: Vec<PresetName>,
    /// Clients, each a thread and a member
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    clients: u32,
    /// Which replica is hit
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = VictimName::Leader)]
    victim: VictimName,
    /// Interval of kills, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    kill_every: Option<Duration>,
    /// Interval of freezes, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    freeze_every: Option<Duration>,
    /// Interval of cuts, which leave a replica without links, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    cut_every: Option<Duration>,
    /// Longest duration of a freeze or a cut
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "500ms")]
    fault_max: Duration,
    /// Print a JSON object for each preset
    #[arg(long)]
    json: bool,
}

impl Options {
    const fn check(&self) -> check::Options {
        check::Options {
            time: self.time,
            replicas: self.replicas,
            clients: self.clients,
            victim: self.victim.victim(),
            kill_every: self.kill_every,
            freeze_every: self.freeze_every,
            cut_every: self.cut_every,
            fault_max: self.fault_max,
        }
    }
}

fn print(summary: &Summary) -> Result<(), Failure> {
    output::line(summary.words())?;
    let preset = &summary.preset;
    let Summary { kills, freezes, cuts, failovers, .. } = summary;
    if kills + freezes + cuts > 0 {
        let times = match (summary.failover_p50_us, summary.failover_max_us) {
            (Some(p50), Some(longest)) => format!(": {} p50, {} longest", shown(p50), shown(longest)),
            _ => String::new(),
        };
        output::line(format_args!(
            "{preset}: {kills} kills, {freezes} freezes, {cuts} cuts; {failovers} failovers seen by clients{times}"
        ))?;
    }
    if let Some(Growth { of, first, last }) = &summary.growth {
        output::line(format_args!(
            "{preset}: memory has grown the most in {of}: {first} KiB at most at first, {last} KiB at the end"
        ))?;
    }
    Ok(())
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    let stop = signals::ending()?;
    let wanted = options.check();
    let (mut failures, mut unhurt, mut ended) = (Vec::new(), None, None);
    for &preset in &options.preset {
        let Checked { summary, wrong, interrupted } = check(root, site, &wanted, preset.preset(), &stop)?;
        for example in wrong {
            output::remark(format_args!("wrong: {example}"))?;
        }
        if options.json {
            output::json(&summary)?;
        } else {
            print(&summary)?;
        }
        failures.extend(summary.failure());
        let missed = wanted.faults().find(|(fault, _)| summary.injected(*fault) == 0);
        unhurt = unhurt.or(missed.map(|missed| (preset, missed)));
        if let Some(after) = interrupted {
            ended = Some((preset, after));
            break;
        }
    }
    if !failures.is_empty() {
        return Err(Failure::Failed(failures.join("; ")));
    }
    if let Some((preset, after)) = ended {
        return Err(Failure::Interrupted(format!(
            "interrupted after {} of {} with preset {}: the answers until then were checked, and there is no verdict",
            Nanos::from_std(after),
            Nanos::from_std(options.time),
            preset.preset()
        )));
    }
    if let Some((preset, (fault, every))) = unhurt {
        return Err(Failure::Void(format!(
            "inconclusive: no replica of preset {} was hit by --{}-every {every:?} within --for {:?}; check for longer, or more often",
            preset.preset(),
            fault.name(),
            options.time
        )));
    }
    Ok(ExitCode::SUCCESS)
}
