//! Faults of the network between hosts: packets that a host exchanges with others are lost or late, by
//! filters of the classic packet filter at the interfaces, set by `tc` of iproute2. Only the connections
//! and pulses of gateways are affected, on all paths, and what an RDMA device in software sends, so an
//! operator's ssh is not.

use super::fault::Armed;
use super::host_delay::{self, Device};
use super::iproute2::{Waiting, shown};
use super::order::{Direction, Injection};
use super::record::{Filters, Record, Undone};
use obol_fabric::Nanos;
use obol_node::{Deployment, Network};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::{fs, io};

/// The names of the orders: to lose packets, to delay them, and to lose them in bursts.
pub(crate) const LOSE: &str = "filter";
pub(crate) const DELAY: &str = "delay";
pub(crate) const BURST: &str = "burst";
/// All of a thousand.
pub(crate) const ALL: u32 = 1000;
/// The preference of the filters of host 0 that lose packets; the others' are above.
const PREFERENCE: u32 = 0x0B01;
/// By how much that of filters that delay packets is above, and of those that lose them in bursts: what is
/// lost is not delayed.
const DELAYS: u32 = 0x100;
const BURSTS: u32 = 0x200;
const CAP_NET_ADMIN: u32 = 12;
/// How `tc` shows the handle of each.
const HANDLE: &str = "handle 0x1 ";
/// Where filters are: packets that leave the host, and that reach it.
const HOOKS: [Hook; 2] = [Hook::Egress, Hook::Ingress];
/// The UDP port of RoCE v2.
const ROCE: u16 = 4791;

/// Why such faults are not possible in a cluster, or on this host.
pub fn refusal(deployment: &Deployment) -> Option<&'static str> {
    let network = deployment.network.as_ref().filter(|network| network.hosts.len() > 1);
    let Some(network) = network else {
        return Some("this is between the hosts of a cluster of several, and this cluster is of one host");
    };
    if !network.hosts.iter().chain(network.paths.iter().flatten()).all(IpAddr::is_ipv4) {
        return Some("this is done for IPv4, and a host has another address");
    }
    // Where one supervisor has started all hosts, they are this machine.
    (network.state.is_none() && !may_administer()).then_some(NO_PRIVILEGE)
}

pub(crate) const NO_PRIVILEGE: &str =
    "faults of the network need CAP_NET_ADMIN (root), which the fault agent does not have";

/// Whether this process may change packet filters and interfaces.
pub(crate) fn may_administer() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & 1 << CAP_NET_ADMIN != 0)
}

/// Losses in bursts by the model of Gilbert and Elliott, for a thousand packets each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bursts {
    /// How many begin a burst, and how many of those in a burst end it.
    pub(crate) enter: u32,
    pub(crate) leave: u32,
    /// How many are lost in a burst, and between bursts.
    pub(crate) lost: u32,
    pub(crate) lost_between: u32,
}

/// What happens to the packets between a host and its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Impact {
    /// This many of a thousand are lost.
    Lost(u32),
    /// All are late by this.
    Late(Nanos),
    Bursts(Bursts),
}

impl Impact {
    /// The order for it. The runner adds the peers.
    pub(crate) fn order(self, direction: Direction) -> Injection {
        let order = match self {
            Self::Lost(lost) => Injection::new(LOSE).with("lost", &lost),
            Self::Late(by) => Injection::new(DELAY).with("by", &by.0),
            Self::Bursts(bursts) => Injection::new(BURST).with("bursts", &bursts),
        };
        order.with("direction", &direction)
    }

    fn of(order: &Injection) -> Result<Self, String> {
        match order.fault.as_str() {
            DELAY => order.get("by").map(|by| Self::Late(Nanos(by))),
            BURST => order.get("bursts").map(Self::Bursts),
            _ => order.get("lost").map(Self::Lost),
        }
    }

    /// How many of a thousand packets a program decides about, and its results for those and for others.
    const fn results(self) -> (u32, u32, u32) {
        match self {
            // Results of a filter that acts directly.
            Self::Lost(lost) => (lost, SHOT, UNSPECIFIED),
            // Those of one with an action, which is carried out for any result but 0.
            Self::Late(_) | Self::Bursts(_) => (ALL, UNSPECIFIED, 0),
        }
    }

