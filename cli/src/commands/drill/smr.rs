//! `obol drill smr`: presets of replicated state machines beside each other under the same faults.

use super::timeline;
use crate::commands::kv::failover::Actives;
use crate::commands::smr::clients::{self, Clients};
use crate::commands::smr::preset::{PresetName, distinct};
use crate::commands::smr::replicas::{self, Replicas};
use crate::commands::smr::store::{Store, VictimName};
use crate::signals;
use clap::{Args, ValueEnum};
use obol_chaos::drills::Host;
use obol_chaos::drills::engines::{
    Answers, End, Fault, HEADS, Measured, Measuring, Repetition, Report, TEXT_COLUMNS,
};
use obol_chaos::running::{Running, START_TIMEOUT, Shape};
use obol_config::duration;
use obol_fabric::host::clock;
use obol_fabric::{Instant, Nanos, ViewId};
use obol_profiles::Profile;
use obol_smr::VOTERS_MAX;
use obol_term::output::{self, Failure};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The name of the clusters, before the process's id.
const CLUSTER: &str = "drill-smr";
/// Apps of each cluster beside the replicas and clients.
const APPS: u16 = 1;
/// Poll interval of the replicas.
const POLL_EVERY: &str = "20us";
/// From the first survivor's report of a view until those of all others are expected.
const REPORTS: Duration = Duration::from_millis(50);

/// Compare presets of replicated state machines under the same faults
#[derive(Debug, Args)]
#[command(
    after_help = "For each preset and fault, a cluster and a replicated store of its own are started on this host, and ended \
    with this command, however it ends. Clients write and read throughout. In each repetition a replica is hit; when the \
    members have excluded it and all clients have answers again, the fault ends, and the next repetition begins when all \
    replicas have everything again.\n\
    \nkill: it starts again with empty memory. freeze: it is stopped, and continues with its memory. cut: it reaches no other \
    process, and none reaches it.\n\
    \nclient is the longest time that a client was without an answer around the fault, members the time from the fault until \
    the last survivor's view without the victim was active. lost counts answered writes that were not there at the end, \
    stale the reads that did not have what had been answered before: both must be 0.\n\
    \nExit codes: 0 passed, 1 an answer was lost or stale, or a store did not recover, 2 refused, 3 a client waited longer \
    than --at-most, 5 interrupted, 6 void.\n\
    \nWith --script, before and after are answered writes a second around a step, gap the longest time without any answer.\n\
    \nTry: obol drill smr --engines view,mu,mu+views\n  \
    obol drill smr --script dare-figure9a --out figure9a\n  \
    obol drill smr --victim follower --faults kill,freeze,cut --out stores"
)]
pub(crate) struct DrillSmr {
    /// The presets, separated by commas; all if none is named
    #[arg(long, value_name = "PRESETS", value_enum, value_delimiter = ',')]
    engines: Vec<PresetName>,
    /// Which replica is hit
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = VictimName::Leader)]
    victim: VictimName,
    /// What happens to it; several are separated by commas
    #[arg(long, value_name = "FAULTS", value_enum, value_delimiter = ',', default_value = "kill")]
    faults: Vec<What>,
    /// Repetitions of each fault with each preset; a p50 needs 5, a p99 299
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Replicas of each store, all of which vote
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=VOTERS_MAX as i64))]
    replicas: u32,
    /// Clients of each store, each a thread and a member
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    pub(super) clients: u32,
    /// The profile of the clusters, a name or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "laptop")]
    pub(super) profile: String,
    /// The longest that a client may wait for an answer around a fault
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    at_most: Option<Duration>,
    /// Play a drill of a store instead: what its file says happens to the replicas of one store, one thing
    /// after the other, while clients write. dare-figure9a, or a file if it has a '/' or ends in .toml
    #[arg(long, value_name = "FILE|NAME", conflicts_with_all = ["engines", "victim", "faults", "count", "replicas", "at_most"])]
    script: Option<String>,
    /// Directory for the report, which must not exist yet
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// It is killed
    Kill,
    /// It is stopped for a while
    Freeze,
    /// It is cut off for a while
    Cut,
}

