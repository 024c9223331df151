//! The cache beside memcached and Redis, in one run: one client with one operation at a time, and
//! one with many on the way. The cache's primary keeps a core busy, so the others have their turns
//! before it is started.

mod cache;
mod line;
mod peers;

use cache::Cache;
use line::Echo;
use obol_fabric::host::clock;
use obol_fabric::host::sched::pin_to_core;
use obol_fabric::{Name, Nanos};
use obol_kv::WINDOW;
use obol_node::Site;
use obol_server::kv::{MarkOwner, client, join};
use obol_term::output::{self, Failure};
use obol_workload::kv::servers::{self, POLL_EVERY, Server};
use obol_workload::latencies;
use peers::Tuning;
use serde::Serialize;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The value of every key: as long as uKharon's and HERD's.
const VALUE: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const KEY: u64 = 1;
/// One in this many pipelined operations is a PUT.
const PUT_EVERY: u64 = 10;
/// The core of a pinned client of another maker's server.
const CLIENT_CORE: u32 = 1;
/// A server that does not answer within this time hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests of a round for which the share of the lease is reported: the paper's batches.
const BATCH: f64 = 6.0;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Duration of each server's turn in a round.
    pub turn: Duration,
    /// Rounds; figures are the medians of all.
    pub rounds: u32,
    /// Backups of the cache's primary.
    pub backups: u32,
    /// How many threads of each server of the cache share the keys.
    pub shards: u32,
    /// Print one JSON object per server.
    pub json: bool,
}

/// Something that holds values, and answers one request at a time.
trait Peer {
    fn name(&self) -> &str;
    /// How server and client wait for each other, and on which cores: half of what a latency is
    /// made of.
    fn waits(&self) -> &'static str {
        PEER_WAITS
    }
    fn put(&mut self) -> io::Result<()>;
    fn get(&mut self) -> io::Result<()>;
    /// How many operations end in such a span, with [`obol_kv::WINDOW`] on the way at a time, nine
    /// GETs to one PUT; `None` if it has no operations.
    fn flood(&mut self, _span: Duration) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

type Peers = Vec<Box<dyn Peer>>;

/// How servers of other makers are run: as they come.
const PEER_WAITS: &str = "sleep, unpinned";
/// The cache where server and client have a core each, and where they have not.
const OWN_WAITS: [&str; 2] = ["spin, pinned", "spin, unpinned"];
/// The cache whose servers have more shards than there are cores.
const OWN_SLEEPS: &str = "server sleeps, unpinned";
/// What stands below the table.
const UNEQUAL: &str = "Not like with like: server and client of the cache keep a core each busy. The others are shown as they \
                       come, and with their servers pinned to one core and a client that keeps another busy; the servers \
                       themselves always sleep in the kernel.";

/// What a server did in each round.
#[derive(Default)]
struct Figures {
    /// p50 in nanoseconds.
    get: Vec<u64>,
    /// The same.
    put: Vec<u64>,
    /// Pipelined operations a second.
    rate: Vec<u64>,
}

fn median(mut of: Vec<u64>) -> u64 {
    of.sort_unstable();
    of.get(of.len() / 2).copied().unwrap_or(0)
}

fn unanswered(error: &io::Error) -> Failure {
    Failure::Failed(format!("a server did not answer: {error}"))
}

/// The median time of an operation that is repeated for this time.
fn p50(span: Duration, mut operation: impl FnMut() -> io::Result<()>) -> Result<u64, Failure> {
    let mut times = latencies()?;
    let end = Instant::now() + span;
    while Instant::now() < end {
        let begun = clock::now();
        operation().map_err(|error| unanswered(&error))?;
        times.saturating_record(clock::now().since(begun).0);
    }
    Ok(times.value_at_quantile(0.5))
}

#[derive(Serialize)]
struct Latency<'a> {
    server: &'a str,
    get_p50_us: f64,
    put_p50_us: f64,
    /// How many times as long as the cache's.
    get_ratio: f64,
    put_ratio: f64,
    /// How server and client wait for each other, and on which cores.
    waits: &'a str,
}

