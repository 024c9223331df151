//! The check of a running cache: clients whose answers are judged, while servers are killed and frozen.

use super::freeze::Freezer;
use super::servers::Servers;
use crate::history::{Answer, Checker, Clients, Kind, Outcome, Pending, Tally, WRONG_EXAMPLES, merged, us};
use crate::process::{POLL_INTERVAL, SERVE_TIMEOUT};
use hdrhistogram::Histogram;
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Name, Nanos};
use obol_kv::{Client, Done, Operation, Status, VALUE_BYTES_MAX};
use obol_node::{Site, endpoint};
use obol_observe::stats::Distribution;
use obol_server::kv::{Session, Work, area, client, join};
use obol_term::output::Failure;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The cache, as clients are to find it.
const KIND: Kind =
    Kind { value_bytes_max: VALUE_BYTES_MAX, names: ["a GET", "a PUT"], thread: "obol-kv-client" };

/// What is checked.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub time: Duration,
    /// Servers; killed ones are restarted.
    pub servers: u32,
    /// How many threads of each server share the keys.
    pub shards: u32,
    /// Clients, each a thread and a member.
    pub clients: u32,
    /// Interval of kills of the primary.
    pub kill_every: Option<Duration>,
    /// Approximate interval of freezes of a server.
    pub freeze_every: Option<Duration>,
    /// Longest duration of a freeze.
    pub freeze_max: Duration,
    /// Poll interval of servers and clients.
    pub poll_every: Duration,
}

fn operation(asked: Pending) -> Operation {
    match asked {
        Pending::Put { key, value } => Operation::Put(key as u64, KIND.bytes(value)),
        Pending::Get { key, .. } => Operation::Get(key as u64),
    }
}

fn outcome(asked: Pending, done: &Done) -> Outcome {
    match asked {
        Pending::Put { .. } if done.status == Status::Done => Outcome::Written(Ok(())),
        Pending::Put { .. } => Outcome::Written(Err(format!("ended with {:?}", done.status))),
        Pending::Get { .. } if done.status == Status::Missing => Outcome::Found(Some(0)),
        Pending::Get { .. } => Outcome::Found(KIND.value(&done.value)),
    }
}

impl Work for Checker<'_> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        while let Some(done) = client.take() {
            let answer =
                Answer { number: done.number, shard: done.shard, leader: client.primary(done.shard) };
            self.judge(&answer, |asked| outcome(asked, &done));
        }
        while !client.is_busy() {
            let (asked, now) = (self.next(), clock::now());
            match client.begin(now, operation(asked), endpoint) {
                Ok(number) => self.begun(number, asked, now),
                Err(_) => break,
            }
        }
        false
    }
}

/// What came out of a check.
#[derive(Debug, Serialize)]
pub struct Summary {
    /// GETs that were answered.
    pub gets: u64,
    /// PUTs that were answered.
    pub puts: u64,
    /// Wrong answers.
    pub wrong: u64,
    /// The cache stopped: no server had the complete state.
    pub stopped: bool,
    /// The operator has ended it before its time.
    pub interrupted: bool,
    /// Servers that were killed.
    pub kills: u64,
    /// Servers that were frozen.
    pub freezes: u64,
    /// Failovers that clients saw.
    pub failovers: u64,
    /// None of too few failovers to name it.
    pub failover_p50_us: Option<f64>,
    /// The longest of them.
    pub failover_max_us: Option<f64>,
    /// The longest that a client waited for an answer, whatever the cause.
    pub longest_wait_us: f64,
    /// Median of GETs.
    pub get_p50_us: f64,
    /// 99th percentile of GETs.
    pub get_p99_us: f64,
    /// Median of PUTs.
    pub put_p50_us: f64,
    /// 99th percentile of PUTs.
    pub put_p99_us: f64,
}

/// A check that is over.
#[derive(Debug)]
pub struct Checked {
    /// What came out of it.
    pub summary: Summary,
    /// Some of the wrong answers, in words.
    pub wrong: Vec<String>,
    /// Whether the cache kept its word, under all faults that were asked for.
    pub verdict: Result<(), Failure>,
}

