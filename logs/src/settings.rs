//! What a process writes, and where.

use crate::levels::Levels;
use crate::line::Format;
use obol_fabric::Name;
use obol_fabric::host::Cluster;
use std::path::PathBuf;

/// Where lines go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// To the journal where standard error leads there, as under systemd; else to files.
    #[default]
    Auto,
    /// To files in the user's state directory.
    Files,
    /// To the journal of systemd.
    Journal,
    /// To standard error.
    Stderr,
    /// Nowhere.
    Off,
}

impl Destination {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Files => "files",
            Self::Journal => "journal",
            Self::Stderr => "stderr",
            Self::Off => "off",
        }
    }
}

/// How a process logs.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The form of lines in files and on standard error.
    pub format: Format,
    /// Which lines.
    pub levels: Levels,
    /// Where they go.
    pub destination: Destination,
}

/// Who writes a log.
#[derive(Clone, Debug)]
pub struct LogOwner {
    /// The clusters' directory.
    pub root: PathBuf,
    pub cluster: Cluster,
    /// The process, as it is called in the cluster, or the command.
    pub process: Name,
    /// The agent in whose region the process has its seat, if it has no region of its own.
    pub agent: Option<Name>,
}
