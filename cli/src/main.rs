//! `obol`: the operator's program, and the thin mains of the daemons.

mod cli;
mod commands;
mod logging;
mod problems;
#[cfg(test)]
#[path = "../../observe/tests/support/scrambled.rs"]
mod scrambled;
mod values;

use commands::root::{Cli, ClusterArgs};
use obol_supervise::signals;
use obol_term::output::{self, Failure};
use signal_hook::consts::SIGXFSZ;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Cli { cluster: ClusterArgs { cluster, root }, command } = Cli::read();
    // A file that outgrows `ulimit -f` is then an error that says so, and not the end of the program.
    if let Err(failure) = signals::flag(&[SIGXFSZ]) {
        let _ = output::complain(&failure);
        return failure.code();
    }
    let root = root.unwrap_or_else(obol_fabric::host::default_root);
    if command.has_verdict() {
        output::go_on_unread();
    }
    let result = command.run(&root, cluster);
    if let Err(failure) = &result {
        tracing::error!(target: "process", "ends: {failure}");
    } else {
        tracing::info!(target: "process", "ends");
    }
    obol_logs::finish();
    match result {
        Ok(code) => code,
        // The reader of the output has closed it.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            // There is no one left to report to if this fails, too.
            let _ = output::complain(&failure);
            failure.code()
        }
    }
}
