//! The check of a replicated store: every key has one writer, whose values rise. So an answer can be
//! judged at once: it must not be older than what was known of the key before the read was begun,
//! nor newer than what its writer has begun. For registers with one writer that is linearizability,
//! and it takes no memory however long it runs.

use super::preset::PresetName;
use crate::leaving::let_leave;
use clap::Args;
use hdrhistogram::Histogram;
use obol_console::options::duration;
use obol_console::output::{self, Failure};
use obol_fabric::host::{clock, sched};
use obol_fabric::sim::Rng;
use obol_fabric::{Drive, Incarnation, Instant, Name, Nanos};
use obol_node::Site;
use obol_observe::{Observer, Process};
use obol_replica::{ClientMember, Work};
use obol_smr::{Client, Done, KeyValue, Operation, REPLICA_PREFIX, VALUE_BYTES_MAX};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Keys that each client writes.
const KEYS_EACH: u64 = 16;
/// How long the replicas have to serve at first, and to be redundant again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Wrong answers that are printed; the others are counted.
const WRONG_EXAMPLES: usize = 10;

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// For how long
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "10s")]
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
    /// Interval of kills of the leader, when all voters have everything
    #[arg(long, value_name = "TIME", value_parser = duration)]
    kill_every: Option<Duration>,
    /// Print a JSON object for each preset
    #[arg(long)]
    json: bool,
}

/// Where a replica says that it stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    standing: String,
    redundancy: u64,
    voters: u64,
}

/// A replica that runs.
struct Running {
    child: Child,
    standing: Arc<Mutex<Standing>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Replicas that were started for a command, and end with it.
pub(crate) struct Replicas<'a> {
    root: &'a Path,
    site: &'a Site,
    poll_every: String,
    of_all: Vec<String>,
    /// How many come before these, in the process of the command.
    before: usize,
    running: Vec<Running>,
}

impl Drop for Replicas<'_> {
    fn drop(&mut self) {
        let count = self.running.len();
        let_leave(self.running.iter_mut().map(|replica| &mut replica.child));
        self.running.clear();
        // The keys belonged to this command only.
        (0..self.before + count).for_each(|place| obol_replica::clear_mark(self.site, &name(place)));
    }
}

/// The name of a replica.
pub(crate) fn name(place: usize) -> String {
    format!("{REPLICA_PREFIX}{}", place + 1)
}

impl<'a> Replicas<'a> {
    /// Starts so many, in a cluster without any, the first one and all of them with these options.
    pub(crate) fn start(
        root: &'a Path,
        site: &'a Site,
        count: u32,
        poll_every: &str,
        of_first: &[&str],
        of_all: &[&str],
    ) -> Result<Self, Failure> {
        let cluster = site.cluster.name();
        let seen = Observer::open(root, cluster).map_err(Failure::refused)?.snapshot();
        let serves = |p: &&Process| p.alive && p.name.as_str().starts_with(REPLICA_PREFIX);
        if let Some(one) = seen.all_processes().find(serves) {
            return Err(Failure::Refused(format!(
                "a store runs already ({}), and this starts its own: end its replicas (`obol stop {}`), or use a cluster without \
                 (`obol up --cluster NAME`)",
                one.name, one.name
            )));
        }
        let of_all = of_all.iter().map(|option| (*option).to_owned()).collect();
        let mut all =
            Self { root, site, poll_every: poll_every.to_owned(), of_all, before: 0, running: Vec::new() };
        for place in 0..count as usize {
            // It starts empty, whatever was there before. No replica may begin a log later.
            let first = place == 0;
            let options = if first { [&["--force-empty"], of_first].concat() } else { Vec::new() };
            let replica = all.replica(place, &options)?;
            all.running.push(replica);
            if first {
                all.until(|standing| standing == "leading")?;
            }
        }
        Ok(all)
    }

