//! A cluster of three hosts over IP, as it is deployed: keys, memory, gateways and daemons of each
//! host by themselves. The hosts are loopback addresses of this one.

use crate::support::{Ran, Root, Status, freeze, obol, signal, until_or};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const HOSTS: u8 = 3;

/// The hosts of one cluster, and what runs on them.
pub(crate) struct Hosts {
    root: Root,
    /// Two bytes of the loopback network that only this test uses.
    net: [u8; 2],
    /// By host and command.
    daemons: BTreeMap<(u8, String), Daemon>,
}

/// It is killed with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Hosts {
    /// With a file of hosts and keys. Nothing runs.
    pub(crate) fn new() -> Self {
        let root = Root::new();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root.path()).expect("made");
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let hosts = Self { root, net: [high, low], daemons: BTreeMap::new() };
        let mut text = "schema = 1\ncluster = \"default\"\nid = \"00000000000000aa\"\nfabric = \"ip\"\nprofile = \"lan\"\nkeys = \"keys\"\n".to_owned();
        for n in 1..=HOSTS {
            let address = hosts.address(n);
            text +=
                &format!("[[hosts]]\naddress = \"{address}\"\ncoordinator = {n}\nagents = [\"node-{n}\"]\n");
        }
        fs::write(hosts.file("cluster.toml"), text).expect("written");
        hosts
    }

    pub(crate) fn address(&self, host: u8) -> String {
        let [high, low] = self.net;
        format!("127.{high}.{low}.{host}")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_str().expect("text").to_owned()
    }

    pub(crate) fn keys(&self) -> Ran {
        Ran::of(obol().args(["host", "keys", &self.text("cluster.toml"), "--out", &self.text("all-keys")]))
    }

    /// A command on a host.
    pub(crate) fn on(&self, host: u8, arguments: &[&str]) -> Command {
        let mut command = obol();
        command.arg("--root").arg(self.file(&format!("host-{host}/root"))).args(arguments);
        command.env("XDG_STATE_HOME", self.file("user-state"));
        command
    }

    /// Copies file and keys to a host, and makes its memory.
    pub(crate) fn prepare(&self, host: u8) {
        let folder = self.file(&format!("host-{host}"));
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("made");
        fs::copy(self.file("cluster.toml"), folder.join("cluster.toml")).expect("copied");
        self.copy_keys(host);
        let (file, state) = (folder.join("cluster.toml"), folder.join("state"));
        let (file, state) = (file.to_str().expect("text"), state.to_str().expect("text"));
        let address = self.address(host);
        Ran::of(&mut self.on(host, &["host", "prepare", file, "--address", &address, "--state", state]))
            .ends(0);
    }

    fn copy_keys(&self, host: u8) {
        let (from, to) =
            (self.file("all-keys").join(self.address(host)), self.file(&format!("host-{host}/keys")));
        fs::create_dir_all(&to).expect("made");
        for file in ["ca.pem", "host.pem", "host.key"] {
            fs::copy(from.join(file), to.join(file)).expect("copied");
        }
    }

    pub(crate) fn start(&mut self, host: u8, command: &str) {
        let arguments: Vec<&str> = command.split(' ').collect();
        let child = self.on(host, &arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let daemon = Daemon(child.expect("started"));
        // An earlier one of the name has ended.
        self.daemons.insert((host, command.to_owned()), daemon);
    }

    /// Starts all processes of a host.
    fn boot(&mut self, host: u8) {
        self.start(host, "gateway");
        self.start(host, &format!("coordinator run --number {host}"));
        self.start(host, &format!("agent --name node-{host}"));
    }

    /// All hosts, healthy.
    fn booted() -> Self {
        let mut hosts = Self::new();
        hosts.keys().ends(0);
        (1..=HOSTS).for_each(|host| hosts.prepare(host));
        (1..=HOSTS).for_each(|host| hosts.boot(host));
        (1..=HOSTS).for_each(|host| drop(hosts.healthy(host)));
        hosts
    }

    fn pid(&self, host: u8, command: &str) -> i64 {
        i64::from(self.daemons[&(host, command.to_owned())].0.id())
    }

    /// Kills a daemon, and waits for its end.
    fn kill(&mut self, host: u8, command: &str) {
        drop(self.daemons.remove(&(host, command.to_owned())).expect("it runs"));
    }

    /// The cluster as a host sees it.
    pub(crate) fn status(&self, host: u8) -> Status {
        let ran = Ran::of(&mut self.on(host, &["status", "--json"]));
        Status { code: ran.code, json: ran.json() }
    }

    fn until(&self, host: u8, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        until_or(
            what,
            || Some(self.status(host)).filter(&holds),
            || {
                let events = Ran::of(&mut self.on(host, &["events", "--last", "60"])).out;
                format!("{:#?}\n{events}", self.status(host))
            },
        )
    }

    pub(crate) fn healthy(&self, host: u8) -> Status {
        let agents = |status: &Status| (1..=HOSTS).all(|n| status.is_active(&format!("node-{n}")));
        self.until(host, "the cluster is healthy", |status| status.code == Some(0) && agents(status))
    }
}

