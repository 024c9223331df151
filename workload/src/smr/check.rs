//! A store whose replicas are hit again and again, while every answer is checked.

use super::clients;
use super::replicas::Replicas;
use super::store::Store;
use crate::history::{Tally, merged, us};
use hdrhistogram::Histogram;
use obol_chaos::drills::studies::engines::{Fault, Victim};
use obol_node::Site;
use obol_observe::Observer;
use obol_observe::stats::shown;
use obol_observe::usage::private;
use obol_rng::Rng;
use obol_smr::Preset;
use obol_term::output::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Poll interval of the replicas.
const POLL_EVERY: &str = "20us";
/// Interval of looks at the time.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Interval of looks at the memory of processes.
const MEMORY_EVERY: Duration = Duration::from_secs(1);
/// A process whose memory is larger by this in the last fifth of the time than in the first one grows.
const GROWTH_MAX_KIB: u64 = 2048;
/// In each of these fifths; otherwise the time is too short to say so.
const MEMORY_SAMPLES_MIN: u32 = 10;

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// For how long.
    pub time: Duration,
    /// Replicas, all of which vote.
    pub replicas: u32,
    /// Clients, each a thread and a member.
    pub clients: u32,
    /// Which replica is hit.
    pub victim: Victim,
    /// Interval of kills.
    pub kill_every: Option<Duration>,
    /// Interval of freezes.
    pub freeze_every: Option<Duration>,
    /// Interval of cuts.
    pub cut_every: Option<Duration>,
    /// Longest duration of a freeze or a cut.
    pub fault_max: Duration,
}

impl Options {
    /// The faults that are wanted, with their intervals.
    pub fn faults(&self) -> impl Iterator<Item = (Fault, Duration)> {
        [(Fault::Kill, self.kill_every), (Fault::Freeze, self.freeze_every), (Fault::Cut, self.cut_every)]
            .into_iter()
            .filter_map(|(fault, every)| Some((fault, every?)))
    }
}

/// What came out of a check.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// How an earlier leader was excluded.
    pub preset: String,
    /// Reads that were answered.
    pub gets: u64,
    /// Writes that were answered.
    pub puts: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// Keys that did not have what was answered of them, at the end; none if a signal ended it before.
    pub lost: Option<u64>,
    /// The operator has ended it before its time.
    pub interrupted: bool,
    /// Replicas that were killed.
    pub kills: u64,
    /// Replicas that were frozen.
    pub freezes: u64,
    /// Replicas that were cut off.
    pub cuts: u64,
    /// Failovers that clients saw.
    pub failovers: u64,
    /// Their median.
    pub failover_p50_us: Option<f64>,
    /// The longest of them.
    pub failover_max_us: Option<f64>,
    /// The longest that a client waited for an answer, whatever the cause.
    pub longest_wait_us: f64,
    /// Median of all operations.
    pub p50_us: f64,
    /// 99th percentile of all operations.
    pub p99_us: f64,
    /// The process whose memory has grown the most; none if the time was too short.
    #[serde(flatten)]
    pub growth: Option<Growth>,
}

impl Summary {
    /// What was checked, in words.
    pub fn words(&self) -> String {
        let Summary { preset, gets, puts, wrong, lost, p50_us, p99_us, longest_wait_us, .. } = self;
        let lost = lost.map_or_else(
            || "whether keys are lost was not checked".to_owned(),
            |lost| format!("{lost} keys lost"),
        );
        format!(
            "{preset}: {gets} reads and {puts} writes, {wrong} wrong answers, {lost}; {} p50, {} p99, {} longest",
            shown(*p50_us),
            shown(*p99_us),
            shown(*longest_wait_us)
        )
    }
}

/// The process whose memory has grown the most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Growth {
    #[serde(rename = "memory_of")]
    pub of: String,
    /// At most in the first fifth of the time.
    #[serde(rename = "memory_first_kib")]
    pub first: u64,
    /// At most in the last fifth.
    #[serde(rename = "memory_last_kib")]
    pub last: u64,
}

impl Growth {
    const fn is_too_much(&self) -> bool {
        self.last > self.first + GROWTH_MAX_KIB
    }
}

/// The memory of the processes of a cluster, by name, at the beginning and at the end of a time. A
/// process that starts again has less, so the most counts that any of this name had.
struct Memory {
    begun: Instant,
    time: Duration,
    due: Instant,
    /// Looks in each of the two fifths.
    samples: [u32; 2],
    most: BTreeMap<String, [u64; 2]>,
}

impl Memory {
    fn over(time: Duration) -> Self {
        let begun = Instant::now();
        Self { begun, time, due: begun, samples: [0; 2], most: BTreeMap::new() }
    }