/// Nine GETs to one PUT.
#[derive(Serialize)]
struct Throughput<'a> {
    server: &'a str,
    waits: &'a str,
    pipelined_per_s: f64,
    /// How many times as many the cache does.
    ratio: f64,
}

/// What it costs to be sure.
#[derive(Serialize)]
struct Lease {
    active_ns: f64,
    /// The share of a round of six requests, which needs one look: the one after a round serves as
    /// the one before the next.
    share_percent: f64,
}

/// A server, its latencies in nanoseconds, and its throughput.
struct Timed {
    server: String,
    waits: &'static str,
    get: u64,
    put: u64,
    /// Pipelined operations a second.
    rate: Option<u64>,
}

/// The figures of servers that take turns.
fn time(peers: &mut Peers, options: &Options) -> Result<Vec<Timed>, Failure> {
    let mut figures: Vec<Figures> = peers.iter().map(|_| Figures::default()).collect();
    for _ in 0..options.rounds {
        for (peer, figures) in peers.iter_mut().zip(&mut figures) {
            figures.put.push(p50(options.turn / 2, || peer.put())?);
            figures.get.push(p50(options.turn / 2, || peer.get())?);
            let begun = Instant::now();
            if let Some(done) = peer.flood(options.turn).map_err(|error| unanswered(&error))? {
                figures.rate.push((done as f64 / begun.elapsed().as_secs_f64()) as u64);
            }
        }
    }
    let named = peers.iter().zip(figures);
    Ok(named
        .map(|(peer, Figures { get, put, rate })| Timed {
            server: peer.name().to_owned(),
            waits: peer.waits(),
            get: median(get),
            put: median(put),
            rate: (!rate.is_empty()).then(|| median(rate)),
        })
        .collect())
}

fn report_latencies(own: &Timed, all: &[&Timed], json: bool) -> Result<(), Failure> {
    let ratio = |of: u64, to: u64| of as f64 / to.max(1) as f64;
    if !json {
        output::line(format_args!(
            "{:<24}{:>12}{:>12}{:>10}{:>10}  {}",
            "one at a time, p50", "GET", "PUT", "GET x", "PUT x", "HOW THEY WAIT"
        ))?;
    }
    for Timed { server, waits, get, put, rate: _ } in all {
        let (get_ratio, put_ratio) = (ratio(*get, own.get), ratio(*put, own.put));
        if json {
            let [get_p50_us, put_p50_us] = [get, put].map(|nanos| Nanos(*nanos).as_micros_f64());
            output::json(&Latency { server, get_p50_us, put_p50_us, get_ratio, put_ratio, waits })?;
        } else {
            output::line(format_args!(
                "{server:<24}{:>12}{:>12}{get_ratio:>10.1}{put_ratio:>10.1}  {waits}",
                Nanos(*get).to_string(),
                Nanos(*put).to_string()
            ))?;
        }
    }
    Ok(())
}

fn report_throughput(own: f64, all: &[&Timed], json: bool) -> Result<(), Failure> {
    if !json {
        output::line(format_args!(
            "\n{:<24}{:>12}{:>12}  {}",
            format!("{WINDOW} at once, 1 PUT in {PUT_EVERY}"),
            "a second",
            "x",
            "HOW THEY WAIT"
        ))?;
    }
    for Timed { server, waits, rate, .. } in all {
        let Some(rate) = rate else { continue };
        let pipelined_per_s = *rate as f64;
        let ratio = own / pipelined_per_s;
        if json {
            output::json(&Throughput { server, waits, pipelined_per_s, ratio })?;
        } else {
            output::line(format_args!("{server:<24}{pipelined_per_s:>12.0}{ratio:>12.1}  {waits}"))?;
        }
    }
    if !json {
        output::line(UNEQUAL)?;
    }
    Ok(())
}

