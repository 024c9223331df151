//! Caches of other makers, asked over their sockets, and memcached's own load generator.

use super::{KEY, PATIENCE, Peer, Peers, VALUE};
use crate::peer_server::PeerServer;
use obol_console::output::{self, Failure};
use obol_kv::WINDOW;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where the peers listen.
const MEMCACHED_PORT: u16 = 21211;
const REDIS_PORT: u16 = 26379;

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

/// What memcached's own load generator is asked for: keys and values as short as it can, nine GETs
/// to one PUT.
const MEMCASLAP_CONFIG: &str = "key\n16 16 1\nvalue\n32 32 1\ncmd\n0 0.1\n1 0.9\n";
pub(super) const MEMCASLAP: &str = "memcached, by memcaslap";

/// memcached's own load generator.
pub(super) struct Memcaslap {
    config: PathBuf,
}

impl Memcaslap {
    /// `None` if it, or memcached, is not installed.
    pub(super) fn of(dir: &Path, servers: &[PeerServer]) -> Result<Option<Self>, Failure> {
        let config = dir.join("memcaslap");
        let is_there = Command::new("memcaslap").arg("--version").output().is_ok();
        if servers.is_empty() || !is_there {
            output::remark(
                "obol: memcaslap is not installed, so memcached's throughput is left out (Debian: apt install libmemcached-tools)",
            )?;
            return Ok(None);
        }
        std::fs::write(&config, MEMCASLAP_CONFIG).map_err(Failure::failed)?;
        Ok(Some(Self { config }))
    }

    /// Operations a second: one thread, as many connections as a client of the cache has operations
    /// on the way.
    pub(super) fn run(&self) -> Result<u64, Failure> {
        let mut command = Command::new("memcaslap");
        command.args(["-s", &format!("127.0.0.1:{MEMCACHED_PORT}"), "-T", "1", "-t", "1s"]);
        command.args(["-c", &WINDOW.to_string(), "-F"]).arg(&self.config);
        let ran = command.output().map_err(Failure::failed)?;
        let text = String::from_utf8_lossy(&ran.stdout);
        let rate = text.split("TPS:").nth(1).and_then(|rest| rest.split_whitespace().next());
        rate.and_then(|number| number.parse().ok())
            .ok_or_else(|| Failure::Failed(format!("memcaslap reported no TPS: {}", text.trim())))
    }
}

impl Drop for Memcaslap {
    fn drop(&mut self) {
        // It may have been removed.
        let _ = std::fs::remove_file(&self.config);
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

/// The socket is removed at once: no other process can connect, and none is left if this process is
/// killed.
fn unix(path: PathBuf) -> impl Fn() -> io::Result<UnixStream> {
    move || {
        let stream = UnixStream::connect(&path)?;
        std::fs::remove_file(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

/// The peers that are installed, and what keeps their servers running.
pub(super) fn others(dir: &Path) -> Result<(Peers, Vec<PeerServer>), Failure> {
    let (mut peers, mut servers) = (Peers::new(), Vec::new());
    let socket = |name: &str| dir.join(name);
    let memcached = || {
        let mut command = Command::new("memcached");
        // As root it needs this option.
        command.args(["-t", "1", "-u", "root"]);
        command
    };
    if let Some(server) =
        PeerServer::start(memcached().args(["-l", "127.0.0.1", "-p", &MEMCACHED_PORT.to_string()]))?
    {
        servers.push(server);
        let path = socket("memcached");
        servers.extend(PeerServer::start(memcached().arg("-s").arg(&path))?);
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
    if let Some(server) = PeerServer::start(&redis)? {
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
