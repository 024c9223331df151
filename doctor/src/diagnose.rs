//! `obol fabric diagnose`: why a host of the cluster is not reached. This host, the other one and
//! third ones READ each other's memory, so that the fault is located as by the three probes of R2CCL
//! (arXiv 2512.25059).

use obol_fabric::{Address, LinkError, Name};
use obol_fabric_verbs::found::Found;
use obol_node::Site;
use obol_node::endpoint::RegionReader;
use obol_observe::Observer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use std::{fmt, thread};

/// Third hosts that are asked, at most.
const THIRDS_MAX: usize = 3;
/// Processes of a host that are READ until one answers, at most: the first may have ended.
const PROCESSES_MAX: usize = 3;
/// How long a host may take to answer: each READ that fails takes the bound of detection or more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The result of READs of a host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// The host has answered.
    Carried,
    /// None was answered.
    Silent,
    /// There was none.
    #[default]
    Unknown,
}

/// How a host READs others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Road {
    Device,
    Gateways,
}

/// A port, as its device describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub name: String,
    /// Its state in words.
    pub state: String,
    /// Whether it says that it carries traffic.
    pub active: bool,
}

/// What a host sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    pub road: Road,
    /// The port for the host's address; `None` if it has none, or READs by gateways.
    pub port: Option<Port>,
    /// Its READs, by host.
    pub probes: BTreeMap<u8, Probe>,
}

/// What is known of a host that is not reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// This host, and the other one.
    pub own: u8,
    pub peer: u8,
    pub here: Sight,
    /// The answers of other hosts, or why there is none.
    pub others: BTreeMap<u8, Result<Sight, String>>,
}

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The host is reached.
    None,
    /// The port of this host, or what it is connected to.
    OwnPort,
    /// What lies between two hosts that others reach.
    Path,
    /// The other host, its port, or what that is connected to.
    Peer,
    /// The evidence does not show it.
    Unknown,
}

/// What is at fault, and why that follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub fault: Fault,
    pub why: String,
}

impl Sight {
    fn of(&self, host: u8) -> Probe {
        self.probes.get(&host).copied().unwrap_or_default()
    }

    /// The port, if it says that it carries nothing.
    fn inactive(&self) -> Option<&Port> {
        self.port.as_ref().filter(|port| !port.active)
    }
}

impl Evidence {
    /// Hosts beside these two that have answered and READ in the same way.
    fn thirds(&self) -> impl Iterator<Item = (u8, &Sight)> {
        let sights = self.others.iter().filter_map(|(host, sight)| Some((*host, sight.as_ref().ok()?)));
        sights.filter(|(host, sight)| *host != self.peer && sight.road == self.here.road)
    }

    fn peer_sight(&self) -> Option<&Sight> {
        self.others.get(&self.peer)?.as_ref().ok().filter(|sight| sight.road == self.here.road)
    }

