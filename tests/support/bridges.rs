//! Hosts as network namespaces, joined by bridges: each path between them is a bridge of its own. By
//! iproute2's `ip`. Needs root.

use obol_checks::skipped;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

/// A network namespace, which lives as long as the process that keeps it.
struct Namespace(Child);

impl Namespace {
    fn new() -> Option<Self> {
        let probe = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
        let probe = probe.expect("util-linux has unshare");
        if !probe.status.success() {
            skipped("network-namespace", String::from_utf8_lossy(&probe.stderr));
            return None;
        }
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = [0];
        std::io::Read::read_exact(keeper.stdout.as_mut().expect("piped"), &mut line).expect("it is up");
        Some(Self(keeper))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-n", "-t", &self.0.id().to_string(), program]);
        command
    }

    fn ip(&self, arguments: &str) {
        let done = self.command("ip").args(arguments.split(' ')).output().expect("iproute2 has ip");
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Hosts and the bridges between them.
pub(crate) struct Bridges {
    hosts: Vec<Namespace>,
    switches: Namespace,
}

impl Bridges {
    /// `hosts` hosts with an address on each of `paths` paths. `None` where that is not allowed, which
    /// counts as skipped.
    pub(crate) fn new(hosts: u8, paths: u8) -> Option<Self> {
        let switches = Namespace::new()?;
        for path in 1..=paths {
            switches.ip(&format!("link add bridge{path} type bridge"));
            switches.ip(&format!("link set bridge{path} up"));
        }
        let spaces: Vec<Namespace> = (1..=hosts).map(|_| Namespace::new()).collect::<Option<_>>()?;
        for (host, space) in (1..).zip(&spaces) {
            for path in 1..=paths {
                let (port, inside) = (Self::port(host, path), space.0.id());
                switches.ip(&format!("link add {port} type veth peer name path{path} netns {inside}"));
                switches.ip(&format!("link set {port} master bridge{path} up"));
                let qdisc = format!("qdisc add dev {port} clsact");
                let done = switches.command("tc").args(qdisc.split(' ')).status().expect("iproute2 has tc");
                assert!(done.success(), "tc {qdisc}");
                space.ip(&format!("addr add {}/24 dev path{path}", Self::address(host, path)));
                space.ip(&format!("link set path{path} up"));
            }
        }
        Some(Self { hosts: spaces, switches })
    }

    fn port(host: u8, path: u8) -> String {
        format!("host{host}path{path}")
    }

    /// The address of a host on a path.
    pub(crate) const fn address(host: u8, path: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, path, 0, host)
    }

    /// A command on a host, to which arguments are to be added.
    pub(crate) fn command(&self, host: u8, program: &str) -> Command {
        self.hosts[usize::from(host) - 1].command(program)
    }

    /// The port of a host on a path forwards nothing any more, which neither end notices by itself.
    pub(crate) fn cut(&self, host: u8, path: u8) {
        for direction in ["ingress", "egress"] {
            // A program of the classic packet filter with one instruction: drop.
            let filter = format!(
                "filter replace dev {} {direction} pref 1 handle 1 bpf da bytecode",
                Self::port(host, path)
            );
            self.tc(&filter, Some("1,6 0 0 2"));
        }
    }

    /// It forwards again.
    pub(crate) fn heal(&self, host: u8, path: u8) {
        for direction in ["ingress", "egress"] {
            self.tc(&format!("filter del dev {} {direction} pref 1", Self::port(host, path)), None);
        }
    }

    fn tc(&self, arguments: &str, program: Option<&str>) {
        let done = self.switches.command("tc").args(arguments.split(' ')).args(program).output();
        let done = done.expect("iproute2 has tc");
        assert!(done.status.success(), "tc {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
