//! A front of the store for clients of Redis, in each server that is started with `--resp`.
//!
//! One thread serves the connections and has a client of the store, which sends what they ask for
//! to the leader, whichever replica that is: so a client of Redis stays connected to any server, and
//! need not know who leads. (Redirections as those of Redis Cluster would need a client in cluster
//! mode.) Commands of several connections travel in one entry. A connection has commands in one batch at
//! a time, so they are executed in its order.
//!
//! Where a replica's thread may serve connections, it does (`beside`). Otherwise a thread of its own
//! does, with a client that is a member.
//!
//! While batches are on the way, that thread looks for answers in its memory and for what connections
//! have sent, and sleeps, when there is nothing of either, until the leader wakes it up. While there
//! are none, it sleeps until a connection has sent something; it is a member, so not for long.

mod admission;
mod batches;
mod beside;
mod connection;
mod local;
mod long;
mod operation_sink;
mod parse;
#[cfg(test)]
mod tests;
mod time_of_day;

use admission::{Journal, Password};
use batches::{Batches, Connections};
use beside::Sleeper;
use connection::{Connection, READ_BYTES};
use local::{Session, Setting};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Name, Nanos};
use obol_node::Site;
use obol_replica::{ClientMember, ReplicaError, Work, named};
use obol_smr::{CLIENT_PREFIX, Client, Operation, REPLICA_PREFIX};
use obol_term::output::{self, Failure};
use operation_sink::OperationSink;
use std::cell::Cell;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Connections at once.
const CONNECTIONS_MAX: usize = 1000;
/// Connections that are accepted before others have their turn.
const ACCEPTS_MAX: usize = 64;
/// If all are in use, one that has not sent the password for this time makes room for another one.
const STRANGER_FOR: Duration = Duration::from_secs(2);
/// The reply to further ones, before they are closed.
const FULL: &[u8] = b"-ERR max number of clients reached\r\n";
/// What is taken at once of what is ready.
const READY_MAX: usize = 128;
/// The number of the listener in what the kernel reports. Those of connections are higher.
const LISTENER: u64 = 0;
/// Batches are sent after this time though more and more commands arrive.
const HELD_FOR: Duration = Duration::from_micros(200);
/// Connections that have sent something in the same period are active.
const PERIOD: Duration = Duration::from_millis(1);
/// From this number on it is worth while to wait for more commands.
const ACTIVE_MIN: usize = 16;
/// Bytes of long commands and replies that wait at all connections together, at most.
const EXCESS_MAX: usize = 64 << 20;
/// How long it sleeps at most: as a member it learns of views in between.
const SLEEP_MAX_MS: u8 = 2;
/// How long it sleeps at most while batches are on the way.
const POLL_INTERVAL: Nanos = Nanos::from_micros(100);
/// Pause before another client of the store is started after one that failed.
const PAUSE: Duration = Duration::from_millis(500);

/// The front before it serves: its address is taken.
pub struct Front {
    listener: TcpListener,
    name: Name,
    replica: Name,
    password: Option<Password>,
}

impl Front {
    /// Takes an address, with the file of the password. `unencrypted`: the operator accepts that others
    /// reach it without encryption.
    pub fn bind(
        address: SocketAddr,
        replica: Name,
        password: Option<&Path>,
        unencrypted: bool,
    ) -> Result<Self, Failure> {
        let password = password.map(Password::read).transpose()?;
        admission::check_address(address, password.is_some(), unencrypted)?;
        let in_use =
            |error| Failure::Refused(format!("--resp {address}: {error}; choose another address or port"));
        let listener = TcpListener::bind(address).map_err(in_use)?;
        listener.set_nonblocking(true).map_err(Failure::failed)?;
        if address.port() == 0 {
            let chosen = listener.local_addr().map_err(Failure::failed)?;
            output::remark(format_args!("obol: {replica} serves clients of Redis at {chosen}"))?;
        }
        let rest = replica.as_str().strip_prefix(REPLICA_PREFIX).unwrap_or_default();
        let name = named(&format!("{CLIENT_PREFIX}resp-{rest}"), CLIENT_PREFIX).map_err(|error| {
            Failure::Refused(format!("--resp: a shorter name of the replica is needed: {error}"))
        })?;
        Ok(Self { listener, name, replica, password })
    }

