//! A coordinator process.

use super::{Daemon, ended, enter, report_kernel_refusal, schedule, service_manager};
use crate::logging;
use obol_coordinator::Saver;
use obol_fabric::Name;
use obol_logs::Settings;
use obol_membership::view::coordinator_name;
use obol_node::unsaved;
use obol_term::output::Failure;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Runs a coordinator, until it is asked to end; it keeps the newest view in the file `save`, beside the
/// decisions.
pub fn run(
    root: &Path,
    cluster: Name,
    log: &Settings,
    number: u16,
    save: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let daemon = Daemon { kind: None, name: coordinator_name(number), agent: None };
    let (site, stop, _name) = enter(root, cluster, log, daemon)?;
    // Before this thread is scheduled in real time: the saver must not be.
    let _saver = match save {
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
            let saver = Saver::start(site.cluster.clone(), number, path.to_owned(), on_save);
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