    /// The preference of its filters on a host.
    fn preference(self, host: u8) -> u32 {
        let above = match self {
            Self::Lost(_) => 0,
            Self::Late(_) => DELAYS,
            Self::Bursts(_) => BURSTS,
        };
        PREFERENCE + above + u32::from(host)
    }

    /// The device that its filters redirect packets to, and what netem does there.
    fn netem(self, host: u8) -> Option<(String, String)> {
        match self {
            Self::Lost(_) => None,
            Self::Late(by) => {
                Some((host_delay::name("late", host), format!("delay {}us", by.0.div_ceil(1000))))
            }
            Self::Bursts(Bursts { enter, leave, lost, lost_between }) => {
                let [p, r, h, k] = [enter, leave, lost, lost_between].map(percent);
                Some((host_delay::name("burst", host), format!("loss gemodel {p} {r} {h} {k}")))
            }
        }
    }

    /// Whether nothing in it is beyond all packets.
    fn is_possible(self) -> bool {
        match self {
            Self::Lost(lost) => lost <= ALL,
            Self::Late(_) => true,
            Self::Bursts(Bursts { enter, leave, lost, lost_between }) => {
                [enter, leave, lost, lost_between].iter().all(|share| *share <= ALL)
            }
        }
    }
}

/// A share of a thousand, as `tc` reads it.
fn percent(share: u32) -> String {
    format!("{}.{}%", share / 10, share % 10)
}

/// Whether an order is one of these.
pub(crate) fn is_ordered(order: &Injection) -> bool {
    [LOSE, DELAY, BURST].contains(&order.fault.as_str())
}

/// Whether an order cuts its host off.
pub(crate) fn cuts_off(order: &Injection) -> bool {
    matches!(Impact::of(order), Ok(Impact::Lost(lost)) if lost >= ALL)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Egress,
    Ingress,
}

impl Hook {
    const fn name(self) -> &'static str {
        match self {
            Self::Egress => "egress",
            Self::Ingress => "ingress",
        }
    }

    /// Those that see the packets of a direction.
    fn of(direction: Direction) -> &'static [Self] {
        match direction {
            Direction::Out => &[Self::Egress],
            Direction::In => &[Self::Ingress],
            Direction::Both => &HOOKS,
        }
    }
}

/// An instruction of the classic packet filter. Jumps go to labels.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Code and operand.
    Plain(u32, u32),
    /// Code, operand, and the distances if it holds or not.
    Test(u32, u32, Goal, Goal),
}

/// The two sides of a fault: a host, and the peers that it loses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sides {
    own: Vec<Ipv4Addr>,
    peers: Vec<Ipv4Addr>,
    /// Multicast groups that either sends to.
    groups: Vec<Ipv4Addr>,
    /// Packets from or to these ports are between them.
    ports: Vec<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Next,
    Peer,
    Transport,
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
const UDP: u32 = 17;
/// Results for `tc`: drops the packet, or asks the next filter.
const SHOT: u32 = 2;
const UNSPECIFIED: u32 = u32::MAX;