    /// What is at fault.
    pub fn verdict(&self) -> Verdict {
        let verdict = |fault, why| Verdict { fault, why };
        let peer = self.peer;
        match self.here.of(peer) {
            Probe::Carried => return verdict(Fault::None, format!("host {peer} answers this host")),
            Probe::Unknown => {
                return verdict(
                    Fault::Unknown,
                    format!("no process of host {peer} could be asked from here"),
                );
            }
            Probe::Silent => {}
        }
        if let Some(Port { name, state, .. }) = self.here.inactive() {
            return verdict(Fault::OwnPort, format!("{name} of this host says {state}"));
        }
        if let Some(Port { name, state, .. }) = self.peer_sight().and_then(Sight::inactive) {
            return verdict(Fault::Peer, format!("{name} of host {peer} says {state}"));
        }
        // A READ goes both ways, so one that was answered shows that both ports work.
        let mine = |(host, sight): (u8, &Sight)| (host, self.here.of(host), sight.of(self.own));
        let theirs = |(host, sight): (u8, &Sight)| {
            (host, sight.of(peer), self.peer_sight().map_or(Probe::Unknown, |peer| peer.of(host)))
        };
        let works = |(_, one, other): &(u8, Probe, Probe)| *one == Probe::Carried || *other == Probe::Carried;
        let fails = |(_, one, other): (u8, Probe, Probe)| one == Probe::Silent && other != Probe::Carried;
        let (own_works, peer_works) =
            (self.thirds().map(mine).find(works), self.thirds().map(theirs).find(works));
        let active = |sight: Option<&Sight>| {
            let port = sight.and_then(|sight| sight.port.as_ref());
            port.map_or_else(String::new, |port| {
                format!("; {} says {} and carries nothing", port.name, port.state)
            })
        };
        match (own_works, peer_works) {
            (Some((one, ..)), Some((other, ..))) => verdict(
                Fault::Path,
                format!(
                    "host {one} exchanges with this host and host {other} with host {peer}, but they do not with each other"
                ),
            ),
            (Some(_), None) => {
                match self.thirds().find(|third| works(&mine(*third)) && fails(theirs(*third))) {
                    Some((host, _)) => verdict(
                        Fault::Peer,
                        format!(
                            "host {host} is reached from here, and it does not reach host {peer} either{}",
                            active(self.peer_sight())
                        ),
                    ),
                    None => verdict(Fault::Unknown, format!("no third host has tried to reach host {peer}")),
                }
            }
            (None, Some(_)) => {
                match self.thirds().find(|third| works(&theirs(*third)) && fails(mine(*third))) {
                    Some((host, _)) => verdict(
                        Fault::OwnPort,
                        format!(
                            "host {host} reaches host {peer}, and this host reaches neither{}",
                            active(Some(&self.here))
                        ),
                    ),
                    None => verdict(Fault::Unknown, "this host has tried no third one".to_owned()),
                }
            }
            (None, None) => match self.thirds().next() {
                Some(_) => verdict(
                    Fault::Unknown,
                    format!(
                        "neither this host nor host {peer} exchanges with a third one: several ports, or the network of all, are at fault"
                    ),
                ),
                None => verdict(Fault::Unknown, "no third host could be asked".to_owned()),
            },
        }
    }

    /// What each host sees, in lines.
    pub fn lines(&self) -> Vec<String> {
        let name = |host: u8| if host == self.own { "this host".to_owned() } else { format!("host {host}") };
        let of = |host: u8, sight: &Sight| {
            let probes = sight.probes.iter().map(|(other, probe)| format!("{}: {probe}", name(*other)));
            let port = match &sight.port {
                Some(port) => format!("{} says {}; ", port.name, port.state),
                None if sight.road == Road::Device => "no port for its address; ".to_owned(),
                None => String::new(),
            };
            let by = match sight.road {
                Road::Device => "by its device",
                Road::Gateways => "by gateways",
            };
            let probes: Vec<String> = probes.collect();
            format!("{} {by}: {port}{}", name(host), probes.join(", "))
        };
        let others = self.others.iter().map(|(host, sight)| match sight {
            Ok(sight) => of(*host, sight),
            Err(why) => format!("{} cannot be asked: {why}", name(*host)),
        });
        std::iter::once(of(self.own, &self.here)).chain(others).collect()
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Carried => "answers",
            Self::Silent => "does not answer",
            Self::Unknown => "was not tried",
        })
    }
}

/// A question to the gateway of a host: what it sees of these.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    reach: Vec<u8>,
}

/// The answer of this host to a question in the cluster's directory; `None` if it is another question.
pub fn answer(dir: &Path, bytes: &[u8]) -> Option<Vec<u8>> {
    let Question { reach } = serde_json::from_slice(bytes).ok()?;
    let seen = look_in(dir, &reach);
    // This cannot fail: all keys are text.
    Some(serde_json::to_vec(&seen).unwrap_or_default())
}

/// A cluster's directory is named as the cluster, in the root of all.
fn look_in(dir: &Path, hosts: &[u8]) -> Result<Sight, String> {
    let name = dir.file_name().and_then(|name| name.to_str()).and_then(|name| Name::new(name).ok());
    let (root, name) = dir.parent().zip(name).ok_or_else(|| format!("{} is of no cluster", dir.display()))?;
    look(root, name, hosts)
}

