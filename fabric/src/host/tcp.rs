//! Timeouts of TCP connections.
#![allow(unsafe_code)]

use crate::types::Nanos;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// From linux/tcp.h; libc does not have it yet.
const TCP_RTO_MIN_US: libc::c_int = 45;

fn set(socket: &TcpStream, option: libc::c_int, value: libc::c_int) -> bool {
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `value` is valid for reads of as many bytes as the call names, and outlives it.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, option, (&raw const value).cast(), bytes)
    };
    done == 0
}

/// Makes the kernel repeat a lost last packet of the stream after `rto_min` at the earliest, instead of
/// 200 ms, and acknowledge sooner than that: as of Linux 6.15, for at least two ticks of its timers. Any
/// kernel repeats at equal intervals then, instead of doubled ones.
pub fn repeat_early(socket: &TcpStream, rto_min: Nanos) {
    // Both only shorten times: the connection works without them as well.
    let us = libc::c_int::try_from(rto_min.0 / 1000).unwrap_or(libc::c_int::MAX);
    let _ = set(socket, TCP_RTO_MIN_US, us);
    let _ = set(socket, libc::TCP_THIN_LINEAR_TIMEOUTS, 1);
}
