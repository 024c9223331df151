//! The arguments of `obol config`.

use clap::Subcommand;
use std::path::PathBuf;

/// What the console's configuration is and where it is looked for.
const HELP: &str = "The file is --config FILE of `up`, `console` and `replay`, else $OBOL_CONFIG, else \
    $XDG_CONFIG_HOME/obol/console.toml, else ~/.config/obol/console.toml. What it leaves out stays as the console comes.\n\
    \nTo start from: mkdir -p ~/.config/obol && obol config print > ~/.config/obol/console.toml\n\
    \nExit codes: 0 good, 2 refused; every mistake is named with line and column.";

/// Check and print how the console is configured: theme, keys, columns
#[derive(Debug, Subcommand)]
#[command(after_help = HELP)]
pub enum ConfigCommand {
    /// Check a configuration; every mistake is named with line and column
    Check {
        /// The file [default: the one that a console would take]
        #[arg(env = "OBOL_CONFIG", hide_env = true)]
        file: Option<PathBuf>,
    },
    /// Print a configuration whole, with what it leaves out
    Print {
        /// The file [default: the one that a console would take]
        #[arg(env = "OBOL_CONFIG", hide_env = true)]
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of configurations, for editors
    Schema,
}