    /// Starts the thread, which ends with `stop` or `ended`.
    pub fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        site: &'scope Site,
        flags: [&'scope AtomicBool; 2],
    ) -> Result<(), Failure> {
        let server = Server::new(self, flags).map_err(Failure::failed)?;
        let thread = std::thread::Builder::new().name("obol-smr-resp".to_owned());
        thread.spawn_scoped(scope, move || server.run(site)).map(drop).map_err(Failure::failed)
    }
}

/// A period in which connections are active or not.
struct Period {
    /// Counted from 1: connections that have sent nothing have period 0.
    number: u64,
    began: Instant,
    /// Connections that have sent something in it.
    senders: usize,
}

/// What serves the connections.
pub struct Server<'a> {
    front: Front,
    /// Reports what is ready, by number: the listener, or a connection.
    epoll: Epoll,
    connections: Connections,
    newest: u64,
    batches: Batches,
    /// Bytes of long commands and replies that wait at all connections.
    excess: usize,
    /// Since when batches wait for the connections.
    held: Option<Instant>,
    period: Period,
    /// The senders of the period before.
    active: usize,
    /// Connections for which something has changed in this turn.
    touched: Vec<u64>,
    /// What the kernel has reported, and how much that is.
    events: [EpollEvent; READY_MAX],
    ready: usize,
    buffer: Vec<u8>,
    journal: Journal,
    /// A descriptor for when there are no more: see [`Server::refuse_one`].
    spare: Option<OwnedFd>,
    /// On the thread of a replica.
    sleeper: Option<Sleeper>,
    flags: [&'a AtomicBool; 2],
}

