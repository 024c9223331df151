//! `obol agent`: the daemon of a node.

use crate::daemons::{enter, expected, schedule};
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::Name;
use obol_membership::Kind;
use std::path::Path;
use std::process::ExitCode;

/// An agent process (started by `up`)
#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Its name
    #[arg(long)]
    pub(crate) name: obol_fabric::Name,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Agent) -> Result<ExitCode, Failure> {
    let name = args.name;
    let (site, stop) = enter(root, cluster)?;
    schedule(&site, false)?;
    expected(&site, name, || obol_agent::run(&site, Kind::Agent, name, obol_agent::seed(), &stop))
}
