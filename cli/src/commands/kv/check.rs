//! The check of a running cache: every key has one writer, whose values rise. So an answer can be
//! judged at once: it must not be older than what was known of the key before the GET was begun,
//! nor newer than what its writer has begun. For registers with one writer that is linearizability,
//! and it takes no memory however long it runs.

use super::Sharding;
use super::freeze::{Freezer, Running};
use super::marks::Whose;
use super::session::{Session, Work};
use crate::leaving::{forget_own, let_leave};
use clap::Args;
use hdrhistogram::Histogram;
use obol_config::duration;
use obol_fabric::host::{clock, sched};
use obol_fabric::sim::Rng;
use obol_fabric::{Drive, Incarnation, Instant, Name, Nanos};
use obol_kv::{Client, Done, Operation, Status, VALUE_BYTES_MAX};
use obol_node::Site;
use obol_observe::stats::{Distribution, shown};
use obol_observe::{Observer, Process};
use obol_term::output::{self, Failure};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Keys that each client writes.
const KEYS_EACH: u64 = 16;
/// How long the servers have to serve at first, and to be redundant again.
const PATIENCE: Duration = Duration::from_secs(20);
/// Poll interval for the servers.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How a rejected server ends; restarting it would not help.
const REFUSED: i32 = 2;
/// How often servers look into their memory.
pub(super) const POLL_EVERY: &[&str] = &["--poll-every", "20us"];

/// What is checked.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Duration of the check
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "10s")]
    time: Duration,
    /// Servers; killed ones are restarted
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=8))]
    servers: u32,
    #[command(flatten)]
    sharding: Sharding,
    /// Clients, each a thread and a member
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    clients: u32,
    /// Interval of kills of the primary, when its backup has everything
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    kill_every: Option<Duration>,
    /// Approximate interval of freezes of a server
    #[arg(long, value_name = "TIME", value_parser = duration::argument)]
    freeze_every: Option<Duration>,
    /// Longest duration of a freeze
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "1200ms", requires = "freeze_every")]
    freeze_max: Duration,
    /// Poll interval of servers and clients
    #[arg(long, value_name = "TIME", value_parser = duration::argument, default_value = "20us")]
    poll_every: Duration,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What all clients know of a key.
#[derive(Default)]
struct Known {
    /// The newest value that its writer has begun to write.
    begun: AtomicU64,
    /// The newest value that was answered, to its writer or to a reader.
    shown: AtomicU64,
}

/// An operation that waits for its answer.
enum Asked {
    Put {
        key: usize,
        value: u64,
    },
    /// With what was shown of the key before.
    Get {
        key: usize,
        shown: u64,
    },
}

/// What a client has seen.
struct Tally {
    gets: u64,
    puts: u64,
    wrong: u64,
    /// The first of them.
    wrong_examples: Vec<String>,
    /// From the last answer of one primary to the first one of the next, in nanoseconds.
    failovers: Vec<u64>,
    /// GET and PUT, in nanoseconds.
    latencies: [Histogram<u64>; 2],
}

/// Wrong answers that are printed; the others are counted.
const WRONG_EXAMPLES: usize = 10;