    /// Looks at all processes, if it is time.
    fn look(&mut self, observer: &mut Observer) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + MEMORY_EVERY;
        let snapshot = observer.snapshot();
        let local = snapshot.processes.iter().filter(|process| process.alive);
        let sizes = local.map(|process| (process.name.as_str().to_owned(), private(process.process.pid)));
        self.add(now - self.begun, sizes);
    }

    fn add(&mut self, at: Duration, sizes: impl Iterator<Item = (String, u64)>) {
        let part = if at < self.time / 5 {
            0
        } else if at >= self.time / 5 * 4 {
            1
        } else {
            return;
        };
        self.samples[part] += 1;
        for (name, kib) in sizes {
            let most = &mut self.most.entry(name).or_default()[part];
            *most = kib.max(*most);
        }
    }

    /// Of the process that has grown the most; `None` if the time was too short.
    fn growth(&self) -> Option<Growth> {
        if self.samples.iter().any(|samples| *samples < MEMORY_SAMPLES_MIN) {
            return None;
        }
        let both = self.most.iter().filter(|(_, most)| !most.contains(&0));
        let grown = both.max_by_key(|(_, [first, last])| last.saturating_sub(*first));
        grown.map(|(name, [first, last])| Growth { of: name.clone(), first: *first, last: *last })
    }
}

/// Faults that were injected.
#[derive(Clone, Copy, Debug, Default)]
struct Injected {
    kills: u64,
    freezes: u64,
    cuts: u64,
}

impl Injected {
    const fn of(&mut self, fault: Fault) -> &mut u64 {
        match fault {
            Fault::Kill => &mut self.kills,
            Fault::Freeze => &mut self.freezes,
            Fault::Cut => &mut self.cuts,
        }
    }
}

fn summary(preset: String, tallies: &[Tally], injected: Injected, growth: Option<Growth>) -> Summary {
    let mut failovers: Vec<u64> = tallies.iter().flat_map(|tally| tally.failovers.clone()).collect();
    failovers.sort_unstable();
    let times = merged(tallies.iter().flat_map(|tally| &tally.latencies));
    let quantile = |quantile| us(times.as_ref().map_or(0, |times| times.value_at_quantile(quantile)));
    let Injected { kills, freezes, cuts } = injected;
    Summary {
        preset,
        gets: tallies.iter().map(|tally| tally.gets).sum(),
        puts: tallies.iter().map(|tally| tally.puts).sum(),
        wrong: tallies.iter().map(|tally| tally.wrong).sum(),
        lost: None,
        interrupted: false,
        kills,
        freezes,
        cuts,
        failovers: failovers.len() as u64,
        failover_p50_us: failovers.get(failovers.len() / 2).map(|nanos| us(*nanos)),
        failover_max_us: failovers.last().map(|nanos| us(*nanos)),
        longest_wait_us: us(times.as_ref().map_or(0, Histogram::max)),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        growth,
    }
}

