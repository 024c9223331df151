//! Interfaces of a host are set down, and up again, by `ip` of iproute2.

use super::Key;
use super::fault::{Armed, Arming, Effect, Fault, Planning, Scope, Simulated};
use super::host_network::{self, NO_PRIVILEGE, may_administer};
use super::iproute2::{Waiting, errors, shown};
use super::order::{Direction, Injection};
use super::record::{Interface, Record, Undone};
use obol_config::{Problems, Section};
use obol_fabric::host::Cluster;
use serde_json::json;
use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// The name of its orders.
const ORDER: &str = "nic-down";
/// Characters of the name of an interface (IFNAMSIZ, without the byte at its end).
const NAME_CHARS_MAX: usize = 15;

/// The fault.
#[derive(Clone, Debug)]
pub(crate) struct NicDown {
    /// One interface; otherwise all by which a host reaches the others.
    pub(crate) interface: Option<String>,
}

impl Fault for NicDown {
    fn name(&self) -> &'static str {
        ORDER
    }

    fn describe(&self) -> String {
        let of = self.interface.as_ref().map_or_else(String::new, |interface| format!(" of {interface}"));
        format!("nic-down{of}")
    }

    fn scope(&self) -> Scope {
        Scope::Network
    }

    fn effect(&self) -> Effect {
        Effect::Unreachable
    }

    fn keys(&self) -> Vec<Key> {
        let schema = json!({ "type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX });
        let doc = "the interface, by default all by which a host reaches the others";
        vec![Key { name: "interface", schema, doc }]
    }

    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault> {
        let wanted = "the name of an interface, as `ip link` prints it";
        let read = section.take("interface", wanted, problems, |_, value| {
            let name = value.as_str()?;
            is_name(name).then(|| Ok(name.to_owned()))
        });
        Arc::new(Self { interface: read.map(|at| at.value) })
    }

    fn refusal(&self, planning: Planning<'_>) -> Option<&'static str> {
        if planning.simulated {
            return None;
        }
        if !planning.allowed.nic_down {
            return Some(
                "all programs of the host lose the interface; set allow_nic_down = true in [guards]",
            );
        }
        // Neither an order nor a sign of life of the runner may reach the host meanwhile.
        if planning.lasts.is_some_and(|lasts| lasts >= planning.dead_man) {
            return Some(
                "the host may not hear its runner meanwhile, so it has to be shorter than dead_man of [guards]",
            );
        }
        host_network::refusal(planning.deployment)
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated::Partition(Direction::Both))
    }

    fn orders(&self) -> &'static [&'static str] {
        &[ORDER]
    }

    fn order(&self, _island: u8) -> Injection {
        Injection::new(ORDER).with("interface", &self.interface)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        if !arming.allowed.nic_down {
            return Err("interfaces are set down with allow_nic_down only".to_owned());
        }
        if !may_administer() {
            return Err(NO_PRIVILEGE.to_owned());
        }
        let network = arming.deployment.network.as_ref().ok_or("this host reaches no others")?;
        let (named, peers): (Option<String>, Vec<Ipv4Addr>) = (order.get("interface")?, order.get("peers")?);
        let names = match named {
            Some(name) if is_name(&name) => BTreeSet::from([name]),
            Some(name) => return Err(format!("{name:?} is not the name of an interface")),
            None => host_network::interfaces(network, &peers)?,
        };
        let names: Vec<String> = names.into_iter().collect();
        let all = names.into_iter().map(Interface::look).collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err("this host reaches no others".to_owned());
        }
        let down = all.iter().map(|one| format!("link set dev {} down\n", one.name)).collect();
        let armed = ArmedDown { ip: Waiting::start("ip")?, down, all: all.clone() };
        arming.record.interfaces.extend(all);
        Ok(Box::new(armed))
    }

    fn recover(&self, record: &Record, _cluster: &Cluster, undone: &mut Undone) {
        for interface in &record.interfaces {
            let name = &interface.name;
            match interface.set_up(&ip) {
                Ok(true) => undone.done.push(format!("{name} was set up")),
                Ok(false) => {}
                Err(error) => undone.failed.push(format!("{name} could not be set up: {error}")),
            }
        }
    }
}

fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    (1..=NAME_CHARS_MAX).contains(&text.len()) && !text.starts_with('-') && text.chars().all(plain)
}