fn summary(tallies: &[Tally], kills: u64, freezes: u64, stopped: bool) -> Summary {
    let mut failovers = Distribution::new();
    tallies.iter().flat_map(|tally| &tally.failovers).for_each(|span| failovers.add(Nanos(*span)));
    let failovers = failovers.summary();
    let waits = tallies.iter().flat_map(|tally| &tally.latencies).map(Histogram::max);
    let latency = |which: usize, quantile: f64| {
        let all = merged(tallies.iter().map(|tally| &tally.latencies[which]));
        us(all.map_or(0, |all| all.value_at_quantile(quantile)))
    };
    Summary {
        gets: tallies.iter().map(|tally| tally.gets).sum(),
        puts: tallies.iter().map(|tally| tally.puts).sum(),
        wrong: tallies.iter().map(|tally| tally.wrong).sum(),
        stopped,
        interrupted: false,
        kills,
        freezes,
        failovers: failovers.n,
        failover_p50_us: failovers.p50,
        failover_max_us: (failovers.n > 0).then_some(failovers.max),
        longest_wait_us: us(waits.max().unwrap_or(0)),
        get_p50_us: latency(0, 0.5),
        get_p99_us: latency(0, 0.99),
        put_p50_us: latency(1, 0.5),
        put_p99_us: latency(1, 0.99),
    }
}

/// Starts clients that look for answers at this interval.
fn clients(site: &Arc<Site>, count: u32, poll_interval: Nanos) -> Result<Clients, Failure> {
    let site = Arc::clone(site);
    Clients::start(KIND, count, move |place, checker, stop| {
        let name = Name::new(&format!("kv_check-{place}")).map_err(Failure::failed)?;
        let (mut endpoint, mut node) = join(&site, name, client(&site, poll_interval)?)?;
        let used = Session { node: &mut node, work: checker, stop }.in_full(&mut endpoint);
        endpoint::serve(&mut endpoint, &mut node, &AtomicBool::new(true));
        used
    })
}

