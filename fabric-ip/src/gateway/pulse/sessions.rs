//! The sessions whose keys seal this gateway's pulses: one connection to the gateway of each other
//! host, on a thread of its own, because connecting blocks.

use super::seal::SessionKey;
use super::{Command, Pulses};
use crate::config::Config;
use crate::connect::connect;
use crate::frame::{Hello, Reply, Request};
use crate::gateway::WatchCommand;
use nix::poll::{PollFd, PollFlags};
use obol_fabric::host::Cluster;
use obol_fabric::host::poll::poll;
use obol_fabric::rights::Role;
use obol_fabric::version::Release;
use obol_identity::Stream;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::Builder;
use std::time::{Duration, Instant as Time};

/// The interval of pings, which find a connection that has ended without a word: the gateway at the
/// other end has no key any more then.
const PING_EVERY: Duration = Duration::from_millis(200);
/// The longest time for making a connection, and for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The first and the last pause before the next attempt.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What a session needs.
struct Session {
    host: u8,
    own: u8,
    config: Config,
    hello: Hello,
    /// The threads that seal.
    pulses: Pulses,
    watching: Sender<WatchCommand>,
    ended: Arc<AtomicBool>,
}

/// Starts the sessions with all other hosts. They end within a second of `ended`.
pub(in crate::gateway) fn start(
    cluster: &Cluster,
    config: &Config,
    pulses: &Pulses,
    watching: &Sender<WatchCommand>,
    ended: &Arc<AtomicBool>,
) -> io::Result<()> {
    let own = cluster.host();
    let hello = Hello {
        nonce: cluster.nonce(),
        layout: cluster.layout().digest(),
        release: Release::own(),
        region: 0,
        generation: 0,
        role: Role::Reader,
    };
    let hosts = u8::try_from(config.gateways.len()).unwrap_or(u8::MAX);
    for host in (1..=hosts).filter(|host| *host != own) {
        let (config, ended) = (config.clone(), Arc::clone(ended));
        let (pulses, watching) = (pulses.clone(), watching.clone());
        let session = Session { host, own, config, hello, pulses, watching, ended };
        Builder::new().name(format!("obol-pulse-{host}")).spawn(move || session.run())?;
    }
    Ok(())
}

impl Session {
    fn run(self) {
        let mut pause = PAUSE_MIN;
        let mut failures = 0u32;
        while !self.ended.load(Ordering::Acquire) {
            match self.establish() {
                Ok(stream) => {
                    (pause, failures) = (PAUSE_MIN, 0);
                    self.keep(stream);
                }
                Err(why) => {
                    failures = failures.saturating_add(1);
                    // A host that is down says so once, and ever less often.
                    if failures.is_power_of_two() {
                        let host = self.host;
                        tracing::warn!(
                            target: "gateway", host, failures,
                            "no pulses to host {host}: {why} (failures: {failures})"
                        );
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
            self.sleep(pause);
        }
    }

    fn sleep(&self, span: Duration) {
        let until = Time::now() + span;
        while !self.ended.load(Ordering::Acquire) {
            let left = until.saturating_duration_since(Time::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(PING_EVERY));
        }
    }

    /// Connects, and has the other gateway expect pulses.
    fn establish(&self) -> Result<Stream, String> {
        let to = self.config.gateway(self.host).ok_or("it is not in the file of hosts")?;
        let from = self.config.gateway(self.own).map(|gateway| gateway.ip());
        let mut stream = connect(from, to, self.host, &self.config.identity, &self.hello, ANSWER_TIMEOUT)
            .map_err(|error| error.to_string())?;
        match ask(&mut stream, &Request::Pulse) {
            Some(Answer::Done) => {}
            Some(Answer::Refused) => return Err("its gateway takes none; compare the profiles".to_owned()),
            None => return Err("its gateway does not know pulses, or does not answer".to_owned()),
        }
        let key = SessionKey::of(&stream).ok_or("the connection has no key to export")?;
        let key = Arc::new(key);
        self.pulses.send(Command::SealFor(self.host, Arc::clone(&key)));
        // It ends with the gateway, and takes this in its next turn.
        let _ = self.watching.send(WatchCommand::SealFor(self.host, key));
        Ok(stream)
    }

    /// Returns when the connection has ended.
    fn keep(&self, mut stream: Stream) {
        while !self.ended.load(Ordering::Acquire) {
            std::thread::sleep(PING_EVERY);
            if ask(&mut stream, &Request::Ping).is_none() {
                return;
            }
        }
    }
}

enum Answer {
    Done,
    Refused,
}

/// Sends a request and waits for its answer. `None` if there is none.
fn ask(stream: &mut Stream, request: &Request<'_>) -> Option<Answer> {
    request.encode(&mut stream.output);
    let until = Time::now() + ANSWER_TIMEOUT;
    loop {
        stream.send().ok()?;
        while let Some(message) = stream.next_message().ok()? {
            match Reply::decode(message)? {
                Reply::Written | Reply::Pong { .. } => return Some(Answer::Done),
                Reply::Failed(_) => return Some(Answer::Refused),
                _ => {}
            }
        }
        let left = until.saturating_duration_since(Time::now());
        if left.is_zero() {
            return None;
        }
        // An error is an early return.
        let _ = poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], Some(left));
        stream.receive().ok()?;
    }
}
