//! Replicas of a store join, die and leave one after the other, while clients
//! write.

use super::{APPS, CLUSTER, POLL_EVERY};
use crate::process::SERVE_TIMEOUT;
use crate::smr::replicas::Replicas;
use nix::sys::signal::Signal;
use obol_chaos::drillfile::{Change, StoreDrill, StoreStep};
use obol_chaos::drills::studies::timeline::{StepReport, Timeline};
use obol_chaos::drills::{Host, Verdict};
use obol_fabric::host::{NameClaim, clock};
use obol_fabric::{Endpoint, Instant, Name, Nanos};
use obol_node::Site;
use obol_observe::figures::total;
use obol_profiles::Profile;
use obol_replica::{ClientMember, Work};
use obol_server::POLL_INTERVAL;
use obol_server::smr::{ask, failure};
use obol_smr::{Client, KeyValue, Operation};
use obol_supervise::running::{Running, Shape};
use obol_term::output::{self, Failure};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval of looks at the replicas.
const REPLICA_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes of each value: as in DARE's Figure 9a.
const VALUE_BYTES: usize = 64;
/// Interval of the series.
const INTERVAL: Nanos = Nanos::from_millis(10);
/// Intervals of the series: as many as the longest drill may have.
const INTERVALS_MAX: usize = 60_000;
/// Before the first step, and what counts as before a step.
const BEFORE: Nanos = Nanos::from_millis(500);

/// When all clients had answers.
struct Rate {
    begun: Instant,
    intervals: Vec<AtomicU64>,
    /// The last answer.
    last: AtomicU64,
    /// The longest time between two answers, of those that ended since it was reset.
    longest: AtomicU64,
}

impl Rate {
    fn new() -> Self {
        let begun = clock::now();
        let intervals = (0..INTERVALS_MAX).map(|_| AtomicU64::new(0)).collect();
        Self { begun, intervals, last: AtomicU64::new(begun.0), longest: AtomicU64::new(0) }
    }

    fn interval(&self, at: Instant) -> usize {
        (at.since(self.begun).0 / INTERVAL.0) as usize
    }

    fn note(&self, now: Instant) {
        if let Some(interval) = self.intervals.get(self.interval(now)) {
            interval.fetch_add(1, Ordering::Relaxed);
        }
        let before = self.last.fetch_max(now.0, Ordering::Relaxed);
        self.longest.fetch_max(now.0.saturating_sub(before), Ordering::Relaxed);
    }

    /// The longest time without an answer since the last call; one that lasts still counts.
    fn take_longest(&self, now: Instant) -> Nanos {
        let lasting = now.0.saturating_sub(self.last.load(Ordering::Relaxed));
        Nanos(self.longest.swap(0, Ordering::Relaxed).max(lasting))
    }

    /// The whole intervals between two moments.
    fn between(&self, from: Instant, to: Instant) -> Vec<u64> {
        let (first, end) = (self.interval(from) + 1, self.interval(to));
        let all = self.intervals.get(first..end).unwrap_or_default();
        all.iter().map(|answers| answers.load(Ordering::Relaxed)).collect()
    }
}

/// By the second, the mean of some intervals.
fn per_s(answers: &[u64]) -> f64 {
    let time = answers.len() as f64 * INTERVAL.as_micros_f64() / 1e6;
    if answers.is_empty() { f64::NAN } else { total(answers.iter().copied()) as f64 / time }
}

/// A client that writes rising values to a key of its own, as many at a time as it may.
struct Writer {
    key: [u8; 8],
    begun: u64,
    answered: u64,
    rate: Arc<Rate>,
}

fn value(number: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

impl Work for Writer {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        while client.take().is_some() {
            // Answers come in order.
            self.answered += 1;
            self.rate.note(clock::now());
        }
        while client.is_open() && !client.is_busy() {
            // A short key and value.
            let Ok(put) = KeyValue::put(&self.key, &value(self.begun + 1)) else { return true };
            if client.begin(clock::now(), Operation::Propose(put), endpoint).is_err() {
                break;
            }
            self.begun += 1;
        }
        false
    }
}

/// Reads one key.
struct Reader {
    key: [u8; 8],
    asked: bool,
    found: Option<u64>,
    until: std::time::Instant,
}

