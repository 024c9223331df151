//! Presets of replicated state machines beside each other under the same faults.

use super::{APPS, CLUSTER, POLL_EVERY};
use crate::failovers::Actives;
use crate::smr::clients;
use crate::smr::replicas::{self, Replicas};
use crate::smr::store::Store;
use obol_chaos::drills::Host;
use obol_chaos::drills::studies::engines::{
    Answers, End, Fault, Measured, Measuring, Repetition, Report, Victim,
};
use obol_fabric::host::clock;
use obol_fabric::{Instant, Nanos, ViewId};
use obol_profiles::Profile;
use obol_smr::Preset;
use obol_supervise::running::{Running, Shape};
use obol_term::output::{self, Failure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// From the first survivor's report of a view until those of all others are expected.
const REPORTS: Duration = Duration::from_millis(50);

/// What is compared.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    pub engines: Vec<Preset>,
    /// What happens to a replica, with each preset.
    pub faults: Vec<Fault>,
    pub victim: Victim,
    /// Repetitions of each fault with each preset.
    pub count: u32,
    /// Replicas of each store, all of which vote.
    pub replicas: u32,
    /// Clients of each store, each a thread and a member.
    pub clients: u32,
    /// The profile of the clusters.
    pub profile: &'a Profile,
    /// The longest that a client may wait for an answer around a fault.
    pub at_most: Option<Duration>,
}

/// Measures each preset under each fault, until `stop` is set.
pub fn compare(root: &Path, options: &Options<'_>, stop: &AtomicBool) -> Report {
    let pairs =
        options.engines.iter().flat_map(|engine| options.faults.iter().map(move |fault| (*engine, *fault)));
    let mut measured = Vec::new();
    for (engine, fault) in pairs {
        measured.push(Run { root, options, engine, fault, stop }.measure());
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Report {
        verdict: Report::judge(&measured),
        victim: options.victim,
        count: options.count,
        replicas: options.replicas,
        clients: options.clients,
        at_most_us: options.at_most.map(|at_most| Nanos::from_std(at_most).as_micros_f64()),
        profile: options.profile.name.to_string(),
        host: Host::this(),
        measured,
    }
}

/// A preset under a fault.
struct Run<'a> {
    root: &'a Path,
    options: &'a Options<'a>,
    engine: Preset,
    fault: Fault,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    fn measure(&self) -> Measured {
        let (engine, options) = (self.engine.to_string(), self.options);
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
        let shape = Shape::new(CLUSTER, self.options.profile, APPS);
        let running = Running::start(self.root, &shape)?;
        if self.stop.load(Ordering::Relaxed) {
            return Ok(End::Interrupted);
        }
        let mut site = running.site()?;
        obol_replica::for_requests(&mut site);
        let site = Arc::new(site);
        let (count, preset) = (self.options.replicas, self.engine.to_string());
        let voters = count.to_string();
        let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", preset.as_str()]);
        let replicas = Replicas::start(self.root, &site, count, POLL_EVERY, &of_first, &of_all)?;
        let clients = clients::start(&site, self.options.clients)?;
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
            let victim = self.store.victim(leader, run.options.victim);
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