/// Injects faults until the time is over, each when all replicas have everything. Returns whether the
/// operator has ended it.
fn disturb(
    store: &mut Store<'_>,
    options: &Options,
    memory: &mut Memory,
) -> Result<(Injected, bool), Failure> {
    let (begun, mut injected) = (Instant::now(), Injected::default());
    let mut due: Vec<_> = options.faults().map(|(fault, every)| (begun + every, fault, every)).collect();
    let mut rng = Rng::new(obol_agent::seed());
    let longest = u64::try_from(options.fault_max.as_micros()).unwrap_or(u64::MAX).max(1);
    // When a client has ended, it says why.
    while begun.elapsed() < options.time && !store.clients.has_ended() {
        memory.look(&mut store.observer);
        let next = due.iter_mut().min_by_key(|(due, ..)| *due);
        if let Some((next, fault, every)) = next.filter(|(due, ..)| *due <= Instant::now()) {
            let Some(leader) = store.settled()? else { return Ok((injected, true)) };
            let victim = store.victim(leader, options.victim);
            let lasting = store.inject(victim, *fault)?;
            if *fault != Fault::Kill {
                // Some are over before the others notice, some are not.
                std::thread::sleep(Duration::from_micros(1 + rng.below(longest)));
            }
            store.lift(victim, lasting)?;
            *injected.of(*fault) += 1;
            *next = Instant::now() + *every;
        }
        if store.stop.load(Ordering::Relaxed) {
            return Ok((injected, true));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    // That the last fault is got over is part of the check.
    let is_over = due.is_empty() || store.clients.has_ended() || store.settled()?.is_some();
    Ok((injected, !is_over))
}

/// A check that is over.
#[derive(Debug)]
pub struct Checked {
    /// What came out of it.
    pub summary: Summary,
    /// Some of the wrong answers, in words.
    pub wrong: Vec<String>,
    /// After what time the operator has ended it, if it was before its own.
    pub interrupted: Option<Duration>,
}

/// Checks a store of its own with one preset.
pub fn check(
    root: &Path,
    site: &Arc<Site>,
    options: &Options,
    preset: Preset,
    stop: &AtomicBool,
) -> Result<Checked, Failure> {
    let (voters, preset) = (options.replicas.to_string(), preset.to_string());
    let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", preset.as_str()]);
    let replicas = Replicas::start(root, site, options.replicas, POLL_EVERY, &of_first, &of_all)?;
    replicas.redundant()?;
    let clients = clients::start(site, options.clients)?;
    let observer = Observer::open(root, site.cluster.name()).map_err(Failure::refused)?;
    let mut store = Store { site, replicas, count: options.replicas as usize, clients, observer, stop };
    let mut memory = Memory::over(options.time);
    let began = Instant::now();
    let disturbed = disturb(&mut store, options, &mut memory);
    let Store { clients, replicas, .. } = store;
    let (answers, keys) = (Arc::clone(&clients.answers), Arc::clone(&clients.keys));
    let tallies = clients.end()?;
    let (injected, is_interrupted) = disturbed?;
    let interrupted = is_interrupted.then(|| began.elapsed());
    if answers.count() == 0 && !is_interrupted {
        return Err(Failure::Failed(format!("preset {preset}: no client had an answer")));
    }
    let mut wrong: Vec<String> = tallies.iter().flat_map(|tally| tally.wrong_examples.clone()).collect();
    let mut summary = summary(preset, &tallies, injected, memory.growth());
    summary.interrupted = is_interrupted;
    if !is_interrupted {
        let (lost, examples) = clients::lost(site, &keys)?;
        summary.lost = Some(lost);
        wrong.extend(examples);
    }
    drop(replicas);
    Ok(Checked { summary, wrong, interrupted })
}

impl Summary {
    /// Why the check has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        let Summary { preset, wrong, lost, growth, .. } = self;
        if *wrong > 0 {
            return Some(format!("preset {preset}: {wrong} answers are wrong"));
        }
        if let Some(lost) = lost.filter(|lost| *lost > 0) {
            return Some(format!("preset {preset}: {lost} keys do not have what was answered of them"));
        }
        let Growth { of, first, last } = growth.as_ref().filter(|growth| growth.is_too_much())?;
        Some(format!(
            "preset {preset}: the memory of {of} grows: {first} KiB in the first fifth of the time, {last} KiB in the last one"
        ))
    }

    /// How often a fault was injected.
    pub const fn injected(&self, fault: Fault) -> u64 {
        match fault {
            Fault::Kill => self.kills,
            Fault::Freeze => self.freezes,
            Fault::Cut => self.cuts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_lost(lost: Option<u64>) -> Summary {
        Summary {
            preset: "view".to_owned(),
            gets: 8,
            puts: 2,
            wrong: 0,
            lost,
            interrupted: lost.is_none(),
            kills: 0,
            freezes: 0,
            cuts: 0,
            failovers: 0,
            failover_p50_us: None,
            failover_max_us: None,
            longest_wait_us: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            growth: None,
        }
    }

    #[test]
    fn keys_that_were_not_looked_at_are_not_said_to_be_there() {
        assert!(with_lost(Some(0)).words().contains(", 0 keys lost; "));
        let interrupted = with_lost(None).words();
        assert!(
            interrupted.contains("8 reads and 2 writes") && !interrupted.contains("keys lost"),
            "{interrupted}"
        );
        assert!(interrupted.contains("whether keys are lost was not checked"), "{interrupted}");
    }

    fn memory(samples: u32, grown: u64) -> Option<Growth> {
        let mut memory = Memory::over(Duration::from_secs(100));
        for second in 0..100 {
            if second % (100 / samples) == 0 {
                let sizes = [("smr-1", 3000), ("node-1", 2000 + u64::from(second) * grown / 99)];
                let sizes = sizes.into_iter().map(|(name, kib)| (name.to_owned(), kib));
                memory.add(Duration::from_secs(u64::from(second)), sizes);
            }
        }
        memory.growth()
    }

    #[test]
    fn wrong_answers_lost_keys_and_a_process_that_grows_fail_whatever_else_is_true() {
        let good = || summary("view".to_owned(), &[], Injected::default(), memory(100, 0));
        assert_eq!(good().failure(), None);
        let why = Summary { wrong: 1, lost: Some(1), ..good() }.failure().expect("an answer was wrong");
        assert!(why.contains("1 answers are wrong"), "{why}");
        assert!(Summary { lost: Some(1), ..good() }.failure().is_some_and(|why| why.contains("1 keys")));
        let grown = Summary { growth: memory(100, 99 * 30), ..good() };
        assert!(grown.failure().is_some_and(|why| why.contains("node-1 grows")));
    }

    #[test]
    fn a_process_that_grows_is_named() {
        let growth = memory(100, 99 * 30).expect("long enough");
        assert_eq!(growth, Growth { of: "node-1".to_owned(), first: 2000 + 19 * 30, last: 2000 + 99 * 30 });
        assert!(growth.is_too_much());
        let flat = memory(100, 100).expect("long enough");
        assert!(!flat.is_too_much(), "{flat:?}");
        assert_eq!(memory(20, 99 * 30), None, "four looks in a fifth say nothing");
    }
}
