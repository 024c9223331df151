//! The cache beside memcached and Redis, in one run: one client, one operation at a time. The servers take turns, so that
//! whatever else the host does meets all of them.

use super::check::Server;
use crate::cli::duration;
use crate::output::{self, Failure};
use clap::Args;
use obol_fabric::shm::clock;
use obol_fabric::{Drive, Name, Nanos};
use obol_kv::{Done, Node, Operation, Status};
use obol_profiles::Site;
use obol_profiles::endpoint::{Act, Endpoint};
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The value of every key: as long as uKharon's and HERD's.
const VALUE: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const KEY: u64 = 1;
/// A server that does not answer in so long hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where the peers listen.
const MEMCACHED_PORT: u16 = 21211;
const REDIS_PORT: u16 = 26379;

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long each server is asked in each round
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "300ms")]
    turn: Duration,
    /// Rounds; figures are the medians of all
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print one JSON object per server
    #[arg(long)]
    json: bool,
}

/// Something that holds values, and answers one request at a time.
trait Peer {
    fn name(&self) -> &str;
    fn put(&mut self) -> io::Result<()>;
    fn get(&mut self) -> io::Result<()>;
}

type Peers = Vec<Box<dyn Peer>>;

/// What a server took: p50 in nanoseconds of each round.
#[derive(Default)]
struct Figures {
    get: Vec<u64>,
    put: Vec<u64>,
}

fn median(mut of: Vec<u64>) -> u64 {
    of.sort_unstable();
    of.get(of.len() / 2).copied().unwrap_or(0)
}

/// The median time of an operation that is repeated for so long.
fn p50(span: Duration, mut operation: impl FnMut() -> io::Result<()>) -> Result<u64, Failure> {
    let mut times = super::latencies()?;
    let end = Instant::now() + span;
    while Instant::now() < end {
        let begun = clock::now();
        operation().map_err(|error| Failure::Failed(format!("a server did not answer: {error}")))?;
        times.saturating_record(clock::now().since(begun).0);
    }
    Ok(times.value_at_quantile(0.5))
}

/// Any server that speaks over a stream: a request, and the only right answer to it.
struct Spoken<S> {
    name: &'static str,
    stream: S,
    put: (Vec<u8>, Vec<u8>),
    get: (Vec<u8>, Vec<u8>),
    buffer: Vec<u8>,
}

impl<S: Read + Write> Spoken<S> {
    fn ask(stream: &mut S, buffer: &mut Vec<u8>, (request, answer): &(Vec<u8>, Vec<u8>)) -> io::Result<()> {
        stream.write_all(request)?;
        buffer.resize(answer.len(), 0);
        stream.read_exact(buffer)?;
        if buffer == answer { Ok(()) } else { Err(io::Error::other("it gave a wrong answer")) }
    }

    fn memcached(name: &'static str, stream: S) -> Self {
        let value = String::from_utf8_lossy(VALUE);
        let put = (format!("set {KEY} 0 0 {}\r\n{value}\r\n", VALUE.len()).into(), b"STORED\r\n".to_vec());
        let answer = format!("VALUE {KEY} 0 {}\r\n{value}\r\nEND\r\n", VALUE.len());
        Self { name, stream, put, get: (format!("get {KEY}\r\n").into(), answer.into()), buffer: Vec::new() }
    }

    fn redis(name: &'static str, stream: S) -> Self {
        let value = String::from_utf8_lossy(VALUE);
        let put = (format!("SET {KEY} {value}\r\n").into(), b"+OK\r\n".to_vec());
        let get = (format!("GET {KEY}\r\n").into(), format!("${}\r\n{value}\r\n", VALUE.len()).into());
        Self { name, stream, put, get, buffer: Vec::new() }
    }
}

impl<S: Read + Write> Peer for Spoken<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn put(&mut self) -> io::Result<()> {
        Self::ask(&mut self.stream, &mut self.buffer, &self.put)
    }

    fn get(&mut self) -> io::Result<()> {
        Self::ask(&mut self.stream, &mut self.buffer, &self.get)
    }
}

/// The cache, asked by a member that does nothing but look for answers.
struct Cache {
    endpoint: Endpoint,
    node: Node,
}

struct One<'a> {
    node: &'a mut Node,
    operation: Operation,
}

impl Act for One<'_> {
    type Output = io::Result<Done>;

    fn on<D: Drive>(self, endpoint: &mut D) -> io::Result<Done> {
        let Some(client) = self.node.client() else { return Err(io::Error::other("no client")) };
        let begun = clock::now();
        client.begin(begun, self.operation, endpoint).map_err(io::Error::other)?;
        endpoint.flush();
        loop {
            endpoint.poll_once(self.node);
            if let Some(done) = self.node.client().and_then(obol_kv::Client::take) {
                return Ok(done);
            }
            if clock::now().since(begun).to_std() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            // On a host with few cores the server may be waiting for this one.
            std::thread::yield_now();
        }
    }
}

impl Cache {
    fn ask(&mut self, operation: Operation) -> io::Result<Done> {
        let done = self.endpoint.each(One { node: &mut self.node, operation })?;
        if done.status == Status::Done { Ok(done) } else { Err(io::Error::other("it gave a wrong answer")) }
    }
}

impl Peer for Cache {
    fn name(&self) -> &str {
        "obol kv, replicated"
    }

    fn put(&mut self) -> io::Result<()> {
        self.ask(Operation::Put(KEY, VALUE[..].into())).map(drop)
    }