#[test]
fn an_annotation_reaches_all_hosts_and_a_missing_gateway_is_reported() {
    let mut hosts = Hosts::booted();
    let marks = |host: u8| {
        let path = hosts.file(&format!("host-{host}/root/default/marks"));
        fs::read_to_string(path).unwrap_or_default()
    };
    let marked = Ran::of(&mut hosts.on(2, &["mark", "deploy 1.4"])).ends(0);
    assert_eq!(marked.err, "", "it has reached all hosts");
    for host in 1..=HOSTS {
        until_or("it is there", || marks(host).contains("deploy 1.4").then_some(()), || marks(host));
    }
    hosts.kill(3, "gateway");
    let marked = Ran::of(&mut hosts.on(1, &["mark", "deploy 1.5"])).ends(0);
    assert!(marked.err.contains("not on all others: host 3"), "{}", marked.err);
}

#[test]
fn hosts_over_ip_are_one_cluster_through_the_deaths_of_its_processes() {
    let mut hosts = Hosts::booted();
    hosts.start(2, "run --name web -- sleep 1000");
    for host in 1..=HOSTS {
        hosts.until(host, "the program is a member on every host", |status| status.is_active("web"));
    }
    let before = hosts.status(1).view();
    hosts.kill(2, "run --name web -- sleep 1000");
    let after = hosts.until(3, "the others go on without it", |status| {
        status.view() > before && status.incarnation("web") == 0
    });
    assert_eq!(after.code, Some(0), "{after:?}");
    // The leader, and its host's agent with it.
    hosts.kill(1, "agent --name node-1");
    hosts.kill(1, "coordinator run --number 1");
    for host in [2, 3] {
        hosts.until(host, "the others decide and act", |status| {
            status.code == Some(1) && ["node-2", "node-3"].iter().all(|name| status.is_active(name))
        });
    }
    hosts.start(1, "coordinator run --number 1");
    hosts.start(1, "agent --name node-1");
    (1..=HOSTS).for_each(|host| drop(hosts.healthy(host)));
}

#[test]
fn a_host_without_its_gateway_is_excluded_and_comes_back_with_it() {
    let mut hosts = Hosts::booted();
    hosts.kill(3, "gateway");
    for host in [1, 2] {
        hosts.until(host, "the others act without the host", |status| {
            let others = ["node-1", "node-2"].iter().all(|name| status.is_active(name));
            status.code == Some(1) && others && status.incarnation("node-3") == 0
        });
    }
    // What runs there is a minority, and must not act for longer than its lease.
    hosts.until(3, "the host knows that it is cut off", |status| !status.is_active("node-3"));
    hosts.start(3, "gateway");
    (1..=HOSTS).for_each(|host| drop(hosts.healthy(host)));
}

