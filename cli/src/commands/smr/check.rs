//! `obol smr check`: a store whose replicas are hit again and again, while every answer is checked.

use super::clients::{self, Clients, Tally};
use super::preset::PresetName;
use super::replicas::Replicas;
use super::store::{Store, VictimName};
use crate::signals;
use clap::Args;
use hdrhistogram::Histogram;
use obol_chaos::drills::engines::Fault;
use obol_config::duration;
use obol_fabric::Nanos;
use obol_fabric::sim::Rng;
use obol_node::Site;
use obol_observe::Observer;
use obol_observe::stats::shown;
use obol_observe::usage::private;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Poll interval of the replicas.
const POLL_EVERY: &str = "20us";
/// Interval of looks at the time.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Interval of looks at the memory of processes.
const MEMORY_EVERY: Duration = Duration::from_secs(1);
/// A process whose memory is larger by this in the last fifth of the time than in the first one grows.
const GROWTH_MAX_KIB: u64 = 2048;
/// In each of these fifths; otherwise the time is too short to say so.
const MEMORY_SAMPLES_MIN: u32 = 10;

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    time: Duration,
    /// Replicas, all of which vote
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=7))]
    replicas: u32,
    /// How the replicas exclude an earlier leader; of several, separated by
    /// commas, each is checked for the whole time, one after the other
    #[arg(long, value_name = "PRESETS", value_enum, value_delimiter = ',', default_value = "view")]
    preset: Vec<PresetName>,
    /// Clients, each a thread and a member
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    clients: u32,
    /// Which replica is hit
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = VictimName::Leader)]
    victim: VictimName,
    /// Interval of kills, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    kill_every: Option<Duration>,
    /// Interval of freezes, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    freeze_every: Option<Duration>,
    /// Interval of cuts, which leave a replica without links, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    cut_every: Option<Duration>,
    /// Longest duration of a freeze or a cut
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "500ms")]
    fault_max: Duration,
    /// Print a JSON object for each preset
    #[arg(long)]
    json: bool,
}

impl Options {
    /// The faults that are wanted, with their intervals.
    fn faults(&self) -> impl Iterator<Item = (Fault, Duration)> {
        [(Fault::Kill, self.kill_every), (Fault::Freeze, self.freeze_every), (Fault::Cut, self.cut_every)]
            .into_iter()
            .filter_map(|(fault, every)| Some((fault, every?)))
    }
}

#[derive(Serialize)]
struct Summary {
    preset: String,
    gets: u64,
    puts: u64,
    wrong: u64,
    /// Keys that did not have what was answered of them, at the end.
    lost: u64,
    kills: u64,
    freezes: u64,
    cuts: u64,
    failovers: u64,
    failover_p50_us: Option<f64>,
    failover_max_us: Option<f64>,
    /// The longest that a client waited for an answer, whatever the cause.
    longest_wait_us: f64,
    p50_us: f64,
    p99_us: f64,
    #[serde(flatten)]
    growth: Option<Growth>,
}

/// The process whose memory has grown the most.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Growth {
    #[serde(rename = "memory_of")]
    of: String,
    /// At most in the first fifth of the time.
    #[serde(rename = "memory_first_kib")]
    first: u64,
    /// At most in the last fifth.
    #[serde(rename = "memory_last_kib")]
    last: u64,
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

fn us(nanos: u64) -> f64 {
    Nanos(nanos).as_micros_f64()
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
    let mut times: Option<Histogram<u64>> = None;
    for one in tallies.iter().map(|tally| &tally.times) {
        match &mut times {
            // All have the same bounds, so none is refused.
            Some(times) => drop(times.add(one)),
            None => times = Some(one.clone()),
        }
    }
    let quantile = |quantile| us(times.as_ref().map_or(0, |times| times.value_at_quantile(quantile)));
    let Injected { kills, freezes, cuts } = injected;
    Summary {
        preset,
        gets: tallies.iter().map(|tally| tally.gets).sum(),
        puts: tallies.iter().map(|tally| tally.puts).sum(),
        wrong: tallies.iter().map(|tally| tally.wrong).sum(),
        lost: 0,
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
            let victim = store.victim(leader, options.victim.victim());
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
        std::thread::sleep(LOOK_EVERY);
    }
    // That the last fault is got over is part of the check.
    let is_over = due.is_empty() || store.clients.has_ended() || store.settled()?.is_some();
    Ok((injected, !is_over))
}

/// What came out of the check of one preset.
struct Checked {
    summary: Summary,
    wrong: Vec<String>,
    interrupted: bool,
}

