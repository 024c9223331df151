//! `obol up`: a cluster on this host, in the console or in lines.

mod announce;
mod live;

use crate::logging::LogOptions;
use announce::announce;
use clap::Args;
use clap::builder::ArgPredicate;
use live::{Live, SummaryJson};
use obol_config::duration;
use obol_console::options::Look;
use obol_console::{Background, Console};
use obol_deaths::Detection;
use obol_fabric::Name;
use obol_fabric::host::clock;
use obol_membership::View;
use obol_node::{ClusterLocation, Deployment, Network};
use obol_observe::{Health, Observer, Snapshot};
use obol_profiles::Profile;
use obol_supervise::hosts::HostNames;
use obol_supervise::up::{Audience, Limit, Options, Spare, Supervised};
use obol_supervise::{running, signals};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Start a cluster on this host and show it live
#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C ends the cluster and removes everything it left in /dev/shm; the console asks first.\n\
    \nTry in another terminal:\n  obol status\n  obol kill app-2 && obol start app-2\n  obol drill app --count 300"
)]
pub(crate) struct Up {
    /// Coordinators (1 to 7; a majority must run)
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=7))]
    pub(crate) coordinators: u16,
    /// App nodes, each an agent with a demo app attached to it
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) apps: u16,
    /// Lease caches, which renew the leases of agents so that coordinators need not
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub(crate) caches: u16,
    /// A replicated cache beside the apps, with a light load: kill its primary without an outage
    #[arg(long)]
    pub(crate) kv: bool,
    /// Profile: a name that `obol profile list` knows, or a file
    #[arg(
        long,
        value_name = "NAME|FILE",
        default_value = "laptop",
        default_value_if("hosts", ArgPredicate::IsPresent, "lan")
    )]
    pub(crate) profile: String,
    /// Simulate this many hosts on loopback addresses, each with memory, keys and a gateway of its
    /// own; they reach each other over IP. The default profile is then lan
    #[arg(long, value_name = "N", conflicts_with = "rdma", value_parser = clap::value_parser!(u8).range(2..=9))]
    pub(crate) hosts: Option<u8>,
    /// Label of the environment; a drill runs only in the one that it names
    #[arg(long, value_name = "LABEL", default_value = obol_node::deployment::ENVIRONMENT)]
    pub(crate) environment: obol_fabric::Name,
    /// Join the processes over RDMA, by this address of the host, instead of shared memory; try the
    /// profile soft-roce
    #[arg(long, value_name = "IP[:PORT]", value_parser = obol_node::network::listen)]
    pub(crate) rdma: Option<SocketAddr>,
    /// Have them know each other by keys, as the processes of several hosts do: connections and
    /// datagrams are authenticated
    #[arg(long, requires = "rdma")]
    pub(crate) rdma_keys: bool,
    /// Do not show the cluster; print one line when it is up
    #[arg(long)]
    pub(crate) headless: bool,
    /// Print lines instead of opening the console, as it does where there is no terminal
    #[arg(long)]
    pub(crate) plain: bool,
    /// Record the console's samples to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["headless", "plain", "json"])]
    pub(crate) record: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) look: Look,
    /// Let drills be armed in the console, on screen 6
    #[arg(long, conflicts_with_all = ["headless", "plain", "json"])]
    pub(crate) arm: bool,
    /// End by itself after this time, such as 20s or 1500ms
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument)]
    pub(crate) time: Option<Duration>,
    /// Print events, and at the end a summary, as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Read the profile from standard input, and end with it (asked for by commands with a cluster
    /// of their own)
    #[arg(long, hide = true)]
    pub(crate) temporary: bool,
    #[command(flatten)]
    pub(crate) log: LogOptions,
}

/// Shows the cluster: the console, or lines.
struct Shown<'a> {
    live: Live,
    console: Option<Background>,
    began: Instant,
    options: &'a Up,
}

/// That a spare coordinator was started, in JSON.
#[derive(Serialize)]
struct SpareJson<'a> {
    event: &'static str,
    name: Name,
    pid: u32,
    missing: &'a [String],
}

