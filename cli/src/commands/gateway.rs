//! `obol gateway`: serves the memory of this host to the other hosts of a cluster.

use crate::logging::LogOptions;
use clap::Args;
use obol_chaos::drills::agent::switch;
use obol_doctor::diagnose;
use obol_fabric::Name;
use obol_supervise::daemons::gateway;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Args)]
pub(crate) struct Gateway {
    /// Its name among the processes of this host
    #[arg(long, default_value = "gateway")]
    name: Name,
    #[command(flatten)]
    log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Gateway) -> Result<ExitCode, Failure> {
    gateway::run(root, cluster, &args.log.settings(), args.name, answer)
}

/// The answer to a question of another host. Orders are carried out one after the other; a diagnosis takes
/// long, and holds up none.
fn answer(dir: &Path, question: &[u8]) -> Vec<u8> {
    static ORDERS: Mutex<()> = Mutex::new(());
    diagnose::answer(dir, question).unwrap_or_else(|| {
        let _one = ORDERS.lock().unwrap_or_else(PoisonError::into_inner);
        switch::answer(dir, question)
    })
}
