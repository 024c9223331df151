//! `obol drill`: run a drill and print its report.

use crate::cli::{Drill, DrillKind, Observe};
use crate::drills;
use obol_chaos::drills::Victims;
use obol_chaos::drills::quick::Report;
use obol_console::output::{self, Failure};
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use obol_observe::stats::{P99_SAMPLES_MIN, shown};
use obol_observe::timeline::Phases;
use std::path::Path;
use std::process::ExitCode;

pub(crate) fn run(root: &Path, cluster: Name, options: &Drill) -> Result<ExitCode, Failure> {
    if let Some(command) = &options.command {
        return drills::run(root, cluster, command);
    }
    let Some(kind) = options.kind else {
        return Err(Failure::Refused("say who dies, or which drill; see `obol drill --help`".to_owned()));
    };
    let shards = options.sharding.shards;
    if options.observe != Observe::Client && shards > 1 {
        return Err(Failure::Refused(
            "--shards is for the cache of `obol drill app --observe client`".to_owned(),
        ));
    }
    if options.observe == Observe::Client {
        if kind != DrillKind::App {
            return Err(Failure::Refused("--observe client is for `obol drill app`".to_owned()));
        }
        return crate::kv::failover::run(root, cluster, options.count, options.gap, shards, options.json);
    }
    let victims = match kind {
        DrillKind::App => Victims::App,
        DrillKind::Leader => Victims::Leader,
        DrillKind::Cache => Victims::Cache,
        DrillKind::AppLeader => Victims::AppAndLeader,
        DrillKind::AppCache => Victims::AppAndCache,
        DrillKind::AppLeaderCache => Victims::AppLeaderAndCache,
    };
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let gap = Nanos::from_std(options.gap);
    let drill = victims.drill(site.deployment.environment, options.count, gap);
    let report = Report::of(&drills::go(root, cluster, &drill, drills::How::default())?);
    if options.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::from(report.code()))
}

fn print(report: &Report) -> std::io::Result<()> {
    output::line(format_args!(
        "drill {}: {}, {} repetitions, {} void, {} false suspicions (profile {}, {} cores, kernel {})",
        report.drill,
        report.verdict.name(),
        report.count,
        report.void,
        report.false_suspicions,
        report.profile,
        report.host.cores,
        report.host.kernel
    ))?;
    drills::head("")?;
    drills::row("failover", &report.failover_us)?;
    for name in Phases::NAMES {
        if let Some(summary) = report.phases_us.get(name) {
            drills::row(&format!("  {name}"), summary)?;
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
        shown(report.lease_wait_us)
    ))?;
    for remark in &report.remarks {
        output::line(format_args!("  ! {remark}"))?;
    }
    Ok(())
}