#[test]
fn a_frozen_agent_of_another_host_is_excluded_and_comes_back() {
    let hosts = Hosts::booted();
    let agent = hosts.pid(3, "agent --name node-3");
    freeze(agent);
    for host in [1, 2] {
        hosts.until(host, "it is excluded", |status| status.incarnation("node-3") == 0);
    }
    signal("CONT", &[agent]);
    (1..=HOSTS).for_each(|host| drop(hosts.healthy(host)));
}

#[test]
fn keys_are_made_and_made_again_by_one_authority_and_are_for_their_host_alone() {
    let hosts = Hosts::new();
    let first = hosts.keys().ends(0);
    assert!(first.out.contains("made") && first.out.contains(&hosts.address(3)), "{first:?}");
    let authority = fs::read(hosts.file("all-keys/ca.pem")).expect("made");
    let one = hosts.file("all-keys").join(hosts.address(1));
    let before = fs::read(one.join("host.pem")).expect("made");
    for key in [hosts.file("all-keys/ca.key"), one.join("host.key")] {
        let mode = fs::metadata(&key).expect("made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", key.display());
    }
    let second = hosts.keys().ends(0);
    assert!(second.out.contains("used again"), "{second:?}");
    assert_eq!(fs::read(hosts.file("all-keys/ca.pem")).expect("there"), authority);
    assert_ne!(fs::read(one.join("host.pem")).expect("there"), before);

    // Another host's keys, or none.
    hosts.prepare(1);
    let keys = hosts.file("host-1/keys");
    for file in ["host.pem", "host.key"] {
        fs::copy(hosts.file("all-keys").join(hosts.address(2)).join(file), keys.join(file)).expect("copied");
    }
    for command in
        [&["gateway"][..], &["agent", "--name", "node-1"], &["coordinator", "run", "--number", "1"]]
    {
        let said = Ran::of(&mut hosts.on(1, command)).ends(1).err;
        assert!(said.contains("does not allow") && said.contains("obol host keys"), "{said}");
    }
    fs::remove_file(keys.join("host.key")).expect("it was there");
    let said = Ran::of(&mut hosts.on(1, &["gateway"])).ends(1).err;
    assert!(said.contains("host.key") && said.contains("obol host keys"), "{said}");

    fs::remove_file(hosts.file("all-keys/ca.key")).expect("it was there");
    let said = hosts.keys().ends(1).err;
    assert!(said.contains("the authority's key (ca.key) is missing"), "{said}");
    let file = hosts.text("cluster.toml");
    let text = fs::read_to_string(&file).expect("there");
    fs::write(&file, text.replace("fabric = \"ip\"", "fabric = \"iq\"")).expect("written");
    hosts.keys().refused(&["fabric is \"iq\", but must be rdma or ip"]);
    fs::write(&file, text.replace("fabric = \"ip\"\n", "")).expect("written");
    hosts.keys().refused(&["keys are used with fabric = \"ip\" only"]);
}

#[test]
fn a_prepared_host_is_not_ended_by_down_and_notices_that_its_gateway_is_frozen() {
    let mut hosts = Hosts::new();
    hosts.keys().ends(0);
    hosts.prepare(1);
    hosts.start(1, "gateway");
    let says =
        |status: &Status, how: &str| status.reasons().contains(&format!("gateway of this host is {how}"));
    hosts.until(1, "the gateway runs", |status| !says(status, "down"));
    freeze(hosts.pid(1, "gateway"));
    hosts.until(1, "its freeze is noticed", |status| says(status, "frozen"));
    let down = || Ran::of(&mut hosts.on(1, &["down"]));
    down().refused(&["obol host clean", "votes"]);
    let status = Ran::of(&mut hosts.on(1, &["status"])).ends(2);
    assert!(!status.out.contains("obol down") && !status.out.contains("obol up"), "{status:?}");
    let file = hosts.text("host-1/cluster.toml");
    let (state, address) = (hosts.text("host-1/state"), hosts.address(1));
    let again = ["host", "prepare", &file, "--address", &address, "--state", &state];
    let again = Ran::of(&mut hosts.on(1, &again)).ends(0);
    assert!(again.out.contains("is ready already"), "{again:?}");
    hosts.kill(1, "gateway");
    Ran::of(&mut hosts.on(1, &["host", "clean", &file])).ends(0);
    Ran::of(&mut hosts.on(1, &["down"])).refused(&["no cluster"]);
}

