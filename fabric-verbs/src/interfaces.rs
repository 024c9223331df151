//! This host's IP addresses, and their InfiniBand ports.

use super::context::Gid;
use super::error::VerbsError;
use nix::ifaddrs::getifaddrs;
use std::net::IpAddr;

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
    let all = getifaddrs().map_err(|errno| VerbsError::failed("getifaddrs", "this host", errno as i32))?;
    let found = all.filter_map(|entry| {
        let storage = entry.address?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let address = v4.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))?;
        let name = entry.interface_name;
        let gid = std::fs::read_to_string(format!("/sys/class/net/{name}/address"))
            .ok()
            .and_then(|text| gid_in(text.trim()));
        Some(Interface { name, address, gid })
    });
    Ok(found.collect())
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
