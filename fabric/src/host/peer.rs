//! The process at the other end of a Unix socket, as recorded by the kernel at the connection.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
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
    let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = stream.as_raw_fd();
    // SAFETY: `found` is valid for `len` bytes, and the descriptor is open for as long as `stream`
    // is borrowed.
    let got = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut found).cast(), &raw mut len)
    };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(found.pid).map_err(io::Error::other)?;
    Ok(Peer { pid, uid: found.uid })
}

/// The user of the calling process.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
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