    /// Starts all but the first one of so many, which leads and is not one of these.
    pub(crate) fn behind(
        root: &'a Path,
        site: &'a Site,
        count: u32,
        poll_every: &str,
        of_all: &[&str],
    ) -> Result<Self, Failure> {
        let of_all = of_all.iter().map(|word| (*word).to_owned()).collect();
        let poll_every = poll_every.to_owned();
        let mut all = Self { root, site, poll_every, of_all, before: 1, running: Vec::new() };
        for place in all.before..count as usize {
            let replica = all.replica(place, &[])?;
            all.running.push(replica);
        }
        Ok(all)
    }

    fn replica(&self, place: usize, options: &[&str]) -> Result<Running, Failure> {
        let mut command = Command::new(std::env::current_exe().map_err(Failure::failed)?);
        sched::pass_parent_id(&mut command)
            .arg("--root")
            .arg(self.root)
            .args(["--cluster", self.site.cluster.name().as_str()]);
        command.args(["smr", "server", "--json", "--tied", "--poll-every", &self.poll_every]);
        command.args(["--name", &name(place)]).args(options).args(&self.of_all);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(Failure::failed)?;
        let standing = Arc::new(Mutex::new(Standing::default()));
        let known = Arc::clone(&standing);
        let Some(out) = child.stdout.take() else { return Err(Failure::Failed("no pipe".to_owned())) };
        let read = move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
                let standing = line["standing"].as_str().unwrap_or_default().to_owned();
                let redundancy = line["redundancy"].as_u64().unwrap_or(0);
                let voters = line["voters"].as_u64().unwrap_or(0);
                *known.lock() = Standing { standing, redundancy, voters };
            }
        };
        std::thread::Builder::new().name("obol-reports".to_owned()).spawn(read).map_err(Failure::failed)?;
        Ok(Running { child, standing })
    }

    fn until(&mut self, is: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        while !self.running.iter().all(|one| is(&one.standing.lock().standing)) {
            // It has said why.
            if self.running.iter_mut().any(|one| matches!(one.child.try_wait(), Ok(Some(_)))) {
                return Err(Failure::Failed(format!("a replica ended by itself: {}", self.stand())));
            }
            if std::time::Instant::now() > end {
                return Err(self.not_ready());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn not_ready(&self) -> Failure {
        Failure::Failed(format!("the store is not redundant within {PATIENCE:?}: {}", self.stand()))
    }

    /// Waits until all replicas vote and have everything; returns the leader.
    pub(crate) fn redundant(&self) -> Result<usize, Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = self.redundant_leader() {
                return Ok(leader);
            }
            if std::time::Instant::now() > end {
                return Err(self.not_ready());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Who leads, if all replicas vote and have everything.
    pub(crate) fn redundant_leader(&self) -> Option<usize> {
        let count = self.running.len();
        let leads = |one: &Running| {
            let standing = one.standing.lock();
            standing.standing == "leading" && standing.redundancy as usize == count
        };
        self.running.iter().position(leads)
    }

    /// Who leads of those that run, if there are so many voters and all have everything.
    pub(crate) fn leader_of(&self, voters: u32, runs: &[bool]) -> Option<usize> {
        let leads = |(one, runs): (&Running, &bool)| {
            let Standing { standing, redundancy, voters: all } = &*one.standing.lock();
            *runs && standing == "leading" && [*redundancy, *all] == [u64::from(voters); 2]
        };
        self.running.iter().zip(runs).position(leads)
    }

    /// Starts one more.
    pub(crate) fn add(&mut self) -> Result<(), Failure> {
        let replica = self.replica(self.running.len(), &[])?;
        self.running.push(replica);
        Ok(())
    }

    /// Sends a replica a signal.
    pub(crate) fn signal(&self, place: usize, signal: Signal) -> Result<(), Failure> {
        // It is not reaped, so the number is its own.
        kill_process(Pid::from_child(&self.running[place].child), signal).map_err(Failure::failed)
    }

    /// Drops what a replica has said of itself, before a fault that keeps it from saying more.
    pub(crate) fn forget(&self, place: usize) {
        *self.running[place].standing.lock() = Standing::default();
    }

    /// Where each replica says that it stands.
    pub(crate) fn stand(&self) -> String {
        let stands = |(place, one): (usize, &Running)| {
            let Standing { standing, redundancy, voters } = &*one.standing.lock();
            let standing = if standing.is_empty() { "silent" } else { standing };
            format!("{} {standing}, redundancy {redundancy} of {voters}", name(place))
        };
        self.running.iter().enumerate().map(stands).collect::<Vec<_>>().join("; ")
    }

    /// Kills a replica, and starts it again with empty memory.
    fn kill(&mut self, place: usize) -> Result<(), Failure> {
        self.end(place)?;
        self.restart(place)
    }

    /// Kills a replica.
    pub(crate) fn end(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].child.kill().map_err(Failure::failed)
    }

    /// Starts a replica that was killed again, with empty memory.
    pub(crate) fn restart(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].child.wait().map_err(Failure::failed)?;
        self.running[place] = self.replica(place, &[])?;
        Ok(())
    }
}

/// What all clients know of a key.
#[derive(Default)]
pub(crate) struct Known {
    /// The newest value that its writer has begun to write.
    begun: AtomicU64,
    /// The newest value that was answered, to its writer or to a reader.
    shown: AtomicU64,
}

/// When clients had answers: the gaps between them are what a fault costs them.
pub(crate) struct Answers {
    all: AtomicU64,
    /// Gaps that ended after this moment count; 0 for none.
    since: AtomicU64,
    longest: AtomicU64,
    /// The last answer of each client; 0 before the first.
    last: Vec<AtomicU64>,
}

impl Answers {
    fn of(clients: u32) -> Self {
        let last = (0..clients).map(|_| AtomicU64::new(0)).collect();
        Self { all: AtomicU64::new(0), since: AtomicU64::new(0), longest: AtomicU64::new(0), last }
    }

    fn note(&self, client: usize, now: Instant) {
        self.all.fetch_add(1, Ordering::Relaxed);
        let before = self.last[client].swap(now.0, Ordering::SeqCst);
        let since = self.since.load(Ordering::SeqCst);
        if since != 0 && before != 0 && now.0 > since {
            self.longest.fetch_max(now.0.saturating_sub(before), Ordering::SeqCst);
        }
    }

    /// Watches the gaps that end after this moment.
    pub(crate) fn watch(&self, from: Instant) {
        self.since.store(from.0, Ordering::SeqCst);
        self.longest.store(0, Ordering::SeqCst);
    }

    /// The longest that a client was without an answer since then.
    pub(crate) fn longest(&self) -> Nanos {
        Nanos(self.longest.load(Ordering::SeqCst))
    }

    /// Whether each client had an answer after this moment.
    pub(crate) fn all_after(&self, at: Instant) -> bool {
        self.last.iter().all(|last| last.load(Ordering::SeqCst) > at.0)
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.all.load(Ordering::Relaxed)
    }
}

enum Asked {
    Put {
        key: u64,
        value: u64,
    },
    /// With what was shown of the key before.
    Get {
        key: u64,
        shown: u64,
    },
}

/// What a client has seen.
pub(crate) struct Tally {
    gets: u64,
    puts: u64,
    pub(crate) wrong: u64,
    pub(crate) wrong_examples: Vec<String>,
    /// From the last answer of one leader to the first one of the next, in nanoseconds.
    failovers: Vec<u64>,
    times: Histogram<u64>,
}

struct Checker<'a> {
    keys: &'a [Known],
    first_key: u64,
    rng: Rng,
    place: usize,
    answers: &'a Answers,
    asked: BTreeMap<u64, (Asked, Instant)>,
    last: Option<(Instant, Incarnation)>,
    tally: Tally,
}

