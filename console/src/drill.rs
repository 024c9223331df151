//! `obol drill`: run a drill and print its report.

use crate::cli::{Drill, DrillKind};
use crate::drills;
use crate::output::{self, Failure};
use obol_chaos::drill::{self, Plan, Report, Verdict, Victims};
use obol_chaos::stats::{P99_SAMPLES_MIN, Summary};
use obol_fabric::{Name, Nanos};
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn run(root: &Path, cluster: Name, options: &Drill) -> Result<ExitCode, Failure> {
    if let Some(command) = &options.command {
        return drills::run(root, cluster, command);
    }
    let Some(kind) = options.kind else {
        return Err(Failure::Refused("say who dies, or which drill; see `obol drill --help`".to_owned()));
    };
    let victims = match kind {
        DrillKind::App => Victims::App,
        DrillKind::Leader => Victims::Leader,
        DrillKind::Cache => Victims::Cache,
        DrillKind::AppLeader => Victims::AppAndLeader,
        DrillKind::AppCache => Victims::AppAndCache,
        DrillKind::AppLeaderCache => Victims::AppLeaderAndCache,
    };
    let plan = Plan { victims, count: options.count, gap: options.gap };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(Failure::failed)?;
    }
    let chatty = std::io::stderr().is_terminal();
    let report = drill::run(root, cluster, plan, |n| {
        if chatty && (n % 10 == 0 || n == plan.count) {
            // Progress is a courtesy: a drill goes on without it.
            let _ = output::remark(format_args!("drill {}: {n} of {}", victims.name(), plan.count));
        }
        !stop.load(Ordering::Relaxed)
    })
    .map_err(Failure::refused)?;
    if options.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(match report.verdict {
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::Failed | Verdict::Interrupted => ExitCode::FAILURE,
    })
}

fn us(value: f64) -> String {
    Nanos((value * 1000.0) as u64).to_string()
}

fn print(report: &Report) -> std::io::Result<()> {
    let verdict = match report.verdict {
        Verdict::Passed => "passed",
        Verdict::Failed => "failed",
        Verdict::Interrupted => "interrupted",
    };
    output::line(format_args!(
        "drill {}: {verdict}, {} repetitions, {} void, {} false suspicions (profile {}, {} cores, kernel {})",
        report.drill,
        report.count,
        report.void,
        report.false_suspicions,
        report.profile,
        report.host.cores,
        report.host.kernel
    ))?;
    output::line(format_args!(
        "{:<10} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "min", "p50", "p90", "p99", "max"
    ))?;
    let row = |name: &str, s: &Summary| {
        let p99 = s.p99.map_or("--".to_owned(), us);
        output::line(format_args!(
            "{name:<10} {:>8} {:>8} {:>8} {p99:>8} {:>8}",
            us(s.min),
            us(s.p50),
            us(s.p90),
            us(s.max)
        ))
    };
    row("failover", &report.failover_us)?;
    for name in obol_chaos::timeline::Phases::NAMES {
        if let Some(summary) = report.phases_us.get(name) {
            row(&format!("  {name}"), summary)?;
        }
    }
    if report.failover_us.n < P99_SAMPLES_MIN {
        output::line(format_args!(
            "no p99: it needs {P99_SAMPLES_MIN} samples, there are {}",
            report.failover_us.n
        ))?;
    }
    output::line(format_args!(
        "the lease rule alone would have made the survivors wait {}",
        us(report.lease_wait_us)
    ))?;
    for remark in &report.remarks {
        output::line(format_args!("  ! {remark}"))?;
    }
    Ok(())
}