impl What {
    const fn fault(self) -> Fault {
        match self {
            Self::Kill => Fault::Kill,
            Self::Freeze => Fault::Freeze,
            Self::Cut => Fault::Cut,
        }
    }
}

pub(super) fn run(root: &Path, options: &DrillSmr) -> Result<ExitCode, Failure> {
    if let Some(script) = &options.script {
        return timeline::run(root, script, options);
    }
    let profile = Profile::load(&options.profile).map_err(Failure::refused)?;
    if let Some(out) = &options.out {
        std::fs::create_dir(out).map_err(Failure::refused_at(out))?;
    }
    let stop = signals::ending()?;
    let engines = match options.engines.as_slice() {
        [] => PresetName::value_variants(),
        named => named,
    };
    let faults = distinct(&options.faults);
    let pairs =
        distinct(engines).into_iter().flat_map(|engine| faults.iter().map(move |fault| (engine, *fault)));
    let mut measured = Vec::new();
    for (engine, fault) in pairs {
        let run = Run { root, options, profile: &profile, engine, fault: fault.fault(), stop: &stop };
        measured.push(run.measure());
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let report = Report {
        verdict: Report::judge(&measured),
        victim: options.victim.victim(),
        count: options.count,
        replicas: options.replicas,
        clients: options.clients,
        at_most_us: options.at_most.map(|at_most| Nanos::from_std(at_most).as_micros_f64()),
        profile: profile.name.to_string(),
        host: Host::this(),
        measured,
    };
    let said = output::json_or(options.json, &report, print);
    if let Some(out) = &options.out {
        output::kept("report", out, report.document().write(out, "smr", &report));
    }
    Ok(output::verdict(report.verdict.code(), said))
}

/// Prints a table; columns of numbers are aligned at the right.
pub(super) fn table<const N: usize>(
    heads: &[&str; N],
    rows: &[[String; N]],
    is_text: impl Fn(usize) -> bool,
) -> std::io::Result<()> {
    let heads = heads.map(str::to_uppercase);
    let widths: Vec<usize> = (0..N)
        .map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0).max(heads[n].len()))
        .collect();
    for row in std::iter::once(&heads).chain(rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(n, (cell, &width))| {
            if is_text(n) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        output::line(cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

fn print(report: &Report) -> std::io::Result<()> {
    table(&HEADS, &report.rows(), |column| column < TEXT_COLUMNS)?;
    output::line(report.explains())?;
    for remark in report.remarks() {
        output::line(format_args!("  ! {remark}"))?;
    }
    output::line(format_args!("verdict: {}", report.verdict.name()))
}

/// A preset under a fault.
struct Run<'a> {
    root: &'a Path,
    options: &'a DrillSmr,
    profile: &'a Profile,
    engine: PresetName,
    fault: Fault,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    fn measure(&self) -> Measured {
        let (engine, options) = (self.engine.preset().to_string(), self.options);
        // Progress is informative only.
        let _ = output::remark(format_args!("smr: {engine}, {}, {} times", self.fault.name(), options.count));
        let (mut measuring, mut answers) = (Measuring::new(engine, self.fault), Answers::default());
        let end = match self.store(&mut measuring, &mut answers) {
            Ok(end) => end,
            // A terminal's signal ends the replicas as well.
            Err(_) if self.stop.load(Ordering::Relaxed) => End::Interrupted,
            Err(failure) => End::Failed(failure.to_string()),
        };
        measuring.end(answers, end, options.at_most.map(Nanos::from_std))
    }

    /// All repetitions on one store.
    fn store(&self, measuring: &mut Measuring, answers: &mut Answers) -> Result<End, Failure> {
        let (profile, patience) = (self.profile, START_TIMEOUT);
        let shape =
            Shape { name: CLUSTER, profile, apps: APPS, caches: 0, hosts: None, patience, logs: false };
        let running = Running::start(self.root, &shape)?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(End::Interrupted);
        }
        let mut site = running.site()?;
        obol_replica::for_requests(&mut site);
        let site = Arc::new(site);
        let (count, preset) = (self.options.replicas, self.engine.preset().to_string());
        let voters = count.to_string();
        let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", preset.as_str()]);
        let replicas = Replicas::start(self.root, &site, count, POLL_EVERY, &of_first, &of_all)?;
        let clients = Clients::start(&site, self.options.clients)?;
        let observer = running.observer()?;
        let store =
            Store { site: &site, replicas, count: count as usize, clients, observer, stop: self.stop };
        let mut trial = Trial { store, actives: Actives::default() };
        let end = trial.repeat(self, measuring);
        let Store { clients, replicas, .. } = trial.store;
        answers.all = clients.answers.count();
        let keys = Arc::clone(&clients.keys);
        for tally in clients.end()? {
            answers.stale += tally.wrong;
            answers.examples.extend(tally.wrong_examples);
        }
        let end = end?;
        if end == End::Complete {
            let (lost, examples) = clients::lost(&site, &keys)?;
            answers.lost = lost;
            answers.examples.extend(examples);
        }
        drop(replicas);
        Ok(end)
    }
}

/// A store under faults, and when its members were active.
struct Trial<'a> {
    store: Store<'a>,
    actives: Actives,
}