/// A value as bytes: lengths vary, so that torn values are detected.
fn bytes(value: u64) -> Box<[u8]> {
    let len = 8 * (1 + value as usize % (VALUE_BYTES_MAX / 8));
    value.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// The value of these bytes; `None` if it was never written.
fn value(found: &[u8]) -> Option<u64> {
    let value = found.first_chunk().map(|word| u64::from_le_bytes(*word))?;
    (found == &bytes(value)[..]).then_some(value)
}

impl Checker<'_> {
    fn judge(&mut self, done: &Done, leader: Option<Incarnation>) {
        let Some((asked, begun_at)) = self.asked.remove(&done.number) else { return };
        let now = clock::now();
        self.answers.note(self.place, now);
        if let Some(leader) = leader {
            let before = self.last.replace((now, leader));
            if let Some((last, _)) = before.filter(|(_, whose)| *whose != leader) {
                self.tally.failovers.push(now.since(last).0);
            }
        }
        self.tally.times.saturating_record(now.since(begun_at).0);
        let outcome = KeyValue::outcome(&done.reply);
        let wrong = match asked {
            Asked::Put { key, value } => {
                self.tally.puts += 1;
                self.keys[key as usize].shown.fetch_max(value, Ordering::SeqCst);
                outcome.is_err().then(|| format!("a write of key {key} was invalid"))
            }
            Asked::Get { key, shown } => {
                self.tally.gets += 1;
                let found = outcome.ok().and_then(|found| found.map_or(Some(0), value));
                let begun = self.keys[key as usize].begun.load(Ordering::SeqCst);
                match found {
                    None => Some(format!("a read of key {key} found a value that was never written")),
                    Some(found) if found < shown || found > begun => Some(format!(
                        "a read of key {key} found {found}, but {shown} was shown before it and {begun} is the newest"
                    )),
                    Some(found) => {
                        self.keys[key as usize].shown.fetch_max(found, Ordering::SeqCst);
                        None
                    }
                }
            }
        };
        if let Some(wrong) = wrong {
            self.tally.wrong += 1;
            if self.tally.wrong_examples.len() < WRONG_EXAMPLES {
                self.tally.wrong_examples.push(wrong);
            }
        }
    }

    fn next(&mut self) -> Option<(Operation, Asked)> {
        if self.rng.below(5) == 0 {
            // Only this thread writes it, and numbers its values in the order in which it begins
            // them.
            let key = self.first_key + self.rng.below(KEYS_EACH);
            let value = self.keys[key as usize].begun.fetch_add(1, Ordering::SeqCst) + 1;
            let put = KeyValue::put(&key.to_le_bytes(), &bytes(value)).ok()?;
            return Some((Operation::Propose(put), Asked::Put { key, value }));
        }
        let key = self.rng.below(self.keys.len() as u64);
        let shown = self.keys[key as usize].shown.load(Ordering::SeqCst);
        Some((Operation::Query(KeyValue::get(&key.to_le_bytes()).ok()?), Asked::Get { key, shown }))
    }
}