impl Interface {
    /// An interface as it is now, if it can be set down and restored.
    fn look(name: String) -> Result<Self, String> {
        let link = shown("ip", &format!("-oneline link show dev {name}"))?;
        if has_flag(&link, "LOOPBACK") {
            return Err(format!("{name} is the loopback interface, by which this host reaches itself"));
        }
        if !has_flag(&link, "UP") {
            return Err(format!("{name} is down already"));
        }
        // The kernel removes them, and they may be of any origin.
        if !shown("ip", &format!("-6 -oneline addr show dev {name} scope global"))?.is_empty() {
            return Err(format!("{name} would lose its IPv6 addresses"));
        }
        if let Some(lost) = ipv6_lost(&shown("ip", &format!("-6 route show table all dev {name}"))?) {
            return Err(format!("{name} would lose its IPv6 route {lost}"));
        }
        if let Some(upper) = upper(&shown("ip", "-oneline -details link show")?, &name) {
            return Err(format!("{upper} is on top of {name}, and would lose its routes"));
        }
        let routes = routes_lost(&shown("ip", &format!("-4 route show table all dev {name}"))?);
        if let Some(route) =
            routes.iter().find(|route| ["nexthop", "nhid"].iter().any(|word| has(route, word)))
        {
            return Err(format!(
                "{name} would lose a route over several next hops, or a next hop object: {route}"
            ));
        }
        Ok(Self { name, routes })
    }

    /// Sets it up, with the routes that it had, as far as possible. Returns whether it was down. Idempotent.
    fn set_up(&self, ip: &dyn Fn(&str) -> Result<String, String>) -> Result<bool, String> {
        let name = &self.name;
        let was_down = !has_flag(&ip(&format!("-oneline link show dev {name}"))?, "UP");
        if was_down {
            ip(&format!("link set dev {name} up"))?;
        }
        // A gateway has to be on a link before there are routes via it.
        let (via, on_link): (Vec<&String>, Vec<&String>) =
            self.routes.iter().partition(|route| has(route, "via"));
        let all = on_link.into_iter().chain(via);
        errors(all.map(|route| ip(&format!("-4 route replace {route} dev {name}")).map(drop)))?;
        Ok(was_down)
    }
}

fn ip(arguments: &str) -> Result<String, String> {
    shown("ip", arguments)
}

/// Whether a line has a word.
fn has(line: &str, word: &str) -> bool {
    line.split_whitespace().any(|one| one == word)
}

/// The interface on top of another, in what `ip -details link show` says of all: a VLAN, a bridge, a bond. The
/// other end of a pair (`veth`) is beside it, not on top.
fn upper<'a>(shown: &'a str, name: &str) -> Option<&'a str> {
    shown.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let named = words.next()?.trim_end_matches(':');
        let (one, beside) = named.split_once('@').unwrap_or((named, ""));
        if one == name {
            return words.skip_while(|word| *word != "master").nth(1);
        }
        (beside == name && !has(line, "veth")).then_some(one)
    })
}

/// An IPv6 route that neither the kernel nor a router's advertisement makes again.
fn ipv6_lost(shown: &str) -> Option<&str> {
    let again = |line: &&str| ["proto kernel", "proto ra", "table local"].iter().any(|by| line.contains(by));
    shown.lines().map(str::trim).find(|line| !line.is_empty() && !again(line))
}

/// Whether a line of `ip link` has a flag.
fn has_flag(line: &str, flag: &str) -> bool {
    let flags = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    flags.is_some_and(|(flags, _)| flags.split(',').any(|one| one == flag))
}

/// The routes that the kernel removes with the link, and does not make again: all but its own.
fn routes_lost(shown: &str) -> Vec<String> {
    let words = |line: &str| {
        let state = |word: &&str| matches!(*word, "linkdown" | "dead" | "pervasive" | "offload");
        line.split_whitespace().filter(|word| !state(word)).collect::<Vec<&str>>().join(" ")
    };
    shown.lines().map(words).filter(|line| !line.contains("proto kernel") && !line.is_empty()).collect()
}

struct ArmedDown {
    ip: Waiting,
    down: String,
    all: Vec<Interface>,
}

