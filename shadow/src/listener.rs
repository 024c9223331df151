//! The process of this host that listens at an address, by the kernel's tables of sockets.

use obol_fabric::host::is_here;
use obol_fabric::host::{Held, Process};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a socket that listens.
const LISTENS: &str = "0A";
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

/// The process that listens there, if it is one of this host whose program has `name` in its name, and
/// may be looked at.
pub(crate) fn held(at: SocketAddr, name: &str) -> Option<(u32, Held)> {
    if !is_here(at.ip()) {
        return None;
    }
    let tables = TABLES.iter().filter_map(|table| fs::read_to_string(table).ok());
    let inodes: Vec<u64> = tables.flat_map(|table| inodes(&table, at)).collect();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| {
        let is_meant = fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.contains(name));
        is_meant && has_any(*pid, &inodes)
    })?;
    let held = Process::of(pid).ok()?.hold().ok()?;
    // Its number may have been given to another process just now.
    has_any(pid, &inodes).then_some((pid, held))
}

/// Whether a process has one of these sockets.
fn has_any(pid: u32, inodes: &[u64]) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
    let mut sockets = open.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    sockets.any(|inode: u64| inodes.contains(&inode))
}

/// The sockets of a table that listen at an address, or at all addresses with its port.
fn inodes(table: &str, at: SocketAddr) -> Vec<u64> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, state, _, _, _, _, _, inode, ..] = words[..] else { return None };
        let (ip, port) = local.split_once(':')?;
        let ip = address(ip)?;
        let is_meant = u16::from_str_radix(port, 16).ok()? == at.port()
            && (ip == at.ip().to_canonical() || ip.is_unspecified());
        (state == LISTENS && is_meant).then(|| inode.parse().ok()).flatten()
    };
    table.lines().filter_map(line).collect()
}

/// An address as in these tables: words of 32 bits in the byte order of the machine.
fn address(hex: &str) -> Option<IpAddr> {
    if !hex.is_ascii() || ![8, 32].contains(&hex.len()) {
        return None;
    }
    let mut bytes = Vec::with_capacity(16);
    for at in (0..hex.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(hex.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) => Some(Ipv4Addr::from(four).into()),
        Err(_) => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_listener_is_found_by_its_address_and_by_the_name_of_its_program() {
        let comm = fs::read_to_string("/proc/self/comm").expect("it runs");
        let comm = comm.trim();
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let listener = TcpListener::bind(at).expect("a port");
            let port = listener.local_addr().expect("bound").port();
            let at = SocketAddr::from(([127, 0, 0, 1], port));
            assert_eq!(held(at, comm).map(|(pid, _)| pid), Some(std::process::id()), "{at}");
            assert!(held(at, "another program").is_none());
            drop(listener);
            assert!(held(at, comm).is_none(), "nothing listens there");
        }
        assert!(held(SocketAddr::from(([192, 0, 2, 1], 80)), comm).is_none(), "another host");
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn addresses_are_read_as_the_kernel_prints_them() {
        assert_eq!(address("0100007F"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address("0000000000000000FFFF00000100007F"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(address("00000000000000000000000001000000"), Some(Ipv6Addr::LOCALHOST.into()));
        for wrong in ["", "0100007", "0100007G", "ü1000007"] {
            assert_eq!(address(wrong), None, "{wrong}");
        }
        let table = "  sl  local_address rem_address   st\n   \
                     0: 0100007F:094B 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711 1\n   \
                     1: 0100007F:094B 00000000:0000 01 00000000:00000000 00:00000000 00000000 0 0 4712 1\n";
        assert_eq!(inodes(table, SocketAddr::from(([127, 0, 0, 1], 0x094B))), [4711]);
        assert!(inodes(table, SocketAddr::from(([127, 0, 0, 2], 0x094B))).is_empty());
    }
}