/// Waits until each client had an answer: none of them would see a kill before.
fn all_answered(clients: &Clients, stop: &AtomicBool) -> Result<(), Failure> {
    let end = std::time::Instant::now() + SERVE_TIMEOUT;
    while !clients.answers.all() && !stop.load(Ordering::Relaxed) {
        if clients.has_ended() || std::time::Instant::now() > end {
            return Err(Failure::Failed(format!("a client had no answer within {SERVE_TIMEOUT:?}")));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Kills primaries until the time is over, and counts them. Returns after what time the operator has ended
/// it, if so.
fn inject(
    servers: &mut Servers<'_>,
    options: &Options,
    stop: &AtomicBool,
    kills: &mut u64,
) -> Result<Option<Duration>, Failure> {
    let began = std::time::Instant::now();
    let every = options.kill_every.unwrap_or(options.time);
    loop {
        let due = began.elapsed().saturating_add(every).min(options.time);
        while began.elapsed() < due && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(POLL_INTERVAL);
        }
        // At the end, too: the cache has to be complete again.
        let Some(primary) = servers.redundant_unless(stop)? else { return Ok(Some(began.elapsed())) };
        if began.elapsed() >= options.time {
            return Ok(None);
        }
        servers.kill(primary)?;
        *kills += 1;
    }
}

/// Checks a cache of its own, for its time or until `stop` is set.
pub fn run(root: &Path, site: &Arc<Site>, options: &Options, stop: &AtomicBool) -> Result<Checked, Failure> {
    area(site)?;
    let cluster = site.cluster.name();
    let poll_every = Nanos::from_std(options.poll_every);
    let every = format!("{}ns", poll_every.0);
    let every = ["--poll-every", &every];
    let mut servers = Servers::start(root, cluster, options.servers as usize, options.shards, &every)?;
    servers.redundant_unless(stop)?;
    // Before that they may have come in any order.
    servers.disruption.stopped.store(false, Ordering::SeqCst);
    let clients = clients(site, options.clients, poll_every)?;
    let mut kills = 0;
    let freezes = |every| Freezer::start(Arc::clone(&servers.pids), every, options.freeze_max);
    let freezer = options.freeze_every.map(freezes).transpose()?;
    let outcome = all_answered(&clients, stop).and_then(|()| inject(&mut servers, options, stop, &mut kills));
    let frozen = freezer.as_ref().map_or(0, Freezer::frozen);
    drop(freezer);
    let tallies = clients.end()?;
    let mut summary = summary(&tallies, kills, frozen, servers.disruption.stopped.load(Ordering::SeqCst));
    summary.interrupted = matches!(outcome, Ok(Some(_)));
    let wrong =
        tallies.iter().flat_map(|tally| &tally.wrong_examples).take(WRONG_EXAMPLES).cloned().collect();
    let verdict = match outcome {
        Ok(Some(after)) => Err(interrupted(&summary, after, options.time)),
        // What clients saw counts, whatever became of the servers.
        outcome => {
            verdict(&summary).and(outcome.map(drop)).and_then(|()| require_injected_faults(options, &summary))
        }
    };
    Ok(Checked { summary, wrong, verdict })
}

/// What is said of a check that the operator has ended. Ctrl-C ends its servers as well, so of what came out
/// of it only a wrong answer counts.
fn interrupted(summary: &Summary, after: Duration, wanted: Duration) -> Failure {
    if summary.wrong > 0 {
        return Failure::Failed(format!("{} answers were wrong", summary.wrong));
    }
    Failure::Interrupted(format!(
        "interrupted after {} of {}: the answers until then were checked, and there is no verdict",
        Nanos::from_std(after),
        Nanos::from_std(wanted)
    ))
}

/// Fails if a requested fault was never injected: the outcome would prove nothing.
fn require_injected_faults(options: &Options, summary: &Summary) -> Result<(), Failure> {
    let wanted =
        [("kill", options.kill_every, summary.kills), ("freeze", options.freeze_every, summary.freezes)];
    let missing =
        wanted.into_iter().find_map(|(what, every, n)| every.filter(|_| n == 0).map(|every| (what, every)));
    let Some((what, every)) = missing else { return Ok(()) };
    Err(Failure::Void(format!(
        "inconclusive: no server was hit by --{what}-every {every:?} within --for {:?}; check for longer, or more often",
        options.time
    )))
}

/// Whether the cache kept its word. No answer may be wrong, and one fault at a time, or a stall and
/// a crash at once, must leave a server that has everything.
fn verdict(summary: &Summary) -> Result<(), Failure> {
    let why = match summary {
        Summary { wrong, .. } if *wrong > 0 => format!("{wrong} answers were wrong"),
        Summary { stopped: true, .. } => {
            "the cache stopped, because no server had the complete state any more; see `obol events` for who failed".to_owned()
        }
        Summary { gets: 0, .. } | Summary { puts: 0, .. } => "no answers came".to_owned(),
        _ => return Ok(()),
    };
    Err(Failure::Failed(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        Summary { gets: 9, puts: 3, ..summary(&[], 1, 1, false) }
    }

    #[test]
    fn wrong_answers_and_a_lost_state_fail_whatever_else_is_true() {
        assert!(verdict(&good()).is_ok());
        for stopped in [false, true] {
            let why = verdict(&Summary { wrong: 1, stopped, ..good() }).expect_err("an answer was wrong");
            assert!(matches!(why, Failure::Failed(why) if why == "1 answers were wrong"));
        }
        assert!(verdict(&Summary { stopped: true, ..good() }).is_err());
        assert!(verdict(&Summary { gets: 0, ..good() }).is_err());
        assert!(verdict(&Summary { puts: 0, ..good() }).is_err());
    }

    #[test]
    fn an_interrupted_check_has_no_verdict_unless_an_answer_was_wrong() {
        let ended = |summary| interrupted(&summary, Duration::from_secs(3), Duration::from_secs(10));
        for summary in [good(), Summary { stopped: true, ..good() }, Summary { gets: 0, puts: 0, ..good() }] {
            let why = ended(summary);
            assert!(
                matches!(&why, Failure::Interrupted(why) if why.starts_with("interrupted after 3.00s of 10.0s")),
                "{why}"
            );
        }
        let why = ended(Summary { wrong: 1, ..good() });
        assert!(matches!(&why, Failure::Failed(why) if why == "1 answers were wrong"), "{why}");
    }
}
