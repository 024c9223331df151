//! Faults of the network between hosts, for a cluster over IP: a host loses packets that it exchanges
//! with others, by filters of the classic packet filter at the interfaces, set by `tc` of iproute2.
//! Only the connections of gateways are affected, so an operator's ssh is not.

use super::Armed;
use crate::drills::channel::Injection;
use crate::drills::undo::{Record, Undone};
use obol_node::{Deployment, Network};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, Command, Output, Stdio};

/// The order's name.
pub const ORDER: &str = "filter";
/// All of a thousand.
pub(super) const ALL: u32 = 1000;
/// The preference of the filters of host 0; the others' are above.
const PREFERENCE: u32 = 0x0B01;
const CAP_NET_ADMIN: u32 = 12;
/// How `tc` shows the handle of each.
const HANDLE: &str = "handle 0x1 ";
/// Where filters are: packets that leave the host, and that reach it.
const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];

/// Why such faults are not possible in a cluster, or on this host.
pub(super) fn refusal(deployment: &Deployment) -> Option<&'static str> {
    let network = deployment.network.as_ref().filter(|n| n.hosts.len() > 1 && deployment.has_gateways());
    let Some(network) = network else {
        return Some("layer = \"host\" is between the hosts of a cluster over IP, and this is none");
    };
    if !network.hosts.iter().all(IpAddr::is_ipv4) {
        return Some("layer = \"host\" filters IPv4, and a host has another address");
    }
    // Where one supervisor has started all hosts, they are this machine.
    (network.state.is_none() && !may_filter()).then_some(NO_PRIVILEGE)
}

const NO_PRIVILEGE: &str = "packet filters need CAP_NET_ADMIN (root), which the fault agent does not have";

/// Whether this process may change packet filters.
fn may_filter() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << CAP_NET_ADMIN != 0)
}

/// An order: so many of a thousand packets are lost. The runner adds the peers.
pub(super) fn order(lost: u32) -> Injection {
    Injection::new(ORDER).with("lost", &lost)
}

/// Whether an order cuts its host off.
pub(super) fn cuts_off(order: &Injection) -> bool {
    order.get::<u32>("lost").is_ok_and(|lost| lost >= ALL)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Egress,
    Ingress,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }
}

/// Filters of a fault at one interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filters {
    /// The interface.
    interface: String,
    /// Their preference, which nothing else has.
    preference: u32,
    /// Whether the interface had no filters before, so that the hook for them goes as well.
    hooked: bool,
}

/// An instruction of the classic packet filter. Jumps go to labels.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Code and operand.
    Plain(u32, u32),
    /// Code, operand, and the distances if it holds or not.
    Test(u32, u32, Goal, Goal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Next,
    Ports,
    Share,
    Pass,
}

/// Offsets from the head of the network layer, and ancillary values.
const NETWORK: u32 = 0xfff0_0000;
const PROTOCOL: u32 = 0xffff_f000;
const RANDOM: u32 = 0xffff_f000 + 56;
const LOAD_WORD: u32 = 0x20;
const LOAD_HALF: u32 = 0x28;
const LOAD_BYTE: u32 = 0x30;
const LOAD_HALF_INDEXED: u32 = 0x48;
const LOAD_HEADER_LENGTH: u32 = 0xb1;
const EQUALS: u32 = 0x15;
const AT_LEAST: u32 = 0x35;
const RETURN: u32 = 0x06;
const ETHERTYPE_IP: u32 = 0x0800;
const TCP: u32 = 6;
/// Results for `tc`: drops the packet, or asks the next filter.
const SHOT: u32 = 2;
const UNSPECIFIED: u32 = u32::MAX;

