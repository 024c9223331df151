//! Connects to a gateway. Connecting blocks, so a thread of its own does it.

use super::frame::{Hello, Refusal, Reply};
use super::identity::{Claims, Duty, Identity, IdentityError};
use super::stream::{Stream, StreamError};
use crate::host::clock;
use crate::types::Instant;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant as Time};

/// Why there is no connection to a gateway.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{0}")]
    Identity(#[from] IdentityError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    #[error("{0}")]
    Stream(#[from] StreamError),
    #[error("no reply within {0:?}")]
    Silent(Duration),
    #[error("the certificate at the other end is not that of the gateway of host {0}")]
    Stranger(u8),
    #[error("another service listens there")]
    Foreign,
    #[error("{0}")]
    Refused(Refusal),
}

/// Makes a connection from the own host's address, by which firewalls and faults of the network know
/// the host.
fn reach(from: Option<IpAddr>, to: SocketAddr, patience: Duration) -> Result<TcpStream, ConnectError> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None).map_err(io::Error::from)?;
    if let Some(from) = from {
        net::bind(&socket, &SocketAddr::new(from, 0)).map_err(io::Error::from)?;
    }
    match net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let span = Timespec::try_from(patience).ok();
            // An interrupted wait ends as one without a connection: the attempt is repeated.
            let _ = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], span.as_ref());
            net::sockopt::socket_error(&socket).map_err(io::Error::from)?.map_err(io::Error::from)?;
            if net::getpeername(&socket).is_err() {
                return Err(ConnectError::Silent(patience));
            }
        }
        Err(error) => return Err(io::Error::from(error).into()),
    }
    Ok(TcpStream::from(socket))
}

/// Connects to the gateway of a host, and introduces the process.
pub(super) fn connect(
    from: Option<IpAddr>,
    to: SocketAddr,
    host: u8,
    identity: &Path,
    hello: &Hello,
    patience: Duration,
) -> Result<Stream, ConnectError> {
    let until = Time::now() + patience;
    let config = Identity::load(identity)?.client()?;
    let socket = reach(from, to, patience)?;
    let tls = ClientConnection::new(config, ServerName::IpAddress(to.ip().into()))?;
    let mut stream = Stream::new(socket, tls.into())?;
    let mut introduced = false;
    loop {
        stream.send()?;
        if !introduced && let Some(certificate) = stream.peer() {
            let claims = Claims::of(certificate, hello.nonce);
            if !claims.is_some_and(|claims| claims.host == host && claims.allow(Duty::Gateway)) {
                return Err(ConnectError::Stranger(host));
            }
            introduced = true;
            hello.encode(&mut stream.output);
            continue;
        }
        if let Some(message) = stream.next()? {
            return match Reply::decode(message) {
                Some(Reply::Welcome { .. }) => Ok(stream),
                Some(Reply::Refused(refusal)) => Err(ConnectError::Refused(refusal)),
                _ => Err(ConnectError::Foreign),
            };
        }
        let left = until.saturating_duration_since(Time::now());
        if left.is_zero() {
            return Err(ConnectError::Silent(patience));
        }
        let span = Timespec::try_from(left).ok();
        // An error is an early return.
        let _ = poll(&mut [PollFd::new(&stream, PollFlags::IN)], span.as_ref());
        stream.receive()?;
    }
}

/// A finished attempt.
pub(super) struct Attempt {
    pub(super) host: u8,
    pub(super) number: u64,
    pub(super) result: Result<Box<Stream>, ConnectError>,
    pub(super) ended: Instant,
}

impl Attempt {
    pub(super) fn new(host: u8, number: u64, result: Result<Stream, ConnectError>) -> Self {
        Self { host, number, result: result.map(Box::new), ended: clock::now() }
    }
}
