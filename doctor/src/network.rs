//! RDMA devices, multicast, and, of a file of hosts, the certificate of this host and the gateways
//! of the others.

use crate::{Finding, Subject, line_of};
use obol_fabric::Nanos;
use obol_fabric::host::multicast::send_from;
use obol_fabric_verbs::found::Found;
use obol_fabric_verbs::interfaces::interfaces;
use obol_identity::{Duty, KEY_FILE, greet, is_open_to_all};
use obol_node::keys::needed;
use obol_node::network::Fabric;
use obol_node::{Hosts, Network};
use obol_observe::{CERTIFICATE_DAYS_FEW, certificate_days, examine_keys, least_duties};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

/// A group that no cluster has, of those that stay within an organisation (RFC 2365).
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 192, 77, 255);
/// A datagram to this host arrives within this time, or not at all.
const DATAGRAM_TIMEOUT: Duration = Duration::from_millis(500);
/// A host that does not answer within this time is not reached.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Connections to each host, of which the fastest counts.
const CONNECTS: u32 = 5;
/// Ethernet's usual size of a packet.
const MTU: u64 = 1500;
/// The largest of Linux, that of the loopback interface: an IP packet has no more bytes.
const MTU_MAX: u64 = 65_536;

pub(crate) fn check(subject: &Subject<'_>) -> Vec<Finding> {
    let own = own_network(subject);
    let over_rdma = own.as_ref().is_some_and(|network| network.fabric == Fabric::Rdma);
    let found = Found::look(own.as_ref().map(|network| network.address));
    let device = found.chosen.map(|chosen| format!("{} port {}", chosen.device, chosen.port));
    let mut all = vec![rdma(device, &found.missing, over_rdma)];
    all.push(multicast(
        "multicast on this host",
        Ipv4Addr::LOCALHOST,
        loops_back(Ipv4Addr::LOCALHOST),
        "the kernel module's notices do not arrive; robust futexes and pidfds report deaths",
    ));
    if let (true, Some(IpAddr::V4(address))) = (over_rdma, own.as_ref().map(|network| network.address)) {
        all.push(multicast("multicast between hosts", address, loops_back(address), "views and notices do not arrive by multicast: deaths of other hosts are found by heartbeats alone"));
    }
    // The file of hosts does not say which of them this one is, once its address is gone.
    if let Some(network) = subject.site.and_then(|site| site.deployment.network.as_ref()) {
        all.push(own_addresses(network));
    }
    if let Some(network) = &own {
        all.extend(mtu_of(network.address));
        let least = least_duties(network);
        let named = subject.hosts.and_then(|(hosts, _)| hosts.hosts.get(usize::from(network.host) - 1));
        let duties = named.map_or_else(|| least.clone(), |host| needed(host, &least));
        all.extend(certificate(network, &duties));
    }
    let keys = own.as_ref().and_then(usable_keys);
    match subject.hosts {
        Some((hosts, file)) => all.extend(reach(hosts, file, own.as_ref(), keys)),
        None if own.is_none() => {}
        None => all.extend(own.iter().flat_map(|own| reach_known(own, Some(own.address), keys))),
    }
    all
}

/// The network of the file of hosts as this host sees it, or of the cluster that runs here.
fn own_network(subject: &Subject<'_>) -> Option<Network> {
    let Some((hosts, file)) = subject.hosts else {
        return subject.site.and_then(|site| site.deployment.network.clone());
    };
    let here = match subject.address {
        Some(address) => vec![address],
        None => interfaces().ok()?.into_iter().map(|interface| interface.address).collect(),
    };
    hosts.deployment(hosts.find(&here)?, file).ok()?.network
}

/// Of the device that would be used, and what is missing.
fn rdma(device: Option<String>, missing: &[String], needed: bool) -> Finding {
    const CHECK: &str = "RDMA";
    let missing = match (device, missing) {
        (Some(device), []) => return Finding::good(CHECK, device),
        (None, []) => "no device can be used".to_owned(),
        (_, missing) => missing.join("; "),
    };
    let remedy = "`obol fabric list` has the details; docs/deploy.md sets up a device";
    if needed {
        return Finding::problem(CHECK, missing, ("this host cannot be part of a cluster over RDMA", remedy));
    }
    Finding::note(
        CHECK,
        missing,
        (
            "clusters of several hosts work over IP only, where a READ takes 58 to 66us (docs/design/ip.md)",
            remedy,
        ),
    )
}

