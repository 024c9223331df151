//! Options of sockets for multicast that neither nix nor the standard library has.

use libc::{in_addr, ip_mreqn};
use nix::net::if_::if_nametoindex;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;

sockopt_impl!(ReceiveAllJoined, SetOnly, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, bool);
sockopt_impl!(Join, SetOnly, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, ip_mreqn);
sockopt_impl!(SendFrom, SetOnly, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, ip_mreqn);

/// Has the socket receive a group on an interface, and no other: otherwise it receives every group that
/// any socket of the host has joined.
pub(crate) fn join_only(socket: &impl AsFd, group: Ipv4Addr, interface: &str) -> io::Result<()> {
    setsockopt(socket, ReceiveAllJoined, &false)?;
    Ok(setsockopt(socket, Join, &request(group, Ipv4Addr::UNSPECIFIED, index(interface)?))?)
}

/// Has what the socket sends to groups leave by an interface.
#[cfg(test)]
pub(crate) fn send_by(socket: &UdpSocket, interface: &str) -> io::Result<()> {
    let any = Ipv4Addr::UNSPECIFIED;
    Ok(setsockopt(socket, SendFrom, &request(any, any, index(interface)?))?)
}

/// Has what the socket sends to groups leave by the interface with this address.
pub fn send_from(socket: &UdpSocket, address: Ipv4Addr) -> io::Result<()> {
    Ok(setsockopt(socket, SendFrom, &request(Ipv4Addr::UNSPECIFIED, address, 0))?)
}

fn index(interface: &str) -> nix::Result<i32> {
    if_nametoindex(interface).map(u32::cast_signed)
}

fn request(group: Ipv4Addr, address: Ipv4Addr, interface: i32) -> ip_mreqn {
    let raw = |address: Ipv4Addr| in_addr { s_addr: u32::from_ne_bytes(address.octets()) };
    ip_mreqn { imr_multiaddr: raw(group), imr_address: raw(address), imr_ifindex: interface }
}
