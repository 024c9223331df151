//! Admits processes: TLS with certificates on both sides, then the process introduces itself. What
//! it says must be allowed by the certificate of its host.

use super::{Counts, GatewayCounter, GatewayError, Input, Inputs};
use crate::atomic::AtomicU64;
use crate::host::Cluster;
use crate::host::table::FIRST_FREE;
use crate::host::wake::Wake;
use crate::ip::config::Config;
use crate::ip::frame::{Hello, Refusal, Reply};
use crate::ip::identity::{self, Claims, Duty, Identity};
use crate::ip::stream::{Stream, StreamError};
use crate::rights::Role;
use crate::version::Release;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Time, SystemTime};

/// Handshakes at a time. For a further one, the oldest is given up.
const HANDSHAKES_MAX: usize = 64;
/// A process that has not introduced itself after this long is given up.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections that wait to be accepted: the kernel lets further ones try again after a second.
const BACKLOG: i32 = 4096;
/// How long no connection is accepted while there are no descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The niceness of the thread: certificates are checked in the time that others leave.
const NICENESS: i32 = 10;

/// An admitted process.
pub(super) struct Admission {
    pub(super) stream: Stream,
    pub(super) region: u32,
    pub(super) generation: u32,
    pub(super) role: Role,
}

/// What a process has said of itself, if it may be that.
type Introduction = Result<(Hello, Role), Refusal>;

struct Handshake {
    stream: Stream,
    from: SocketAddr,
    until: Time,
}

/// Accepts connections.
pub(super) struct Admit {
    listener: TcpListener,
    /// Made of the host's keys.
    keys: Arc<ServerConfig>,
    /// The files that they were read from.
    version: Version,
    nonce: u64,
    layout: u64,
    config: Config,
    pending: VecDeque<Handshake>,
    inbox: Inputs,
    counts: Counts,
}

/// Which files an identity was read from: another number or time means other contents.
type Version = [Option<(u64, SystemTime)>; 3];

/// The files of an identity now. To be taken before they are read: files that are replaced meanwhile
/// are read again then.
pub(super) fn version(directory: &Path) -> Version {
    let files = [identity::AUTHORITIES_FILE, identity::CERTIFICATE_FILE, identity::KEY_FILE];
    files.map(|name| {
        let meta = std::fs::metadata(directory.join(name)).ok()?;
        Some((meta.ino(), meta.modified().ok()?))
    })
}

impl Admit {
    pub(super) fn new(
        listener: TcpListener,
        (identity, version): (&Identity, Version),
        cluster: &Cluster,
        config: &Config,
        inbox: Inputs,
        counts: Counts,
    ) -> Result<Self, GatewayError> {
        // It is listening already, with fewer.
        let _ = rustix::net::listen(&listener, BACKLOG);
        Ok(Self {
            listener,
            // Before anybody connects: a fault in the keys ends the start.
            keys: identity.server()?,
            version,
            nonce: cluster.nonce(),
            layout: cluster.layout().digest(),
            config: config.clone(),
            pending: VecDeque::with_capacity(HANDSHAKES_MAX),
            inbox,
            counts,
        })
    }

    /// Runs until `ended` is set and it is woken. Counts its turns in `turns`.
    pub(super) fn run(&mut self, ended: &AtomicBool, wake: &Wake, turns: &AtomicU64) {
        // Without it, strangers only take more time.
        let _ = rustix::process::nice(NICENESS);
        if self.listener.set_nonblocking(true).is_err() {
            return;
        }
        let mut accept_at = Time::now();
        while !ended.load(Ordering::Acquire) {
            turns.fetch_add(1, Ordering::Relaxed);
            self.wait(wake, accept_at);
            if Time::now() >= accept_at && !self.accept() {
                accept_at = Time::now() + ACCEPT_PAUSE;
            }
            self.advance();
        }
    }

    /// Waits until something can be done.
    fn wait(&self, wake: &Wake, accept_at: Time) {
        let now = Time::now();
        let mut fds = Vec::with_capacity(2 + self.pending.len());
        fds.push(PollFd::new(wake, PollFlags::IN));
        let mut until = self.pending.front().map(|handshake| handshake.until);
        if now >= accept_at {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        } else {
            until = Some(until.map_or(accept_at, |until| until.min(accept_at)));
        }
        fds.extend(self.pending.iter().map(|handshake| PollFd::new(&handshake.stream, PollFlags::IN)));
        let span = until.and_then(|until| Timespec::try_from(until.saturating_duration_since(now)).ok());
        // An error is an early return.
        let _ = poll(&mut fds, span.as_ref());
        wake.clear();
    }

