//! The log options of daemons and long commands, and how a log begins.

use clap::{Args, ValueEnum};
use obol_fabric::Name;
use obol_logs::{Destination, Format, Levels, LogOwner, Settings};
use obol_node::Site;
use obol_term::output;
use std::fmt::Display;
use std::path::Path;
use std::time::SystemTime;

/// Heads the options.
const HEADING: &str = "Log options";
/// The environment variables with their defaults, which child processes inherit.
const FORMAT: &str = "OBOL_LOG_FORMAT";
const LEVELS: &str = "OBOL_LOG";
const TO: &str = "OBOL_LOG_TO";

/// How a process logs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LogOptions {
    /// The form of log lines in files
    #[arg(long, value_enum, env = FORMAT, hide_env = true, default_value_t, help_heading = HEADING)]
    log_format: LogFormat,
    /// What is logged: a level for all modules, and others for some: warn,membership=debug. Changed at
    /// run time by `obol log level`
    #[arg(long, value_name = "LEVELS", env = LEVELS, hide_env = true, default_value_t, help_heading = HEADING)]
    log_level: Levels,
    /// Where log lines go; auto is the journal under systemd, and files elsewhere
    #[arg(long, value_enum, env = TO, hide_env = true, help_heading = HEADING)]
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

    /// Whether nothing is logged.
    pub(crate) fn is_off(&self) -> bool {
        self.log_to == Some(LogTo::Off)
    }

    fn settings(&self) -> Settings {
        let format = match self.log_format {
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        };
        let destination = self.log_to.map_or_else(Destination::default, LogTo::destination);
        Settings { format, levels: self.log_level.clone(), destination }
    }

    /// The environment in which child processes log alike.
    pub(crate) fn environment(&self) -> [(&'static str, String); 3] {
        let Settings { format, levels, destination } = self.settings();
        let format = if format == Format::Json { "json" } else { "text" };
        [(FORMAT, format.to_owned()), (LEVELS, levels.to_string()), (TO, destination.name().to_owned())]
    }

    /// Starts the log of this process, as `process` of the cluster. `agent` is the one in whose region
    /// it has its seat. A process works without a log.
    pub(crate) fn start(&self, root: &Path, site: &Site, process: Name, agent: Option<Name>) {
        let owner = LogOwner { root: root.to_owned(), cluster: site.cluster.clone(), process, agent };
        if let Err(error) = obol_logs::start(&self.settings(), owner) {
            // Whether anybody reads this does not matter to the process.
            let _ = output::remark(format_args!("obol: {process} writes no log: {error}"));
        }
        let version = env!("CARGO_PKG_VERSION");
        tracing::info!(target: "process", pid = std::process::id(), version, "started (pid {}, obol {version})", std::process::id());
    }

    /// The same for a command beside the processes of a cluster, if that is there.
    pub(crate) fn start_command(&self, root: &Path, cluster: Name, command: &str) {
        if let (Ok(site), Ok(name)) = (Site::open(root, cluster), Name::new(command)) {
            self.start(root, &site, name, None);
        }
    }
}

/// Something that works worse than it should: on standard error and in the log. Where both are the
/// journal, once.
pub(crate) fn warn(text: impl Display) {
    tracing::warn!(target: "process", "{text}");
    if !obol_logs::is_journal() {
        // Whether anybody reads this does not matter to the process.
        let _ = output::remark(format_args!("obol: {text}"));
    }
}

/// Removes the logs of ended clusters that are not kept any longer.
pub(crate) fn retire() {
    if let Some(base) = obol_logs::base()
        && let Err(error) = obol_logs::retire(&base, SystemTime::now())
    {
        // The cluster does not depend on it.
        let _ = output::remark(format_args!("obol: {}: old logs cannot be removed: {error}", base.display()));
    }
}
