//! The command line: one place that knows every command, option, default and help text.

mod coordinator;
mod daemon;
mod drill;
#[cfg(test)]
mod reference;
mod sim;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, FromArgMatches, Parser, Subcommand};
pub(crate) use coordinator::{Coordinator, CoordinatorRun, Recover};
use daemon::Daemon;
pub(crate) use drill::{Drill, DrillCommand, DrillFile, DrillKind, DrillReplay, DrillRun, Observe};
use obol_console::config::{self, ConfigCommand};
use obol_console::options::{Look, Report, duration};
use obol_fabric::Nanos;
use obol_observe::plain;
pub(crate) use sim::{PapersOptions, Sim};
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Membership for microsecond clusters: leases, failovers and drills
#[derive(Debug, Parser)]
#[command(name = "obol", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "`obol up` starts a whole cluster of real processes on this host and shows it live. The other \
    commands work on a cluster that runs; they read its memory without asking its processes.\n\
    \nExit codes: 0 done or healthy, 1 degraded or failed, 2 unreachable or refused, 3 unavailable (no program may act).\
    \nEnvironment: OBOL_CLUSTER and OBOL_ROOT set the defaults of --cluster and --root, OBOL_CONFIG that of the console's --config; NO_COLOR turns colours off."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The cluster that is meant where none is named.
pub(crate) const DEFAULT: &str = "default";