/// The program that drops packets of gateways' connections between a host and its peers.
fn program(direction: Direction, host: Ipv4Addr, peers: &[Ipv4Addr], port: u16, lost: u32) -> String {
    let (source, destination) = (NETWORK + 12, NETWORK + 16);
    let (own, other) = match direction {
        Direction::Egress => (source, destination),
        Direction::Ingress => (destination, source),
    };
    let (port, host) = (u32::from(port), host.to_bits());
    let mut steps = vec![
        Step::Plain(LOAD_HALF, PROTOCOL),
        Step::Test(EQUALS, ETHERTYPE_IP, Goal::Next, Goal::Pass),
        Step::Plain(LOAD_BYTE, NETWORK + 9),
        Step::Test(EQUALS, TCP, Goal::Next, Goal::Pass),
        Step::Plain(LOAD_WORD, own),
        Step::Test(EQUALS, host, Goal::Next, Goal::Pass),
        Step::Plain(LOAD_WORD, other),
    ];
    let last = peers.len().saturating_sub(1);
    steps.extend(peers.iter().enumerate().map(|(at, peer)| {
        Step::Test(EQUALS, peer.to_bits(), Goal::Ports, if at == last { Goal::Pass } else { Goal::Next })
    }));
    let ports = steps.len();
    steps.extend([
        Step::Plain(LOAD_HEADER_LENGTH, NETWORK),
        Step::Plain(LOAD_HALF_INDEXED, NETWORK),
        Step::Test(EQUALS, port, Goal::Share, Goal::Next),
        Step::Plain(LOAD_HALF_INDEXED, NETWORK + 2),
        Step::Test(EQUALS, port, Goal::Share, Goal::Pass),
    ]);
    let share = steps.len();
    if lost < ALL {
        let below = u64::from(lost) * (1 << 32) / u64::from(ALL);
        steps.push(Step::Plain(LOAD_WORD, RANDOM));
        steps.push(Step::Test(AT_LEAST, below as u32, Goal::Pass, Goal::Next));
    }
    let drop = steps.len();
    steps.extend([Step::Plain(RETURN, SHOT), Step::Plain(RETURN, UNSPECIFIED)]);
    let distance = |at: usize, goal: Goal| match goal {
        Goal::Next => 0,
        Goal::Ports => ports - at - 1,
        Goal::Share => share - at - 1,
        Goal::Pass => drop - at,
    };
    let lines = steps.iter().enumerate().map(|(at, step)| match *step {
        Step::Plain(code, operand) => format!("{code} 0 0 {operand}"),
        Step::Test(code, operand, yes, no) => {
            format!("{code} {} {} {operand}", distance(at, yes), distance(at, no))
        }
    });
    let lines: Vec<String> = lines.collect();
    format!("{},{}", lines.len(), lines.join(","))
}

fn run(program: &str, arguments: &str) -> Result<Output, String> {
    let ran = Command::new(program).args(arguments.split(' ')).stdin(Stdio::null()).output();
    ran.map_err(|error| format!("{program} (package iproute2) cannot be run: {error}"))
}

/// What a command prints.
fn shown(program: &str, arguments: &str) -> Result<String, String> {
    let ran = run(program, arguments)?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    Err(format!("`{program} {arguments}` failed: {}", String::from_utf8_lossy(&ran.stderr).trim()))
}

/// The interface by which a host reaches a peer.
fn interface(own: IpAddr, peer: IpAddr) -> Result<String, String> {
    let route = shown("ip", &format!("route get {peer} from {own}"))?;
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev").skip(1);
    words.next().map(str::to_owned).ok_or_else(|| format!("no route from {own} to {peer}"))
}

impl Filters {
    fn show(&self, direction: Direction) -> String {
        let (interface, direction) = (&self.interface, direction.name());
        format!("filter show dev {interface} {direction} pref {}", self.preference)
    }

    fn are_there(&self) -> bool {
        DIRECTIONS
            .iter()
            .any(|direction| shown("tc", &self.show(*direction)).is_ok_and(|all| !all.is_empty()))
    }

    /// The commands that set them.
    fn commands(&self, host: Ipv4Addr, peers: &[Ipv4Addr], port: u16, lost: u32) -> String {
        let Self { interface, preference, .. } = self;
        let mut commands = format!("qdisc add dev {interface} clsact\n");
        for direction in DIRECTIONS {
            let (bytecode, direction) = (program(direction, host, peers, port, lost), direction.name());
            commands += &format!(
                "filter add dev {interface} {direction} pref {preference} handle 1 bpf da bytecode \"{bytecode}\"\n"
            );
        }
        for direction in DIRECTIONS {
            commands += &format!("{}\n", self.show(direction));
        }
        commands
    }