struct Checker<'a> {
    keys: &'a [Known],
    own: std::ops::Range<usize>,
    rng: Rng,
    /// Counts clients that had an answer.
    answered: &'a AtomicU32,
    asked: BTreeMap<u64, (Asked, Instant)>,
    /// The newest answer of each shard, and whose it was.
    last: BTreeMap<u32, (Instant, Incarnation)>,
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
    fn judge(&mut self, done: &Done, primary: Option<Incarnation>) {
        let Some((asked, begun_at)) = self.asked.remove(&done.number) else { return };
        let now = clock::now();
        if self.last.is_empty() {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(primary) = primary {
            let before = self.last.insert(done.shard, (now, primary));
            if let Some((last, _)) = before.filter(|(_, whose)| *whose != primary) {
                self.tally.failovers.push(now.since(last).0);
            }
        }
        let which = usize::from(matches!(asked, Asked::Put { .. }));
        self.tally.latencies[which].saturating_record(now.since(begun_at).0);
        let wrong = match asked {
            Asked::Put { key, value } => {
                self.tally.puts += 1;
                self.keys[key].shown.fetch_max(value, Ordering::SeqCst);
                (done.status != Status::Done)
                    .then(|| format!("a PUT of key {key} ended with {:?}", done.status))
            }
            Asked::Get { key, shown } => {
                self.tally.gets += 1;
                let found = if done.status == Status::Missing { Some(0) } else { value(&done.value) };
                let begun = self.keys[key].begun.load(Ordering::SeqCst);
                match found {
                    None => Some(format!("a GET of key {key} found a value that was never written")),
                    Some(found) if found < shown || found > begun => Some(format!(
                        "a GET of key {key} found {found}, but {shown} was shown before it and {begun} is the newest"
                    )),
                    Some(found) => {
                        self.keys[key].shown.fetch_max(found, Ordering::SeqCst);
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

    fn next(&mut self) -> (Operation, Asked) {
        if self.rng.below(5) == 0 {
            // Only this thread writes it, and numbers its values in the order in which it begins
            // them.
            let key = self.own.start + self.rng.below(KEYS_EACH) as usize;
            let value = self.keys[key].begun.fetch_add(1, Ordering::SeqCst) + 1;
            return (Operation::Put(key as u64, bytes(value)), Asked::Put { key, value });
        }
        let key = self.rng.below(self.keys.len() as u64) as usize;
        let shown = self.keys[key].shown.load(Ordering::SeqCst);
        (Operation::Get(key as u64), Asked::Get { key, shown })
    }
}

impl Work for Checker<'_> {
    fn turn<D: Drive>(&mut self, client: &mut Client, endpoint: &mut D) -> bool {
        while let Some(done) = client.take() {
            self.judge(&done, client.primary(done.shard));
        }
        while !client.is_busy() {
            let (operation, asked) = self.next();
            let now = clock::now();
            match client.begin(now, operation, endpoint) {
                Ok(number) => drop(self.asked.insert(number, (asked, now))),
                Err(_) => break,
            }
        }
        false
    }
}

/// Set when a server reports that no server has the complete state.
#[derive(Default)]
pub(super) struct Fate {
    stopped: AtomicBool,
}

impl Fate {
    /// Takes note of where a server stands now.
    fn note(&self, now: &str) {
        if now == "stopped" {
            self.stopped.store(true, Ordering::SeqCst);
        }
    }
}

/// Where a server says that it stands with a shard, and whether it is redundant there.
type Stands = (String, bool);

/// A server that runs, and where it says that it stands, by shard.
pub(super) struct Server {
    child: Child,
    standing: Arc<Mutex<Vec<Stands>>>,
}

impl Server {
    pub(super) fn start(
        root: &Path,
        cluster: Name,
        name: &str,
        shards: u32,
        options: &[&str],
        fate: &Arc<Fate>,
    ) -> std::io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        sched::pass_parent_id(&mut command).arg("--root").arg(root).args([
            "--cluster",
            cluster.as_str(),
            "kv",
            "server",
            "--json",
            "--tied",
            "--temporary",
        ]);
        command.args(["--name", name]).args(options);
        command.args(["--shards", &shards.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let standing = Arc::new(Mutex::new(vec![Stands::default(); shards as usize]));
        let (states, fate) = (Arc::clone(&standing), Arc::clone(fate));
        let Some(out) = child.stdout.take() else { return Err(std::io::Error::other("no pipe")) };
        std::thread::Builder::new().name("obol-reports".to_owned()).spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let Ok(line) = serde_json::from_str::<serde_json::Value>(&line) else { continue };
                let standing = line["standing"].as_str().unwrap_or_default().to_owned();
                let redundant = line["redundant"] == true;
                let mut states = states.lock();
                let shard = line["shard"].as_u64().and_then(|shard| usize::try_from(shard).ok());
                let Some(state) = shard.and_then(|shard| states.get_mut(shard.wrapping_sub(1))) else {
                    continue;
                };
                fate.note(&standing);
                *state = (standing, redundant);
            }
        })?;
        Ok(Self { child, standing })
    }

    /// Waits until it stands so with all shards, and redundantly if that is wanted.
    pub(super) fn until(&self, standing: &str, redundant: bool) -> Result<(), Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let stands = self.stands();
            if stands.iter().all(|(stands, is)| stands == standing && (*is || !redundant)) {
                return Ok(());
            }
            if std::time::Instant::now() > end {
                return Err(Failure::Failed(format!(
                    "the server is not a {standing} within {PATIENCE:?}: {stands:?}"
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    fn stands(&self) -> Vec<Stands> {
        self.standing.lock().clone()
    }
}

impl Server {
    /// Kills it; it is started again once it is reaped.
    pub(super) fn end(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
    }

    /// Waits until it has ended.
    pub(super) fn reap(&mut self) -> Result<(), Failure> {
        self.child.wait().map(drop).map_err(Failure::failed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Rejects a cluster with servers: further ones would not serve.
pub(super) fn alone(root: &Path, cluster: Name) -> Result<(), Failure> {
    let seen = Observer::open(root, cluster).map_err(Failure::refused)?.snapshot();
    let serves = |p: &&Process| p.alive && p.name.as_str().starts_with(obol_kv::SERVER_PREFIX);
    let others: Vec<&str> = seen.all_processes().filter(serves).map(|p| p.name.as_str()).collect();
    let Some(one) = others.first() else { return Ok(()) };
    Err(Failure::Refused(format!(
        "a cache runs already ({}), and this starts its own: end each of its servers (`obol stop {one}`), or use a cluster \
         without (`obol up --cluster NAME`)",
        others.join(", ")
    )))
}

/// How the server of a place is called.
pub(super) fn name(place: usize) -> String {
    format!("{}{}", obol_kv::SERVER_PREFIX, place + 1)
}

/// The servers by number.
pub(super) struct Servers<'a> {
    root: &'a Path,
    cluster: Name,
    shards: u32,
    /// Of each server.
    options: &'a [&'a str],
    pub(super) running: Vec<Server>,
    pids: Running,
    fate: Arc<Fate>,
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        let_leave(self.running.iter_mut().map(|server| &mut server.child));
        let places = self.running.len();
        self.running.clear();
        // The keys belonged to this command only, and so did servers that it has killed.
        if let Ok(site) = Site::open(self.root, self.cluster) {
            Whose::Command.clear_all(&site);
        }
        let own: Vec<String> = (0..places).map(name).collect();
        // Servers of shards have a suffix.
        forget_own(self.root, self.cluster, |name| own.iter().any(|own| name.split('.').next() == Some(own)));
    }
}

impl<'a> Servers<'a> {
    /// Starts this many, in a cluster without any.
    pub(super) fn start(
        root: &'a Path,
        cluster: Name,
        count: usize,
        shards: u32,
        options: &'a [&'a str],
    ) -> Result<Self, Failure> {
        alone(root, cluster)?;
        let (running, pids, fate) = (Vec::new(), Arc::default(), Arc::default());
        let mut all = Self { root, cluster, shards, options, running, pids, fate };
        let anew = [options, &["--force-empty"]].concat();
        for place in 0..count {
            // The check starts empty, whatever was there before. No server may start empty later.
            let server = Server::start(root, cluster, &name(place), shards, &anew, &all.fate);
            all.running.push(server.map_err(Failure::failed)?);
        }
        all.list();
        Ok(all)
    }

    /// Reports the servers that may be frozen.
    fn list(&self) {
        let pids = self.running.iter().map(|server| server.child.id()).collect();
        *self.pids.lock() = pids;
    }

    /// Starts the server of a place.
    fn server(&self, place: usize) -> Result<Server, Failure> {
        Server::start(self.root, self.cluster, &name(place), self.shards, self.options, &self.fate)
            .map_err(Failure::failed)
    }

    /// The place of the first shard's primary, once the backups of all primaries have everything.
    /// Starts servers again that have ended.
    pub(super) fn redundant(&mut self) -> Result<usize, Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            for place in 0..self.running.len() {
                if let Some(how) = self.running[place].child.try_wait().map_err(Failure::failed)? {
                    if how.code() == Some(REFUSED) {
                        return Err(Failure::Refused(format!("{} was refused, and said why", name(place))));
                    }
                    self.running[place] = self.server(place)?;
                    self.list();
                }
            }
            let stands: Vec<Vec<Stands>> = self.running.iter().map(Server::stands).collect();
            let alone = self.running.len() == 1;
            let primary = |shard: usize| {
                let leads = |(standing, redundant): &Stands| standing == "primary" && (*redundant || alone);
                stands.iter().position(|of| of.get(shard).is_some_and(leads))
            };
            let primaries: Option<Vec<usize>> = (0..self.shards as usize).map(primary).collect();
            if let Some(first) = primaries.and_then(|all| all.first().copied()) {
                return Ok(first);
            }
            if std::time::Instant::now() > end {
                let lines = stands.iter().enumerate().map(|(place, of)| {
                    let of: Vec<&str> = of.iter().map(|(standing, _)| standing.as_str()).collect();
                    format!(
                        "{} is {}",
                        name(place),
                        if of.concat().is_empty() { "not there".into() } else { of.join(", ") }
                    )
                });
                return Err(Failure::Failed(format!(
                    "the cache is not redundant within {PATIENCE:?}: {}",
                    lines.collect::<Vec<_>>().join("; ")
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills a server and starts it again. Output that the killed one left in its pipe is
    /// discarded.
    fn kill(&mut self, place: usize) -> Result<(), Failure> {
        let server = &mut self.running[place];
        server.child.kill().map_err(Failure::failed)?;
        server.child.wait().map_err(Failure::failed)?;
        self.running[place] = self.server(place)?;
        self.list();
        Ok(())
    }
}

#[derive(Serialize)]
struct Summary {
    gets: u64,
    puts: u64,
    wrong: u64,
    /// The cache stopped: no server had the complete state.
    stopped: bool,
    kills: u64,
    freezes: u64,
    failovers: u64,
    /// None of too few failovers to name it.
    failover_p50_us: Option<f64>,
    failover_max_us: Option<f64>,
    /// The longest that a client waited for an answer, whatever the cause.
    longest_wait_us: f64,
    get_p50_us: f64,
    get_p99_us: f64,
    put_p50_us: f64,
    put_p99_us: f64,
}

fn us(nanos: u64) -> f64 {
    Nanos(nanos).as_micros_f64()
}

fn summary(tallies: &[Tally], (kills, freezes): (u64, u64), stopped: bool) -> Summary {
    let mut failovers = Distribution::new();
    tallies.iter().flat_map(|tally| &tally.failovers).for_each(|span| failovers.add(Nanos(*span)));
    let failovers = failovers.summary();
    let waits = tallies.iter().flat_map(|tally| &tally.latencies).map(Histogram::max);
    let latency = |which: usize, quantile: f64| {
        let mut all: Option<Histogram<u64>> = None;
        for one in tallies.iter().map(|tally| &tally.latencies[which]) {
            match &mut all {
                // All have the same bounds, so none is refused.
                Some(all) => drop(all.add(one)),
                None => all = Some(one.clone()),
            }
        }
        us(all.map_or(0, |all| all.value_at_quantile(quantile)))
    };
    Summary {
        gets: tallies.iter().map(|tally| tally.gets).sum(),
        puts: tallies.iter().map(|tally| tally.puts).sum(),
        wrong: tallies.iter().map(|tally| tally.wrong).sum(),
        stopped,
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

type Worker = JoinHandle<Result<Tally, Failure>>;

/// Starts a client on a thread of its own.
fn work(
    site: &Arc<Site>,
    keys: &Arc<Vec<Known>>,
    place: u32,
    poll_interval: Nanos,
    answered: &Arc<AtomicU32>,
    stop: &Arc<AtomicBool>,
) -> Result<Worker, Failure> {
    let (site, keys, stop) = (Arc::clone(site), Arc::clone(keys), Arc::clone(stop));
    let answered = Arc::clone(answered);
    let name = Name::new(&format!("kv_check-{place}")).map_err(Failure::failed)?;
    let run = move || {
        let (mut endpoint, mut node) = super::join(&site, name, super::client(&site, poll_interval)?)?;
        let begin = place as usize * KEYS_EACH as usize;
        let latencies = [super::latencies()?, super::latencies()?];
        let mut checker = Checker {
            keys: &keys,
            own: begin..begin + KEYS_EACH as usize,
            rng: Rng::new(obol_agent::seed()),
            answered: &answered,
            asked: BTreeMap::new(),
            last: BTreeMap::new(),
            tally: Tally {
                gets: 0,
                puts: 0,
                wrong: 0,
                wrong_examples: Vec::new(),
                failovers: Vec::new(),
                latencies,
            },
        };
        let used = Session { node: &mut node, work: &mut checker, stop: &stop }.in_full(&mut endpoint);
        let tally = checker.tally;
        endpoint.serve(&mut node, &AtomicBool::new(true));
        used.map(|()| tally)
    };
    std::thread::Builder::new().name("obol-kv-client".to_owned()).spawn(run).map_err(Failure::failed)
}

/// Waits until each client had an answer: none of them would see a kill before.
fn all_answered(workers: &[Worker], answered: &AtomicU32) -> Result<(), Failure> {
    let end = std::time::Instant::now() + PATIENCE;
    while (answered.load(Ordering::Relaxed) as usize) < workers.len() {
        if workers.iter().any(Worker::is_finished) || std::time::Instant::now() > end {
            return Err(Failure::Failed(format!("a client had no answer within {PATIENCE:?}")));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Kills primaries until the time is over, and counts them.
fn inject(servers: &mut Servers<'_>, options: &Options, kills: &mut u64) -> Result<(), Failure> {
    let end = std::time::Instant::now() + options.time;
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let pause = options.kill_every.unwrap_or(options.time).min(left);
        std::thread::sleep(pause);
        // At the end, too: the cache has to be complete again.
        let primary = servers.redundant()?;
        if std::time::Instant::now() >= end {
            return Ok(());
        }
        servers.kill(primary)?;
        *kills += 1;
    }
}

pub(super) fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    super::area(site)?;
    let cluster = site.cluster.name();
    let poll_every = Nanos::from_std(options.poll_every);
    let every = format!("{}ns", poll_every.0);
    let every = ["--poll-every", &every];
    let mut servers =
        Servers::start(root, cluster, options.servers as usize, options.sharding.shards, &every)?;
    servers.redundant()?;
    // Before that they may have come in any order.
    servers.fate.stopped.store(false, Ordering::SeqCst);
    let keys: Arc<Vec<Known>> =
        Arc::new((0..u64::from(options.clients) * KEYS_EACH).map(|_| Known::default()).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU32::new(0));
    let workers: Vec<Worker> = (0..options.clients)
        .map(|place| work(site, &keys, place, poll_every, &answered, &stop))
        .collect::<Result<_, _>>()?;
    let mut kills = 0;
    let freezes = |every| Freezer::start(Arc::clone(&servers.pids), every, options.freeze_max);
    let freezer = options.freeze_every.map(freezes).transpose()?;
    let went = all_answered(&workers, &answered).and_then(|()| inject(&mut servers, options, &mut kills));
    let frozen = freezer.as_ref().map_or(0, Freezer::frozen);
    drop(freezer);
    stop.store(true, Ordering::Relaxed);
    let mut tallies = Vec::new();
    for worker in workers {
        let ended = worker.join().map_err(|_| Failure::Failed("a client panicked".to_owned()))?;
        tallies.push(ended?);
    }
    let summary = summary(&tallies, (kills, frozen), servers.fate.stopped.load(Ordering::SeqCst));
    report(&tallies, &summary, options.json)?;
    // What clients saw counts, whatever became of the servers.
    verdict(&summary)?;
    went?;
    happened(options, &summary).map(|()| ExitCode::SUCCESS)
}

/// Whether the faults that were asked for came; an outcome without them says nothing about them.
fn happened(options: &Options, summary: &Summary) -> Result<(), Failure> {
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

fn report(tallies: &[Tally], summary: &Summary, json: bool) -> Result<(), Failure> {
    if json {
        output::json(summary)?;
    } else {
        let Summary { gets, puts, kills, freezes, failovers, wrong, .. } = summary;
        output::line(format_args!("{gets} GETs, {puts} PUTs, {wrong} wrong answers"))?;
        output::line(format_args!(
            "GET p50 {}, p99 {}; PUT p50 {}, p99 {}",
            shown(summary.get_p50_us),
            shown(summary.get_p99_us),
            shown(summary.put_p50_us),
            shown(summary.put_p99_us)
        ))?;
        let failover = |us: Option<f64>| us.map_or("--".to_owned(), shown);
        output::line(format_args!(
            "{kills} kills, {freezes} freezes; {failovers} failovers as clients saw them, p50 {}, longest {}",
            failover(summary.failover_p50_us),
            failover(summary.failover_max_us)
        ))?;
        output::line(format_args!("longest wait for an answer {}", shown(summary.longest_wait_us)))?;
    }
    for wrong in tallies.iter().flat_map(|tally| &tally.wrong_examples).take(WRONG_EXAMPLES) {
        output::remark(format_args!("obol: {wrong}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        Summary { gets: 9, puts: 3, ..summary(&[], (1, 1), false) }
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
}