impl<'a> Server<'a> {
    fn new(front: Front, flags: [&'a AtomicBool; 2]) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&front.listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let spare = Some(epoll.0.try_clone()?);
        Ok(Self {
            front,
            epoll,
            spare,
            connections: Connections::new(),
            newest: LISTENER,
            batches: Batches::default(),
            excess: 0,
            held: None,
            period: Period { number: 1, began: Instant::now(), senders: 0 },
            active: 0,
            touched: Vec::new(),
            events: [EpollEvent::empty(); READY_MAX],
            ready: 0,
            buffer: vec![0; READ_BYTES],
            journal: Journal::default(),
            sleeper: None,
            flags,
        })
    }

    fn is_over(&self) -> bool {
        self.flags.iter().any(|flag| flag.load(Ordering::Relaxed))
    }

    fn run(mut self, site: &Site) {
        while !self.is_over() {
            if let Err(error) = self.serve(site) {
                // The server goes on whether or not this is read.
                let _ = output::remark(format_args!("obol: {}: {error}", self.front.name));
                self.batches.abandon(&error.to_string(), &mut self.connections, &mut self.touched);
                self.settle();
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Serves by one client of the store, until that fails or the server ends.
    fn serve(&mut self, site: &Site) -> Result<(), ReplicaError> {
        let mut client = ClientMember::join_to_sleep(site, self.front.name, POLL_INTERVAL)?;
        Ok(client.run(self, &AtomicBool::new(false))?)
    }

    /// Waits until a connection has sent something: not at all if there is other work, or if the thread
    /// is a replica's.
    fn wait(&mut self) {
        let is_beside = self.sleeper.is_some();
        let is_due = self.batches.are_held() || self.batches.are_sent() || self.batches.are_left();
        let is_idle = !is_beside && !is_due;
        let time = EpollTimeout::from(if is_idle { SLEEP_MAX_MS } else { 0 });
        let most = if is_beside { beside::READY_MAX_BESIDE } else { READY_MAX };
        // After an error nothing is ready.
        self.ready = self.epoll.wait(&mut self.events[..most], time).unwrap_or(0);
    }

    fn on_ready(&mut self, id: u64, flags: EpollFlags) {
        if id == LISTENER {
            return self.accept();
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if flags.contains(EpollFlags::EPOLLIN) {
            connection.receive(&mut self.buffer);
            let grown = connection.excess().saturating_sub(connection.counted);
            if grown > 0 && self.excess + grown > EXCESS_MAX {
                connection.crowd_out();
            }
            self.batches.enqueue(id, connection);
            self.period.senders += usize::from(connection.period != self.period.number);
            connection.period = self.period.number;
        }
        if flags.intersects(EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP) {
            connection.lose();
        }
        self.touched.push(id);
    }

    /// Whether batches are held for connections that are about to send commands: half of those that are
    /// active have not sent any, and do not wait for replies.
    fn expects_more(&mut self, now: Instant) -> bool {
        if now.duration_since(self.period.began) >= PERIOD {
            self.active = self.period.senders;
            self.period = Period { number: self.period.number + 1, began: now, senders: 0 };
        }
        let (held, sent) = self.batches.owners();
        self.active >= ACTIVE_MIN && held < self.active / 2 && held + sent < self.active
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let stream = match self.front.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if is_without_descriptor(&error) && self.refuse_one() => continue,
                // Refused or ended meanwhile: its client tries again.
                Err(_) => return,
            };
            if self.connections.len() >= CONNECTIONS_MAX && !self.make_room() {
                refuse(stream);
                continue;
            }
            self.newest += 1;
            let session = Session::new(self.newest, self.front.password.is_none());
            let Ok(connection) = Connection::new(stream, session) else { continue };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, self.newest);
            if self.epoll.add(connection.stream(), event).is_ok() {
                self.connections.insert(self.newest, connection);
            }
        }
    }

    /// Ends the oldest connection whose client should have sent the password by now. Returns whether there
    /// was one: others could keep those out that know it.
    fn make_room(&mut self) -> bool {
        let now = Instant::now();
        let mut strangers =
            self.connections.iter().filter(|(_, connection)| connection.is_stranger_since(now, STRANGER_FOR));
        let oldest = strangers.next().map(|(id, _)| *id);
        oldest.is_some_and(|id| self.connections.remove(&id).is_some())
    }

    /// Without a descriptor, a connection could neither be accepted nor refused, and would be reported
    /// for ever: the spare one is used to refuse it. Returns whether that was done.
    fn refuse_one(&mut self) -> bool {
        let had = self.spare.take().is_some();
        if had && let Ok((stream, _)) = self.front.listener.accept() {
            refuse(stream);
        }
        // Without it further connections wait.
        self.spare = self.epoll.0.try_clone().ok();
        had && self.spare.is_some()
    }

    /// Takes answers, sends replies, and begins what the connections have sent. Returns whether there was
    /// anything. `at_once`: the leader's turn is next, so nothing is gained by waiting for more.
    fn exchange(&mut self, at_once: bool, through: &mut Through<'_>) -> bool {
        let mut any = false;
        while let Some(done) = through.client.take() {
            any = true;
            self.batches.finish(done.number, &done.reply, &mut self.connections, &mut self.touched);
        }
        self.wait();
        for n in 0..self.ready {
            let event = self.events[n];
            self.on_ready(event.data(), event.events());
        }
        let Self { front, connections, batches, touched, excess, .. } = self;
        let count = connections.len();
        let now = Instant::now();
        batches.expire(now, connections, touched);
        let stalled = batches.stalled();
        let asked = Cell::new(false);
        let info = || {
            asked.set(true);
            info(front.replica, count, stalled.map(|since| now.duration_since(since)))
        };
        let down = stalled.map(|_| batches::DOWN);
        let is_crowded = *excess >= EXCESS_MAX;
        let password = front.password.as_ref();
        let setting = Setting { password, info: &info, down, asked: &asked, is_crowded };
        batches.fill(connections, touched, &setting);
        if asked.get() {
            batches.probe(now, through);
        }
        let is_late = self.held.is_some_and(|since| now.duration_since(since) >= HELD_FOR);
        let is_quiet = at_once || self.ready == 0 && !self.expects_more(now);
        self.batches.send(is_quiet || is_late, through);
        self.held = self.held.or(Some(now)).filter(|_| self.batches.are_held());
        through.client.flush(through.endpoint);
        self.settle();
        any || self.ready > 0 || self.batches.are_left()
    }

    /// Sends replies, ends connections, and has the kernel report what is of interest now.
    fn settle(&mut self) {
        for id in self.touched.drain(..) {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            let was_full = connection.is_full();
            connection.send();
            let event = connection.take_event();
            if let Some(line) = event.and_then(|what| self.journal.note(Instant::now(), &what)) {
                // The server goes on whether or not this is read.
                let _ = output::remark(format_args!("obol: {}: --resp: {line}", self.front.replica));
            }
            if was_full && !connection.is_full() {
                self.batches.enqueue(id, connection);
            }
            let counted = if connection.is_over() { 0 } else { connection.excess() };
            self.excess = (self.excess + counted).saturating_sub(connection.counted);
            connection.counted = counted;
            if connection.is_over() {
                // What is closed is reported no more.
                self.connections.remove(&id);
            } else if connection.is_gone() {
                // It would be reported all the time. It may have been removed before.
                let _ = self.epoll.delete(connection.stream());
            } else if let Some(flags) = connection.new_interest() {
                // It fails only without memory; then the connection ends.
                if self.epoll.modify(connection.stream(), &mut EpollEvent::new(flags, id)).is_err() {
                    connection.lose();
                }
            }
        }
    }
}

/// A client of the store and its endpoint.
struct Through<'a> {
    client: &'a mut Client,
    endpoint: &'a mut Endpoint,
}

impl OperationSink for Through<'_> {
    fn is_busy(&self) -> bool {
        self.client.is_busy()
    }