impl Work for Reader {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        if let Some(done) = client.take() {
            let found = KeyValue::outcome(&done.reply).ok().flatten();
            let number = found.and_then(|found| found.first_chunk()).map(|word| u64::from_le_bytes(*word));
            self.found = Some(number.unwrap_or(0));
            return true;
        }
        if !self.asked && client.is_open() {
            let Ok(query) = KeyValue::get(&self.key) else { return true };
            self.asked = client.begin(clock::now(), Operation::Query(query), endpoint).is_ok();
        }
        std::time::Instant::now() > self.until
    }
}

/// Clients that write until they are stopped, each on a thread of its own.
struct Writers {
    rate: Arc<Rate>,
    stop: Arc<AtomicBool>,
    workers: Vec<JoinHandle<Result<u64, Failure>>>,
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn key(place: u32) -> [u8; 8] {
    u64::from(place).to_le_bytes()
}

impl Writers {
    fn start(site: &Arc<Site>, count: u32) -> Result<Self, Failure> {
        let (rate, stop) = (Arc::new(Rate::new()), Arc::new(AtomicBool::new(false)));
        let mut writers = Self { rate, stop, workers: Vec::new() };
        for place in 0..count {
            let (site, rate, stop) = (Arc::clone(site), Arc::clone(&writers.rate), Arc::clone(&writers.stop));
            let name = Name::new(&format!("smrc-writer-{place}")).map_err(Failure::failed)?;
            let run = move || {
                let mut client = ClientMember::join(&site, name, POLL_INTERVAL).map_err(failure)?;
                let mut writer = Writer { key: key(place), begun: 0, answered: 0, rate };
                client.run(&mut writer, &stop).map_err(Failure::failed)?;
                Ok(writer.answered)
            };
            let thread = std::thread::Builder::new().name("obol-smr-client".to_owned());
            writers.workers.push(thread.spawn(run).map_err(Failure::failed)?);
        }
        Ok(writers)
    }

    fn has_ended(&self) -> bool {
        self.workers.iter().any(JoinHandle::is_finished)
    }

    /// Stops them: how many of the writes of each were answered.
    fn end(mut self) -> Result<Vec<u64>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || Failure::Failed("a client's thread panicked".to_owned());
        let workers = std::mem::take(&mut self.workers);
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).collect()
    }
}

/// How many keys have an older value than the newest that was answered.
fn lost(site: &Site, answered: &[u64]) -> Result<u64, Failure> {
    let name = Name::new("smrc-reader").map_err(Failure::failed)?;
    let mut client = ClientMember::join(site, name, POLL_INTERVAL).map_err(failure)?;
    let mut lost = 0;
    for (place, answered) in answered.iter().enumerate() {
        let until = std::time::Instant::now() + SERVE_TIMEOUT;
        let mut reader = Reader { key: key(place as u32), asked: false, found: None, until };
        client.run(&mut reader, &AtomicBool::new(false)).map_err(Failure::failed)?;
        let none = || Failure::Failed(format!("no answer to a read at the end within {SERVE_TIMEOUT:?}"));
        lost += u64::from(reader.found.ok_or_else(none)? < *answered);
    }
    Ok(lost)
}

/// The store, and which of its replicas run.
struct Store<'a> {
    site: &'a Site,
    replicas: Replicas<'a>,
    runs: Vec<bool>,
    /// Voters that there are to be.
    wanted: u32,
    stop: &'a AtomicBool,
}

