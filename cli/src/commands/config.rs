//! `obol config`: how the console is configured.

use obol_fabric::Name;
use obol_term::output::Failure;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use obol_console::config::ConfigCommand;

pub(crate) fn run(_: &Path, _: Name, args: &ConfigCommand) -> Result<ExitCode, Failure> {
    obol_console::config::run(args)
}