/// What this host sees of others.
fn look(root: &Path, cluster: Name, hosts: &[u8]) -> Result<Sight, String> {
    let mut observer = Observer::open(root, cluster).map_err(|error| error.to_string())?.of_this_host();
    let view = observer.snapshot().view;
    let deployment = observer.deployment();
    let network = deployment.network.as_ref().filter(|network| network.has_gateways());
    let address = network.ok_or("the cluster is of one host")?.address;
    let reader = deployment.reader(observer.cluster()).map_err(|error| error.to_string())?;
    let mut reader = reader.ok_or("the cluster is of one host")?;
    // A host that is lost has no members any more, but its coordinators' regions are known.
    let genesis = deployment.genesis();
    let members = view.iter().flat_map(|view| &view.members).chain(&genesis.members);
    let members: Vec<Address> = members.map(|member| member.address).collect();
    let owners = |host: u8| {
        let there = members.iter().copied().filter(|at| at.seat == 0);
        there.filter(move |at| deployment.host_of(at.region) == Some(host)).take(PROCESSES_MAX)
    };
    let mut probes = BTreeMap::new();
    for host in hosts.iter().copied() {
        let at: Vec<Address> = owners(host).collect();
        probes.insert(host, probe(&mut reader, &at));
    }
    let road = if matches!(reader, RegionReader::Rdma(_)) { Road::Device } else { Road::Gateways };
    let port = (road == Road::Device).then(|| port(address)).flatten();
    Ok(Sight { road, port, probes })
}

fn probe(reader: &mut RegionReader, at: &[Address]) -> Probe {
    let is_answered = |at: &Address| !matches!(reader.read(*at), Err(LinkError::PeerDead));
    match at {
        [] => Probe::Unknown,
        _ if at.iter().any(is_answered) => Probe::Carried,
        _ => Probe::Silent,
    }
}

/// The port of this host with this address.
fn port(address: IpAddr) -> Option<Port> {
    let found = Found::look(Some(address));
    let all = found.devices.iter().filter_map(|device| Some((&device.name, &device.opened.as_ref().ok()?.1)));
    let mut ports = all.flat_map(|(device, ports)| ports.iter().map(move |port| (device, port)));
    let (device, port) = ports.find(|(device, port)| match &found.chosen {
        Some(chosen) => chosen.device == **device && chosen.port == port.number,
        None => port.gids.iter().any(|entry| entry.gid.ip() == address),
    })?;
    let (name, state) = (format!("{device} port {}", port.number), port.facts.state_name().to_owned());
    Some(Port { name, state, active: port.facts.active })
}

/// Collects what this host, the other one and third ones see.
pub fn gather(root: &Path, site: &Site, peer: u8) -> Result<Evidence, String> {
    let network = site.deployment.network.as_ref().filter(|network| network.has_gateways());
    let network = network.ok_or("the cluster is of one host, so there is no other to reach")?;
    let own = network.host;
    if !network.other_hosts().any(|host| host == peer) {
        return Err(format!("host {peer} is not another host of this cluster of {}", network.hosts.len()));
    }
    let thirds: Vec<u8> = network.other_hosts().filter(|host| *host != peer).take(THIRDS_MAX).collect();
    thread::scope(|scope| {
        let asked: Vec<_> = std::iter::once(peer)
            .chain(thirds.iter().copied())
            .map(|host| {
                let reach = match host == peer {
                    true => std::iter::once(own).chain(thirds.iter().copied()).collect(),
                    false => vec![own, peer],
                };
                (host, scope.spawn(move || ask(site, host, &Question { reach })))
            })
            .collect();
        let tried: Vec<u8> = std::iter::once(peer).chain(thirds.iter().copied()).collect();
        let here = look(root, site.cluster.name(), &tried)?;
        let join = |(host, thread): (u8, thread::ScopedJoinHandle<'_, Result<Sight, String>>)| {
            // A panic has been printed already.
            (host, thread.join().unwrap_or_else(|_| Err("the thread that asks it has panicked".to_owned())))
        };
        Ok(Evidence { own, peer, here, others: asked.into_iter().map(join).collect() })
    })
}