impl Store<'_> {
    fn running(&self) -> u32 {
        self.runs.iter().filter(|runs| **runs).count() as u32
    }

    /// Waits until all replicas that run vote and have everything; returns the leader. `None` if the
    /// operator stopped it.
    fn settled(&self, writers: &Writers) -> Result<Option<usize>, Failure> {
        let end = std::time::Instant::now() + SERVE_TIMEOUT;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if let Some(leader) = self.replicas.leader_of(self.running(), &self.runs) {
                return Ok(Some(leader));
            }
            if writers.has_ended() {
                return Err(Failure::Failed("a client has ended by itself".to_owned()));
            }
            if std::time::Instant::now() > end {
                let (running, stand) = (self.running(), self.replicas.stand());
                return Err(Failure::Failed(format!(
                    "the {running} replicas that run do not all vote and have everything within {SERVE_TIMEOUT:?}: {stand}"
                )));
            }
            std::thread::sleep(REPLICA_POLL_INTERVAL);
        }
    }

    fn start_one(&mut self) -> Result<(), Failure> {
        match self.runs.iter().position(|runs| !runs) {
            Some(place) => {
                self.replicas.restart(place)?;
                self.runs[place] = true;
            }
            None => {
                self.replicas.add()?;
                self.runs.push(true);
            }
        }
        Ok(())
    }

    fn end_one(&mut self, place: usize, signal: Signal) -> Result<(), Failure> {
        self.replicas.signal(place, signal)?;
        self.replicas.forget(place);
        self.runs[place] = false;
        Ok(())
    }

    fn resize(&mut self, voters: u32) -> Result<(), Failure> {
        self.wanted = voters;
        let name = Name::new("smrc-resize").map_err(Failure::failed)?;
        let _claim = NameClaim::reserve(&self.site.cluster, name).map_err(Failure::refused)?;
        ask(self.site, name, Operation::Resize(voters), SERVE_TIMEOUT).map(drop)
    }

    /// Does what a step says, with this leader.
    fn change(&mut self, change: Change, leader: usize) -> Result<(), Failure> {
        let others = (0..self.runs.len()).rev();
        let follower = others.filter(|place| self.runs[*place]).find(|place| *place != leader);
        let follower = follower.ok_or_else(|| Failure::Failed("only the leader runs".to_owned()))?;
        match change {
            Change::Grow => {
                self.resize(self.wanted + 1)?;
                self.start_one()
            }
            Change::Join => self.start_one(),
            Change::KillLeader => self.end_one(leader, Signal::SIGKILL),
            Change::KillFollower => self.end_one(follower, Signal::SIGKILL),
            Change::Shrink | Change::ShrinkLeader => {
                self.resize(self.wanted - 1)?;
                let place = if change == Change::ShrinkLeader { leader } else { follower };
                self.end_one(place, Signal::SIGTERM)
            }
        }
    }

    /// One step; `None` if the operator stopped it.
    fn step(
        &mut self,
        step: &StoreStep,
        leader: usize,
        writers: &Writers,
    ) -> Result<Option<(StepReport, usize)>, Failure> {
        let rate = &writers.rate;
        let (at, before) = (clock::now(), self.running());
        rate.take_longest(at);
        self.change(step.change, leader)?;
        let Some(leader) = self.settled(writers)? else { return Ok(None) };
        let settled = clock::now();
        let end = settled.max(at + step.time);
        while clock::now() < end && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(REPLICA_POLL_INTERVAL);
        }
        let now = clock::now();
        let half = Instant(at.0 + now.since(at).0 / 2);
        let millis = |span: Nanos| span.as_micros_f64() / 1e3;
        let lowest = rate.between(at, now).into_iter().min().unwrap_or(0);
        let report = StepReport {
            name: step.name.clone(),
            change: step.change,
            at_s: at.since(rate.begun).as_micros_f64() / 1e6,
            voters: (before, self.running()),
            before_per_s: per_s(&rate.between(Instant(at.0.saturating_sub(BEFORE.0)), at)),
            gap_ms: millis(rate.take_longest(now)),
            lowest_per_s: per_s(&[lowest]),
            settled_ms: millis(settled.since(at)),
            after_per_s: per_s(&rate.between(settled.max(half), now)),
        };
        Ok(Some((report, leader)))
    }
}

/// All steps. What was measured is in the timeline, however it ends.
fn play(
    root: &Path,
    drill: &StoreDrill,
    profile: &Profile,
    stop: &AtomicBool,
    timeline: &mut Timeline,
) -> Result<(), Failure> {
    let shape = Shape::new(CLUSTER, profile, APPS);
    let running = Running::start(root, &shape)?;
    let mut site = running.site()?;
    obol_replica::for_requests(&mut site);
    let site = Arc::new(site);
    let voters = drill.voters.to_string();
    let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", drill.preset]);
    let replicas = Replicas::start(root, &site, drill.voters, POLL_EVERY, &of_first, &of_all)?;
    let runs = vec![true; drill.voters as usize];
    let mut store = Store { site: &site, replicas, runs, wanted: drill.voters, stop };
    let writers = Writers::start(&site, timeline.clients)?;
    let played = steps(drill, &mut store, &writers, timeline);
    let rate = Arc::clone(&writers.rate);
    let end = rate.interval(clock::now()).min(INTERVALS_MAX);
    let answered = writers.end()?;
    timeline.answers = total(answered.iter().copied());
    timeline.series = rate.intervals[..end].iter().map(|it| it.load(Ordering::Relaxed)).collect();
    played?;
    timeline.lost = Some(lost(&site, &answered)?);
    Ok(())
}