/// Other makers' servers as they come, and pinned with a polling client.
fn others(dir: &Path, options: &Options) -> Result<Vec<Timed>, Failure> {
    let measure = |tuning| -> Result<Vec<Timed>, Failure> {
        let (mut peers, servers) = peers::others(dir, tuning)?;
        let timed = time(&mut peers, options)?;
        drop(servers);
        Ok(timed)
    };
    peers::report_missing()?;
    let mut timed = measure(Tuning::AsItComes)?;
    if std::thread::available_parallelism().map_or(1, |cores| cores.get()) > 1 {
        // In a thread of its own: what is measured after it may run anywhere.
        let pinned = std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                pin_to_core(CLIENT_CORE).map_err(Failure::failed)?;
                measure(Tuning::Pinned)
            });
            pinned.join()
        });
        timed.extend(pinned.map_err(|_| Failure::Failed("the measuring thread panicked".to_owned()))??);
    } else {
        output::remark("obol: one core, so the other servers are not measured pinned beside their client")?;
    }
    Ok(timed)
}

/// What the cache does.
struct Own {
    timed: Timed,
    /// What a lease check takes.
    active_ns: f64,
}

fn own(root: &Path, site: &Site, options: &Options) -> Result<Own, Failure> {
    let cluster = site.cluster.name();
    let disruption = Arc::default();
    let shards = options.shards;
    let begin = |place, options: &[&str]| {
        let name = servers::name(place);
        let options = [options, &["--force-empty"]].concat();
        Server::start(root, cluster, &name, shards, &options, &disruption)
    };
    // Two that look all the time must not share a core. A backup only has to keep up.
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let has_each_its_own = cores > shards as usize;
    let busy = ["--poll-every", "0", "--core", "0"];
    let primary = begin(
        0,
        match shards {
            _ if has_each_its_own => &busy,
            1 => &busy[..2],
            _ => POLL_EVERY,
        },
    )?;
    if !has_each_its_own && shards > 1 {
        output::remark(format_args!(
            "obol: {shards} shards and a client want a core each, and there are {cores}: the servers sleep between polls, and \
             the figures do not show the benefit of shards"
        ))?;
    }
    primary.until("primary", false)?;
    let mut backups = Vec::new();
    for place in 1..=options.backups as usize {
        let backup = begin(place, POLL_EVERY)?;
        backup.until("backup", true)?;
        backups.push(backup);
    }
    primary.until("primary", true)?;
    if has_each_its_own {
        pin_to_core(shards).map_err(Failure::failed)?;
    }
    let name = Name::new("kvc-bench").map_err(Failure::failed)?;
    let (endpoint, node) = join(site, name, client(site, Nanos::ZERO)?)?;
    let mut cache = Cache { endpoint, node };
    cache.fill().map_err(|error| unanswered(&error))?;
    let active_ns = cache.look();
    let timed = time(&mut vec![Box::new(cache)], options)?;
    let timed = timed.into_iter().next().ok_or_else(|| Failure::Failed("nothing was timed".to_owned()))?;
    let waits = match (has_each_its_own, shards) {
        (true, _) => OWN_WAITS[0],
        (false, 1) => OWN_WAITS[1],
        (false, _) => OWN_SLEEPS,
    };
    let timed = Timed { waits, ..timed };
    Ok(Own { timed, active_ns })
}

/// Measures the cache beside the others.
pub fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    servers::require_no_servers(root, site.cluster.name())?;
    let floor = time(&mut vec![Box::new(Echo::start().map_err(Failure::failed)?)], options)?;
    let others = others(site.cluster.dir(), options)?;
    let own = own(root, site, options)?;
    // The servers are gone, as this command wanted it.
    MarkOwner::Command.clear_all(site);
    let all: Vec<&Timed> = floor.iter().chain([&own.timed]).chain(&others).collect();
    report_latencies(&own.timed, &all, options.json)?;
    let throughput = own.timed.rate.unwrap_or_default() as f64;
    report_throughput(throughput, &all, options.json)?;
    let active_ns = own.active_ns;
    let share_percent = 100.0 * active_ns * throughput / (BATCH * 1e9);
    if options.json {
        output::json(&Lease { active_ns, share_percent })?;
    } else {
        output::line(format_args!(
            "\na lease check takes {active_ns:.1} ns: {share_percent:.1} % of a round of {BATCH} requests, which needs one"
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
