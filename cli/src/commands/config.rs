//! `obol config`: how the console is configured.

use obol_console::output::Failure;
use obol_fabric::Name;
use std::path::Path;
use std::process::ExitCode;

pub(crate) use obol_console::config::ConfigCommand;

pub(crate) fn run(_: &Path, _: Name, args: &ConfigCommand) -> Result<ExitCode, Failure> {
    obol_console::config::run(args)
}
