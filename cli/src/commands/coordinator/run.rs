//! `obol coordinator run`: a coordinator process.

use crate::logging::LogOptions;
use clap::Args;
use obol_coordinator::Saver;
use obol_fabric::Name;
use obol_membership::view::coordinator_name;
use obol_node::unsaved;
use obol_supervise::daemons::{ended, enter, report_kernel_refusal, schedule, service_manager};
use obol_supervise::logging;
use obol_term::output::Failure;
use std::io;
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
    let number = args.number;
    let (site, stop, _name) =
        enter(root, cluster, &args.log.settings(), (None, coordinator_name(number), None))?;
    // Before this thread is scheduled in real time: the saver must not be.
    let _saver = match &args.save {
        Some(path) => {
            let dir = site.cluster.dir().to_owned();
            // What an earlier one could not do says nothing of this one. If it stays, the next save
            // takes it away.
            let _ = unsaved::forget(&dir, number);
            let on_save = move |path: &Path, error: Option<&io::Error>| {
                let Some(error) = error else {
                    let _ = unsaved::forget(&dir, number);
                    return;
                };
                let why = format!("{}: {error}", path.display());
                // A coordinator decides without saving, and without a reader of this message.
                let _ = unsaved::note(&dir, number, &why);
                logging::warn(format_args!("coord-{number} cannot save views to {why}"));
            };
            let saver = Saver::start(site.cluster.clone(), number, path.clone(), on_save);
            Some(saver.map_err(Failure::failed)?)
        }
        None => None,
    };
    // All are rejected alike: the first one reports it.
    schedule(&site, number == 1);
    let mut manager = service_manager();
    let result = obol_coordinator::run(&site, number, obol_agent::seed(), &stop, &mut manager, |endpoint| {
        if number == 1 {
            report_kernel_refusal(endpoint);
        }
    });
    ended(format_args!("coord-{number}"), result)
}
