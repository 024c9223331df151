//! Mu (Aguilera et al., OSDI 2020): its failover and its replication latency, by the shipped replicas
//! of the preset `mu` in the simulator.

mod inputs;
mod replicas;

use super::cluster::{ExperimentError, in_parallel};
use super::dare::one_write;
use super::reproduction::{MS, Part, Reproduction, Row, US};
use super::samples::Samples;
use inputs::Setting;
use obol_fabric::Nanos;
use obol_observe::plot::{Axis, Chart, PlotError, Series};
use obol_profiles::Testbed;
use replicas::{Moments, Replicas};
use serde::Serialize;

/// Failovers of one cluster, one after the other.
const OF_ONE_CLUSTER: u32 = 25;
/// Delays for each kill: a kill takes a connection's timeout, some hundred times as long.
const DELAYS_A_KILL: u32 = 20;
/// Commands of each size.
const COMMANDS: u32 = 1000;
/// The sizes of commands in bytes. Mu's leader in the test of 7.1 replicates 64.
const SIZES: [usize; 7] = [16, 64, 128, 200, 256, 512, 1024];
const SMALL_BYTES: usize = 64;
/// Figures of the paper: 7.3.
const FAILOVER: [f64; 2] = [873.0, 947.0];
const SWITCH: [f64; 2] = [244.0, 294.0];
/// 7.1.
const REPLICATION: [f64; 2] = [1.3, 1.6];
const MEDIAN: f64 = 0.5;
const TAIL: f64 = 0.99;

/// The reproduction, with what is drawn of it.
#[derive(Clone, Debug, Serialize)]
pub struct Mu {
    /// Failovers of a delayed leader behind each percentile.
    pub failovers: u32,
    /// The first seed.
    pub seed: u64,
    /// Inputs and results.
    #[serde(flatten)]
    pub reproduction: Reproduction,
    #[serde(skip)]
    delayed: Durations,
}

/// The phases of many failovers.
#[derive(Clone, Debug)]
struct Durations {
    detection: Samples,
    switch: Samples,
    /// Until a majority lets the successor write: the paper's failover.
    failover: Samples,
    /// Until the first entry of the successor is committed.
    serves: Samples,
}

impl Durations {
    fn of(all: &[Moments]) -> Self {
        Self {
            detection: all.iter().map(|one| one.detected).collect(),
            switch: all.iter().map(|one| one.switched.saturating_sub(one.detected)).collect(),
            failover: all.iter().map(|one| one.switched).collect(),
            serves: all.iter().map(|one| one.serves).collect(),
        }
    }
}

