//! The arguments of `obol coordinator`.

use super::span;
use clap::{Args, Subcommand};
use obol_fabric::Nanos;
use std::net::IpAddr;
use std::path::PathBuf;

/// What a change of coordinators does and what it refuses, for each help text.
const ACCEPTORS_HELP: &str = "One coordinator at a time comes or goes, by a decided view; no lease is disturbed. \
    It is safe to interrupt and to repeat. Leaving an even number behind tolerates no more failures than one less.\n\
    \nExit codes: 0 done, 1 not done in time (what was asked for is forgotten again, unless a coordinator was \
    stopped by a signal meanwhile), 2 refused.";

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
    /// Let a coordinator decide no more, and stop it if it runs
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
        /// The number of the one that goes
        number: u16,
        /// The number of the one that comes [default: the lowest that is free]
        #[arg(long, value_name = "NUMBER")]
        with: Option<u16>,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// After a disaster: go on with new coordinators from a view that survived; what was decided
    /// after it is lost
    #[command(
        after_help = "Only for when the memory of a majority of the coordinators is lost for good. As long as it is \
        there, start them again: nothing is lost then, and this is refused.\n\
        \nThe members of the view stay, and wait until every lease that may have been given is over. Coordinators of \
        the old set never decide again: one that runs, or comes back, says so and ends.\n\
        \nIn a cluster of several hosts all of them must be asked: `obol coordinator found --json` on each other host, \
        whose output is given with --found. A host that can not answer is given up with --lost: it is off, or was started \
        anew since, and nothing of the cluster from before runs on it. One new coordinator starts on this host; others \
        are added to it later. docs/deploy.md has the steps.\n\
        \nNothing is written before the new coordinators can start. If they decide nothing, they are ended again, the \
        recovered view is taken away, and their numbers count as used.\n\
        \nExit codes: 0 the cluster goes on, 1 not in time, 2 refused."
    )]
    Recover(Recover),
    /// What this host still has of a cluster of several: evidence for `obol coordinator recover` on
    /// another host
    #[command(
        after_help = "Tells which coordinators' memory is there, which is lost, and the newest view that processes of \
        this host know. Changes nothing.\n\
        \nExit codes: 0 told, 2 refused."
    )]
    Found {
        /// Print what `obol coordinator recover --found` reads
        #[arg(long)]
        json: bool,
    },
    /// A coordinator process (started by `up`)
    #[command(hide = true)]
    Run(CoordinatorRun),
}

#[derive(Debug, Args)]
pub(crate) struct Recover {
    /// Where the view comes from: `agents`, the newest that any process knows, or a file of
    /// `obol coordinator run --save` or `obol watch --save`
    #[arg(long, value_name = "agents|FILE")]
    pub(crate) from: String,
    /// What `obol coordinator found --json` printed on another host; once for each
    #[arg(long, value_name = "FILE")]
    pub(crate) found: Vec<PathBuf>,
    /// Give up another host: it is off for good, or was started anew, and nothing of the cluster
    /// from before runs there
    #[arg(long, value_name = "HOST")]
    pub(crate) lost: Vec<IpAddr>,
    /// Wait for leases of this duration if that is longer than lease.max: where one was set with
    /// --beyond-max, and a host that is given up may have had it
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(crate) longest_lease: Option<Nanos>,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CoordinatorRun {
    /// The coordinator's number, from 1
    #[arg(long)]
    pub(crate) number: u16,
    /// Keep the newest view in this file, beside the decisions, for `obol coordinator recover`
    /// after a disaster
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
}