    fn get(&mut self) -> io::Result<()> {
        let done = self.ask(Operation::Get(KEY))?;
        if done.value[..] == VALUE[..] { Ok(()) } else { Err(io::Error::other("it gave a wrong answer")) }
    }
}

/// A server of somebody else's, ended with this.
struct Other(Child);

impl Other {
    /// `None` if it is not installed.
    fn start(command: &mut Command) -> Result<Option<Self>, Failure> {
        match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => Ok(Some(Self(child))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::failed(error)),
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connects as soon as the server listens.
fn connect<S>(what: &str, open: impl Fn() -> io::Result<S>) -> Result<S, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match open() {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > end => return Err(Failure::Failed(format!("{what}: {error}"))),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn tcp(port: u16) -> impl Fn() -> io::Result<TcpStream> {
    move || {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

fn unix(path: PathBuf) -> impl Fn() -> io::Result<UnixStream> {
    move || {
        let stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

/// The peers that are installed, and what keeps their servers running.
fn others(dir: &Path) -> Result<(Peers, Vec<Other>), Failure> {
    let (mut peers, mut servers) = (Peers::new(), Vec::new());
    let socket = |name: &str| dir.join(name);
    let memcached = || {
        let mut command = Command::new("memcached");
        // As root it wants to be told so.
        command.args(["-t", "1", "-u", "root"]);
        command
    };
    if let Some(server) =
        Other::start(memcached().args(["-l", "127.0.0.1", "-p", &MEMCACHED_PORT.to_string()]))?
    {
        servers.push(server);
        let path = socket("memcached");
        servers.extend(Other::start(memcached().arg("-s").arg(&path))?);
        let stream = connect("memcached", tcp(MEMCACHED_PORT))?;
        peers.push(Box::new(Spoken::memcached("memcached, TCP", stream)));
        peers.push(Box::new(Spoken::memcached("memcached, Unix socket", connect("memcached", unix(path))?)));
    } else {
        output::remark(
            "obol: memcached is not installed, so it is left out (Debian: apt install memcached)",
        )?;
    }
    let path = socket("redis");
    let mut redis = Command::new("redis-server");
    redis
        .args(["--bind", "127.0.0.1", "--port", &REDIS_PORT.to_string(), "--save", "", "--unixsocket"])
        .arg(&path);
    if let Some(server) = Other::start(&mut redis)? {
        servers.push(server);
        peers.push(Box::new(Spoken::redis("Redis, TCP", connect("redis", tcp(REDIS_PORT))?)));
        peers.push(Box::new(Spoken::redis("Redis, Unix socket", connect("redis", unix(path))?)));
    } else {
        output::remark(
            "obol: redis-server is not installed, so it is left out (Debian: apt install redis-server)",
        )?;
    }
    Ok((peers, servers))
}

#[derive(Serialize)]
struct Row<'a> {
    server: &'a str,
    get_p50_us: f64,
    put_p50_us: f64,
    /// How many times as long as the cache's.
    get_ratio: f64,
    put_ratio: f64,
}

pub(super) fn run(root: &Path, site: &Site, options: &Options) -> Result<ExitCode, Failure> {
    let cluster = site.cluster.name();
    let fate = Arc::default();
    let begin = |number, every| Server::start(root, cluster, number, every, &fate).map_err(Failure::failed);
    // The primary keeps a core busy, as HERD's do; its backup only has to keep up.
    let primary = begin(1, "0")?;
    primary.until("primary", false)?;
    let backup = begin(2, "20us")?;
    primary.until("primary", true)?;
    let name = Name::new("kv_bench").map_err(Failure::failed)?;
    let (endpoint, node) = super::join(site, name, super::client(site)?)?;
    let dir = site.cluster.dir();
    let (mut peers, servers) = others(dir)?;
    peers.insert(0, Box::new(Cache { endpoint, node }));
    let mut figures: Vec<Figures> = peers.iter().map(|_| Figures::default()).collect();
    for _ in 0..options.rounds {
        for (peer, figures) in peers.iter_mut().zip(&mut figures) {
            figures.put.push(p50(options.turn / 2, || peer.put())?);
            figures.get.push(p50(options.turn / 2, || peer.get())?);
        }
    }
    let medians: Vec<(u64, u64)> = figures.into_iter().map(|f| (median(f.get), median(f.put))).collect();
    let (get, put) = medians.first().copied().unwrap_or_default();
    let ratio = |of: u64, to: u64| of as f64 / to.max(1) as f64;
    if !options.json {
        output::line(format_args!(
            "{:<24}{:>12}{:>12}{:>10}{:>10}",
            "one client, p50", "GET", "PUT", "GET x", "PUT x"
        ))?;
    }
    for (peer, (g, p)) in peers.iter().zip(medians) {
        let server = peer.name();
        let (get_ratio, put_ratio) = (ratio(g, get), ratio(p, put));
        if options.json {
            let [get_p50_us, put_p50_us] = [g, p].map(|nanos| Nanos(nanos).as_micros_f64());
            output::json(&Row { server, get_p50_us, put_p50_us, get_ratio, put_ratio })?;
        } else {
            output::line(format_args!(
                "{server:<24}{:>12}{:>12}{get_ratio:>10.1}{put_ratio:>10.1}",
                Nanos(g).to_string(),
                Nanos(p).to_string()
            ))?;
        }
    }
    drop((peers, servers, backup, primary));
    for name in ["memcached", "redis"] {
        // Whoever made it may have removed it.
        let _ = std::fs::remove_file(dir.join(name));
    }
    Ok(ExitCode::SUCCESS)
}