impl Work for Checker<'_> {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        while let Some(done) = client.take() {
            self.judge(&done, client.leader());
        }
        while client.is_open() && !client.is_busy() {
            let Some((operation, asked)) = self.next() else { break };
            let now = clock::now();
            match client.begin(now, operation, endpoint) {
                Ok(number) => drop(self.asked.insert(number, (asked, now))),
                Err(_) => break,
            }
        }
        false
    }
}

/// Reads every key once more, when all writers have ended.
struct Sweep<'a> {
    keys: &'a [Known],
    next: usize,
    asked: bool,
    lost: u64,
    examples: Vec<String>,
    until: std::time::Instant,
}

impl Work for Sweep<'_> {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        while let Some(done) = client.take() {
            let found = KeyValue::outcome(&done.reply).ok().and_then(|found| found.map_or(Some(0), value));
            let shown = self.keys[self.next].shown.load(Ordering::SeqCst);
            if found.is_none_or(|found| found < shown) {
                self.lost += 1;
                if self.examples.len() < WRONG_EXAMPLES {
                    let found = found.map_or("what was never written".to_owned(), |found| found.to_string());
                    self.examples.push(format!("key {} has {found}, but {shown} was answered", self.next));
                }
            }
            (self.asked, self.next) = (false, self.next + 1);
        }
        if self.next == self.keys.len() || std::time::Instant::now() > self.until {
            return true;
        }
        if !self.asked && client.is_open() {
            // The key is short enough.
            let Ok(query) = KeyValue::get(&(self.next as u64).to_le_bytes()) else { return true };
            self.asked = client.begin(clock::now(), Operation::Query(query), endpoint).is_ok();
        }
        false
    }
}