    fn begin(&mut self, operation: Operation) -> Option<u64> {
        self.client.begin(clock::now(), operation, self.endpoint).ok()
    }
}

impl Work for Server<'_> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        let any = self.exchange(false, &mut Through { client, endpoint });
        // While there may be something at the connections, it does not sleep anywhere else.
        if any || self.batches.are_held() || !self.batches.are_sent() {
            client.look_soon();
        }
        if self.ready == 0 && self.batches.are_held() {
            // The process that sends them may need this core.
            std::thread::yield_now();
        }
        self.is_over()
    }
}

/// The version of Redis whose commands the store has most in common with: programs look for this name.
const REDIS_VERSION: &str = "7.0.0";

/// What INFO shows. `stalled`: for how long the store has not served.
fn info(replica: Name, connections: usize, stalled: Option<Duration>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let (state, ms) = match stalled {
        None => ("ok", 0),
        Some(time) => ("unavailable", time.as_millis()),
    };
    format!(
        "# Server\r\nredis_version:{REDIS_VERSION}\r\nobol_version:{version}\r\nredis_mode:standalone\r\nprocess_id:{}\r\n\
         replica:{replica}\r\n\r\n# Clients\r\nconnected_clients:{connections}\r\nmaxclients:{CONNECTIONS_MAX}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\n\r\n\
         # Store\r\nstore_state:{state}\r\nstore_unavailable_ms:{ms}\r\n",
        std::process::id(),
    )
}

/// Whether this process or the host has no more descriptors.
fn is_without_descriptor(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE | Errno::ENFILE))
}

/// Reports to a client that there are too many, as Redis does: it would not find out by waiting.
fn refuse(mut stream: TcpStream) {
    // The buffer of a new connection has room for it. Its client may have gone.
    let _ = stream.write_all(FULL);
}
