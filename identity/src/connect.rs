//! Connects to a process of another host, and introduces the own one. This blocks.

use super::stream::{Stream, StreamError};
use super::{Claims, Identity, IdentityError};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, getpeername, getsockopt, socket,
};
use obol_fabric::host::poll::poll;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::{Duration, Instant as Time};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The own keys cannot be used.
    #[error("{0}")]
    Identity(#[from] IdentityError),
    /// There is no way to the peer.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The handshake has failed.
    #[error("{0}")]
    Tls(#[from] rustls::Error),
    /// The connection has ended during the handshake.
    #[error("{0}")]
    Stream(#[from] StreamError),
    /// The peer does not answer.
    #[error("no reply within {0:?}")]
    Silent(Duration),
    /// It is another process, or one of another host.
    #[error("the certificate at the other end is not that of {0} of host {1}")]
    Stranger(&'static str, u8),
}

/// Makes a connection from the own host's address, by which firewalls and faults of the network know
/// the host.
fn reach(from: Option<IpAddr>, to: SocketAddr, patience: Duration) -> Result<TcpStream, ConnectError> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Stream, flags, None).map_err(io::Error::from)?;
    let fd = socket.as_raw_fd();
    if let Some(from) = from {
        bind(fd, &SockaddrStorage::from(SocketAddr::new(from, 0))).map_err(io::Error::from)?;
    }
    match connect(fd, &SockaddrStorage::from(to)) {
        Ok(()) => {}
        Err(Errno::EINPROGRESS) => {
            // An interrupted wait ends as one without a connection: the attempt is repeated.
            let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)], Some(patience));
            match getsockopt(&socket, SocketError).map_err(io::Error::from)? {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error).into()),
            }
            if getpeername::<SockaddrStorage>(fd).is_err() {
                return Err(ConnectError::Silent(patience));
            }
        }
        Err(error) => return Err(io::Error::from(error).into()),
    }
    Ok(TcpStream::from(socket))
}

/// Where to connect, and how.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    pub from: Option<IpAddr>,
    /// Where the peer listens.
    pub to: SocketAddr,
    /// The kind of process that has to be there, and its host.
    pub who: &'static str,
    /// The number of that host.
    pub host: u8,
    /// The cluster's identity.
    pub nonce: u64,
    /// The directory of the own host's keys.
    pub identity: &'a Path,
    /// How long all of it may take.
    pub patience: Duration,
    /// The longest message that is accepted.
    pub message_bytes_max: usize,
}

/// Connects, sends an encoded message once the certificate at the other end is that of the host and
/// fits (`may_serve`), and returns the first answer.
pub fn introduce(
    route: &Route<'_>,
    may_serve: impl Fn(&Claims) -> bool,
    message: &[u8],
) -> Result<(Stream, Vec<u8>), ConnectError> {
    let patience = route.patience;
    let until = Time::now() + patience;
    // First: where nothing listens, keys are not needed.
    let socket = reach(route.from, route.to, patience)?;
    let config = Identity::load(route.identity)?.client()?;
    let tls = ClientConnection::new(config, ServerName::IpAddress(route.to.ip().into()))?;
    let mut stream = Stream::new(socket, tls.into(), route.message_bytes_max)?;
    let mut introduced = false;
    loop {
        stream.send()?;
        if !introduced && let Some(certificate) = stream.peer() {
            let claims = Claims::of(certificate, route.nonce);
            if !claims.is_some_and(|claims| claims.host == route.host && may_serve(&claims)) {
                return Err(ConnectError::Stranger(route.who, route.host));
            }
            introduced = true;
            stream.output.extend_from_slice(message);
            continue;
        }
        if let Some(answer) = stream.next_message()?.map(<[u8]>::to_vec) {
            return Ok((stream, answer));
        }
        let left = until.saturating_duration_since(Time::now());
        if left.is_zero() {
            return Err(ConnectError::Silent(patience));
        }
        // An error is an early return.
        let _ = poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], Some(left));
        stream.receive()?;
    }
}
