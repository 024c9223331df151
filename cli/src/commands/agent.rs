//! `obol agent` and `obol lease-cache`: the daemon of a node, and a member that renews the leases of
//! others.

use crate::logging::LogOptions;
use clap::Args;
use obol_fabric::Name;
use obol_membership::Kind;
use obol_supervise::daemons;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name
    #[arg(long)]
    pub(crate) name: obol_fabric::Name,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Named) -> Result<ExitCode, Failure> {
    member(root, cluster, Kind::Agent, args)
}

pub(crate) fn run_lease_cache(root: &Path, cluster: Name, args: &Named) -> Result<ExitCode, Failure> {
    member(root, cluster, Kind::LeaseCache, args)
}

fn member(root: &Path, cluster: Name, kind: Kind, args: &Named) -> Result<ExitCode, Failure> {
    daemons::member(root, cluster, &args.log.settings(), kind, args.name)
}
