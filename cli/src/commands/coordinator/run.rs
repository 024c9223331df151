//! `obol coordinator run`: a coordinator process.

use crate::logging::LogOptions;
use clap::Args;
use obol_fabric::Name;
use obol_supervise::daemons::coordinator;
use obol_term::output::Failure;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct CoordinatorRun {
    /// The coordinator's number, from 1
    #[arg(long)]
    pub(crate) number: u16,
    /// Keep the newest view in this file, beside the decisions, for `obol coordinator recover`
    /// after a disaster
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &CoordinatorRun) -> Result<ExitCode, Failure> {
    coordinator::run(root, cluster, &args.log.settings(), args.number, args.save.as_deref())
}
