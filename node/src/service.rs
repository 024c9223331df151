//! What a daemon reports to the service manager that started it, by the protocol of sd_notify(3).
//!
//! The thread that does the daemon's work sends the reports itself, after a turn of its loop. So a
//! loop that hangs stops feeding the watchdog, whatever other threads of the process do. No report
//! blocks: what the manager does not take at once is sent again after a later turn.

use obol_fabric::host::clock;
use obol_fabric::{Instant, Nanos};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket of the manager: a path, or `@` and an abstract name.
const SOCKET: &str = "NOTIFY_SOCKET";
/// The manager's limit between two signs of life, in microseconds, and the process it is for.
const WATCHDOG: [&str; 2] = ["WATCHDOG_USEC", "WATCHDOG_PID"];
/// Signs of life in each limit, so that one that is late does no harm.
const SIGNS_PER_LIMIT: u64 = 4;
/// After how long a report that was not taken is sent again.
const RETRY_EVERY: Nanos = Nanos::from_millis(50);

/// The connection to the service manager, if one started this process.
#[derive(Debug, Default)]
pub struct ServiceManager(Option<Link>);

#[derive(Debug)]
struct Link {
    socket: UnixDatagram,
    /// The interval of signs of life.
    alive_every: Option<Nanos>,
    is_ready: bool,
    /// When the next report is due.
    due: Instant,
}

impl ServiceManager {
    /// None: nothing is reported.
    pub const fn none() -> Self {
        Self(None)
    }

    /// The manager that started this process, by its environment; none if it was started otherwise.
    pub fn from_environment() -> io::Result<Self> {
        let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else {
            return Ok(Self::none());
        };
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let [limit, process] = WATCHDOG.map(number);
        let is_for_us = process.is_none_or(|pid| pid == u64::from(std::process::id()));
        Self::connect(&socket, limit.filter(|_| is_for_us).map(|us| Nanos(us.saturating_mul(1_000))))
    }

    fn connect(name: &OsStr, limit: Option<Nanos>) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect_addr(&address)?;
        let alive_every = limit.map(|limit| Nanos(limit.0 / SIGNS_PER_LIMIT));
        Ok(Self(Some(Link { socket, alive_every, is_ready: false, due: Instant::ZERO })))
    }

    /// The loop has turned. `is_ready`: whether the process does its work; from its first `true` on
    /// the manager regards it as started, whatever follows.
    pub fn turned(&mut self, is_ready: impl FnOnce() -> bool) {
        if let Some(link) = &mut self.0 {
            link.turned(clock::now(), is_ready);
        }
    }

    /// The process ends, at its own decision or on request.
    pub fn stopping(&mut self) {
        if let Some(link) = &self.0 {
            // The manager learns of the end anyway.
            let _ = link.socket.send(b"STOPPING=1");
        }
    }
}

impl Link {
    fn turned(&mut self, now: Instant, is_ready: impl FnOnce() -> bool) {
        let became_ready = !self.is_ready && is_ready();
        if !became_ready && now < self.due {
            return;
        }
        let report: &[u8] = match (became_ready, self.alive_every) {
            (true, _) => b"READY=1\nWATCHDOG=1",
            (false, Some(_)) => b"WATCHDOG=1",
            (false, None) => return,
        };
        let pause = if self.socket.send(report).is_ok() {
            self.is_ready |= became_ready;
            self.alive_every.unwrap_or(RETRY_EVERY)
        } else {
            RETRY_EVERY
        };
        self.due = now + pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manager with this name, whose reads do not wait.
    fn manager(name: &str) -> (UnixDatagram, String) {
        let name = format!("obol-service-{}-{name}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("bound");
        socket.set_nonblocking(true).expect("set");
        (socket, format!("@{name}"))
    }

    fn heard(socket: &UnixDatagram) -> Vec<String> {
        let mut bytes = [0; 64];
        std::iter::from_fn(|| socket.recv(&mut bytes).ok().map(|n| bytes[..n].to_vec()))
            .map(|report| String::from_utf8(report).expect("text"))
            .collect()
    }

    fn link(name: &str, limit: Option<Nanos>) -> Link {
        let manager = ServiceManager::connect(OsStr::new(name), limit).expect("connected");
        manager.0.expect("a link")
    }

    #[test]
    fn a_process_is_reported_ready_once_and_alive_before_each_limit_has_passed() {
        let (socket, name) = manager("ready");
        let mut link = link(&name, Some(Nanos(400)));
        link.turned(Instant(1000), || false);
        assert_eq!(heard(&socket), ["WATCHDOG=1"], "it lives, and is not ready");
        link.turned(Instant(1001), || true);
        assert_eq!(heard(&socket), ["READY=1\nWATCHDOG=1"]);
        for now in 1002..1101 {
            link.turned(Instant(now), || panic!("it was ready"));
        }
        assert_eq!(heard(&socket), [""; 0]);
        link.turned(Instant(1101), || true);
        assert_eq!(heard(&socket), ["WATCHDOG=1"]);
    }

    #[test]
    fn without_a_watchdog_nothing_but_readiness_is_reported() {
        let (socket, name) = manager("unwatched");
        let mut link = link(&name, None);
        (0..10).for_each(|n| link.turned(Instant(n * 1_000_000_000), || n > 5));
        assert_eq!(heard(&socket), ["READY=1\nWATCHDOG=1"]);
    }

    #[test]
    fn a_report_that_a_busy_manager_does_not_take_is_sent_again_and_blocks_nothing() {
        let (socket, name) = manager("busy");
        let mut link = link(&name, None);
        while link.socket.send(b"full").is_ok() {}
        link.turned(Instant::ZERO, || true);
        assert!(!link.is_ready);
        assert!(heard(&socket).iter().all(|report| report == "full"));
        link.turned(Instant::ZERO + RETRY_EVERY, || true);
        assert_eq!(heard(&socket), ["READY=1\nWATCHDOG=1"]);
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error() {
        assert!(ServiceManager::connect(OsStr::new("/nowhere/notify"), None).is_err());
    }
}