    /// Accepts what has come. `false` if there are no descriptors.
    fn accept(&mut self) -> bool {
        loop {
            match self.listener.accept() {
                Ok((socket, from)) => self.start(socket, from),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
                // The peer has given up.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::EINTR)) => {}
                Err(_) => return false,
            }
        }
    }

    fn start(&mut self, socket: TcpStream, from: SocketAddr) {
        self.renew_identity();
        if self.pending.len() == HANDSHAKES_MAX {
            self.pending.pop_front();
            self.counts.add(GatewayCounter::Strangers);
        }
        let tls = ServerConnection::new(Arc::clone(&self.keys)).ok();
        let stream = tls.and_then(|tls| Stream::new(socket, tls.into()).ok());
        match stream {
            Some(stream) => {
                let until = Time::now() + HANDSHAKE_TIMEOUT;
                self.pending.push_back(Handshake { stream, from, until });
            }
            None => self.counts.add(GatewayCounter::Strangers),
        }
    }

    /// Reads changed keys. Those that cannot be used are tried again when they change.
    fn renew_identity(&mut self) {
        let version = version(&self.config.identity);
        if version == self.version {
            return;
        }
        self.version = version;
        match Identity::load(&self.config.identity).and_then(|identity| identity.server()) {
            Ok(keys) => {
                tracing::info!(target: "gateway", "uses the new keys of this host");
                self.keys = keys;
            }
            Err(error) => {
                tracing::error!(target: "gateway", "the new keys of this host cannot be used, the old ones stay: {error}");
            }
        }
    }

    /// Continues all handshakes.
    fn advance(&mut self) {
        let now = Time::now();
        for _ in 0..self.pending.len() {
            let Some(mut handshake) = self.pending.pop_front() else { return };
            match self.step(&mut handshake.stream) {
                Ok(None) if now < handshake.until => self.pending.push_back(handshake),
                Ok(Some(Ok((hello, role)))) => {
                    let Hello { region, generation, .. } = hello;
                    let from = handshake.from;
                    tracing::info!(target: "gateway", %from, region, generation, ?role, "admitted region {region} of {from}");
                    let admission = Admission { stream: handshake.stream, region, generation, role };
                    self.inbox.put(Input::Admitted(Box::new(admission)));
                }
                Ok(Some(Err(refusal))) => {
                    self.counts.add(GatewayCounter::Refused);
                    let from = handshake.from;
                    tracing::warn!(target: "gateway", %from, "refused a process of {from}: {refusal}");
                    Reply::Refused(refusal).encode(&mut handshake.stream.output);
                    // If it does not take this, it learns of the refusal by the end of the connection.
                    let _ = handshake.stream.send();
                }
                Ok(None) | Err(_) => self.counts.add(GatewayCounter::Strangers),
            }
        }
    }

    /// One step of a handshake. `None` if it is not complete.
    fn step(&self, stream: &mut Stream) -> Result<Option<Introduction>, StreamError> {
        let received = stream.receive();
        // An alert says to the peer why it is not let in.
        let sent = stream.send();
        received?;
        sent?;
        let Some(claims) = stream.peer().map(|certificate| Claims::of(certificate, self.nonce)) else {
            return Ok(None);
        };
        let Some(message) = stream.next()? else { return Ok(None) };
        let hello = Hello::decode(message).ok_or(StreamError::TooLong(message.len()))?;
        Ok(Some(self.check(&hello, claims).map(|role| (hello, role))))
    }

    fn check(&self, hello: &Hello, claims: Option<Claims>) -> Result<Role, Refusal> {
        if hello.nonce != self.nonce {
            return Err(Refusal::Cluster);
        }
        if hello.layout != self.layout {
            return Err(Refusal::Layout);
        }
        let own = Release::own();
        if !own.works_with(hello.release) {
            return Err(Refusal::Release(own));
        }
        let claims = claims.ok_or(Refusal::Certificate)?;
        let Hello { region, role, .. } = *hello;
        // Numbers of coordinators are theirs alone, and a process has a region of its own host.
        let is_coordinator = (1..FIRST_FREE).contains(&region);
        let fits = match role {
            Role::Reader => region == 0,
            Role::Proposer => is_coordinator,
            Role::Member | Role::Fencer => region != 0 && !is_coordinator,
        };
        let at_home = region == 0 || self.config.host_of(region) == Some(claims.host);
        if fits && at_home && claims.allow(Duty::of(role)) { Ok(role) } else { Err(Refusal::Certificate) }
    }
}
