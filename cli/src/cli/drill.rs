//! The arguments of `obol drill`.

use super::{Json, duration};
use clap::{Args, Subcommand, ValueEnum};
use obol_chaos::drills::ssh::Ssh;
use std::path::PathBuf;
use std::time::Duration;

/// Which processes a drill kills on one cue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DrillKind {
    App,
    Leader,
    Cache,
    #[value(name = "app+leader")]
    AppLeader,
    #[value(name = "app+cache")]
    AppCache,
    #[value(name = "app+leader+cache")]
    AppLeaderCache,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Drill {
    #[command(subcommand)]
    pub(crate) command: Option<DrillCommand>,
    /// Who dies: an app, the leading coordinator, a lease cache, or several at once
    #[arg(required = true)]
    pub(crate) kind: Option<DrillKind>,
    /// Repetitions; a p99 is claimed from 299 on
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
    /// Pause between repetitions
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = duration)]
    pub(crate) gap: Duration,
    /// Whose failover: the members', or beside it that of a client of a replicated cache, whose
    /// primary is then the app
    #[arg(long, value_enum, default_value_t = Observe::Members)]
    pub(crate) observe: Observe,
    #[command(flatten)]
    pub(crate) sharding: crate::kv::Sharding,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// Whose failover a drill measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Observe {
    /// Until every survivor's view is active
    Members,
    /// From a client's last success to its first at the new primary
    Client,
}

/// Drills from files.
#[derive(Debug, Subcommand)]
pub(crate) enum DrillCommand {
    /// List the drills that ship
    List(Json),
    /// Print a drill that ships, as a start for one's own
    Show {
        /// Its name
        drill: String,
    },
    /// Print the JSON Schema of drill files, or of journals
    Schema {
        /// Of `journal.json`, which a run leaves
        #[arg(long)]
        journal: bool,
    },
    /// Tell what a drill would hit, and what each guard says; touches nothing
    #[command(after_help = "Exit codes: 0 it may run, 2 a guard or the file refuses it.")]
    Plan(DrillFile),
    /// Look whether the steady state of a drill holds
    #[command(
        after_help = "Exit codes: 0 it holds, 1 it does not, 2 the file or the cluster can not be had."
    )]
    Probes(DrillFile),
    /// Run a drill: steady state, cue, failover, undo, and again; then the verdict
    #[command(
        after_help = "Exit codes: 0 passed, 1 failed, 2 refused, 3 deviated, 4 aborted, 5 interrupted, 6 void.\n\
        A fault agent injects on the cue, and undoes by itself if this one dies.\n\
        With --sim a drill is judged by the simulator's oracle as well. Faults that the simulator lacks are refused by\n\
        name: all but kill, freeze and partition.\n\
        \ntable2 (uKharon, Table 2) starts clusters of its own: obol drill run table2 --no-fence --out table2"
    )]
    Run(DrillRun),
    /// Play the faults of a simulator's script on processes, and wait until the cluster is healthy
    #[command(
        after_help = "Exit codes: 0 the cluster is healthy afterwards, 1 it is not, 2 refused, or --yes is missing.\n\
        \nSCRIPT is a file of `obol sim shrink`. Its nodes stand for the processes of `obol up`: start as many\n\
        coordinators, app nodes and lease caches as it has. Times are stretched by the ratio of the leases. Kills,\n\
        starts, freezes, leaves and single links that are cut exist on processes; what does not is listed and left\n\
        out. Only processes that `obol up` started are hit. Without --yes nothing is touched."
    )]
    Replay(DrillReplay),
    /// Undo what a drill left behind when its processes were killed; twice gives the same result
    Recover(Json),
}

#[derive(Debug, Args)]
pub(crate) struct DrillRun {
    #[command(flatten)]
    pub(crate) file: DrillFile,
    /// Repetitions, in place of the file's
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: Option<u32>,
    /// Tell each repetition on standard error (asked for by the console)
    #[arg(long, hide = true)]
    pub(crate) progress: bool,
    /// Run it in the simulator, on a cluster of 3 coordinators, 3 app nodes and, where the drill
    /// hits any, 3 lease caches: no process is touched, and the same drill gives the same result
    #[arg(long, conflicts_with_all = ["ssh", "no_fence"])]
    pub(crate) sim: bool,
    /// Say yes to a drill that requires it
    #[arg(long)]
    pub(crate) yes: bool,
    /// Directory for the files of the report, which must not exist yet [default: drill-NAME-N where
    /// the drill names files]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Let the fault agent inject on this host, by your own ssh: your configuration, agent and
    /// known hosts; it never asks
    #[arg(long, value_name = "[USER@]HOST")]
    pub(crate) ssh: Option<Ssh>,
    /// A configuration for ssh in place of your own
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(crate) ssh_config: Option<PathBuf>,
    /// The path of obol on that host [default: as here]
    #[arg(long, value_name = "FILE", requires = "ssh")]
    pub(crate) ssh_program: Option<PathBuf>,
    /// table2 only: measure each cell without fences as well, so that failovers wait for leases as
    /// in the paper
    #[arg(long)]
    pub(crate) no_fence: bool,
    /// With --sim or table2: the profile of the clusters, a name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(crate) profile: String,
}

#[derive(Debug, Args)]
pub(crate) struct DrillReplay {
    /// A script of the simulator
    #[arg(value_name = "SCRIPT")]
    pub(crate) script: PathBuf,
    /// Say yes to what the script does
    #[arg(long)]
    pub(crate) yes: bool,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrillFile {
    /// A drill that ships (`obol drill list`), or a file if it has a '/' or ends in .toml
    #[arg(value_name = "FILE|NAME")]
    pub(crate) drill: String,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}
