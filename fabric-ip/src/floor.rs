//! What operations over IP are compared with: bare echoes between two sleeping threads, over TCP and
//! over TLS; and what pulses are compared with: bare datagrams in the same rhythm.

use super::gateway::{BareDatagrams, SessionKey};
use crate::pulse::{Frame, FrameKind};
use nix::sys::prctl::set_timerslack;
use obol_fabric::host::clock;
use obol_fabric::host::sched::{pin_to_core, run_fifo_alone, thread_usage};
use obol_fabric::types::Instant;
use obol_fabric::types::Nanos;
use obol_identity::{Identity, IdentityError};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;

/// The bytes of a message: as many as those of a READ's request and answer on average.
const BYTES: usize = 32;
/// Above the bytes of a sealed pulse.
const BUFFER_BYTES: usize = 256;
/// Echoes at once whose slowest one is timed.
const PARALLEL: usize = 3;

/// Why there is no floor.
#[derive(Debug, thiserror::Error)]
pub enum FloorError {
    /// The keys cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The kernel refuses.
    #[error("echo: {0}")]
    Io(#[from] io::Error),
    /// The handshake failed.
    #[error("echo: {0}")]
    Tls(#[from] rustls::Error),
}

/// A thread that sends back what it receives, and a connection to it.
struct Echo<S> {
    stream: S,
    /// Ends with the connection.
    _server: JoinHandle<()>,
}

fn serve(mut stream: impl Read + Write, core: u32) {
    // Without it the figures vary with the placement of threads.
    let _ = pin_to_core(core);
    let mut message = [0; BYTES];
    while stream.read_exact(&mut message).is_ok() && stream.write_all(&message).is_ok() {
        if stream.flush().is_err() {
            return;
        }
    }
}

/// Two connected sockets, the server's first.
fn connected(at: IpAddr) -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(SocketAddr::new(at, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok((server, client))
}

impl Echo<TcpStream> {
    fn plain(core: u32) -> Result<Self, FloorError> {
        let (server, stream) = connected(Ipv4Addr::LOCALHOST.into())?;
        let server =
            std::thread::Builder::new().name("obol-echo".to_owned()).spawn(move || serve(server, core))?;
        Ok(Self { stream, _server: server })
    }
}

impl Echo<StreamOwned<ClientConnection, TcpStream>> {
    fn sealed(identity: &Path, at: IpAddr, core: u32) -> Result<Self, FloorError> {
        let identity = Identity::load(identity)?;
        let (server, client) = connected(at)?;
        let server = StreamOwned::new(ServerConnection::new(identity.server()?)?, server);
        let name = ServerName::IpAddress(at.into());
        let stream = StreamOwned::new(ClientConnection::new(identity.client()?, name)?, client);
        let server =
            std::thread::Builder::new().name("obol-echo".to_owned()).spawn(move || serve(server, core))?;
        Ok(Self { stream, _server: server })
    }
}

impl<S: Read + Write> Echo<S> {
    fn send(&mut self) -> io::Result<()> {
        self.stream.write_all(&[1; BYTES])?;
        self.stream.flush()
    }

    fn receive(&mut self) -> io::Result<()> {
        self.stream.read_exact(&mut [0; BYTES])
    }
}

/// Threads that echo.
pub struct Echoes {
    plain: Vec<Echo<TcpStream>>,
    sealed: Echo<StreamOwned<ClientConnection, TcpStream>>,
}

fn timed(count: u32, mut once: impl FnMut() -> io::Result<()>) -> io::Result<Vec<Nanos>> {
    let one = |_| {
        let began = clock::now();
        once().map(|()| clock::now().since(began))
    };
    (0..count).map(one).collect()
}

impl Echoes {
    /// Starts the echoing threads on a core. The keys are those of the host with this address.
    pub fn start(identity: &Path, at: IpAddr, core: u32) -> Result<Self, FloorError> {
        let plain = (0..PARALLEL).map(|_| Echo::plain(core)).collect::<Result<_, _>>()?;
        Ok(Self { plain, sealed: Echo::sealed(identity, at, core)? })
    }

    /// Round trips over TCP.
    pub fn plain(&mut self, count: u32) -> io::Result<Vec<Nanos>> {
        let Some(echo) = self.plain.first_mut() else { return Ok(Vec::new()) };
        timed(count, || echo.send().and_then(|()| echo.receive()))
    }

    /// Round trips over TLS over TCP.
    pub fn sealed(&mut self, count: u32) -> io::Result<Vec<Nanos>> {
        let echo = &mut self.sealed;
        timed(count, || echo.send().and_then(|()| echo.receive()))
    }

    /// Three round trips over TCP at once, until the last answer.
    pub fn slowest(&mut self, count: u32) -> io::Result<Vec<Nanos>> {
        let all = &mut self.plain;
        timed(count, || {
            all.iter_mut().try_for_each(Echo::send)?;
            all.iter_mut().try_for_each(Echo::receive)
        })
    }
}

/// As many threads as there are hosts. Each wakes once per period, as the pulses' threads do if all
/// hosts are addresses of this one.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Where datagrams are sent and received.
    pub at: IpAddr,
    /// Hosts, and so threads.
    pub hosts: usize,
    /// Between two turns of a thread.
    pub period: Nanos,
    /// Turns.
    pub rounds: u32,
    /// The threads' real-time priority, where it is allowed.
    pub priority: Option<u32>,
}

impl Rhythm {
    /// What waiting alone takes: the timer, and the switch to the thread and away from it. A share of a
    /// core, for each thread.
    pub fn timer(self) -> io::Result<f64> {
        self.share(|_| ())
    }

    /// The same with a datagram of a pulse's size to each other host, and as many received: what the
    /// kernel takes of the pulses' thread. On loopback that includes the receiving side's work.
    pub fn datagrams(self) -> io::Result<f64> {
        self.share(BareDatagrams::turn)
    }

    fn share(self, turn: fn(&mut BareDatagrams)) -> io::Result<f64> {
        let one = move || {
            if let Some(priority) = self.priority {
                // Where it is not allowed, the pulses' thread does without it, too.
                let _ = run_fifo_alone(priority);
            }
            let _ = set_timerslack(1);
            let mut bare = BareDatagrams::open(self.at, self.hosts.saturating_sub(1))?;
            let (mut due, before) = (clock::now(), thread_usage());
            for _ in 0..self.rounds {
                turn(&mut bare);
                due = (due + self.period).max(clock::now());
                bare.wait(due);
            }
            // By turns, since one that is late delays all after it.
            let busy = thread_usage().busy.0.saturating_sub(before.busy.0);
            Ok(busy as f64 / (self.period.0 * u64::from(self.rounds)).max(1) as f64)
        };
        let start = |_| std::thread::Builder::new().name("obol-bare".to_owned()).spawn(one);
        let threads = (0..self.hosts).map(start).collect::<io::Result<Vec<_>>>()?;
        let panicked = |_| Err(io::Error::other("the measuring thread panicked"));
        let shares = threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked));
        let shares: Vec<f64> = shares.collect::<io::Result<_>>()?;
        Ok(shares.iter().sum::<f64>() / self.hosts.max(1) as f64)
    }
}

/// The mean time in which a pulse is sealed, and in which it is opened.
pub fn seals(count: u32) -> Option<[Nanos; 2]> {
    let key = SessionKey::new([7; 24])?;
    let frame = |n: u32| Frame {
        sequence: u64::from(n) + 1,
        sent: Instant(u64::from(n)),
        alive: 3,
        kind: FrameKind::Pulse,
        deaths: Vec::new(),
    };
    // With memory that was written before, as the threads' buffers have.
    let buffer = |_| {
        let mut buffer = vec![1; BUFFER_BYTES];
        buffer.clear();
        buffer
    };
    let mut datagrams: Vec<_> = (0..count).map(buffer).collect();
    let began = clock::now();
    let sealed = (0..count).zip(&mut datagrams).all(|(n, to)| key.seal(1, 0, &frame(n), to));
    let sealing = clock::now();
    let opened = datagrams.iter_mut().all(|datagram| key.open(0, datagram).is_some());
    let ended = clock::now();
    let each = |span: Nanos| Nanos(span.0 / u64::from(count.max(1)));
    (sealed && opened).then(|| [each(sealing.since(began)), each(ended.since(sealing))])
}