impl Trial<'_> {
    fn repeat(&mut self, run: &Run<'_>, measuring: &mut Measuring) -> Result<End, Failure> {
        let Some(mut leader) = self.store.settled()? else { return Ok(End::Interrupted) };
        for number in 1..=run.options.count {
            let victim = self.store.victim(leader, run.options.victim.victim());
            let once = self.once(victim, run.fault).map_err(|failure| {
                let (fault, victim) = (run.fault.name(), replicas::name(victim));
                Failure::Failed(format!("repetition {number} ({fault} {victim}): {failure}"))
            })?;
            let Some((repetition, next)) = once else { return Ok(End::Interrupted) };
            measuring.add(repetition);
            leader = next;
        }
        Ok(End::Complete)
    }

    /// One repetition, and who leads after it; `None` if the operator stopped it.
    fn once(&mut self, victim: usize, fault: Fault) -> Result<Option<(Repetition, usize)>, Failure> {
        let Self { store, actives } = self;
        actives.hear(&mut store.observer);
        let view = store.observer.snapshot().view.as_ref().map(|view| view.id);
        let view = view.ok_or_else(|| Failure::Failed("no process knows a view".to_owned()))?;
        store.replicas.forget(victim);
        let injected = clock::now();
        store.clients.answers.watch(injected);
        let lasting = store.inject(victim, fault)?;
        let during = self.during(ViewId(view.0.saturating_add(1)), injected);
        let store = &mut self.store;
        store.clients.answers.watch(clock::now());
        store.lift(victim, lasting)?;
        let Some((clients, members)) = during? else { return Ok(None) };
        let Some(leader) = store.settled()? else { return Ok(None) };
        let comeback = store.clients.answers.longest();
        Ok(Some((Repetition { clients, members, comeback }, leader)))
    }

    /// Waits until the members have excluded the victim, by this view or a later one, and all clients
    /// have answers again. Returns the longest wait of a client, and how long the members took.
    fn during(&mut self, next: ViewId, injected: Instant) -> Result<Option<(Nanos, Option<Nanos>)>, Failure> {
        let Self { store, actives } = self;
        let excluded = store.until("no view excludes it", |store| {
            actives.hear(&mut store.observer);
            actives.any(next)
        });
        if !excluded? {
            return Ok(None);
        }
        std::thread::sleep(REPORTS);
        actives.hear(&mut store.observer);
        let members = actives.take_last(next).map(|at| at.since(injected));
        let seen = clock::now();
        if !store.until("a client has no answer", |store| store.clients.answers.all_after(seen))? {
            return Ok(None);
        }
        Ok(Some((store.clients.answers.longest(), members)))
    }
}