impl Armed for ArmedDown {
    fn inject(&mut self) -> io::Result<()> {
        let done = self.ip.run(&self.down)?;
        match done.status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("ip: {}", String::from_utf8_lossy(&done.stderr).trim()))),
        }
    }

    fn is_undone(&self, _injected: bool) -> bool {
        // One of several may be down.
        true
    }

    fn undo(&mut self) -> Result<(), String> {
        errors(self.all.iter().map(|interface| interface.set_up(&ip).map(drop)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn routes_of_the_kernel_come_back_by_themselves_and_others_are_restored() {
        let shown = "default via 10.0.0.254 proto static metric 100 linkdown\n\
                     10.9.0.0/16 via 10.0.0.2 table 7\n\
                     10.0.0.0/24 proto kernel scope link src 10.0.0.1\n\
                     local 10.0.0.1 table local proto kernel scope host src 10.0.0.1\n";
        assert_eq!(
            routes_lost(shown),
            ["default via 10.0.0.254 proto static metric 100", "10.9.0.0/16 via 10.0.0.2 table 7"]
        );
    }

    #[test]
    fn all_routes_that_can_be_are_restored_and_errors_are_reported() {
        let interface = Interface {
            name: "eth0".to_owned(),
            routes: [
                "default via 10.0.9.1",
                "10.7.0.0/16 broken",
                "10.0.9.1 scope link",
                "10.8.0.0/16 scope link",
            ]
            .map(str::to_owned)
            .to_vec(),
        };
        let done = RefCell::new(Vec::new());
        let ip = |arguments: &str| {
            let routed = |to: &str| done.borrow().iter().any(|one: &String| one.contains(to));
            if arguments.contains("broken") || arguments.contains("via") && !routed("replace 10.0.9.1 scope")
            {
                return Err(format!("{arguments}: refused"));
            }
            done.borrow_mut().push(arguments.to_owned());
            Ok("2: eth0: <BROADCAST>".to_owned())
        };
        let error = interface.set_up(&ip).expect_err("one is refused");
        assert_eq!(error, "-4 route replace 10.7.0.0/16 broken dev eth0: refused");
        let replaced = ["10.0.9.1 scope link", "10.8.0.0/16 scope link", "default via 10.0.9.1"];
        let replaced = replaced.map(|route| format!("-4 route replace {route} dev eth0"));
        assert_eq!(done.borrow()[2..], replaced);
        let error = errors([Err("eth0".to_owned()), Ok(()), Err("eth1".to_owned())]);
        assert_eq!(error, Err("eth0; eth1".to_owned()));
    }

    #[test]
    fn an_interface_with_another_on_top_is_refused() {
        let shown = "1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue state UNKNOWN\\    link/loopback\n\
                     2: eth0: <UP> mtu 1500 qdisc mq state UP\\    link/ether 02:00:00:00:00:01\n\
                     3: eth1: <UP> mtu 1500 qdisc mq master bond0 state UP\\    link/ether\n\
                     4: eth2.7@eth2: <UP> mtu 1500 state UP\\    link/ether 02::01\\    vlan protocol 802.1Q id 7\n\
                     5: eth3@eth4: <UP> mtu 1500 state UP\\    link/ether 02::02\\    veth addrgenmode eui64\n";
        let upper = |name| upper(shown, name);
        assert_eq!(["eth0", "eth1", "eth2"].map(upper), [None, Some("bond0"), Some("eth2.7")]);
        assert_eq!(["eth3", "eth4", "lo"].map(upper), [None; 3]);
    }

    #[test]
    fn ipv6_routes_that_do_not_come_back_by_themselves_are_found() {
        let back = "fe80::/64 proto kernel metric 256 pref medium\n\
                    default via fe80::1 proto ra metric 1024 expires 1794sec\n\
                    multicast ff00::/8 table local metric 256\n";
        assert_eq!(ipv6_lost(back), None);
        let lost = "fd00:7::/64 via fe80::7 metric 1024 pref medium";
        assert_eq!(ipv6_lost(&format!("{back}{lost}\n")), Some(lost));
    }

    #[test]
    fn a_flag_is_a_whole_word() {
        let line = "2: eth0: <BROADCAST,MULTICAST,LOWER_UP> mtu 1500 qdisc noqueue state DOWN";
        assert!(has_flag(line, "LOWER_UP") && !has_flag(line, "UP") && !has_flag("", "UP"));
    }

    #[test]
    fn an_interface_is_no_option() {
        assert!(["eth0", "ens2f0.100", "eth0@if3"].iter().all(|name| is_name(name)));
        assert!(!["", "-force", "a b", "eth0;", "a-name-that-is-long"].iter().any(|name| is_name(name)));
    }
}
