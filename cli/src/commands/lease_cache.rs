//! `obol lease-cache`: a member that renews the leases of others.

use crate::daemons::{enter, expected, schedule};
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::Name;
use obol_membership::Kind;
use std::path::Path;
use std::process::ExitCode;

/// A lease cache process (started by `up`)
#[derive(Debug, Args)]
pub(crate) struct LeaseCache {
    /// Its name
    #[arg(long)]
    pub(crate) name: obol_fabric::Name,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &LeaseCache) -> Result<ExitCode, Failure> {
    let name = args.name;
    let (site, stop) = enter(root, cluster)?;
    schedule(&site, false)?;
    expected(&site, name, || obol_agent::run(&site, Kind::LeaseCache, name, obol_agent::seed(), &stop))
}
