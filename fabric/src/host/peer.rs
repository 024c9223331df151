//! The process at the other end of a Unix socket, as recorded by the kernel at the connection.

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;
use std::io;
use std::os::unix::net::UnixStream;

/// The process at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its pid when it connected.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// The process that has connected to, or accepted, this socket.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    let found = getsockopt(stream, PeerCredentials)?;
    let pid = u32::try_from(found.pid()).map_err(io::Error::other)?;
    Ok(Peer { pid, uid: found.uid() })
}

/// The user of the calling process.
pub fn user() -> u32 {
    geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, other) = UnixStream::pair().expect("a pair");
        let me = Peer { pid: std::process::id(), uid: user() };
        assert_eq!((peer(&one).expect("known"), peer(&other).expect("known")), (me, me));
    }
}
