//! A network namespace of a test's own, with faults of the network, by iproute2's `ip` and `tc`. Needs
//! root.

use obol_checks::skipped;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

/// A network namespace, which lives as long as this. It has a loopback interface.
pub(crate) struct Network {
    /// The process that keeps it.
    keeper: Child,
}

impl Network {
    /// A new one. `None` where that is not allowed, which counts as skipped.
    pub(crate) fn new() -> Option<Self> {
        let probe = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
        let probe = probe.expect("util-linux has unshare");
        if !probe.status.success() {
            skipped("network-namespace", String::from_utf8_lossy(&probe.stderr));
            return None;
        }
        let script = "ip link set lo up && tc qdisc add dev lo clsact && echo && exec cat";
        let mut keeper = Command::new("unshare")
            .args(["--net", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = [0];
        std::io::Read::read_exact(keeper.stdout.as_mut().expect("piped"), &mut line)
            .expect("the interface is set up");
        Some(Self { keeper })
    }

    /// A command in it, to which arguments are to be added.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-n", "-t", &self.keeper.id().to_string(), program]);
        command
    }

    /// Applies a program of the classic packet filter to all packets: the result 2 drops one, and
    /// 4294967295 lets it pass.
    fn filter(&self, instructions: &[String]) {
        let program = format!("{},{}", instructions.len(), instructions.join(","));
        let tc = "filter replace dev lo ingress pref 1 handle 1 bpf da bytecode";
        let done = self.command("tc").args(tc.split(' ')).arg(&program).output().expect("iproute2 has tc");
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Drops `permille` of a thousand packets, drawn at random.
    pub(crate) fn lose(&self, permille: u32) {
        let below = u64::from(permille) * (1 << 32) / 1000;
        self.filter(
            &["32 0 0 4294963256", &format!("53 1 0 {below}"), "6 0 0 2", "6 0 0 4294967295"]
                .map(str::to_owned),
        );
    }

    /// Drops all packets between an address and others.
    pub(crate) fn cut(&self, host: Ipv4Addr) {
        let address = host.to_bits();
        // Offsets of the sender and the receiver, from the head of IP.
        let (from, to) = ("32 0 0 4293918732", "32 0 0 4293918736");
        self.filter(
            &[
                from,
                &format!("21 0 2 {address}"),
                to,
                &format!("21 3 2 {address}"),
                to,
                &format!("21 0 1 {address}"),
                "6 0 0 2",
                "6 0 0 4294967295",
            ]
            .map(str::to_owned),
        );
    }

    /// Drops what an address sends on TCP connections that it makes; those that others make to its
    /// gateway's port work, in both directions.
    pub(crate) fn refuse(&self, host: Ipv4Addr, gateway: u16) {
        let address = host.to_bits();
        // Offsets of the protocol, the sender and its port, from the head of IP.
        let (protocol, from, port) = ("48 0 0 4293918729", "32 0 0 4293918732", "40 0 0 4293918740");
        self.filter(
            &[
                protocol,
                "21 0 5 6",
                from,
                &format!("21 0 3 {address}"),
                port,
                &format!("21 1 0 {gateway}"),
                "6 0 0 2",
                "6 0 0 4294967295",
            ]
            .map(str::to_owned),
        );
    }

    /// Drops no more.
    pub(crate) fn heal(&self) {
        self.filter(&["6 0 0 4294967295".to_owned()]);
    }

    /// How many packets were dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        let shown = self.command("tc").args(["-s", "qdisc", "show", "dev", "lo", "clsact"]).output();
        let shown = String::from_utf8(shown.expect("iproute2 has tc").stdout).expect("text");
        let after = shown.split("dropped ").nth(1).and_then(|rest| rest.split(',').next());
        after.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no count in {shown}"))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