/// Heads the options that every command has.
const WHICH: &str = "Which cluster";

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// Name of the cluster; several can run side by side
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        default_value = DEFAULT,
        env = "OBOL_CLUSTER",
        hide_env = true,
        help_heading = WHICH
    )]
    pub(crate) cluster: obol_fabric::Name,
    /// Directory that holds the clusters of this host [default: /dev/shm/obol-UID]
    #[arg(long, global = true, value_name = "DIR", env = "OBOL_ROOT", hide_env = true, help_heading = WHICH)]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster on this host and show it live
    #[command(
        after_help = "Ctrl-C ends the cluster and removes everything it left in /dev/shm; the console asks first.\n\
        \nTry in another terminal:\n  obol status\n  obol kill app-2 && obol start app-2\n  obol drill app --count 300"
    )]
    Up(Up),
    /// Watch a cluster live: members, leases, events
    #[command(
        after_help = "Reads the cluster's memory and asks none of its processes, so it can be opened and closed at any time.\n\
        In it, ? shows the keys. q quits; the cluster goes on."
    )]
    Console {
        #[command(flatten)]
        look: Look,
        /// Let drills be armed on screen 6: a preview, the cluster's name typed, and a key
        #[arg(long)]
        arm: bool,
    },
    /// Record a cluster to a file until Ctrl-C; `replay` shows it again
    #[command(
        after_help = "Each sample is whole on its own: a recording whose writer was killed can be replayed up to there."
    )]
    Record {
        /// The file; one that is there already is not overwritten
        file: PathBuf,
        /// End by itself after this time, such as 20s or 1500ms
        #[arg(long = "for", value_name = "TIME", value_parser = duration)]
        time: Option<Duration>,
    },
    /// Show a recording on the console's screens
    #[command(
        after_help = "Space plays and stops, < and > change the speed, [ and ] step, { and } jump to view changes, ? shows all keys."
    )]
    Replay {
        /// The recording
        file: PathBuf,
        #[command(flatten)]
        look: Look,
    },
    /// Report on a recording, or on a cluster that is looked at for a while
    #[command(after_help = "Failovers with their phases, latencies, alerts, notes and processes.\n\
        \nFormats: md for a postmortem, html for a page that needs no other file, json, csv (failovers), perfetto (a trace for \
        ui.perfetto.dev), hdr (an HdrHistogram log), openmetrics.\n\
        \nExample: obol report night.obolrec --format perfetto --output night.json")]
    Report(Report),
    /// Show a cluster's health; exit code 0 healthy, 1 degraded, 2 unreachable, 3 unavailable
    #[command(
        after_help = "Exit codes:\n  0  healthy\n  1  degraded: something is missing, and programs may act\n  \
        2  unreachable: no process of it lives, or there is no such cluster\n  \
        3  unavailable: processes live and none may act; no majority of the coordinators can decide, or every lease has ended"
    )]
    Status(Json),
    /// Print the flight recorders of all processes, merged by time
    Events {
        /// So many of the newest events
        #[arg(long, value_name = "N", default_value_t = 100)]
        last: usize,
        /// Print one JSON object per event
        #[arg(long)]
        json: bool,
    },
    /// Follow the views: who joined, left or failed, in order and without a gap
    #[command(
        after_help = "Reads the coordinators' memory and asks nobody. Coordinators keep the last views \
        (limits.slots of the profile, less one); where older ones were asked for, a gap is told.\n\
        \nTo go on after an earlier run, give --from one more than the last view that it told.\n\
        \nExit codes: 0 told what was asked for, 2 no such cluster, or it has ended."
    )]
    Watch(Watch),
    /// Note something for every console and recorder of the cluster: it divides before from after
    #[command(
        after_help = "Consoles count joins, graceful leaves and failures since the newest note, and compare latencies on its two sides.\n\
        \nExample: obol mark \"deploy 1.4\""
    )]
    Mark {
        /// What to note, on one line
        text: String,
    },
    /// Kill a process with SIGKILL, by name (app-2) or by role (leader)
    Kill(Target),
    /// Let a process leave the cluster gracefully and end; nobody counts it as failed
    Stop(Target),
    /// Start a process of the cluster that is down
    Start(Target),
    /// End a cluster, and clean up what a crashed `up` left behind
    #[command(
        after_help = "What owns memory in the cluster is killed with it: also a program with a core of its own, and a server of \
            the cache, that a user has started. A program that is attached to an agent goes on, and is told that its agent died; \
            only where no `obol up` answers it is killed, too."
    )]
    Down,
    /// Run any program as a member, without a change to it
    #[command(
        after_help = "The program is removed from the view when it dies, is frozen, or fails its health command. It is killed \
        before it could wake up in a role that another has taken. Signals and the exit code are passed on. \
        What the program leaves behind is killed.\n\
        \nThe program, its hooks and its health command find OBOL_NAME, OBOL_NODE, OBOL_CLUSTER and OBOL_ROOT in their \
        environment; hooks also OBOL_INCARNATION, OBOL_VIEW and OBOL_MEMBERS (the apps of the view, oldest first), and \
        OBOL_LOST (why) when the membership is lost or given up.\n\
        \nSIGTERM and SIGINT are passed on to the program. It has --grace to end, then it is killed with all that it \
        started; a second signal kills at once. The member leaves after that, when nothing of the program runs any more.\n\
        \nTry:\n  obol run --name cache-1 --node node-1 --shell --on-view 'echo view $OBOL_VIEW: $OBOL_MEMBERS' -- sleep 60\n\
        \nExit codes: the program's, as a shell tells it: 128 and the signal, 126 not executable, 127 not found; \
        2 no such cluster or agent, or its name is taken."
    )]
    Run(crate::run::Run),
    /// A replicated cache on the cluster, whose clients hardly see a failover
    #[command(subcommand)]
    #[command(
        after_help = "Try, while `obol up` runs:\n  obol kv server --name kv-1 &\n  obol kv server --name kv-2 &\n  \
        obol kv put 1 hello && obol kill kv-1 && obol kv get 1\n  obol stop kv-2 && obol kv check --for 10s --kill-every 1s"
    )]
    Kv(crate::kv::Kv),
    /// Becomes a program that dies with `run`
    #[command(hide = true)]
    RunTied {
        /// The process that it must not outlive
        #[arg(long)]
        parent: u32,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Runs a command of `run`'s, and ends all that it started with `run`
    #[command(hide = true)]
    RunGuarded {
        /// The process that nothing of it must outlive
        #[arg(long)]
        parent: u32,
        /// The standard input is the command's, not for telling how it ended
        #[arg(long)]
        feeds: bool,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<std::ffi::OsString>,
    },
    /// Break a cluster on purpose, and judge how it bears that
    #[command(after_help = "Needs a cluster that was started by `obol up`, which starts the replacements.\n\
        A drill is void, not failed, where its measurement can not be trusted.\n\
        \nQuick: obol drill app --count 300\n\
        From a file: obol drill list; obol drill show freeze > mine.toml; obol drill plan ./mine.toml")]
    Drill(Drill),
    /// Find the lease and the heartbeat that this machine sustains, and write a profile
    #[command(
        after_help = "Starts clusters of its own: leases and heartbeats of rising length, without load and with all \
        cores and memory busy (stress-ng where it is installed), as in uKharon's Figure 3. What is recommended is tried \
        before it is written.\n\
        \nA share is claimed with 95 % confidence: 99.99 % needs 29,957 renewals in time in a row.\n\
        \nExit codes: 0 a profile is recommended, 1 none is, or its trial failed, 2 refused.\n\
        \nTry: obol tune --write mine.toml --html tune.html && obol up --profile ./mine.toml"
    )]
    Tune(Tune),
    /// Measure this host's floor and the product in one run, and print their ratios
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Exit codes: 0 every figure is as it must be, 1 one is missed, 2 refused."
    )]
    Bench(Bench),
    /// Run whole clusters in virtual time under faults and check them against the invariants
    #[command(subcommand)]
    Sim(Sim),
    /// Show and check profiles: every constant of a deployment
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Check and print how the console is configured: theme, keys, columns
    #[command(subcommand)]
    #[command(after_help = config::HELP)]
    Config(ConfigCommand),
    /// Show this host's RDMA devices, and what is missing to use them
    #[command(subcommand)]
    Fabric(FabricCommand),
    /// Make this host ready for a cluster of several hosts, which a file describes
    #[command(subcommand)]
    Host(HostCommand),
    /// Show which death detector this host has; load and unload the eBPF programs, for hosts without
    /// the kernel module
    #[command(subcommand, alias = "deaths")]
    Detector(DetectorCommand),
    /// Print the manual page of obol, or write those of all its commands
    #[command(
        after_help = "To read it: obol man | man -l -\n\nTo install all: obol man --dir /usr/local/share/man/man1"
    )]
    Man {
        /// Write a page for obol and one for each command into this directory, which must exist
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Print a shell completion script
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Change who decides while the cluster runs: add, remove or replace coordinators
    #[command(subcommand)]
    Coordinator(Coordinator),
    /// Show how long leases last, or change it while the cluster runs
    #[command(subcommand)]
    Lease(Lease),
    /// An agent process (started by `up`)
    #[command(hide = true)]
    Agent(Named),
    /// A lease cache process (started by `up`)
    #[command(hide = true)]
    LeaseCache(Named),
    /// A demo application attached to an agent (started by `up`)
    #[command(hide = true)]
    App(DemoApp),
    /// What breaks things on a drill's cue (started by `drill run`)
    #[command(hide = true)]
    FaultAgent {
        /// Hear the runner on standard input, as under ssh, and not on a socket
        #[arg(long)]
        stdio: bool,
    },
    /// A load on this host (started by a drill's fault agent)
    #[command(hide = true)]
    DrillLoad {
        /// Threads that compute
        #[arg(long)]
        threads: u32,
        /// MiB that are written again and again
        #[arg(long)]
        mebibytes: u32,
        /// For how long
        #[arg(long)]
        nanoseconds: u64,
    },
    /// A console that has an hour of history (started by `bench console`)
    #[command(hide = true)]
    AgedConsole,
    /// Removes a cluster when the command that made it has ended (started by commands with a
    /// cluster of their own)
    #[command(hide = true)]
    Keep {
        /// A folder of files that goes with it
        #[arg(long)]
        folder: Option<PathBuf>,
    },
    /// One process of the floor benchmark (started by `bench`)
    #[command(hide = true)]
    FloorRole {
        /// What it plays
        #[arg(long)]
        role: u32,
    },
}