/// Sends this host a datagram by multicast on the interface of an address.
fn loops_back(interface: Ipv4Addr) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.join_multicast_v4(&GROUP, &interface)?;
    socket.set_multicast_loop_v4(true)?;
    socket.set_multicast_ttl_v4(0)?;
    send_from(&socket, interface)?;
    let text = format!("obol doctor {}", std::process::id());
    socket.send_to(text.as_bytes(), (GROUP, socket.local_addr()?.port()))?;
    arrives(&socket, &text)
}

/// Waits for a datagram with this text; others may come before.
fn arrives(socket: &UdpSocket, text: &str) -> io::Result<()> {
    socket.set_read_timeout(Some(DATAGRAM_TIMEOUT))?;
    let mut bytes = [0; 64];
    let end = Instant::now() + DATAGRAM_TIMEOUT;
    while Instant::now() < end {
        let n = socket.recv(&mut bytes)?;
        if bytes.get(..n) == Some(text.as_bytes()) {
            return Ok(());
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn multicast(check: &'static str, interface: Ipv4Addr, looped: io::Result<()>, cost: &str) -> Finding {
    match looped {
        Ok(()) => Finding::good(check, format_args!("a datagram to {GROUP} by {interface} has arrived")),
        Err(error) => Finding::warning(
            check,
            format_args!("a datagram to {GROUP} by {interface} did not arrive: {error}"),
            (
                cost,
                "let UDP to 239.0.0.0/8 pass the firewall; `ip route replace 239.192.77.0/24 dev ...` (docs/deploy.md) chooses the interface",
            ),
        ),
    }
}

/// Whether this host still has its addresses in the file of hosts.
fn own_addresses(network: &Network) -> Finding {
    const CHECK: &str = "addresses";
    let lost = network.lost_addresses();
    if lost.is_empty() {
        return Finding::good(CHECK, format_args!("{} is on an interface", network.address));
    }
    let listed: Vec<String> = lost.iter().map(IpAddr::to_string).collect();
    Finding::problem(
        CHECK,
        format_args!("{} of this host is on none of its interfaces", listed.join(", ")),
        (
            "other hosts cannot reach this one there, and remove its members",
            "`ip address add ADDRESS/PREFIX dev INTERFACE` gives it back; a host that is to have another address is a new host \
             in the file (docs/deploy.md)",
        ),
    )
}

/// Of the interface that has this address.
fn mtu_of(address: IpAddr) -> Option<Finding> {
    let interface = interfaces().ok()?.into_iter().find(|one| one.address == address)?.name;
    let text = line_of(Path::new("/sys/class/net").join(&interface).join("mtu"));
    Some(mtu(&interface, text.as_deref()))
}

/// Of an interface, and what its file `mtu` says.
fn mtu(interface: &str, text: Option<&str>) -> Finding {
    let Some(mtu) = text.and_then(|text| text.parse().ok()).filter(|mtu| (1..=MTU_MAX).contains(mtu)) else {
        return Finding::note(
            "MTU",
            format_args!("that of {interface} is not known: /sys/class/net/{interface}/mtu says {text:?}"),
            (
                "if it is small, datagrams and views take more packets than necessary",
                format!("`ip link show {interface}` shows it").as_str(),
            ),
        );
    };
    let found = format!("{interface} has {mtu} bytes");
    if mtu >= MTU {
        return Finding::good("MTU", found);
    }
    Finding::warning(
        "MTU",
        found,
        (
            "datagrams and views take more packets than necessary, each of which can be lost",
            format!("`ip link set {interface} mtu {MTU}`, on all hosts and switches"),
        ),
    )
}

fn certificate(network: &Network, duties: &[Duty]) -> Vec<Finding> {
    const CHECK: &str = "certificate";
    let Some(keys) = network.keys() else {
        return vec![Finding::warning(
            CHECK,
            "the file of hosts says keys = \"none\": connections and datagrams over RDMA are not authenticated",
            (
                "anyone who can send packets on this network can read memory, and forge connections and proofs of death",
                "`obol host keys` makes keys, if the file says keys = \"/etc/obol/keys\"; otherwise isolate the network (docs/security.md)",
            ),
        )];
    };
    let remedy = "`obol host keys` makes new ones; copy them to the host, nothing has to be restarted";
    let (valid_for, fault) = examine_keys(keys, network, duties);
    if let Some(fault) = fault {
        return vec![Finding::problem(
            CHECK,
            fault,
            ("this host's processes and others cannot connect", remedy),
        )];
    }
    let shown = keys.display();
    let dates = match valid_for.and_then(certificate_days) {
        Some(days) if days >= CERTIFICATE_DAYS_FEW => {
            Finding::good(CHECK, format_args!("{shown}: valid for {days} days"))
        }
        Some(days) => Finding::warning(
            CHECK,
            format_args!("{shown}: valid for {days} more days"),
            ("then no new connection to or from this host is made", remedy),
        ),
        None => Finding::problem(
            CHECK,
            format_args!("{shown}: it is not valid now"),
            ("no new connection to or from this host is made", remedy),
        ),
    };
    let key = keys.join(KEY_FILE);
    let open = is_open_to_all(&key).then(|| {
        Finding::warning(
            CHECK,
            format_args!("{}: every user of this host may read it", key.display()),
            ("anyone who reads it can be this host, from anywhere", format!("`chmod o= {}`", key.display())),
        )
    });
    [dates].into_iter().chain(open).collect()
}

/// The keys of this host, if it can use them now. What is wrong with others is a finding of its own.
fn usable_keys(network: &Network) -> Option<&Path> {
    let keys = network.keys()?;
    let (valid_for, fault) = examine_keys(keys, network, &[]);
    (valid_for.is_some() && fault.is_none()).then_some(keys)
}

/// The fastest of some connections to an address.
fn connect(at: SocketAddr) -> io::Result<Nanos> {
    let mut fastest = Nanos::MAX;
    for _ in 0..CONNECTS {
        let began = Instant::now();
        TcpStream::connect_timeout(&at, CONNECT_TIMEOUT)?;
        fastest = fastest.min(Nanos::from_std(began.elapsed()));
    }
    Ok(fastest)
}

/// Whether a gateway is reached and, with keys that this host can use, whether it runs and lets this
/// host in: the kernel accepts connections for a gateway that is frozen.
fn gateway(number: usize, at: SocketAddr, keys: Option<&Path>, beside_devices: bool) -> Finding {
    const CHECK: &str = "gateway of a host";
    let greeted = |time| match keys {
        Some(keys) => {
            greet(keys, at, CONNECT_TIMEOUT).map(|()| (time, ", and each accepts the other's certificate"))
        }
        None => Ok((time, "")),
    };
    match connect(at).and_then(greeted) {
        Ok((time, greeted)) => Finding::good(
            CHECK,
            format_args!("host {number}, {at}: connected in {time} (fastest of {CONNECTS}){greeted}"),
        ),
        Err(error) => Finding::warning(
            CHECK,
            format_args!("host {number}, {at}: {error}"),
            (
                if beside_devices {
                    "drills, halts, annotations and pulses do not reach that host from here; its members are reached by RDMA"
                } else {
                    "processes of that host cannot be reached from here; without a majority of the coordinators, no program may act"
                },
                // Hosts of `obol up --hosts` have addresses that no other host can reach.
                if at.ip().is_loopback() {
                    format!("`obol start gateway-{number}`; `kill -CONT` if it is frozen")
                } else {
                    format!(
                        "there: `systemctl status obol-gateway`; between the hosts: let TCP port {} pass the firewall",
                        at.port()
                    )
                },
            ),
        ),
    }
}

fn reach(hosts: &Hosts, file: &Path, own: Option<&Network>, keys: Option<&Path>) -> Vec<Finding> {
    let mut all = Vec::new();
    if own.is_none() {
        all.push(Finding::problem(
            "file of hosts",
            format_args!("{}: names no address of this host", file.display()),
            (
                "this host is not a part of the cluster",
                "if others reach it by an address that none of its interfaces has: `--address ADDRESS`; otherwise correct the file, on all hosts",
            ),
        ));
    }
    // Where gateways listen does not depend on the host.
    let network = hosts.deployment(0, file).ok().and_then(|deployment| deployment.network);
    all.extend(network.iter().flat_map(|network| reach_known(network, own.map(|own| own.address), keys)));
    all
}

/// The gateways of a network, but for that of the own host.
fn reach_known(network: &Network, own: Option<IpAddr>, keys: Option<&Path>) -> Vec<Finding> {
    let others = (1..).zip(network.gateways()).filter(|(_, at)| Some(at.ip()) != own);
    others.map(|(number, at)| gateway(number, at, keys, network.has_devices())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn a_datagram_that_does_not_arrive_is_not_good() {
        let of = |looped| multicast("multicast on this host", Ipv4Addr::LOCALHOST, looped, "it costs");
        assert_eq!(of(Ok(())).severity, Severity::Good);
        for error in [io::ErrorKind::TimedOut, io::ErrorKind::PermissionDenied, io::ErrorKind::WouldBlock] {
            assert_eq!(of(Err(error.into())).severity, Severity::Warning, "{error}");
        }
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = receiver.local_addr().expect("bound");
        let send = |text: &[u8]| receiver.send_to(text, at).expect("sent");
        // What another program sends to the group is not what was sent.
        send(b"obol doctor 7");
        send(b"");
        assert!(arrives(&receiver, "obol doctor 77").is_err());
        send(b"obol doctor 7");
        send(b"obol doctor 77");
        arrives(&receiver, "obol doctor 77").expect("arrived after another");
    }

    #[test]
    fn an_mtu_that_is_small_unknown_or_impossible_is_not_good() {
        let of = |text| mtu("eth0", text).severity;
        assert!(["1500", "9000", "65536"].iter().all(|text| of(Some(text)) == Severity::Good));
        assert!(["1", "576", "1499"].iter().all(|text| of(Some(text)) == Severity::Warning));
        for text in
            [None, Some("0"), Some("-1"), Some("65537"), Some("99999999999999999999"), Some("1500 1500")]
        {
            assert_eq!(of(text), Severity::Note, "{text:?}");
        }
    }

    #[test]
    fn rdma_is_good_only_with_a_device_and_nothing_missing() {
        let of = |device: Option<&str>, missing: &[&str], needed| {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            rdma(device.map(str::to_owned), &missing, needed)
        };
        let device = Some("mlx5_0 port 1");
        for needed in [true, false] {
            assert_eq!(of(device, &[], needed).severity, Severity::Good);
            for (device, missing) in
                [(None, &["no device"][..]), (None, &[]), (device, &["rdma_cm cannot be opened"])]
            {
                let found = of(device, missing, needed);
                let wanted = if needed { Severity::Problem } else { Severity::Note };
                assert!(found.severity == wanted && !found.found.is_empty(), "{found:?}");
            }
        }
    }

    #[test]
    fn an_address_that_this_host_does_not_have_is_a_problem() {
        let of = |address: [u8; 4]| own_addresses(&Network::local(1, address.into(), 7471, 1));
        assert_eq!(of([127, 0, 0, 1]).severity, Severity::Good);
        // For documentation (RFC 5737): no host has it.
        let lost = of([192, 0, 2, 1]);
        assert!(
            lost.severity == Severity::Problem && lost.found.starts_with("192.0.2.1 of this host"),
            "{lost:?}"
        );
    }

    #[test]
    fn a_gateway_is_reached_or_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("bound");
        assert_eq!(gateway(2, at, None, false).severity, Severity::Good);
        drop(listener);
        let gone = gateway(2, at, None, false);
        assert!(gone.severity == Severity::Warning && gone.found.contains(&at.to_string()), "{gone:?}");
        assert!(format!("{gone:?}").contains("obol start gateway-2"), "{gone:?}");
    }
}