/// How many keys do not have what was answered of them, and some of them in words. All their writers
/// have ended.
pub(crate) fn lost(site: &Site, keys: &[Known]) -> Result<(u64, Vec<String>), Failure> {
    let name = Name::new("smrc-check-last").map_err(Failure::failed)?;
    let mut client = ClientMember::join(site, name, super::POLL_INTERVAL).map_err(super::failure)?;
    let until = std::time::Instant::now() + PATIENCE;
    let mut sweep = Sweep { keys, next: 0, asked: false, lost: 0, examples: Vec::new(), until };
    client.run(&mut sweep, &AtomicBool::new(false)).map_err(Failure::failed)?;
    if sweep.next < keys.len() {
        return Err(Failure::Failed(format!("no answer to a read at the end within {PATIENCE:?}")));
    }
    Ok((sweep.lost, sweep.examples))
}

#[derive(Serialize)]
struct Summary {
    preset: String,
    gets: u64,
    puts: u64,
    wrong: u64,
    kills: u64,
    failovers: u64,
    failover_p50_us: Option<f64>,
    failover_max_us: Option<f64>,
    /// The longest that a client waited for an answer, whatever the cause.
    longest_wait_us: f64,
    p50_us: f64,
    p99_us: f64,
}

fn us(nanos: u64) -> f64 {
    Nanos(nanos).as_micros_f64()
}

fn summary(preset: String, tallies: &[Tally], kills: u64) -> Summary {
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
    Summary {
        preset,
        gets: tallies.iter().map(|tally| tally.gets).sum(),
        puts: tallies.iter().map(|tally| tally.puts).sum(),
        wrong: tallies.iter().map(|tally| tally.wrong).sum(),
        kills,
        failovers: failovers.len() as u64,
        failover_p50_us: failovers.get(failovers.len() / 2).map(|nanos| us(*nanos)),
        failover_max_us: failovers.last().map(|nanos| us(*nanos)),
        longest_wait_us: us(times.as_ref().map_or(0, Histogram::max)),
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
    }
}

type Worker = JoinHandle<Result<Tally, Failure>>;

/// Clients that write and read until they are stopped, each on a thread of its own.
pub(crate) struct Clients {
    workers: Vec<Worker>,
    pub(crate) keys: Arc<Vec<Known>>,
    pub(crate) answers: Arc<Answers>,
    stop: Arc<AtomicBool>,
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Clients {
    /// Starts so many.
    pub(crate) fn start(site: &Arc<Site>, count: u32) -> Result<Self, Failure> {
        let keys = (0..u64::from(count) * KEYS_EACH).map(|_| Known::default()).collect();
        let (keys, answers) = (Arc::new(keys), Arc::new(Answers::of(count)));
        let mut clients = Self { workers: Vec::new(), keys, answers, stop: Arc::new(AtomicBool::new(false)) };
        for place in 0..count {
            let worker = clients.work(site, place)?;
            clients.workers.push(worker);
        }
        Ok(clients)
    }

    fn work(&self, site: &Arc<Site>, place: u32) -> Result<Worker, Failure> {
        let (site, keys, stop) = (Arc::clone(site), Arc::clone(&self.keys), Arc::clone(&self.stop));
        let answers = Arc::clone(&self.answers);
        let name = Name::new(&format!("smrc-check-{place}")).map_err(Failure::failed)?;
        let run = move || {
            let mut client = ClientMember::join(&site, name, super::POLL_INTERVAL).map_err(super::failure)?;
            let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(Failure::failed)?;
            let (failovers, wrong_examples) = (Vec::new(), Vec::new());
            let mut checker = Checker {
                keys: &keys,
                first_key: u64::from(place) * KEYS_EACH,
                rng: Rng::new(obol_agent::seed()),
                place: place as usize,
                answers: &answers,
                asked: BTreeMap::new(),
                last: None,
                tally: Tally { gets: 0, puts: 0, wrong: 0, wrong_examples, failovers, times },
            };
            client.run(&mut checker, &stop).map_err(Failure::failed)?;
            Ok(checker.tally)
        };
        let thread = std::thread::Builder::new().name("obol-smr-client".to_owned());
        thread.spawn(run).map_err(Failure::failed)
    }

    /// Whether one has ended: [`Clients::end`] says why.
    pub(crate) fn has_ended(&self) -> bool {
        self.workers.iter().any(Worker::is_finished)
    }

    /// Stops them.
    pub(crate) fn end(mut self) -> Result<Vec<Tally>, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || Failure::Failed("a client's thread panicked".to_owned());
        let workers = std::mem::take(&mut self.workers);
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).collect()
    }
}