fn steps(
    drill: &StoreDrill,
    store: &mut Store<'_>,
    writers: &Writers,
    timeline: &mut Timeline,
) -> Result<(), Failure> {
    let Some(mut leader) = store.settled(writers)? else { return Ok(()) };
    std::thread::sleep(Duration::from_nanos(BEFORE.0));
    for (number, step) in drill.steps.iter().enumerate() {
        // Progress is informative only.
        let _ = output::remark(format_args!("smr: {}", step.name));
        let done = store.step(step, leader, writers);
        let done = done
            .map_err(|failure| Failure::Failed(format!("step {}, {}: {failure}", number + 1, step.name)))?;
        let Some((report, next)) = done else { return Ok(()) };
        timeline.steps.push(report);
        leader = next;
    }
    Ok(())
}

/// The verdict on a drill of which this many commands were lost, if that was counted.
fn verdict(lost: Option<u64>, is_interrupted: bool, was_played: bool) -> Verdict {
    match lost {
        Some(1..) => Verdict::Failed,
        // A terminal's signal ends the replicas as well.
        _ if is_interrupted => Verdict::Interrupted,
        Some(0) if was_played => Verdict::Passed,
        _ => Verdict::Failed,
    }
}

/// Plays a drill of a store in a cluster of its own, until `stop` is set.
pub fn run(root: &Path, drill: &StoreDrill, profile: &Profile, clients: u32, stop: &AtomicBool) -> Timeline {
    let mut timeline = Timeline {
        drill: drill.id.clone(),
        title: drill.title.clone(),
        verdict: Verdict::Passed,
        preset: drill.preset.to_owned(),
        clients,
        value_bytes: VALUE_BYTES as u32,
        profile: profile.name.to_string(),
        host: Host::this(),
        steps: Vec::new(),
        answers: 0,
        lost: None,
        error: None,
        interval_ms: INTERVAL.as_micros_f64() / 1e3,
        series: Vec::new(),
    };
    let played = play(root, drill, profile, stop, &mut timeline);
    timeline.verdict = verdict(timeline.lost, stop.load(Ordering::Relaxed), played.is_ok());
    timeline.error = played.err().map(|failure| failure.to_string());
    timeline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drill_passes_only_if_it_was_played_and_nothing_was_lost() {
        assert_eq!(verdict(Some(0), false, true), Verdict::Passed);
        for (lost, is_interrupted, was_played, wrong) in [
            (Some(1), false, true, Verdict::Failed),
            (Some(1), true, true, Verdict::Failed),
            (Some(0), true, true, Verdict::Interrupted),
            (None, true, false, Verdict::Interrupted),
            (None, false, false, Verdict::Failed),
            (None, false, true, Verdict::Failed),
        ] {
            assert_eq!(verdict(lost, is_interrupted, was_played), wrong, "{lost:?}");
        }
    }

    #[test]
    fn a_gap_and_whole_intervals_are_counted() {
        let rate = Rate::new();
        let at = |ms: u64| rate.begun + Nanos::from_millis(ms);
        for ms in [1, 2, 3, 15, 32, 34] {
            rate.note(at(ms));
        }
        assert_eq!(rate.between(at(0), at(40)), [1, 0, 2], "the first interval may be cut");
        assert_eq!(rate.take_longest(at(35)), Nanos::from_millis(17));
        assert_eq!(rate.take_longest(at(60)), Nanos::from_millis(26), "it lasts");
        assert!((per_s(&[1, 0, 2]) - 100.0).abs() < 1e-9);
        assert!(rate.between(at(40), at(20)).is_empty());
    }
}
