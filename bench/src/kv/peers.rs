//! Caches of other makers, asked over their sockets.

use super::{ANSWER_TIMEOUT, KEY, PEER_WAITS, PUT_EVERY, Peer, Peers, VALUE};
use crate::peer_server::{PeerServer, is_installed};
use obol_kv::WINDOW;
use obol_term::output::{self, Failure};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the peers listen.
const MEMCACHED_PORT: u16 = 21211;
const REDIS_PORT: u16 = 26379;

/// How a peer and its client are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tuning {
    /// Both sleep in the kernel and run where it puts them.
    AsItComes,
    /// The server is pinned to [`SERVER_CORE`]; the client, whose thread its caller has pinned to
    /// another core, polls its socket. The servers have no way to poll.
    Pinned,
}

/// The core of a pinned server, as of the cache's.
const SERVER_CORE: u32 = 0;

impl Tuning {
    const fn waits(self) -> &'static str {
        match self {
            Self::AsItComes => PEER_WAITS,
            Self::Pinned => "client spins, both pinned",
        }
    }

    const fn server_core(self) -> Option<u32> {
        match self {
            Self::AsItComes => None,
            Self::Pinned => Some(SERVER_CORE),
        }
    }
}

/// What is sent, and the only right answer to it.
type Exchange = (Vec<u8>, Vec<u8>);

/// A stream whose reads may return at once.
trait Socket: Read + Write {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()>;
}

impl Socket for TcpStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }
}

impl Socket for UnixStream {
    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        Self::set_nonblocking(self, nonblocking)
    }
}

/// Any server that speaks over a stream.
struct Spoken<S> {
    name: &'static str,
    tuning: Tuning,
    stream: S,
    put: Exchange,
    get: Exchange,
    /// [`WINDOW`] operations each, nine GETs to one PUT in all of them together.
    batches: Vec<Exchange>,
    buffer: Vec<u8>,
}

impl<S: Socket> Spoken<S> {
    fn new(name: &'static str, tuning: Tuning, stream: S, put: Exchange, get: Exchange) -> io::Result<Self> {
        stream.set_nonblocking(tuning == Tuning::Pinned)?;
        let operation = |n: u64| if n.is_multiple_of(PUT_EVERY) { &put } else { &get };
        // As many batches as it takes until the pattern repeats.
        let batches = (0..PUT_EVERY).map(|batch| {
            let all = (batch * WINDOW..(batch + 1) * WINDOW).map(operation);
            all.fold(Exchange::default(), |sum, one| {
                ([sum.0, one.0.clone()].concat(), [sum.1, one.1.clone()].concat())
            })
        });
        let batches = batches.collect();
        Ok(Self { name, tuning, stream, put, get, batches, buffer: Vec::new() })
    }

    fn exchange(stream: &mut S, buffer: &mut Vec<u8>, (request, answer): &Exchange) -> io::Result<()> {
        buffer.resize(answer.len(), 0);
        let (begun, mut sent, mut got) = (Instant::now(), 0, 0);
        while got < answer.len() {
            let moved = if sent < request.len() {
                stream.write(&request[sent..]).map(|bytes| sent += bytes)
            } else {
                match stream.read(&mut buffer[got..]) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    read => read.map(|bytes| got += bytes),
                }
            };
            match moved {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                Err(_) if begun.elapsed() > ANSWER_TIMEOUT => return Err(io::ErrorKind::TimedOut.into()),
                _ => {}
            }
        }
        if buffer == answer { Ok(()) } else { Err(io::Error::other("it gave a wrong answer")) }
    }

    fn memcached(name: &'static str, tuning: Tuning, stream: S) -> io::Result<Self> {
        let value = String::from_utf8_lossy(VALUE);
        let put = (format!("set {KEY} 0 0 {}\r\n{value}\r\n", VALUE.len()).into(), b"STORED\r\n".to_vec());
        let answer = format!("VALUE {KEY} 0 {}\r\n{value}\r\nEND\r\n", VALUE.len());
        Self::new(name, tuning, stream, put, (format!("get {KEY}\r\n").into(), answer.into()))
    }

    fn redis(name: &'static str, tuning: Tuning, stream: S) -> io::Result<Self> {
        let value = String::from_utf8_lossy(VALUE);
        let put = (format!("SET {KEY} {value}\r\n").into(), b"+OK\r\n".to_vec());
        let get = (format!("GET {KEY}\r\n").into(), format!("${}\r\n{value}\r\n", VALUE.len()).into());
        Self::new(name, tuning, stream, put, get)
    }
}