    /// Removes them. Idempotent.
    fn remove(&self) -> Result<(), String> {
        let Self { interface, preference, hooked } = self;
        for direction in DIRECTIONS {
            if !shown("tc", &self.show(direction))?.is_empty() {
                shown("tc", &format!("filter del dev {interface} {} pref {preference}", direction.name()))?;
            }
        }
        let is_used = || {
            DIRECTIONS.iter().any(|direction| {
                let all = shown("tc", &format!("filter show dev {interface} {}", direction.name()));
                all.is_ok_and(|all| !all.is_empty())
            })
        };
        if *hooked && is_hooked(interface) && !is_used() {
            shown("tc", &format!("qdisc del dev {interface} clsact"))?;
        }
        Ok(())
    }
}

/// Whether an interface has the hook for filters.
fn is_hooked(interface: &str) -> bool {
    shown("tc", &format!("qdisc show dev {interface} clsact")).is_ok_and(|all| !all.is_empty())
}

/// Prepares an order.
pub(super) fn arm(
    order: &Injection,
    deployment: &Deployment,
    record: &mut Record,
) -> Result<Box<dyn Armed>, String> {
    if let Some(reason) = refusal(deployment) {
        return Err(reason.to_owned());
    }
    if !may_filter() {
        return Err(NO_PRIVILEGE.to_owned());
    }
    let (lost, peers): (u32, Vec<Ipv4Addr>) = (order.get("lost")?, order.get("peers")?);
    let Some(Network { address: IpAddr::V4(own), host, hosts, coordinators, .. }) = &deployment.network
    else {
        return Err("a host without an IPv4 address".to_owned());
    };
    let strangers = peers.iter().any(|peer| peer == own || !hosts.contains(&IpAddr::V4(*peer)));
    let port = coordinators.first().map(std::net::SocketAddr::port);
    let Some(port) = port.filter(|_| !peers.is_empty() && !strangers && lost <= ALL) else {
        return Err("the packets that should be lost are not between hosts of this cluster".to_owned());
    };
    let interfaces: Result<BTreeSet<String>, String> =
        peers.iter().map(|peer| interface((*own).into(), (*peer).into())).collect();
    let mut all = Vec::new();
    let mut commands = String::new();
    for interface in interfaces? {
        let hooked = !is_hooked(&interface);
        let filters = Filters { interface, preference: PREFERENCE + u32::from(*host), hooked };
        if filters.are_there() {
            return Err(format!("the filters of an earlier fault are still at {}", filters.interface));
        }
        commands += &filters.commands(*own, &peers, port, lost);
        all.push(filters);
    }
    // Waits for its commands: starting it takes longer than carrying them out. It continues after an
    // error, because the hook may be there.
    let tc = Command::new("tc")
        .args(["-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("tc (package iproute2) cannot be run: {error}"))?;
    record.filters.extend(all.iter().cloned());
    Ok(Box::new(ArmedFilters { all, commands, tc: Some(tc) }))
}

struct ArmedFilters {
    all: Vec<Filters>,
    commands: String,
    tc: Option<Child>,
}

impl Armed for ArmedFilters {
    fn inject(&mut self) -> io::Result<()> {
        let Some(mut tc) = self.tc.take() else { return Ok(()) };
        if let Some(mut commands) = tc.stdin.take() {
            commands.write_all(self.commands.as_bytes())?;
        }
        let done = tc.wait_with_output()?;
        let set = String::from_utf8_lossy(&done.stdout);
        // Only those of the preference were shown, and of each direction.
        if set.matches(HANDLE).count() == self.all.len() * DIRECTIONS.len() {
            return Ok(());
        }
        Err(io::Error::other(format!("tc: {}", String::from_utf8_lossy(&done.stderr).trim())))
    }

    fn is_undone(&self, _injected: bool) -> bool {
        // One direction may have been set.
        true
    }

    fn undo(&mut self) -> Result<(), String> {
        self.all.iter().try_for_each(Filters::remove)
    }
}

impl Drop for ArmedFilters {
    fn drop(&mut self) {
        if let Some(mut tc) = self.tc.take() {
            // Without commands it ends by itself as well.
            let _ = tc.kill();
            let _ = tc.wait();
        }
    }
}

/// Removes what a fault agent left behind.
pub(super) fn recover(record: &Record, undone: &mut Undone) {
    for filters in &record.filters {
        let interface = &filters.interface;
        let were_there = filters.are_there();
        match filters.remove() {
            Ok(()) if were_there => {
                undone.done.push(format!("the packet filters at {interface} were removed"));
            }
            Ok(()) => {}
            Err(error) => undone.failed.push(format!("the packet filters at {interface} remain: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a packet has that a program looks at.
    #[derive(Clone, Copy)]
    struct Packet {
        source: [u8; 4],
        destination: [u8; 4],
        protocol: u32,
        ports: [u32; 2],
        random: u32,
    }

    /// Runs a program as the kernel does. Whether it drops the packet.
    fn drops(text: &str, packet: Packet) -> bool {
        let (count, rest) = text.split_once(',').expect("a count");
        let steps: Vec<[u32; 4]> = rest
            .split(',')
            .map(|line| {
                let words: Vec<u32> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
                words.try_into().expect("four numbers")
            })
            .collect();
        assert_eq!(count.parse(), Ok(steps.len()));
        let word = |address: [u8; 4]| u32::from_be_bytes(address);
        let (mut at, mut value, mut index) = (0, 0, 0);
        loop {
            let [code, yes, no, operand] = steps[at];
            at += 1;
            match (code, operand) {
                (LOAD_HALF, PROTOCOL) => value = ETHERTYPE_IP,
                (LOAD_WORD, RANDOM) => value = packet.random,
                (LOAD_BYTE, _) => value = packet.protocol,
                (LOAD_WORD, at) if at == NETWORK + 12 => value = word(packet.source),
                (LOAD_WORD, at) if at == NETWORK + 16 => value = word(packet.destination),
                (LOAD_HEADER_LENGTH, NETWORK) => index = 20,
                (LOAD_HALF_INDEXED, at) => value = packet.ports[((at - NETWORK) / 2) as usize],
                (EQUALS, _) => at += if value == operand { yes } else { no } as usize,
                (AT_LEAST, _) => at += if value >= operand { yes } else { no } as usize,
                (RETURN, result) => {
                    assert!(index == 20 || result == UNSPECIFIED, "ports were compared");
                    return result == SHOT;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn connections_of_gateways_between_a_host_and_its_peers_are_cut_and_nothing_else() {
        let (host, peers) = (Ipv4Addr::new(10, 0, 0, 3), [1, 2].map(|n| Ipv4Addr::new(10, 0, 0, n)));
        let of = |from: u8, to: u8, protocol, ports| Packet {
            source: [10, 0, 0, from],
            destination: [10, 0, 0, to],
            protocol,
            ports,
            random: 0,
        };
        let [egress, ingress] = DIRECTIONS.map(|direction| program(direction, host, &peers, 7471, ALL));
        let cut = |packet: Packet| [drops(&egress, packet), drops(&ingress, packet)];
        for peer in [1, 2] {
            for ports in [[7471, 40_000], [40_000, 7471]] {
                assert_eq!(cut(of(3, peer, TCP, ports)), [true, false]);
                assert_eq!(cut(of(peer, 3, TCP, ports)), [false, true]);
            }
            assert_eq!(cut(of(3, peer, TCP, [22, 40_000])), [false, false], "ssh");
            assert_eq!(cut(of(3, peer, 17, [7471, 7471])), [false, false], "UDP");
        }
        for (from, to) in [(1, 2), (3, 4), (4, 3), (3, 3)] {
            assert_eq!(cut(of(from, to, TCP, [7471, 7471])), [false, false], "{from} to {to}");
        }
    }

    #[test]
    fn a_share_of_the_packets_is_lost_at_random() {
        let (host, peer) = (Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 1));
        let program = program(Direction::Egress, host, &[peer], 7471, 250);
        let packet = |random| Packet {
            source: host.octets(),
            destination: peer.octets(),
            protocol: TCP,
            ports: [7471, 1],
            random,
        };
        for (random, lost) in [(0, true), ((1 << 30) - 1, true), (1 << 30, false), (u32::MAX, false)] {
            assert_eq!(drops(&program, packet(random)), lost, "{random}");
        }
    }
}