#[test]
fn one_host_as_three_dies_comes_back_and_ends_as_one_cluster() {
    let (root, up) = Root::with_cluster(&["--hosts", "3"]);
    let of = |host: u8| root.status_in(&["--cluster", &format!("default.{host}")]);
    for host in [2, 3] {
        let there = of(host);
        assert_eq!((there.code, there.active().len()), (Some(0), 6), "{there:?}");
    }
    let gateway = &root.status().json["gateway"];
    // Three coordinators, an agent of its own host, and observers at times.
    assert!(gateway["counters"]["admitted"].as_u64() >= Some(4), "{gateway}");
    assert_eq!(gateway["counters"]["refused"], 0, "{gateway}");
    assert!(gateway["certificate_days"].as_u64() > Some(3000), "{gateway}");
    root.run(&["kill", "app-2"]).ends(0);
    root.until("it is down", |status| status.reasons().contains("app-2 down"));
    root.run(&["start", "app-2"]).ends(0);
    root.healthy();
    root.run(&["kill", "gateway-3"]).ends(0);
    root.until("the others go on without the host", |status| {
        status.incarnation("app-3") == 0 && status.is_active("app-1") && status.is_active("app-2")
    });
    assert!(of(3).reasons().contains("the gateway of this host is down"), "{:?}", of(3));
    root.run(&["start", "gateway-3"]).ends(0);
    root.healthy();
    root.run(&["kill", "nobody"]).refused(&["no live process nobody"]);
    root.run(&["down"]).ends(0);
    up.end().well();
    root.is_gone();
}

#[test]
fn a_host_that_cannot_be_reached_is_excluded_once_and_the_others_are_not_disturbed() {
    let (root, up) = Root::with_cluster(&["--hosts", "3"]);
    let before = root.healthy().view();
    root.run(&["kill", "gateway-2"]).ends(0);
    let is_out = |status: &Status| ["coord-2", "node-2", "app-2"].iter().all(|n| status.incarnation(n) == 0);
    let excluded =
        root.until("its processes are excluded", |status| status.view() > before && is_out(status));
    let renewals = |status: &Status| {
        status.process("node-1")["counters"]["renewals_on_time"].as_u64().expect("a number")
    };
    // They request to join all the time. Admitted each time, they were the reason for ten views.
    let enough = renewals(&excluded) + 120;
    let later = root.until("the others have renewed their leases many times", |status| {
        assert!(is_out(status), "{status:#?}");
        renewals(status) >= enough
    });
    assert!(later.view() <= excluded.view() + 1, "{excluded:#?}\n{later:#?}");
    let events = root.events();
    let removed: Vec<_> = events.iter().filter(|event| event["event"] == "excluded").collect();
    assert!(removed.len() <= 2, "the coordinator and the agent, once each: {removed:#?}");
    let others = ["node-1", "app-1", "node-3", "app-3"];
    root.until("the others act", |status| others.iter().all(|name| status.is_active(name)));
    root.run(&["start", "gateway-2"]).ends(0);
    root.healthy();
    root.run(&["down"]).ends(0);
    up.end().well();
}

#[test]
fn down_removes_all_hosts_of_a_crashed_up_and_another_up_takes_their_place() {
    let (root, up) = Root::with_cluster(&["--hosts", "2"]);
    root.crash();
    drop(up);
    let (next, second) = (root.up(&["--hosts", "2"]), root.path().join("default.2"));
    assert!(second.exists());
    root.crash();
    drop(next);
    root.run(&["down"]).ends(0);
    assert!(!second.exists() && !root.cluster().exists());
}
