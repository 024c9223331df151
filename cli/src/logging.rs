//! The log options of daemons and long commands.

use clap::{Args, ValueEnum};
use obol_fabric::Name;
use obol_logs::{Destination, Format, Levels, Settings};
use obol_node::Site;
use obol_supervise::logging::{self, FORMAT, LEVELS, TO};
use std::path::Path;

/// Heads the options.
const HEADING: &str = "Log options";

/// How a process logs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LogOptions {
    /// The form of log lines in files
    #[arg(long, value_name = "FORMAT", value_enum, env = FORMAT, hide_env = true, default_value_t, help_heading = HEADING)]
    log_format: LogFormat,
    /// What is logged: a level for all modules, and others for some: warn,membership=debug. Changed at
    /// run time by `obol log level`
    #[arg(long, value_name = "LEVELS", env = LEVELS, hide_env = true, default_value_t, help_heading = HEADING)]
    log_level: Levels,
    /// Where log lines go; auto is the journal under systemd, and files elsewhere
    #[arg(long, value_name = "WHERE", value_enum, env = TO, hide_env = true, help_heading = HEADING)]
    log_to: Option<LogTo>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogTo {
    Auto,
    Files,
    Journal,
    Stderr,
    Off,
}

impl LogTo {
    const fn destination(self) -> Destination {
        match self {
            Self::Auto => Destination::Auto,
            Self::Files => Destination::Files,
            Self::Journal => Destination::Journal,
            Self::Stderr => Destination::Stderr,
            Self::Off => Destination::Off,
        }
    }
}

impl LogOptions {
    /// Of a cluster that lives as long as a command: nothing is logged unless it is asked for.
    pub(crate) fn off_unless_asked(&self) -> Self {
        Self { log_to: Some(self.log_to.unwrap_or(LogTo::Off)), ..self.clone() }
    }

    /// The same as a plain value.
    pub(crate) fn settings(&self) -> Settings {
        let format = match self.log_format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        };
        let destination = self.log_to.map_or_else(Destination::default, LogTo::destination);
        Settings { format, levels: self.log_level.clone(), destination }
    }

    /// Starts the log of this process, as `process` of the cluster. `agent` is the one in whose region
    /// it has its seat.
    pub(crate) fn start(&self, root: &Path, site: &Site, process: Name, agent: Option<Name>) {
        logging::start(&self.settings(), root, site, process, agent);
    }

    /// The same for a command beside the processes of a cluster, if that is there.
    pub(crate) fn start_command(&self, root: &Path, cluster: Name, command: &str) {
        logging::start_command(&self.settings(), root, cluster, command);
    }
}