impl Audience for Shown<'_> {
    type Summary = (SummaryJson, Result<(), Failure>);

    fn snapshot(&mut self) -> Snapshot {
        self.live.snapshot()
    }

    fn look(&mut self, up: bool) -> io::Result<Option<Arc<View>>> {
        self.live.look(up)
    }

    fn came_up(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        report_up(snapshot, self.began, self.options)
    }

    fn spare(&mut self, started: &Result<Spare, String>) -> io::Result<()> {
        // The console has the terminal; it shows views and events itself.
        if self.has_terminal() {
            return Ok(());
        }
        match started {
            Ok(Spare { name, pid, missing }) if self.options.json => {
                output::json(&SpareJson { event: "spare", name: *name, pid: *pid, missing })
            }
            Ok(Spare { name, pid, missing }) => output::line(format_args!(
                "{} missing for too long: started {name} (pid {pid})",
                missing.join(", ")
            )),
            Err(reason) => output::remark(format_args!("obol: {reason}")),
        }
    }

    fn has_terminal(&self) -> bool {
        self.console.is_some()
    }

    fn release_terminal(&mut self) {
        drop(self.console.take());
    }

    fn end(mut self) -> Self::Summary {
        let summary = self.live.summary();
        (summary, self.console.map_or(Ok(()), Background::close))
    }
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Up) -> Result<ExitCode, Failure> {
    // What it takes to start the processes is part of the start.
    let (began, began_at) = (Instant::now(), clock::now());
    let profile = match options.temporary {
        true => running::profile_sent()?,
        false => Profile::load(&options.profile).map_err(Failure::refused)?,
    };
    let mut deployment = Deployment::new(options.coordinators, options.apps, options.caches, profile)
        .map_err(Failure::refused)?
        .labelled(options.environment);
    if let Some(at) = options.rdma {
        // One that comes later, in place of another, needs an address as well.
        let most = u16::try_from(deployment.profile.limits.proposers).unwrap_or(u16::MAX);
        let network = Network::local(obol_agent::seed(), at.ip(), at.port(), most);
        let keys = options.rdma_keys.then(|| root.join(cluster.as_str()));
        deployment = deployment.over(Network { rdma_keys: keys, ..network });
    }
    let console = !options.json && !options.headless && !options.plain && obol_console::is_possible();
    // Before anything is started.
    if options.record.is_some() && !obol_console::is_possible() {
        return Err(Failure::Refused(
            "--record records what the console sees, and there is no terminal for it; use `obol record FILE` beside `up`"
                .to_owned(),
        ));
    }
    let config = match console {
        true => obol_console::config::Config::load(options.look.config.as_deref())?,
        false => obol_console::config::Config::default(),
    };
    let stop = signals::ending()?;
    if options.temporary {
        running::stop_with_sender(Arc::clone(&stop))?;
    }
    let hosts = HostNames::new(cluster, options.hosts)?;
    let log = if options.temporary { options.log.off_unless_asked() } else { options.log.clone() };
    let wanted =
        Options { hosts, deployment, kv: options.kv, temporary: options.temporary, log: log.settings() };
    let limit = options.time.map(|time| Limit { began, time });
    // From here on everything is undone when this function is left: first the processes, then the
    // directory.
    let mut supervised = Supervised::make(root, &wanted)?;
    supervised.start(|| stop.load(Ordering::Relaxed) || limit.is_some_and(|limit| limit.is_over()))?;
    if !options.json && !console {
        announce(&wanted.hosts, &wanted.deployment)?;
    }
    let observer = Observer::open(root, cluster).map_err(Failure::failed)?;
    let quiet = console || options.headless && !options.json;
    let live = Live::new(cluster, observer, options.json, quiet, began_at);
    let location = ClusterLocation { root: root.to_owned(), cluster };
    let console = console.then(|| {
        let console = Console::new(location, options.look.clone(), config, true);
        Background::start(console.record(options.record.clone()).arm(options.arm), Arc::clone(&stop))
    });
    let shown = Shown { live, console: console.transpose()?, began, options };
    let (failed, (summary, console)) = supervised.supervise(limit, &stop, shown)?;
    conclude(cluster, failed, &summary, console, options.json)
}

/// Reports how a cluster ended.
fn conclude(
    cluster: Name,
    failed: Option<String>,
    summary: &SummaryJson,
    console: Result<(), Failure>,
    json: bool,
) -> Result<ExitCode, Failure> {
    match &failed {
        Some(reason) => tracing::error!(target: "up", "the cluster did not come up: {reason}"),
        None => tracing::info!(target: "up", "the cluster has ended. {}", summary.words()),
    }
    let Some(reason) = failed else {
        output::json_or(json, summary, |summary| {
            output::line(format_args!("obol: cluster {cluster} has ended. {}", summary.words()))
        })?;
        return console.map(|()| ExitCode::SUCCESS);
    };
    if json {
        output::json(&FailedJson { event: "failed", reason: &reason })?;
        output::json(summary)?;
    }
    console?;
    Err(Failure::Failed(format!("cluster {cluster} did not come up:\n  {reason}")))
}

/// That a cluster did not come up, in JSON.
#[derive(Serialize)]
struct FailedJson<'a> {
    event: &'static str,
    reason: &'a str,
}

fn report_up(snapshot: &Snapshot, began: Instant, options: &Up) -> std::io::Result<()> {
    let after_s = began.elapsed().as_secs_f64();
    if options.json {
        #[derive(Serialize)]
        struct UpJson<'a> {
            event: &'static str,
            health: Health,
            reasons: &'a [String],
            after_s: f64,
            deadbeat: Option<&'static str>,
        }
        let (health, reasons) = (snapshot.health, snapshot.reasons.as_slice());
        let deadbeat = snapshot.detection().map(Detection::name);
        return output::json(&UpJson { event: "up", health, reasons, after_s, deadbeat });
    }
    if options.headless {
        let deaths = snapshot
            .detection()
            .map_or(String::new(), |by| format!("; deaths are detected by {}", by.name()));
        output::line(format_args!("up after {after_s:.2}s: {}{deaths}", snapshot.health.name()))?;
        for reason in &snapshot.reasons {
            output::line(format_args!("  ! {reason}"))?;
        }
    }
    Ok(())
}