impl<S: Socket> Peer for Spoken<S> {
    fn name(&self) -> &str {
        self.name
    }

    fn waits(&self) -> &'static str {
        self.tuning.waits()
    }

    fn put(&mut self) -> io::Result<()> {
        Self::exchange(&mut self.stream, &mut self.buffer, &self.put)
    }

    fn get(&mut self) -> io::Result<()> {
        Self::exchange(&mut self.stream, &mut self.buffer, &self.get)
    }

    fn flood(&mut self, span: Duration) -> io::Result<Option<u64>> {
        let (begun, mut done) = (Instant::now(), 0);
        for batch in self.batches.iter().cycle() {
            if begun.elapsed() >= span {
                break;
            }
            Self::exchange(&mut self.stream, &mut self.buffer, batch)?;
            done += WINDOW;
        }
        Ok(Some(done))
    }
}

/// Connects as soon as the server listens.
fn connect<S>(what: &str, open: impl Fn() -> io::Result<S>) -> Result<S, Failure> {
    let end = Instant::now() + ANSWER_TIMEOUT;
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
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(stream)
    }
}

/// The socket is removed at once: no other process can connect, and none is left if this process is
/// killed.
fn unix(path: PathBuf) -> impl Fn() -> io::Result<UnixStream> {
    move || {
        let stream = UnixStream::connect(&path)?;
        std::fs::remove_file(&path)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(stream)
    }
}

/// The peers that are installed, and what keeps their servers running.
pub(super) fn others(dir: &Path, tuning: Tuning) -> Result<(Peers, Vec<PeerServer>), Failure> {
    let (mut peers, mut servers) = (Peers::new(), Vec::new());
    let core = tuning.server_core();
    let socket = |name: &str| dir.join(name);
    let memcached = || {
        let mut command = Command::new("memcached");
        // As root it needs this option.
        command.args(["-t", "1", "-u", "root"]);
        command
    };
    if let Some(server) =
        PeerServer::start(memcached().args(["-l", "127.0.0.1", "-p", &MEMCACHED_PORT.to_string()]), core)?
    {
        servers.push(server);
        let path = socket("memcached");
        servers.extend(PeerServer::start(memcached().arg("-s").arg(&path), core)?);
        let stream = connect("memcached", tcp(MEMCACHED_PORT))?;
        peers.push(boxed(Spoken::memcached("memcached, TCP", tuning, stream))?);
        let stream = connect("memcached", unix(path))?;
        peers.push(boxed(Spoken::memcached("memcached, Unix socket", tuning, stream))?);
    }
    let path = socket("redis");
    let mut redis = Command::new("redis-server");
    redis
        .args(["--bind", "127.0.0.1", "--port", &REDIS_PORT.to_string(), "--save", "", "--unixsocket"])
        .arg(&path);
    if let Some(server) = PeerServer::start(&redis, core)? {
        servers.push(server);
        peers.push(boxed(Spoken::redis("Redis, TCP", tuning, connect("redis", tcp(REDIS_PORT))?))?);
        peers.push(boxed(Spoken::redis("Redis, Unix socket", tuning, connect("redis", unix(path))?))?);
    }
    Ok((peers, servers))
}

fn boxed<S: Socket + 'static>(peer: io::Result<Spoken<S>>) -> Result<Box<dyn Peer>, Failure> {
    Ok(Box::new(peer.map_err(Failure::failed)?))
}

/// Says which of them are left out.
pub(super) fn report_missing() -> Result<(), Failure> {
    for (program, package) in [("memcached", "memcached"), ("redis-server", "redis-server")] {
        if !is_installed(program) {
            output::remark(format_args!(
                "obol: {program} is not installed, so it is left out (Debian: apt install {package})"
            ))?;
        }
    }
    Ok(())
}
