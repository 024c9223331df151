//! `obol coordinator`: who decides, changed while the cluster runs.

pub(crate) mod run;

use crate::values::span;
use clap::{Args, Subcommand};
use obol_fabric::{Name, Nanos, ViewId};
use obol_membership::view::coordinator_name;
use obol_node::Site;
use obol_observe::inspection::Report;
use obol_supervise::coordinators::recover::{self, Options};
use obol_supervise::coordinators::{self, Wish};
use obol_term::output::{self, Failure};
use std::fmt::Arguments;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a change of coordinators does and what it refuses, for each help text.
const ACCEPTORS_HELP: &str = "One coordinator at a time comes or goes, by a decided view; no lease is disturbed. \
    It is safe to interrupt and to repeat. Leaving an even number behind tolerates no more failures than one less.\n\
    \nA coordinator that is removed and runs on another host must be stopped there: until then it is a spare, and may \
    be taken again. If it runs, or it cannot be known whether it has ended, the command says so and ends with exit \
    code 1.\n\
    \nExit codes: 0 done, 1 not done in time, or a removed coordinator may still run (the request expires, unless a coordinator was \
    stopped by a signal meanwhile), 2 refused.";

/// Add, remove or replace coordinators of the quorum while the cluster runs
#[derive(Debug, Subcommand)]
pub(crate) enum Coordinator {
    /// Start another coordinator, and let it decide
    #[command(after_help = ACCEPTORS_HELP)]
    Add {
        /// Its number [default: the lowest that is free]
        number: Option<u16>,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Remove a coordinator from the quorum, and stop it if it runs on this host
    #[command(after_help = ACCEPTORS_HELP)]
    Remove {
        /// Its number
        number: u16,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Add a coordinator, then remove another, dead or alive
    #[command(after_help = ACCEPTORS_HELP)]
    Replace {
        /// The number of the coordinator to remove
        number: u16,
        /// The number of the coordinator to add [default: the lowest that is free]
        #[arg(long, value_name = "NUMBER")]
        with: Option<u16>,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// After a disaster: continue with new coordinators from a view that survived; what was decided
    /// after it is lost
    #[command(
        after_help = "Only for when the memory of a majority of the coordinators is lost for good. As long as it is \
        there, start them again: nothing is lost then, and this is refused.\n\
        \nThe members of the view stay, and wait until every lease that may have been given is over. Coordinators of \
        the old set never decide again: one that runs, or comes back, reports so and ends.\n\
        \nIn a cluster of several hosts, each needs a report: `obol coordinator inspect --json` on each other host, \
        whose output is given with --report. A host that cannot answer is given up with --lost: it is off, or was rebooted since, and no process of the old cluster runs on it. One new coordinator starts on this host; others \
        are added to it later. docs/deploy.md has the steps.\n\
        \nNothing is written before the new coordinators can start. If they decide nothing, they are ended again, the \
        recovered view is taken away, and their numbers count as used.\n\
        \nExit codes: 0 the cluster continues, 1 not in time, 2 refused."
    )]
    Recover(Recover),
    /// Report which coordinators' memory survives on this host, for `recover` on another
    #[command(
        alias = "found",
        after_help = "Also reports whose memory is lost, and the newest view that processes of this host know. Changes \
        nothing.\n\
        \nExit codes: 0 success, 2 refused."
    )]
    Inspect {
        /// Print what `obol coordinator recover --report` reads
        #[arg(long)]
        json: bool,
    },
    /// A coordinator process (started by `up`)
    #[command(hide = true)]
    Run(run::CoordinatorRun),
}

/// From what the cluster is recovered.
#[derive(Clone, Debug, Args)]
pub(crate) struct Recover {
    /// Where the view comes from: `agents`, the newest that any process knows, or a file of
    /// `obol coordinator run --save` or `obol watch --save`
    #[arg(long, value_name = "agents|FILE")]
    from: String,
    /// What `obol coordinator inspect --json` printed on another host; once for each
    #[arg(long, alias = "found", value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Give up another host: it is off for good, or was rebooted, and no process of the old cluster
    /// runs there
    #[arg(long, value_name = "HOST")]
    lost: Vec<IpAddr>,
    /// Wait for leases of this duration if that is longer than lease.max: where one was set with
    /// --beyond-max, and a host that is given up may have had it
    #[arg(long, value_name = "TIME", value_parser = span)]
    longest_lease: Option<Nanos>,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, what: &Coordinator) -> Result<ExitCode, Failure> {
    let (wish, json) = match *what {
        Coordinator::Run(ref run) => return run::run(root, cluster, run),
        Coordinator::Recover(ref options) => return recover(root, cluster, options),
        Coordinator::Inspect { json } => return inspect(root, cluster, json),
        Coordinator::Add { number, json } => (Wish { add: Some(number), remove: None }, json),
        Coordinator::Remove { number, json } => (Wish { add: None, remove: Some(number) }, json),
        Coordinator::Replace { number, with, json } => (Wish { add: Some(with), remove: Some(number) }, json),
    };
    let changed = coordinators::change(root, cluster, wish, &|text| say(json, text))?;
    if json {
        output::json(&changed)?;
    }
    match changed.left {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Prints what is done, for people.
fn say(json: bool, text: Arguments<'_>) -> Result<(), Failure> {
    if json { Ok(()) } else { Ok(output::line(text)?) }
}

fn recover(root: &Path, cluster: Name, args: &Recover) -> Result<ExitCode, Failure> {
    let Recover { from, report, lost, longest_lease, json } = args.clone();
    let options = Options { from, report, lost, longest_lease };
    let recovered = recover::recover(root, cluster, &options, &|text| say(json, text))?;
    if json {
        output::json(&recovered)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("the cluster continues in view {}", ViewId(recovered.view)))?;
    if !recovered.supervised {
        output::line(
            "there is one acceptor: start another on each of two more hosts (`obol host check` lists their numbers), \
             and let them decide with `obol coordinator add NUMBER`, here",
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

fn inspect(root: &Path, cluster: Name, json: bool) -> Result<ExitCode, Failure> {
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let report = Report::here(&site)?;
    if json {
        output::json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let view = report.view.map_or("no view".to_owned(), |id| format!("view {}", ViewId(id)));
    output::line(format_args!("host {}: the newest that its processes know is {view}", report.host))?;
    for (numbers, what) in [
        (&report.there, "memory is there: it runs, or can be started"),
        (&report.lost, "memory is lost; it must not start again"),
    ] {
        for number in numbers {
            output::line(format_args!("{}: {what}", coordinator_name(*number)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
