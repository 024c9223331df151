//! The command-line options of the console.

use crate::theme::Theme;
use clap::Args;
use std::path::PathBuf;

/// The console's appearance.
#[derive(Clone, Debug, Args)]
pub struct Look {
    /// Theme, keys and columns [default: console.toml in ~/.config/obol]; see `obol config`
    #[arg(long, value_name = "FILE", env = "OBOL_CONFIG", hide_env = true)]
    pub config: Option<PathBuf>,
    /// Colours: dark, light, safe or safe-light (for all kinds of colour vision), 16 or mono
    /// [default: by the terminal's background, TERM and NO_COLOR]
    #[arg(long, value_name = "NAME", value_parser = theme)]
    pub theme: Option<Theme>,
    /// Draw lines and graphs in ASCII [default: if the locale has no UTF-8]
    #[arg(long)]
    pub ascii: bool,
    /// Sound the terminal's bell on a new alert
    #[arg(long)]
    pub bell: bool,
}

/// A theme by its name.
fn theme(text: &str) -> Result<Theme, String> {
    text.parse().map_err(|_| format!("there are {}", Theme::NAMES.join(", ")))
}