/// A daemon on a node.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name
    #[arg(long)]
    pub(crate) name: obol_fabric::Name,
}

/// A demo application.
#[derive(Debug, Args)]
pub(crate) struct DemoApp {
    /// The app's name
    #[arg(long)]
    pub(crate) name: obol_fabric::Name,
    /// The agent that it attaches to
    #[arg(long)]
    pub(crate) node: obol_fabric::Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FabricCommand {
    /// List devices, ports and GIDs, mark what would be used, and say what is missing and how to
    /// get it
    #[command(
        after_help = "Exit codes: 0 a device can be used and nothing is missing, 1 something is missing, \
        2 this host has no RDMA device or no libraries for one.\n\
        \nA device in software on an Ethernet interface, as root:\n  \
        modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
    )]
    List {
        /// Use the port that this own IP address belongs to
        #[arg(long, value_name = "IP")]
        address: Option<std::net::IpAddr>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DetectorCommand {
    /// Show whether the module, eBPF programs or neither would report the deaths of this user's
    /// processes, and why
    #[command(after_help = "Exit codes: 0 the kernel reports deaths, 1 only robust futexes and pidfds do.")]
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Load the eBPF programs, as root; they stay until `unload` or a reboot
    #[command(
        after_help = "Processes that run already use them within a second, unless the module is there. Needs a kernel \
        with CONFIG_DEBUG_INFO_BTF; 6.1 or later, if others than root are to use them.\n\
        \nExit codes: 0 loaded, 1 the kernel refuses them, 2 loaded already, or not root."
    )]
    Load {
        /// Let this group use them, by name or number; without it only root may
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
    /// Take the eBPF programs out, as root; no death is lost meanwhile
    Unload,
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// Coordinators (1 to 7; a majority must live)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    pub(crate) coordinators: u16,
    /// App nodes: an agent and a demo app attached to it, each
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) apps: u16,
    /// Lease caches, which renew the leases of agents so that coordinators need not
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub(crate) caches: u16,
    /// A replicated cache beside the apps, with a gentle load: kill its primary and nobody notices
    #[arg(long)]
    pub(crate) kv: bool,
    /// Profile: a name that `obol profile list` knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(crate) profile: String,
    /// What this place is called; a drill runs only where it was made for
    #[arg(long, value_name = "LABEL", default_value = obol_node::deployment::ENVIRONMENT)]
    pub(crate) environment: obol_fabric::Name,
    /// Join the processes over RDMA, by this address of the host, instead of shared memory; try the
    /// profile soft-roce
    #[arg(long, value_name = "IP[:PORT]", value_parser = listen)]
    pub(crate) rdma: Option<SocketAddr>,
    /// Do not show the cluster; print one line when it is up
    #[arg(long)]
    pub(crate) headless: bool,
    /// Print lines instead of opening the console, as it does where there is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Record what the console sees to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["headless", "plain", "json"])]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) look: Look,
    /// Let drills be armed in the console, on screen 6
    #[arg(long, conflicts_with_all = ["headless", "plain", "json"])]
    pub(crate) arm: bool,
    /// End by itself after this time, such as 20s or 1500ms
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Print events, and at the end a summary, as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Read the profile from standard input, and end with it (asked for by commands with a cluster
    /// of their own)
    #[arg(long, hide = true)]
    pub(crate) temporary: bool,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Json {
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long leases last.
#[derive(Debug, Subcommand)]
pub(crate) enum Lease {
    /// Show how long leases last now, and within which limits they adapt
    #[command(after_help = "Exit codes: 0 shown, 2 no such cluster, or it knows no view.")]
    Show {
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Have leases of another duration; a view that says so is decided, and no lease is disturbed
    #[command(
        after_help = "Longer leases outlast longer delays. A failover waits for them only where a member can be neither \
        fenced nor proved dead.\n\
        \nIf the profile's lease.max is longer than its lease.duration, leases go on to adapt from there.\n\
        \nTry: obol lease set 40ms; obol lease set usual\n\
        \nExit codes: 0 done, 1 not done in time (what was asked for is forgotten again, unless a \
        coordinator was stopped by a signal meanwhile), 2 refused."
    )]
    Set {
        /// The duration, such as 40ms; or usual, or max: what the profile says
        #[arg(value_name = "DURATION|usual|max", value_parser = lease_length)]
        length: LeaseLength,
        /// Let it be longer than the profile's lease.max
        #[arg(long)]
        beyond_max: bool,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
}

/// A duration of leases, as an operator gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseLength {
    /// The profile's `lease.duration`.
    Usual,
    /// The profile's `lease.max`.
    Max,
    /// This one.
    Span(obol_fabric::Nanos),
}

fn lease_length(text: &str) -> Result<LeaseLength, String> {
    match text {
        "usual" => Ok(LeaseLength::Usual),
        "max" => Ok(LeaseLength::Max),
        _ => obol_profiles::duration::parse(text).map(LeaseLength::Span).map_err(|error| error.to_string()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Begin with this view instead of the newest
    #[arg(long, value_name = "VIEW")]
    pub(crate) from: Option<u64>,
    /// End after so many views and gaps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End as soon as the newest view is told
    #[arg(long)]
    pub(crate) once: bool,
    /// Keep the newest view in this file, for `obol coordinator recover` after a disaster
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Print one JSON object per view or gap
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Target {
    /// A process by name (app-2, node-1, cache-1, coord-3) or by role (leader)
    pub(crate) target: String,
}

#[derive(Debug, Args)]
pub(crate) struct Tune {
    /// Renewals that must come in time, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 99.99, value_parser = share)]
    pub(crate) share: f64,
    /// How long each step is measured; one that can not reach the share any more ends early
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub(crate) time: Duration,
    /// The profile to start from: a name that `obol profile list` knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(crate) profile: String,
    /// Write the recommended profile to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
    /// Write the evidence to this file, as a page that needs no other
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// A share in percent that some number of samples can claim.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 100.0 => Ok(share),
        _ => Err("a number between 0 and 100, such as 99.99".to_owned()),
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure what the console costs, and how quick its keys are, in a terminal of 200x50 on
    /// synthetic clusters
    #[command(
        after_help = "Measured on 32 and on 512 nodes, each with an app, with an hour of history: the share of a core, live \
        and frozen, resident memory, what is written to the terminal, and from a key to the screen. Needs `script` of \
        util-linux, and about 600 MB of /dev/shm.\n\
        \nExit codes: 0 all figures are within the design's budget, 1 one is not, 2 refused."
    )]
    Console(BenchConsole),
}

#[derive(Debug, Args)]
pub(crate) struct BenchConsole {
    /// Measure this cluster only
    #[arg(long, value_name = "32|512", value_parser = nodes)]
    pub(crate) nodes: Option<u16>,
    /// How long each share of a core is measured
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub(crate) seconds: u32,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// The size of a synthetic cluster.
fn nodes(text: &str) -> Result<u16, String> {
    match text {
        "32" => Ok(32),
        "512" => Ok(512),
        _ => Err("32 or 512".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure instead
    #[command(subcommand)]
    pub(crate) what: Option<BenchCommand>,
    /// Failovers, and failovers of the floor program
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pub(crate) count: u32,
    /// Measure consensus over RDMA instead, by this address of the host
    #[arg(long, value_name = "IP[:PORT]", value_parser = listen)]
    pub(crate) rdma: Option<SocketAddr>,
    /// Profile for --rdma: a name that `obol profile list` knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "soft-roce", requires = "rdma")]
    pub(crate) profile: String,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the built-in profiles
    List,
    /// Print a profile with every constant
    Show {
        /// Profile: a name that `obol profile list` knows, or a file
        profile: String,
    },
    /// Check a profile file; every mistake is named with line and column
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print what each constant means, its unit and bounds
    Reference,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// Print a file to start from, with an identity drawn for a new cluster
    Example,
    /// Check the file; every mistake is named with line and column
    Check {
        /// The file, the same on all hosts
        file: PathBuf,
        /// Print one JSON object for scripts
        #[arg(long)]
        json: bool,
    },
    /// Make the memory in which this host's processes of the cluster meet; done once after each
    /// boot
    Prepare {
        /// The file, the same on all hosts
        file: PathBuf,
        /// Which of the file's hosts this is, where its addresses do not tell
        #[arg(long, value_name = "IP")]
        address: Option<IpAddr>,
        /// Where to note, across boots, that this host's coordinator has voted
        #[arg(long, value_name = "DIR", default_value = "/var/lib/obol")]
        state: PathBuf,
    },
    /// Remove the cluster's memory from this host; its processes must have ended
    Clean {
        /// The file, the same on all hosts
        file: PathBuf,
    },
}

impl Cli {
    /// Reads the command line, or says what is wrong with it and ends the process.
    pub(crate) fn read() -> Self {
        if let Some(daemon) = Daemon::read() {
            return daemon;
        }
        let command = <Self as clap::CommandFactory>::command().color(colours());
        let parsed = command.clone().try_get_matches();
        parsed.and_then(|found| Self::from_arg_matches(&found)).unwrap_or_else(|mut error| {
            let shown =
                |name: &String| command.find_subcommand(name).is_none_or(|found| !found.is_hide_set());
            // The library would list the daemons' commands, too, and propose them for a mistyped
            // one.
            for kind in [ContextKind::ValidSubcommand, ContextKind::SuggestedSubcommand] {
                match error.remove(kind) {
                    Some(ContextValue::Strings(mut names)) => {
                        names.retain(shown);
                        if !names.is_empty() {
                            error.insert(kind, ContextValue::Strings(names));
                        }
                    }
                    Some(other) => drop(error.insert(kind, other)),
                    None => {}
                }
            }
            // What was typed may come from a file, and the library repeats it as it is.
            let shown = error.render().to_string();
            if let Cow::Owned(neutral) = plain::lines(&shown) {
                // The code tells if nobody reads the text.
                let _ = obol_console::output::remark(neutral.trim_end());
                std::process::exit(error.exit_code());
            }
            error.exit()
        })
    }
}

/// Whether help and errors may be coloured. Left to itself, the library also colours on terminals
/// that know no escape codes as soon as the variable CI is set.
fn colours() -> clap::ColorChoice {
    match std::env::var_os("TERM") {
        Some(term) if term == "dumb" => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
    }
}

/// The completion script of a shell. It knows what operators see, and not what processes of a
/// cluster are started with.
pub(crate) fn completions(shell: clap_complete::Shell) -> Vec<u8> {
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
    clap_complete::generate(
        shell,
        &mut shown(&<Cli as clap::CommandFactory>::command()),
        "obol",
        &mut script,
    );
    script
}

/// A time with its unit.
fn span(text: &str) -> Result<Nanos, String> {
    obol_profiles::duration::parse(text).map_err(|error| error.to_string())
}

/// An address with or without the port of the first coordinator.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, obol_node::network::PORT));
    address
        .or_else(|_| text.parse())
        .map_err(|_| "an address looks like 10.1.0.1, or 10.1.0.1:7471".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn an_address_may_have_a_port() {
        assert_eq!(listen("10.1.0.1"), Ok(SocketAddr::from(([10, 1, 0, 1], 7471))));
        assert_eq!(listen("10.1.0.1:80"), Ok(SocketAddr::from(([10, 1, 0, 1], 80))));
        assert_eq!(listen("fd00::1").map(|at| at.port()), Ok(7471));
        assert!(listen("host").is_err());
    }

    #[test]
    fn times_need_a_unit() {
        assert_eq!(duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(duration("1.5ms"), Ok(Duration::from_micros(1500)));
        assert!(duration("20").is_err());
        assert!(duration("20d").is_err());
        assert!(duration("0s").is_err());
    }
}
