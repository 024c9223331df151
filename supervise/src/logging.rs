//! How the log of a process begins: in the folder of its cluster, as its command line or the environment
//! that it inherits says.

use obol_fabric::Name;
use obol_logs::{Format, LogOwner, Settings};
use obol_node::Site;
use obol_term::output;
use std::fmt::Display;
use std::path::Path;
use std::time::SystemTime;

/// The environment variable with the form of log lines.
pub const FORMAT: &str = "OBOL_LOG_FORMAT";
pub const LEVELS: &str = "OBOL_LOG";
/// That with the place of log lines.
pub const TO: &str = "OBOL_LOG_TO";

/// The environment in which child processes log alike.
pub fn environment(settings: &Settings) -> [(&'static str, String); 3] {
    let Settings { format, levels, destination } = settings;
    let format = if *format == Format::Json { "json" } else { "text" };
    [(FORMAT, format.to_owned()), (LEVELS, levels.to_string()), (TO, destination.name().to_owned())]
}

/// Starts the log of this process, as `process` of the cluster. `agent` is the one in whose region
/// it has its seat. A process works without a log.
pub fn start(settings: &Settings, root: &Path, site: &Site, process: Name, agent: Option<Name>) {
    let owner = LogOwner { root: root.to_owned(), cluster: site.cluster.clone(), process, agent };
    if let Err(error) = obol_logs::start(settings, owner) {
        // Whether anybody reads this does not matter to the process.
        let _ = output::remark(format_args!("obol: {process} writes no log: {error}"));
    }
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(target: "process", pid = std::process::id(), version, "started (pid {}, obol {version})", std::process::id());
}

/// The same for a command beside the processes of a cluster, if that is there.
pub fn start_command(settings: &Settings, root: &Path, cluster: Name, command: &str) {
    if let (Ok(site), Ok(name)) = (Site::open(root, cluster), Name::new(command)) {
        start(settings, root, &site, name, None);
    }
}

/// Something that works worse than it should: on standard error and in the log. Where both are the
/// journal, once.
pub fn warn(text: impl Display) {
    tracing::warn!(target: "process", "{text}");
    if !obol_logs::is_journal() {
        // Whether anybody reads this does not matter to the process.
        let _ = output::remark(format_args!("obol: {text}"));
    }
}

/// Removes the logs of ended clusters that are not kept any longer.
pub fn retire() {
    if let Some(base) = obol_logs::base()
        && let Err(error) = obol_logs::retire(&base, SystemTime::now())
    {
        // The cluster does not depend on it.
        let _ = output::remark(format_args!("obol: {}: old logs cannot be removed: {error}", base.display()));
    }
}
