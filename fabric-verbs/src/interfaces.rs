//! This host's IP addresses, and their InfiniBand ports.
#![allow(unsafe_code)]

use super::context::Gid;
use super::error::VerbsError;
use core::ffi::CStr;
use core::ptr::null_mut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub address: IpAddr,
    /// The underlying port, for an interface over InfiniBand.
    pub gid: Option<Gid>,
}

/// All addresses of this host.
pub fn interfaces() -> Result<Vec<Interface>, VerbsError> {
    let mut first = null_mut();
    // SAFETY: `first` is valid for a write.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(VerbsError::last("getifaddrs", "this host"));
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the list is the C library's and lives until it is freed; an address is as long as its
    // family says.
    unsafe {
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            let address = match entry.ifa_addr.as_ref().map(|address| i32::from(address.sa_family)) {
                Some(libc::AF_INET) => {
                    let raw = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::V4(Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()))
                }
                Some(libc::AF_INET6) => {
                    let raw = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    IpAddr::V6(Ipv6Addr::from(raw.sin6_addr.s6_addr))
                }
                _ => continue,
            };
            let name = CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
            let gid = std::fs::read_to_string(format!("/sys/class/net/{name}/address"))
                .ok()
                .and_then(|text| gid_in(text.trim()));
            found.push(Interface { name, address, gid });
        }
        libc::freeifaddrs(first);
    }
    Ok(found)
}

/// A hardware address of IP over InfiniBand has 20 bytes: flags, a queue pair number, and the
/// port's GID (RFC 4391, section 9.1.1).
fn gid_in(hardware: &str) -> Option<Gid> {
    let bytes: Vec<u8> =
        hardware.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    let [_, _, _, _, gid @ ..] = <[u8; 20]>::try_from(bytes).ok()?;
    Some(Gid(gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_loopback_address() {
        let found = interfaces().expect("they can be read");
        assert!(
            found.iter().any(|i| i.name == "lo" && i.address.is_loopback() && i.gid.is_none()),
            "{found:?}"
        );
    }

    #[test]
    fn the_port_is_in_the_hardware_address_of_ip_over_infiniband() {
        let text = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:01:02:03";
        assert_eq!(gid_in(text).map(|gid| gid.to_string()), Some("fe80::2:c903:1:203".to_owned()));
        assert_eq!(gid_in("52:54:00:0b:01:01"), None);
        assert_eq!(gid_in(""), None);
    }
}