/// The program that finds packets of gateways between a host and its peers.
fn program(hook: Hook, Sides { own, peers, groups, ports: known }: &Sides, impact: Impact) -> String {
    let (share_of, hit, missed) = impact.results();
    let (source, destination) = (NETWORK + 12, NETWORK + 16);
    let (own_side, other_side) = match hook {
        Hook::Egress => (source, destination),
        Hook::Ingress => (destination, source),
    };
    // A group is a destination.
    let with_groups = |addresses: &[Ipv4Addr], at: Hook| match hook == at {
        true => [addresses, &groups[..]].concat(),
        false => addresses.to_vec(),
    };
    let (own, peers) = (with_groups(own, Hook::Ingress), with_groups(peers, Hook::Egress));
    // Any of the addresses leads to the goal; none of them lets the packet pass.
    let any = |addresses: &[Ipv4Addr], goal| {
        let last = addresses.len().saturating_sub(1);
        let test = move |(at, address): (usize, &Ipv4Addr)| {
            Step::Test(EQUALS, address.to_bits(), goal, if at == last { Goal::Pass } else { Goal::Next })
        };
        addresses.iter().enumerate().map(test).collect::<Vec<_>>()
    };
    let ports_are = |last| {
        let test = move |(at, port): (usize, &u16)| {
            let no = if at + 1 == known.len() { last } else { Goal::Next };
            Step::Test(EQUALS, u32::from(*port), Goal::Share, no)
        };
        known.iter().enumerate().map(test)
    };
    let mut steps = vec![
        Step::Plain(LOAD_HALF, PROTOCOL),
        Step::Test(EQUALS, ETHERTYPE_IP, Goal::Next, Goal::Pass),
        Step::Plain(LOAD_BYTE, NETWORK + 9),
        Step::Test(EQUALS, TCP, Goal::Transport, Goal::Next),
        Step::Test(EQUALS, UDP, Goal::Transport, Goal::Pass),
    ];
    let transport = steps.len();
    steps.push(Step::Plain(LOAD_WORD, own_side));
    steps.extend(any(&own, Goal::Peer));
    let peer = steps.len();
    steps.push(Step::Plain(LOAD_WORD, other_side));
    steps.extend(any(&peers, Goal::Ports));
    let ports = steps.len();
    steps.extend([Step::Plain(LOAD_HEADER_LENGTH, NETWORK), Step::Plain(LOAD_HALF_INDEXED, NETWORK)]);
    steps.extend(ports_are(Goal::Next));
    steps.push(Step::Plain(LOAD_HALF_INDEXED, NETWORK + 2));
    steps.extend(ports_are(Goal::Pass));
    let share = steps.len();
    if share_of < ALL {
        let below = u64::from(share_of) * (1 << 32) / u64::from(ALL);
        steps.push(Step::Plain(LOAD_WORD, RANDOM));
        steps.push(Step::Test(AT_LEAST, below as u32, Goal::Pass, Goal::Next));
    }
    let drop = steps.len();
    steps.extend([Step::Plain(RETURN, hit), Step::Plain(RETURN, missed)]);
    let distance = |at: usize, goal: Goal| match goal {
        Goal::Next => 0,
        Goal::Transport => transport - at - 1,
        Goal::Peer => peer - at - 1,
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

/// The interface by which a host reaches a peer.
fn interface(own: IpAddr, peer: IpAddr) -> Result<String, String> {
    let route = shown("ip", &format!("route get {peer} from {own}"))?;
    let mut words = route.split_whitespace().skip_while(|word| *word != "dev").skip(1);
    words.next().map(str::to_owned).ok_or_else(|| format!("no route from {own} to {peer}"))
}

impl Filters {
    /// The faults whose filters they are.
    const fn faults(&self) -> &'static str {
        match self.preference.saturating_sub(PREFERENCE) / DELAYS {
            0 => "a partition or loss",
            1 => "a delay",
            _ => "a burst",
        }
    }

    /// Why they cannot be set with those of other faults of the cue: the first undo would remove those of the
    /// same preference and device, and a packet is redirected once.
    fn conflict(&self, others: &[Self]) -> Option<String> {
        let same = |other: &&Self| {
            other.interface == self.interface
                && (other.preference == self.preference || other.device.is_some() && self.device.is_some())
                || other.device.is_some() && other.device == self.device
        };
        let other = others.iter().find(same)?;
        Some(format!(
            "{} and {} on one host exclude each other, in whatever directions (at {}); take one fault, or two steps",
            other.faults(),
            self.faults(),
            self.interface
        ))
    }

    fn show(&self, hook: Hook) -> String {
        format!("filter show dev {} {} pref {}", self.interface, hook.name(), self.preference)
    }

    fn are_there(&self) -> bool {
        HOOKS.iter().any(|hook| shown("tc", &self.show(*hook)).is_ok_and(|all| !all.is_empty()))
    }

    /// The commands that set them.
    fn commands(&self, hooks: &[Hook], sides: &Sides, impact: Impact) -> String {
        let Self { interface, preference, .. } = self;
        let (acts, action) = match &self.device {
            None => ("da ", String::new()),
            Some(device) => ("", format!(" action mirred egress redirect dev {device}")),
        };
        let mut commands = format!("qdisc add dev {interface} clsact\n");
        for hook in hooks {
            let (bytecode, name) = (program(*hook, sides, impact), hook.name());
            commands += &format!(
                "filter add dev {interface} {name} pref {preference} handle 1 bpf {acts}bytecode \"{bytecode}\"{action}\n"
            );
        }
        for hook in hooks {
            commands += &format!("{}\n", self.show(*hook));
        }
        commands
    }

    /// Removes them. Idempotent.
    fn remove(&self) -> Result<(), String> {
        let Self { interface, preference, hooked, .. } = self;
        for hook in HOOKS {
            if !shown("tc", &self.show(hook))?.is_empty() {
                shown("tc", &format!("filter del dev {interface} {} pref {preference}", hook.name()))?;
            }
        }
        let is_used = || {
            HOOKS.iter().any(|hook| {
                let all = shown("tc", &format!("filter show dev {interface} {}", hook.name()));
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

/// The addresses of a host on all paths.
fn addresses(network: &Network, address: IpAddr) -> Vec<Ipv4Addr> {
    let number = network.hosts.iter().position(|host| *host == address);
    let paths = number.and_then(|number| network.paths.get(number));
    let all = [address].into_iter().chain(paths.into_iter().flatten().copied());
    let mut all: Vec<Ipv4Addr> = all
        .filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The interfaces by which a host reaches its peers, by address and on each path.
pub(crate) fn interfaces(network: &Network, peers: &[Ipv4Addr]) -> Result<BTreeSet<String>, String> {
    let on_path = |address: IpAddr, path: usize| {
        let number = network.hosts.iter().position(|host| *host == address)?;
        network.paths.get(number)?.get(path).copied()
    };
    let mut all = BTreeSet::new();
    for peer in peers.iter().map(|peer| IpAddr::V4(*peer)) {
        all.insert(interface(network.address, peer)?);
        let mut path = 0;
        while let (Some(own), Some(other)) = (on_path(network.address, path), on_path(peer, path)) {
            all.insert(interface(own, other)?);
            path += 1;
        }
    }
    Ok(all)
}

/// Whether an RDMA device in software sends its packets by an interface.
fn has_soft_device(interface: &str) -> bool {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut parents = devices.filter_map(|device| fs::read_to_string(device.path().join("parent")).ok());
    parents.any(|parent| parent.trim() == interface)
}

/// The packets between a host and its peers.
fn sides(network: &Network, peers: &[Ipv4Addr]) -> Result<Sides, String> {
    let gateway = network.gateways().first().map(SocketAddr::port);
    let mut sides = Sides {
        own: addresses(network, network.address),
        peers: peers.iter().flat_map(|peer| addresses(network, (*peer).into())).collect(),
        groups: Vec::new(),
        ports: gateway.into_iter().collect(),
    };
    if network.has_devices() {
        for peer in peers {
            let interface = interface(network.address, (*peer).into())?;
            if !has_soft_device(&interface) {
                return Err(format!(
                    "packets of the RDMA device at {interface} pass no filter of the kernel's, as those of one in software \
                     (rxe) do; take kind = \"nic-down\""
                ));
            }
        }
        sides.ports.push(ROCE);
        for group in [network.groups.coordinators, network.groups.everyone] {
            if let IpAddr::V4(group) = group {
                sides.groups.push(group);
            }
        }
    }
    Ok(sides)
}

/// Prepares an order.
pub(crate) fn arm(
    order: &Injection,
    deployment: &Deployment,
    record: &mut Record,
) -> Result<Box<dyn Armed>, String> {
    if let Some(reason) = refusal(deployment) {
        return Err(reason.to_owned());
    }
    if !may_administer() {
        return Err(NO_PRIVILEGE.to_owned());
    }
    let (impact, peers): (Impact, Vec<Ipv4Addr>) = (Impact::of(order)?, order.get("peers")?);
    let hooks = Hook::of(order.get("direction")?);
    let network = deployment.network.as_ref();
    let Some((network, Network { address: IpAddr::V4(own), host, hosts, .. })) = network.zip(network) else {
        return Err("a host without an IPv4 address".to_owned());
    };
    let strangers = peers.iter().any(|peer| peer == own || !hosts.contains(&IpAddr::V4(*peer)));
    if peers.is_empty() || strangers || !impact.is_possible() {
        return Err(
            "the packets that should be lost or late are not between hosts of this cluster".to_owned()
        );
    }
    let sides = sides(network, &peers)?;
    let (netem, preference) = (impact.netem(*host), impact.preference(*host));
    let mut all = Vec::new();
    let mut commands = String::new();
    for interface in interfaces(network, &peers)? {
        let hooked = !is_hooked(&interface);
        let device = netem.as_ref().map(|(device, _)| device.clone());
        let filters = Filters { interface, preference, hooked, device };
        if let Some(why) = filters.conflict(&record.filters) {
            return Err(why);
        }
        if filters.are_there() {
            return Err(format!("the filters of an earlier fault are still at {}", filters.interface));
        }
        commands += &filters.commands(hooks, &sides, impact);
        all.push(filters);
    }
    let device = netem.map(|(device, does)| Device::make(device, &does)).transpose()?;
    let tc = Waiting::start("tc")?;
    record.filters.extend(all.iter().cloned());
    Ok(Box::new(ArmedFilters { shown: all.len() * hooks.len(), all, device, commands, tc }))
}

struct ArmedFilters {
    all: Vec<Filters>,
    /// How many are there after the cue.
    shown: usize,
    device: Option<Device>,
    commands: String,
    tc: Waiting,
}

impl Armed for ArmedFilters {
    fn inject(&mut self) -> io::Result<()> {
        // The hook may be there already, which is an error for `tc`.
        let done = self.tc.run(&self.commands)?;
        // Only those of the preference were shown, and of each direction.
        if String::from_utf8_lossy(&done.stdout).matches(HANDLE).count() == self.shown {
            return Ok(());
        }
        Err(io::Error::other(format!("tc: {}", String::from_utf8_lossy(&done.stderr).trim())))
    }

    fn is_undone(&self, _injected: bool) -> bool {
        // One direction may have been set.
        true
    }

    fn undo(&mut self) -> Result<(), String> {
        self.all.iter().try_for_each(Filters::remove)?;
        self.device.as_ref().map_or(Ok(()), Device::remove)
    }
}

/// Removes what a fault agent left behind.
pub(crate) fn recover(record: &Record, undone: &mut Undone) {
    for filters in &record.filters {
        let interface = &filters.interface;
        let were_there = filters.are_there();
        let removed =
            filters.remove().and_then(|()| filters.device.as_deref().map_or(Ok(()), host_delay::remove));
        match removed {
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

    /// The sides of a cluster over IP, without addresses.
    fn gateways() -> Sides {
        Sides { own: Vec::new(), peers: Vec::new(), groups: Vec::new(), ports: vec![7471] }
    }

    /// Runs a program as the kernel does. Whether it drops the packet.
    fn drops(text: &str, packet: Packet) -> bool {
        result(text, packet) == SHOT
    }

    /// What a program says of a packet.
    fn result(text: &str, packet: Packet) -> u32 {
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
                    assert!(index == 20 || result != SHOT, "ports were compared");
                    return result;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn connections_and_pulses_between_a_host_and_its_peers_are_cut_and_nothing_else() {
        let sides = Sides {
            own: vec![Ipv4Addr::new(10, 0, 0, 3)],
            peers: [1, 2].map(|n| Ipv4Addr::new(10, 0, 0, n)).to_vec(),
            ..gateways()
        };
        let of = |from: u8, to: u8, protocol, ports| Packet {
            source: [10, 0, 0, from],
            destination: [10, 0, 0, to],
            protocol,
            ports,
            random: 0,
        };
        let [egress, ingress] = HOOKS.map(|hook| program(hook, &sides, Impact::Lost(ALL)));
        let cut = |packet: Packet| [drops(&egress, packet), drops(&ingress, packet)];
        for peer in [1, 2] {
            for ports in [[7471, 40_000], [40_000, 7471]] {
                assert_eq!(cut(of(3, peer, TCP, ports)), [true, false]);
                assert_eq!(cut(of(peer, 3, TCP, ports)), [false, true]);
            }
            assert_eq!(cut(of(3, peer, TCP, [22, 40_000])), [false, false], "ssh");
            assert_eq!(cut(of(3, peer, UDP, [7471, 7471])), [true, false], "pulses");
            assert_eq!(cut(of(peer, 3, UDP, [7471, 7471])), [false, true], "pulses");
            assert_eq!(cut(of(3, peer, UDP, [53, 40_000])), [false, false], "other datagrams");
            assert_eq!(cut(of(3, peer, 1, [7471, 7471])), [false, false], "ICMP");
        }
        for (from, to) in [(1, 2), (3, 4), (4, 3), (3, 3)] {
            assert_eq!(cut(of(from, to, TCP, [7471, 7471])), [false, false], "{from} to {to}");
        }
    }

    #[test]
    fn late_packets_are_those_that_are_lost_otherwise_and_are_redirected() {
        let (host, peer) = (Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 1));
        let late = Impact::Late(Nanos::from_millis(20));
        let of = |ports| Packet {
            source: host.octets(),
            destination: peer.octets(),
            protocol: TCP,
            ports,
            random: u32::MAX,
        };
        let sides = Sides { own: vec![host], peers: vec![peer], ..gateways() };
        let program = program(Hook::Egress, &sides, late);
        // Any result but 0 has the action carried out.
        assert_eq!(result(&program, of([7471, 40_000])), UNSPECIFIED);
        assert_eq!(result(&program, of([22, 40_000])), 0, "ssh");
        let filters = |impact: Impact| Filters {
            interface: "eth0".to_owned(),
            preference: impact.preference(3),
            hooked: true,
            device: impact.netem(3).map(|(device, _)| device),
        };
        let bursts = Bursts { enter: 5, leave: 250, lost: 1000, lost_between: 1 };
        let bursts = Impact::Bursts(bursts);
        for (impact, preference, device, does) in [
            (late, 3076, "obol-late3", "delay 20000us"),
            (bursts, 3332, "obol-burst3", "loss gemodel 0.5% 25.0% 100.0% 0.1%"),
        ] {
            assert_eq!(impact.netem(3), Some((device.to_owned(), does.to_owned())));
            let order = impact.order(Direction::Both);
            assert_eq!((Impact::of(&order), cuts_off(&order), is_ordered(&order)), (Ok(impact), false, true));
            for (direction, hooks) in [
                (Direction::Out, &["egress"][..]),
                (Direction::In, &["ingress"]),
                (Direction::Both, &["egress", "ingress"]),
            ] {
                let commands = filters(impact).commands(Hook::of(direction), &sides, impact);
                let set: Vec<&str> = commands.lines().filter(|line| line.starts_with("filter add")).collect();
                assert_eq!(set.len(), hooks.len(), "{direction}: {commands}");
                for (line, hook) in set.iter().zip(hooks) {
                    let begin =
                        format!("filter add dev eth0 {hook} pref {preference} handle 1 bpf bytecode \"");
                    assert!(line.starts_with(&begin), "{line}");
                    assert!(
                        line.ends_with(&format!("\" action mirred egress redirect dev {device}")),
                        "{line}"
                    );
                }
            }
        }
        let beyond = Bursts { lost: ALL + 1, ..Bursts::default() };
        assert!(bursts.is_possible() && !Impact::Bursts(beyond).is_possible());
    }

    #[test]
    fn filters_that_others_would_remove_or_hide_are_refused() {
        let filters = |interface: &str, impact: Impact| Filters {
            interface: interface.to_owned(),
            preference: impact.preference(3),
            hooked: true,
            device: impact.netem(3).map(|(device, _)| device),
        };
        let (lost, late) = (Impact::Lost(ALL), Impact::Late(Nanos::from_millis(1)));
        let bursts = Impact::Bursts(Bursts::default());
        for (one, other, at, refused) in [
            (lost, Impact::Lost(5), "eth0", Some("a partition or loss and a partition or loss")),
            (late, late, "eth0", Some("a delay and a delay")),
            (late, late, "eth1", Some("a delay and a delay")),
            (late, bursts, "eth0", Some("a delay and a burst")),
            (bursts, late, "eth0", Some("a burst and a delay")),
            (late, bursts, "eth1", None),
            (lost, lost, "eth1", None),
            (lost, late, "eth0", None),
            (bursts, lost, "eth0", None),
        ] {
            let found = filters(at, other).conflict(&[filters("eth0", one)]);
            let as_said = match (&found, refused) {
                (Some(found), Some(refused)) => found.starts_with(refused),
                (found, refused) => found.is_none() && refused.is_none(),
            };
            assert!(as_said, "{found:?}, {refused:?}");
        }
    }

    /// Packets of soft-RoCE have a port and groups of their own.
    #[test]
    fn packets_and_multicast_of_an_rdma_device_in_software_are_cut_as_well() {
        let (host, peer, group) =
            (Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(239, 192, 77, 2));
        let other = Ipv4Addr::new(10, 0, 0, 9);
        let sides =
            Sides { own: vec![host], peers: vec![peer], groups: vec![group], ports: vec![7470, ROCE] };
        let [egress, ingress] = HOOKS.map(|hook| program(hook, &sides, Impact::Lost(ALL)));
        let of = |from: Ipv4Addr, to: Ipv4Addr, port: u16| Packet {
            source: from.octets(),
            destination: to.octets(),
            protocol: UDP,
            ports: [40_000, port.into()],
            random: 0,
        };
        for (from, to, cut) in [
            (host, peer, [true, false]),
            (host, group, [true, false]),
            (peer, host, [false, true]),
            (peer, group, [false, true]),
            (other, group, [false, false]),
            (other, host, [false, false]),
        ] {
            for port in [7470, ROCE] {
                let packet = of(from, to, port);
                assert_eq!([drops(&egress, packet), drops(&ingress, packet)], cut, "{from} to {to}");
            }
            assert!(!drops(&egress, of(from, to, 53)) && !drops(&ingress, of(from, to, 53)));
        }
    }

    #[test]
    fn a_share_of_the_packets_is_lost_at_random() {
        let (host, peer) = (Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 0, 0, 1));
        let sides = Sides { own: vec![host], peers: vec![peer], ..gateways() };
        let program = program(Hook::Egress, &sides, Impact::Lost(250));
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

    #[test]
    fn all_paths_between_the_hosts_are_cut() {
        let address = |net: u8, host: u8| IpAddr::from([10, net, 0, host]);
        let hosts: Vec<IpAddr> = (1..=3).map(|host| address(0, host)).collect();
        let paths = (1..=3).map(|host| vec![address(0, host), address(1, host)]).collect();
        let network = Network { hosts, paths, ..Network::local(7, address(0, 3), 7471, 3) };
        let own = addresses(&network, network.address);
        assert_eq!(own, [Ipv4Addr::new(10, 0, 0, 3), Ipv4Addr::new(10, 1, 0, 3)]);
        let sides = Sides { own, peers: addresses(&network, address(0, 1)), ..gateways() };
        let egress = program(Hook::Egress, &sides, Impact::Lost(ALL));
        let packet = |net: u8, from: u8, to: u8| Packet {
            source: [10, net, 0, from],
            destination: [10, net, 0, to],
            protocol: UDP,
            ports: [7471, 7471],
            random: 0,
        };
        for net in [0, 1] {
            assert!(drops(&egress, packet(net, 3, 1)), "path {net}");
            assert!(!drops(&egress, packet(net, 3, 2)) && !drops(&egress, packet(net, 1, 2)), "path {net}");
        }
        assert!(!drops(&egress, packet(2, 3, 1)), "another network");
    }
}