fn ask(site: &Site, host: u8, question: &Question) -> Result<Sight, String> {
    let mut gateways = site.deployment.gateways(&site.cluster).ok_or("the cluster has no gateways")?;
    let question = serde_json::to_vec(question).map_err(|error| error.to_string())?;
    let answer = gateways.ask(host, &question, ANSWER_TIMEOUT).map_err(|error| error.to_string())?;
    // An earlier release does not understand the question.
    serde_json::from_slice::<Result<Sight, String>>(&answer)
        .map_err(|_| "its answer cannot be read; it may be of an earlier release".to_owned())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use Probe::{Carried, Silent, Unknown};

    const OWN: u8 = 1;
    const PEER: u8 = 2;

    fn sight(port: &str, probes: &[(u8, Probe)]) -> Sight {
        let state = port.to_owned();
        let port = Port { name: "rxe0 port 1".to_owned(), active: state == "active", state };
        Sight { road: Road::Device, port: Some(port), probes: probes.iter().copied().collect() }
    }

    /// Hosts 3 and on are third ones: what this host sees of them, and they of this and of the peer.
    fn evidence(own_port: &str, to_peer: Probe, thirds: &[(Probe, Probe, Probe)]) -> Evidence {
        let mut here = sight(own_port, &[(PEER, to_peer)]);
        let mut others = BTreeMap::new();
        for (host, (mine, back, theirs)) in (3..).zip(thirds) {
            here.probes.insert(host, *mine);
            others.insert(host, Ok(sight("active", &[(OWN, *back), (PEER, *theirs)])));
        }
        others.insert(PEER, Err("its gateway does not answer".to_owned()));
        Evidence { own: OWN, peer: PEER, here, others }
    }

    #[test]
    fn the_fault_is_where_the_answers_end() {
        let (c, s, u) = (Carried, Silent, Unknown);
        for (port, to_peer, thirds, fault) in [
            ("active", c, &[][..], Fault::None),
            // Two hosts know too little of each other.
            ("active", s, &[], Fault::Unknown),
            ("active", u, &[(c, c, s)], Fault::Unknown),
            ("active", s, &[(c, c, c)], Fault::Path),
            ("active", s, &[(c, c, s)], Fault::Peer),
            ("active", s, &[(s, s, c)], Fault::OwnPort),
            ("active", s, &[(s, s, s)], Fault::Unknown),
            // The third one is dead as well, another one is not.
            ("active", s, &[(s, s, s), (c, c, s)], Fault::Peer),
            ("active", s, &[(s, s, s), (s, s, c)], Fault::OwnPort),
            ("active", s, &[(c, c, s), (s, s, c)], Fault::Path),
            // Nobody has tried.
            ("active", s, &[(c, c, u)], Fault::Unknown),
            ("active", s, &[(u, u, c)], Fault::Unknown),
            // The other way round is carried as well.
            ("active", s, &[(u, c, s)], Fault::Peer),
            ("down", s, &[], Fault::OwnPort),
            ("down", s, &[(s, s, s)], Fault::OwnPort),
            // What carries is not at fault, whatever its device says.
            ("down", c, &[], Fault::None),
        ] {
            let evidence = evidence(port, to_peer, thirds);
            assert_eq!(evidence.verdict().fault, fault, "{evidence:#?} {:?}", evidence.verdict());
        }
    }

    #[test]
    fn a_device_that_says_active_and_carries_nothing_is_named() {
        let why = evidence("active", Silent, &[(Silent, Silent, Carried)]).verdict().why;
        assert!(why.ends_with("rxe0 port 1 says active and carries nothing"), "{why}");
        let mut of_peer = evidence("active", Silent, &[(Carried, Carried, Silent)]);
        of_peer.others.insert(PEER, Ok(sight("active", &[(OWN, Silent), (3, Silent)])));
        let Verdict { fault, why } = of_peer.verdict();
        assert_eq!(fault, Fault::Peer);
        assert!(why.ends_with("rxe0 port 1 says active and carries nothing"), "{why}");
        // It says itself that it is down.
        of_peer.others.insert(PEER, Ok(sight("down", &[])));
        assert_eq!(of_peer.verdict().why, "rxe0 port 1 of host 2 says down");
        // It reaches the third host, so its port works.
        of_peer.others.insert(PEER, Ok(sight("active", &[(OWN, Silent), (3, Carried)])));
        assert_eq!(of_peer.verdict().fault, Fault::Path);
    }

    #[test]
    fn what_was_read_by_another_road_is_no_evidence() {
        let mut evidence = evidence("active", Silent, &[(Carried, Carried, Carried)]);
        assert_eq!(evidence.verdict().fault, Fault::Path);
        for sight in evidence.others.values_mut().flatten() {
            sight.road = Road::Gateways;
        }
        assert_eq!(
            evidence.verdict(),
            Verdict { fault: Fault::Unknown, why: "no third host could be asked".to_owned() }
        );
    }

    #[test]
    fn a_question_of_another_kind_is_left_to_others() {
        let dir = tempfile::tempdir().expect("made");
        assert_eq!(answer(dir.path(), b"\"look\""), None);
        assert_eq!(answer(dir.path(), b"{\"reach\":[2],\"more\":1}"), None);
        let answered = answer(dir.path(), b"{\"reach\":[2]}").expect("its question");
        let answered: Result<Sight, String> = serde_json::from_slice(&answered).expect("an answer");
        assert!(answered.is_err(), "no cluster is there");
    }
}
