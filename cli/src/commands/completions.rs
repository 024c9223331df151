//! `obol completions`: what shells propose.

use super::root::command;
use clap::Args;
use clap_complete::Shell;
use obol_fabric::Name;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;

/// Print a shell completion script
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

pub(crate) fn run(_: &Path, _: Name, args: &Completions) -> Result<ExitCode, Failure> {
    output::bytes(&script(args.shell))?;
    Ok(ExitCode::SUCCESS)
}

/// The completion script of a shell. It knows what operators see, and not what processes of a
/// cluster are started with.
fn script(shell: Shell) -> Vec<u8> {
    fn shown(command: &clap::Command) -> clap::Command {
        let below = command.get_subcommands().filter(|one| !one.is_hide_set()).map(shown);
        // Names live as long as the program.
        let name: &'static str = command.get_name().to_owned().leak();
        let mut bare = clap::Command::new(name).disable_help_subcommand(true);
        if let Some(about) = command.get_about() {
            bare = bare.about(about.clone());
        }
        bare.args(command.get_arguments().cloned()).subcommands(below)
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut shown(&command()), "obol", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn every_shell_proposes_what_operators_type_and_nothing_else() {
        let whole = command();
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).expect("text");
            for command in whole.get_subcommands() {
                let name = command.get_name();
                let about = command.get_about().map(ToString::to_string).unwrap_or_default();
                if command.is_hide_set() {
                    assert!(!script.contains(&about), "{shell} proposes {name}");
                } else {
                    assert!(script.contains(name), "{shell} does not propose {name}");
                }
            }
        }
    }
}
