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
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
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
pub(super) struct Replicas<'a> {
    root: &'a Path,
    site: &'a Site,
    poll_every: String,
    of_all: Vec<String>,
    running: Vec<Running>,
}

impl Drop for Replicas<'_> {
    fn drop(&mut self) {
        let count = self.running.len();
        let_leave(self.running.iter_mut().map(|replica| &mut replica.child));
        self.running.clear();
        // The keys belonged to this command only.
        (0..count).for_each(|place| obol_replica::clear_mark(self.site, &name(place)));
    }
}

fn name(place: usize) -> String {
    format!("{REPLICA_PREFIX}{}", place + 1)
}

impl<'a> Replicas<'a> {
    /// Starts so many, in a cluster without any, the first one and all of them with these options.
    pub(super) fn start(
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
        let mut all = Self { root, site, poll_every: poll_every.to_owned(), of_all, running: Vec::new() };
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
                *known.lock() = Standing { standing, redundancy };
            }
        };
        std::thread::Builder::new().name("obol-reports".to_owned()).spawn(read).map_err(Failure::failed)?;
        Ok(Running { child, standing })
    }

    fn until(&self, is: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        while !self.running.iter().all(|one| is(&one.standing.lock().standing)) {
            if std::time::Instant::now() > end {
                return Err(self.not_ready());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn not_ready(&self) -> Failure {
        let stands = |(place, one): (usize, &Running)| format!("{} {:?}", name(place), one.standing.lock());
        let all: Vec<String> = self.running.iter().enumerate().map(stands).collect();
        Failure::Failed(format!("the store is not redundant within {PATIENCE:?}: {}", all.join("; ")))
    }

    /// Waits until all replicas vote and have everything; returns the leader.
    pub(super) fn redundant(&self) -> Result<usize, Failure> {
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            let count = self.running.len();
            let leads = |one: &Running| {
                let standing = one.standing.lock();
                standing.standing == "leading" && standing.redundancy as usize == count
            };
            if let Some(leader) = self.running.iter().position(leads) {
                return Ok(leader);
            }
            if std::time::Instant::now() > end {
                return Err(self.not_ready());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills a replica, and starts it again with empty memory.
    fn kill(&mut self, place: usize) -> Result<(), Failure> {
        self.end(place)?;
        self.restart(place)
    }

    /// Kills a replica.
    pub(super) fn end(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].child.kill().map_err(Failure::failed)
    }

    /// Starts a replica that was killed again, with empty memory.
    pub(super) fn restart(&mut self, place: usize) -> Result<(), Failure> {
        self.running[place].child.wait().map_err(Failure::failed)?;
        self.running[place] = self.replica(place, &[])?;
        Ok(())
    }
}

/// What all clients know of a key.
#[derive(Default)]
struct Known {
    /// The newest value that its writer has begun to write.
    begun: AtomicU64,
    /// The newest value that was answered, to its writer or to a reader.
    shown: AtomicU64,
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
struct Tally {
    gets: u64,
    puts: u64,
    wrong: u64,
    wrong_examples: Vec<String>,
    /// From the last answer of one leader to the first one of the next, in nanoseconds.
    failovers: Vec<u64>,
    times: Histogram<u64>,
}

struct Checker<'a> {
    keys: &'a [Known],
    first_key: u64,
    rng: Rng,
    answered: &'a AtomicU64,
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
        self.answered.fetch_add(1, Ordering::Relaxed);
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

/// Starts a client on a thread of its own.
fn work(
    site: &Arc<Site>,
    keys: &Arc<Vec<Known>>,
    place: u32,
    answered: &Arc<AtomicU64>,
    stop: &Arc<AtomicBool>,
) -> Result<Worker, Failure> {
    let (site, keys, stop) = (Arc::clone(site), Arc::clone(keys), Arc::clone(stop));
    let answered = Arc::clone(answered);
    let name = Name::new(&format!("smrc-check-{place}")).map_err(Failure::failed)?;
    let run = move || {
        let mut client = ClientMember::join(&site, name, super::POLL_INTERVAL).map_err(super::failure)?;
        let times = Histogram::new_with_bounds(1, 100_000_000_000, 3).map_err(Failure::failed)?;
        let (failovers, wrong_examples) = (Vec::new(), Vec::new());
        let mut checker = Checker {
            keys: &keys,
            first_key: u64::from(place) * KEYS_EACH,
            rng: Rng::new(obol_agent::seed()),
            answered: &answered,
            asked: BTreeMap::new(),
            last: None,
            tally: Tally { gets: 0, puts: 0, wrong: 0, wrong_examples, failovers, times },
        };
        client.run(&mut checker, &stop).map_err(Failure::failed)?;
        Ok(checker.tally)
    };
    std::thread::Builder::new().name("obol-smr-client".to_owned()).spawn(run).map_err(Failure::failed)
}

/// Kills leaders until the time is over. Returns how many.
fn disturb(replicas: &mut Replicas<'_>, options: &Options, workers: &[Worker]) -> Result<u64, Failure> {
    let (begun, mut kills) = (std::time::Instant::now(), 0);
    let mut next = options.kill_every.map(|every| begun + every);
    while begun.elapsed() < options.time {
        if workers.iter().any(Worker::is_finished) {
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
    let keys: Arc<Vec<Known>> =
        Arc::new((0..u64::from(options.clients) * KEYS_EACH).map(|_| Known::default()).collect());
    let (answered, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let workers: Vec<Worker> = (0..options.clients)
        .map(|place| work(site, &keys, place, &answered, &stop))
        .collect::<Result<_, _>>()?;
    let disturbed = disturb(&mut replicas, options, &workers);
    stop.store(true, Ordering::Relaxed);
    let tallies: Result<Vec<Tally>, Failure> = workers
        .into_iter()
        .map(|worker| {
            worker.join().unwrap_or_else(|_| Err(Failure::Failed("a client's thread panicked".to_owned())))
        })
        .collect();
    let (tallies, kills) = (tallies?, disturbed?);
    if answered.load(Ordering::Relaxed) == 0 {
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