/// Delayed leaders of clusters that each have a few one after the other, as the paper's test has.
fn delayed(
    testbed: &Testbed,
    setting: Setting,
    failovers: u32,
    seed: u64,
    threads: usize,
) -> Result<Durations, ExperimentError> {
    let clusters = failovers.div_ceil(OF_ONE_CLUSTER);
    let all = in_parallel(threads, clusters as usize, |at| {
        let begun = at as u32 * OF_ONE_CLUSTER;
        let mut replicas = Replicas::steady(testbed, setting, seed.wrapping_add(at as u64))?;
        (begun..failovers.min(begun + OF_ONE_CLUSTER))
            .map(|_| replicas.delay())
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok(Durations::of(&all.concat()))
}

/// Leaders that die, each of a cluster of its own.
fn killed(testbed: &Testbed, kills: u32, seed: u64, threads: usize) -> Result<Durations, ExperimentError> {
    let setting = Setting { poll_every: inputs::SLOW_POLL_EVERY, ..Setting::default() };
    let all = in_parallel(threads, kills as usize, |at| {
        Replicas::steady(testbed, setting, seed.wrapping_add(at as u64))?.kill()
    })?;
    Ok(Durations::of(&all))
}

/// Runs all experiments. The same seed gives the same figures, whatever the number of threads.
pub fn mu(testbed: &Testbed, failovers: u32, seed: u64, threads: usize) -> Result<Mu, ExperimentError> {
    let as_tested = delayed(testbed, Setting::default(), failovers, seed, threads)?;
    let of_program = Setting { look_every: inputs::PROGRAM_LOOKS_EVERY, ..Setting::default() };
    let of_program = delayed(testbed, of_program, failovers, seed, threads)?;
    let killed = killed(testbed, failovers.div_ceil(DELAYS_A_KILL), seed, threads)?;
    let sizes = in_parallel(threads, SIZES.len(), |at| {
        let mut replicas = Replicas::steady(testbed, Setting::default(), seed)?;
        Ok(replicas.replicate(COMMANDS, SIZES[at])?.into_iter().collect::<Samples>())
    })?;
    let reproduction = Reproduction {
        paper: "Mu (Aguilera et al., OSDI 2020)",
        inputs: inputs::inputs(testbed.name.as_str()),
        looked_at: &LOOKED_AT,
        parts: vec![
            failover_part(&as_tested),
            others_part(&as_tested, &of_program, &killed),
            replication_part(&sizes),
        ],
        traps: &TRAPS,
    };
    Ok(Mu { failovers, seed, reproduction, delayed: as_tested })
}

static LOOKED_AT: [&str; 3] = [
    "The interval of looks follows from the published detection time, so the median of detection is not a \
     prediction, nor is most of the failover's. Its spread is.",
    "The two changes of permissions are the published ones, in one replica. That two replicas have to make them, and what \
     comes before and after, is predicted.",
    "The costs of WRITE and READ are the testbed's, published before Mu and for other hardware.",
];

static TRAPS: [&str; 5] = [
    "The score is defined twice: successive reads without a change (1), and a score that falls and rises (5.1). The second \
     is used.",
    "The paper does not state the interval of looks. Versions of the published program have a maximum of 7 with a sleep of \
     3 us, and of 50 with one of 50 ms; the paper has 15.",
    "The test delays the leader, whose memory then answers. The READ of a process that has died does not complete, and \
     changes no score, until the connection gives up.",
    "Section 1 has a 99th percentile of 945 us, 7.3 has 947.",
    "Abort if any write fails (Listing 2), and wait for a majority (4.2): a refused WRITE has to abort, a dead follower's \
     must not.",
];

fn rows(
    what: &str,
    published: Option<[f64; 2]>,
    samples: &Samples,
    note: &'static str,
) -> impl Iterator<Item = Row> {
    let [p50, p99] = published.map_or([None; 2], |published| published.map(Some));
    let median = Row::of(format!("{what}, p50"), US, p50, (samples, MEDIAN));
    let tail = Row::of(format!("{what}, p99"), US, p99, (samples, TAIL));
    median.map(|row| row.noting(note)).into_iter().chain(tail)
}

fn failover_part(of: &Durations) -> Part {
    const GIVEN: &str = "an input";
    const SWITCH_NOTE: &str =
        "the successor waits for the slower one of two replicas, its own log's and a follower's";
    const SERVES: &str = "it has READ two replicas' rings, and committed its first entry";
    let mut all = Vec::new();
    let detection = Row::of("detection, p50", US, 600.0, (&of.detection, MEDIAN));
    all.extend(detection.map(|row| row.noting(GIVEN)));
    all.extend(Row::of("detection, p99", US, None, (&of.detection, TAIL)));
    let mean = of.switch.mean().map(Nanos::as_micros_f64);
    all.extend(
        mean.map(|mean| Row::new("permission switch, mean", "us", SWITCH[0], mean).noting(SWITCH_NOTE)),
    );
    all.extend(Row::of("permission switch, p99", US, SWITCH[1], (&of.switch, TAIL)));
    all.extend(rows("failover", Some(FAILOVER), &of.failover, ""));
    all.extend(rows("until the successor serves", None, &of.serves, SERVES));
    Part {
        name: "7.3, failover of a delayed leader",
        missing: "What the leader's operating system adds: the paper names it as the reason for its timeouts.",
        rows: all,
    }
}

fn others_part(as_tested: &Durations, of_program: &Durations, killed: &Durations) -> Part {
    const PROGRAM: &str = "with the maximum of 15 of the paper, and timers that use all of their slack";
    const RESTARTED: &str = "by addition: the detection's median, and ten times the switch's mean";
    const KILLED: &str =
        "READs of a dead process fail with the connection's timeout; the published test kills no process";
    let mut all: Vec<Row> =
        rows("looks as in the published program", Some(FAILOVER), &of_program.failover, PROGRAM).collect();
    if let (Some(detection), Some(switch)) = (as_tested.detection.quantile(MEDIAN), as_tested.switch.mean()) {
        let sum = detection.as_micros_f64() + f64::from(inputs::RESTART_FACTOR) * switch.as_micros_f64();
        all.push(Row::new("queue pairs restarted", "us", None, sum).noting(RESTARTED));
    }
    let kill = Row::of("leader killed, p50", MS, None, (&killed.failover, MEDIAN));
    all.extend(kill.map(|row| row.noting(KILLED)));
    Part {
        name: "The same under other assumptions",
        missing: "Restarts of queue pairs in the simulator: at this interval of looks the shipped detector takes a leader \
                  for stuck while it waits for permissions.",
        rows: all,
    }
}

fn replication_part(sizes: &[Samples]) -> Part {
    const VERB: &str = "o + L + G + op of the testbed's paper: what one round costs";
    const TURN: &str = "the leader WRITEs its own ring as it does a follower's, and first: one post more than Mu, and two turns";
    const FLAT: &str =
        "published as constant below 256 bytes; here each byte of an inline WRITE costs the testbed's G";
    const RATIO: &str = "published as 35 % more at 512 bytes";
    let of = |bytes: usize| SIZES.iter().position(|size| *size == bytes).and_then(|at| sizes.get(at));
    let mut all = vec![Row::new("one WRITE of 64 bytes", "us", REPLICATION[0], one_write(64)).noting(VERB)];
    if let Some(small) = of(SMALL_BYTES) {
        all.extend(rows("64 bytes", Some(REPLICATION), small, TURN));
    }
    for (bytes, samples) in SIZES.into_iter().zip(sizes).filter(|(bytes, _)| *bytes != SMALL_BYTES) {
        let row = Row::of(format!("{bytes} bytes, p50"), US, None, (samples, MEDIAN));
        all.extend(row.map(|row| if bytes == 128 { row.noting(FLAT) } else { row }));
    }
    let median = |bytes| of(bytes).and_then(|samples| samples.quantile(MEDIAN)).map(Nanos::as_micros_f64);
    if let (Some(small), Some(large)) = (median(SMALL_BYTES), median(512)) {
        all.push(Row::new("512 bytes over 64, p50", "", 1.35, large / small).noting(RATIO));
    }
    Part {
        name: "7.1, replication",
        missing: "The tail: the testbed's costs are constants. Applications (7.2) and throughput (7.4) are not simulated.",
        rows: all,
    }
}

impl Mu {
    /// The distributions of a delayed leader's failover, with the published points.
    pub fn svg(&self) -> Result<String, PlotError> {
        let curve = |samples: &Samples| -> Vec<(f64, f64)> {
            let at = |percent: u32| {
                let quantile = f64::from(percent) / 100.0;
                Some((samples.quantile(quantile)?.as_micros_f64(), f64::from(percent)))
            };
            (1..=99).filter_map(at).collect()
        };
        let published = |[p50, p99]: [f64; 2]| vec![(p50, 50.0), (p99, 99.0)];
        Chart::new(Axis::linear("us"), Axis::linear("failovers within this time, in percent"))
            .with(Series::line("detection", curve(&self.delayed.detection)))
            .with(Series::line("permission switch", curve(&self.delayed.switch)))
            .with(Series::line("failover", curve(&self.delayed.failover)))
            .with(Series::dots("failover, published", published(FAILOVER)))
            .with(Series::dots("switch, published (mean, p99)", published(SWITCH)))
            .svg()
    }
}
