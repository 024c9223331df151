//! The arguments of `obol config`.

use clap::Subcommand;
use std::path::PathBuf;

/// Where the configuration is looked up.
const HELP: &str = "The file is --config FILE of `up`, `console` and `replay`, else $OBOL_CONFIG, else \
    $XDG_CONFIG_HOME/obol/console.toml, else ~/.config/obol/console.toml. What it leaves out has its default.\n\
    \nTo start from: mkdir -p ~/.config/obol && obol config print > ~/.config/obol/console.toml\n\
    \nExit codes: 0 valid, 2 invalid; every mistake is reported with line and column.";

/// Check and print how the console is configured: theme, keys, columns
#[derive(Debug, Subcommand)]
#[command(after_help = HELP)]
pub enum ConfigCommand {
    /// Check a configuration; every mistake is reported with line and column
    Check {
        /// The file [default: the one that a console would use]
        #[arg(env = "OBOL_CONFIG", hide_env = true)]
        file: Option<PathBuf>,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print the whole configuration, including defaults
    Print {
        /// The file [default: the one that a console would use]
        #[arg(env = "OBOL_CONFIG", hide_env = true)]
        file: Option<PathBuf>,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON Schema of configurations, for editors
    Schema,
}