/// Checks one preset.
fn check(
    root: &Path,
    site: &Arc<Site>,
    options: &Options,
    preset: PresetName,
    stop: &AtomicBool,
) -> Result<Checked, Failure> {
    let (voters, preset) = (options.replicas.to_string(), preset.preset().to_string());
    let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", preset.as_str()]);
    let replicas = Replicas::start(root, site, options.replicas, POLL_EVERY, &of_first, &of_all)?;
    replicas.redundant()?;
    let clients = Clients::start(site, options.clients)?;
    let observer = Observer::open(root, site.cluster.name()).map_err(Failure::refused)?;
    let mut store = Store { site, replicas, count: options.replicas as usize, clients, observer, stop };
    let mut memory = Memory::over(options.time);
    let disturbed = disturb(&mut store, options, &mut memory);
    let Store { clients, replicas, .. } = store;
    let (answers, keys) = (Arc::clone(&clients.answers), Arc::clone(&clients.keys));
    let tallies = clients.end()?;
    let (injected, interrupted) = disturbed?;
    if answers.count() == 0 {
        return Err(Failure::Failed(format!("preset {preset}: no client had an answer")));
    }
    let mut wrong: Vec<String> = tallies.iter().flat_map(|tally| tally.wrong_examples.clone()).collect();
    let mut summary = summary(preset, &tallies, injected, memory.growth());
    if !interrupted {
        let (lost, examples) = clients::lost(site, &keys)?;
        summary.lost = lost;
        wrong.extend(examples);
    }
    drop(replicas);
    Ok(Checked { summary, wrong, interrupted })
}

fn print(summary: &Summary) -> Result<(), Failure> {
    let Summary { preset, gets, puts, wrong, lost, p50_us, p99_us, longest_wait_us, .. } = summary;
    output::line(format_args!(
        "{preset}: {gets} reads and {puts} writes, {wrong} wrong answers, {lost} keys lost; {} p50, {} p99, {} longest",
        shown(*p50_us),
        shown(*p99_us),
        shown(*longest_wait_us)
    ))?;
    let Summary { kills, freezes, cuts, failovers, .. } = summary;
    if kills + freezes + cuts > 0 {
        let times = match (summary.failover_p50_us, summary.failover_max_us) {
            (Some(p50), Some(longest)) => format!(": {} p50, {} longest", shown(p50), shown(longest)),
            _ => String::new(),
        };
        output::line(format_args!(
            "{preset}: {kills} kills, {freezes} freezes, {cuts} cuts; {failovers} failovers seen by clients{times}"
        ))?;
    }
    if let Some(Growth { of, first, last }) = &summary.growth {
        output::line(format_args!(
            "{preset}: memory has grown the most in {of}: {first} KiB at most at first, {last} KiB at the end"
        ))?;
    }
    Ok(())
}

/// Why a check has failed, if it has.
fn failure(summary: &Summary) -> Option<String> {
    let Summary { preset, wrong, lost, growth, .. } = summary;
    if *wrong > 0 {
        return Some(format!("preset {preset}: {wrong} answers are wrong"));
    }
    if *lost > 0 {
        return Some(format!("preset {preset}: {lost} keys do not have what was answered of them"));
    }
    let Growth { of, first, last } = growth.as_ref().filter(|growth| growth.is_too_much())?;
    Some(format!(
        "preset {preset}: the memory of {of} grows: {first} KiB in the first fifth of the time, {last} KiB in the last one"
    ))
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    let stop = signals::ending()?;
    let (mut failures, mut unhurt) = (Vec::new(), None);
    for &preset in &options.preset {
        let Checked { summary, wrong, interrupted } = check(root, site, options, preset, &stop)?;
        for example in wrong {
            output::remark(format_args!("wrong: {example}"))?;
        }
        if options.json {
            output::json(&summary)?;
        } else {
            print(&summary)?;
        }
        failures.extend(failure(&summary));
        let Summary { kills, freezes, cuts, .. } = summary;
        let count = |fault| match fault {
            Fault::Kill => kills,
            Fault::Freeze => freezes,
            Fault::Cut => cuts,
        };
        let missed = options.faults().find(|(fault, _)| count(*fault) == 0);
        unhurt = unhurt.or(missed.map(|missed| (preset, missed)));
        if interrupted {
            output::remark("obol: ended before its time")?;
            break;
        }
    }
    if !failures.is_empty() {
        return Err(Failure::Failed(failures.join("; ")));
    }
    if let Some((preset, (fault, every))) = unhurt {
        return Err(Failure::Void(format!(
            "inconclusive: no replica of preset {} was hit by --{}-every {every:?} within --for {:?}; check for longer, or more often",
            preset.preset(),
            fault.name(),
            options.time
        )));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_process_that_grows_is_named() {
        let growth = memory(100, 99 * 30).expect("long enough");
        assert_eq!(growth, Growth { of: "node-1".to_owned(), first: 2000 + 19 * 30, last: 2000 + 99 * 30 });
        assert!(growth.is_too_much());
        let flat = memory(100, 100).expect("long enough");
        assert!(!flat.is_too_much(), "{flat:?}");
        assert_eq!(memory(20, 99 * 30), None, "four looks in a fifth say nothing");
    }
}