/// Kills leaders until the time is over. Returns how many.
fn disturb(replicas: &mut Replicas<'_>, options: &Options, clients: &Clients) -> Result<u64, Failure> {
    let (begun, mut kills) = (std::time::Instant::now(), 0);
    let mut next = options.kill_every.map(|every| begun + every);
    while begun.elapsed() < options.time {
        if clients.has_ended() {
            // It says why.
            break;
        }
        if next.is_some_and(|next| std::time::Instant::now() >= next) {
            let leader = replicas.redundant()?;
            replicas.kill(leader)?;
            kills += 1;
            next = options.kill_every.map(|every| std::time::Instant::now() + every);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(kills)
}

/// Checks one preset.
fn check(
    root: &Path,
    site: &Arc<Site>,
    options: &Options,
    preset: PresetName,
) -> Result<(Summary, Vec<String>), Failure> {
    let (voters, preset) = (options.replicas.to_string(), preset.preset().to_string());
    let (of_first, of_all) = (["--voters", voters.as_str()], ["--preset", preset.as_str()]);
    let mut replicas = Replicas::start(root, site, options.replicas, "20us", &of_first, &of_all)?;
    replicas.redundant()?;
    let clients = Clients::start(site, options.clients)?;
    let disturbed = disturb(&mut replicas, options, &clients);
    let answers = Arc::clone(&clients.answers);
    let (tallies, kills) = (clients.end()?, disturbed?);
    if answers.count() == 0 {
        return Err(Failure::Failed(format!("preset {preset}: no client had an answer")));
    }
    let wrong = tallies.iter().flat_map(|tally| tally.wrong_examples.clone()).collect();
    Ok((summary(preset, &tallies, kills), wrong))
}

fn print(summary: &Summary) -> Result<(), Failure> {
    let Summary { preset, gets, puts, wrong, kills, failovers, p50_us, p99_us, longest_wait_us, .. } =
        summary;
    output::line(format_args!(
        "{preset}: {gets} reads and {puts} writes, {wrong} wrong answers; {p50_us:.1} us p50, {p99_us:.1} us p99, \
         {longest_wait_us:.0} us longest"
    ))?;
    if let (Some(p50), Some(longest)) = (summary.failover_p50_us, summary.failover_max_us) {
        output::line(format_args!(
            "{preset}: {kills} kills of a leader, {failovers} failovers seen by clients: {p50:.0} us p50, {longest:.0} us longest"
        ))?;
    }
    Ok(())
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    let (mut wrong, mut unhurt) = (0, None);
    for &preset in &options.preset {
        let (summary, examples) = check(root, site, options, preset)?;
        for example in examples {
            output::remark(format_args!("wrong: {example}"))?;
        }
        if options.json {
            output::json(&summary)?;
        } else {
            print(&summary)?;
        }
        wrong += summary.wrong;
        if summary.kills == 0 {
            unhurt = Some(preset.preset());
        }
    }
    if wrong > 0 {
        return Err(Failure::Failed(format!("{wrong} answers are wrong")));
    }
    if let (Some(every), Some(preset)) = (options.kill_every, unhurt) {
        return Err(Failure::Void(format!(
            "inconclusive: no leader of preset {preset} was hit by --kill-every {every:?} within --for {:?}; check for longer, or \
             more often",
            options.time
        )));
    }
    Ok(ExitCode::SUCCESS)
}
