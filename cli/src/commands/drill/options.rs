//! Options of `obol drill plan|probes|run|replay|recover`.

use super::format::Format;
use crate::logging::LogOptions;
use clap::Args;
use obol_chaos::drills::agent::ssh::Ssh;
use obol_config::duration;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct DrillRun {
    #[command(flatten)]
    pub(crate) file: DrillFile,
    /// How the result is printed: for people, as one JSON object, as JUnit XML, or for people with
    /// workflow commands that annotate the file on GitHub
    #[arg(long, value_enum, default_value_t = Format::Text, conflicts_with = "json")]
    pub(crate) format: Format,
    /// Repetitions, in place of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: Option<u32>,
    /// Pause between repetitions, in place of the file's
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    pub(crate) gap: Option<Duration>,
    /// Report each step on standard error as a line of JSON, and stop when that is closed (asked
    /// for by the console)
    #[arg(long, hide = true)]
    pub(crate) progress: bool,
    /// Run it in the simulator, on a cluster of 3 coordinators, 3 app nodes and, where the drill
    /// hits any, 3 lease caches: no process is touched, and the same drill gives the same result
    #[arg(long, conflicts_with_all = ["ssh", "no_fence"])]
    pub(crate) sim: bool,
    /// Confirm a drill that requires confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// Directory for the files of the report, which must not exist yet [default: drill-NAME-N where
    /// the drill names files]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// The approval of another user, where the drill asks for one [default: FILE.approval]
    #[arg(long, value_name = "FILE")]
    pub(crate) approval: Option<PathBuf>,
    /// Let the fault agent inject on this host, by your own ssh: your configuration, agent and
    /// known hosts; it never prompts. Not for a cluster of several hosts, whose file names them
    #[arg(long, value_name = "[USER@]HOST")]
    pub(crate) ssh: Option<Ssh>,
    /// Confirm that a drill may crash this host, by the name that it calls itself (`hostname`); once for
    /// each host
    #[arg(long, value_name = "HOSTNAME")]
    pub(crate) crash: Vec<String>,
    /// A configuration for ssh in place of your own, also for the other hosts of a cluster of several
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_config: Option<PathBuf>,
    /// The path of obol on other hosts [default: as here]
    #[arg(long, value_name = "FILE")]
    pub(crate) ssh_program: Option<PathBuf>,
    /// table2 only: measure each cell without fences as well, so that failovers wait for leases as
    /// in the paper
    #[arg(long)]
    pub(crate) no_fence: bool,
    /// With --sim or table2: the profile of the clusters, a name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(crate) profile: String,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

#[derive(Debug, Args)]
pub(crate) struct DrillReplay {
    /// A scenario file of `obol sim shrink`
    #[arg(value_name = "FILE")]
    pub(crate) script: PathBuf,
    /// Confirm the scenario's faults
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrillFile {
    /// A built-in drill (`obol drill list`), or a file if it has a '/' or ends in .toml
    #[arg(value_name = "FILE|NAME")]
    pub(crate) drill: String,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Json {
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}
