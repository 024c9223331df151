//! A cluster of three hosts over IP, as it is deployed: keys, memory, gateways and daemons of each
//! host by themselves. The hosts are loopback addresses of this one.

use crate::support::bridges::Bridges;
use crate::support::{Ran, Root, Status, alone, freeze, obol, signal, until, until_or};
use obol_fabric::Nanos;
use obol_profiles::Profile;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const HOSTS: u8 = 3;

/// The hosts of one cluster, and what runs on them.
pub(crate) struct Hosts {
    root: Root,
    /// Two bytes of the loopback network that only these hosts use.
    net: [u8; 2],
    /// By host and command.
    daemons: BTreeMap<(u8, String), Daemon>,
    /// Where they are if not on the loopback network of this host. Ends after the daemons.
    bridges: Option<Bridges>,
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
        Self::with(None, "lan")
    }

    fn with(bridges: Option<Bridges>, profile: &str) -> Self {
        let root = Root::new();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root.path()).expect("made");
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let [_, _, high, low] =
            (std::process::id() + (NEXT.fetch_add(1, Ordering::Relaxed) << 8)).to_be_bytes();
        let hosts = Self { root, net: [high, low], daemons: BTreeMap::new(), bridges };
        let mut text = "schema = 1\ncluster = \"default\"\nid = \"00000000000000aa\"\nfabric = \"ip\"\nkeys = \"keys\"\n".to_owned();
        text += &format!("profile = \"{profile}\"\n");
        for n in 1..=HOSTS {
            let address = hosts.address(n);
            text +=
                &format!("[[hosts]]\naddress = \"{address}\"\ncoordinator = {n}\nagents = [\"node-{n}\"]\n");
            if hosts.bridges.is_some() {
                let [first, second] = [1, 2].map(|path| Bridges::address(n, path));
                text += &format!("paths = [\"{first}\", \"{second}\"]\n");
            }
        }
        fs::write(hosts.file("cluster.toml"), text).expect("written");
        hosts
    }

    pub(crate) fn address(&self, host: u8) -> String {
        if self.bridges.is_some() {
            return Bridges::address(host, 1).to_string();
        }
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
        let within = self.bridges.as_ref();
        let mut command =
            within.map_or_else(obol, |all| alone(all.command(host, env!("CARGO_BIN_EXE_obol"))));
        command.arg("--root").arg(self.file(&format!("host-{host}/root"))).args(arguments);
        command.env("XDG_STATE_HOME", self.file("user-state"));
        command
    }

    /// Copies file and keys to a host, and makes its memory.
    pub(crate) fn prepare(&self, host: u8) {
        let folder = self.file(&format!("host-{host}"));
        fs::DirBuilder::new().mode(0o700).create(&folder).expect("made");
        fs::copy(self.file("cluster.toml"), folder.join("cluster.toml")).expect("copied");
        if self.bridges.is_some() {
            fs::copy(self.file("profile.toml"), folder.join("profile.toml")).expect("copied");
        }
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
        Self::new().into_booted()
    }

    /// The same on bridges, with this profile.
    pub(crate) fn booted_within(bridges: Bridges, profile: &str) -> Self {
        let hosts = Self::with(Some(bridges), "profile.toml");
        fs::write(hosts.file("profile.toml"), profile).expect("written");
        hosts.into_booted()
    }

    pub(crate) fn bridges(&self) -> &Bridges {
        self.bridges.as_ref().expect("it has some")
    }

    fn into_booted(self) -> Self {
        let mut hosts = self;
        hosts.keys().ends(0);
        (1..=HOSTS).for_each(|host| hosts.prepare(host));
        (1..=HOSTS).for_each(|host| hosts.boot(host));
        (1..=HOSTS).for_each(|host| drop(hosts.healthy(host)));
        hosts
    }

    pub(crate) fn pid(&self, host: u8, command: &str) -> i64 {
        i64::from(self.daemons[&(host, command.to_owned())].0.id())
    }

    /// Kills a daemon, and waits for its end.
    pub(crate) fn kill(&mut self, host: u8, command: &str) {
        drop(self.daemons.remove(&(host, command.to_owned())).expect("it runs"));
    }

    /// The cluster as a host sees it.
    pub(crate) fn status(&self, host: u8) -> Status {
        let ran = Ran::of(&mut self.on(host, &["status", "--json"]));
        Status { code: ran.code, json: ran.json() }
    }

    pub(crate) fn until(&self, host: u8, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
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
    assert!(after.reasons().contains("web failed, removed by view "), "{after:?}");
    // The file of hosts does not name it.
    for host in 1..=HOSTS {
        hosts.until(host, "its host is known", |status| {
            status.processes().get("web").is_some_and(|row| row["host_number"] == 2)
        });
    }
    // An operator's word on any host counts on all.
    Ran::of(&mut hosts.on(1, &["forget", "web"])).ends(0);
    for host in 1..=HOSTS {
        hosts.until(host, "nobody is missed", |status| status.code == Some(0));
    }
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
    // A user who looks learns of it, before a process that needs the keys is started.
    let fault = "certificate of host 2";
    let status = hosts.status(1);
    let gateway = &status.json["gateway"];
    assert!(gateway["certificate_fault"].as_str().is_some_and(|text| text.contains(fault)), "{gateway}");
    assert!(status.json["warnings"].to_string().contains(fault), "{status:?}");
    let check = Ran::of(&mut hosts.on(1, &["host", "check", &hosts.text("host-1/cluster.toml")])).ends(0);
    assert!(check.err.contains(fault) && !check.out.contains("is good"), "{check:?}");
    // No coordinator has decided: that is a failure, not an empty success.
    Ran::of(&mut hosts.on(1, &["watch", "--once"])).refused(&["knows a view yet"]);
    // The certificate of this host, with the key of another one, which everybody may read.
    fs::copy(one.join("host.pem"), keys.join("host.pem")).expect("copied");
    fs::set_permissions(keys.join("host.key"), fs::Permissions::from_mode(0o644)).expect("set");
    let fault = "is not the key of the certificate";
    let file = hosts.text("host-1/cluster.toml");
    let check = Ran::of(&mut hosts.on(1, &["host", "check", &file])).ends(0);
    assert!(check.err.contains(fault) && check.err.contains("may read it"), "{check:?}");
    assert!(!check.out.contains("is good"), "{check:?}");
    let address = hosts.address(1);
    let doctor = ["doctor", "--for", "50ms", "--hosts", &file, "--address", &address];
    let doctor = Ran::of(&mut hosts.on(1, &doctor));
    assert!(doctor.out.contains(fault), "{doctor:?}");
    fs::remove_file(keys.join("host.key")).expect("it was there");
    let said = Ran::of(&mut hosts.on(1, &["gateway"])).ends(1).err;
    assert!(said.contains("host.key") && said.contains("obol host keys"), "{said}");

    fs::remove_file(hosts.file("all-keys/ca.key")).expect("it was there");
    let said = hosts.keys().ends(1).err;
    assert!(said.contains("the authority's key (ca.key) is missing"), "{said}");
    let file = hosts.text("cluster.toml");
    let text = fs::read_to_string(&file).expect("there");
    fs::write(&file, text.replace("fabric = \"ip\"", "fabric = \"iq\"")).expect("written");
    hosts.keys().refused(&["fabric is \"iq\", but must be one of rdma, ip"]);
    let trusted = text.lines().map(|line| if line.starts_with("keys = ") { "keys = \"none\"" } else { line });
    let trusted = trusted.collect::<Vec<_>>().join("\n");
    fs::write(&file, trusted.replace("fabric = \"ip\"", "fabric = \"rdma\"")).expect("written");
    hosts.keys().refused(&["says keys = \"none\""]);
}

/// Marks and halts need no member, and so no device.
#[test]
fn over_rdma_marks_and_halts_reach_the_other_hosts_by_their_gateways() {
    for keys in ["keys", "none"] {
        let mut hosts = Hosts::new();
        hosts.keys().ends(0);
        let text = fs::read_to_string(hosts.file("cluster.toml")).expect("written");
        let text = text.replace("fabric = \"ip\"", "fabric = \"rdma\"").replace("\"lan\"", "\"soft-roce\"");
        let text = text.replace("keys = \"keys\"", &format!("keys = \"{keys}\""));
        fs::write(hosts.file("cluster.toml"), text).expect("written");
        for host in 1..=HOSTS {
            hosts.prepare(host);
            hosts.start(host, "gateway");
        }
        let dir = |host: u8| hosts.file(&format!("host-{host}/root/default"));
        // The last one may not listen yet; what it lacks is said.
        until("a mark on all hosts", || {
            let marked = Ran::of(&mut hosts.on(1, &["mark", "by host 1", "--json"])).ends(0).json();
            assert!(marked["missed"].is_null() || marked["missed"].as_str().is_some(), "{marked}");
            marked["missed"].is_null()
        });
        let has_mark =
            |host| fs::read_to_string(dir(host).join("marks")).is_ok_and(|all| all.contains("by host 1"));
        until("it is written there", || (1..=HOSTS).all(has_mark));

        let halted = Ran::of(&mut hosts.on(2, &["drill", "halt", "--reason", "the sale is on"])).ends(0);
        assert!(halted.out.contains("are halted on all 3 hosts"), "{halted:?}");
        let is_halted = |host| dir(host).join("drill-halt").exists();
        assert!((1..=HOSTS).all(is_halted));
        Ran::of(&mut hosts.on(3, &["drill", "resume"])).ends(0);
        assert!(!(1..=HOSTS).any(is_halted));

        let status = Ran::of(&mut hosts.on(1, &["status", "--json"])).json();
        assert_eq!(status["gateway"]["alive"], true, "{status}");
        freeze(hosts.pid(1, "gateway"));
        let status = Ran::of(&mut hosts.on(1, &["status", "--json"])).json();
        let is_missed = "the gateway of this host is frozen (stopped): drills, halts and annotations";
        assert!(status["reasons"].to_string().contains(is_missed), "{status}");
    }
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
    for (command, said) in [
        (["kill", "node-2"], "node-2 is of host 2: run `obol kill node-2` on that host"),
        (["stop", "coord-3"], "coord-3 is of host 3"),
        (["kill", "nobody"], "no live process nobody"),
        (["start", "node-1"], "`systemctl start obol-agent@node-1`"),
        (["start", "coord-2"], "`systemctl start obol-coordinator@2` on host 2"),
        (["start", "nobody"], "start nobody by what supervises it"),
    ] {
        Ran::of(&mut hosts.on(1, &command)).refused(&[said]);
    }
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
fn events_say_of_a_coordinator_that_has_not_started_what_is_true() {
    let mut hosts = Hosts::new();
    hosts.keys().ends(0);
    (1..=2).for_each(|host| hosts.prepare(host));
    hosts.start(2, "gateway");
    let why = "the events of coord-2, on host 2, cannot be read and are missing: the process has ended or has not started";
    let events = || Ran::of(&mut hosts.on(1, &["events"])).ends(0);
    let said = until_or(
        "the gateway answers",
        || Some(events()).filter(|ran| ran.err.contains(why)),
        || format!("{:?}", events()),
    );
    assert!(said.err.contains("start the coordinators"), "{said:?}");
}

#[test]
fn a_coordinator_that_is_removed_and_may_run_on_a_silent_host_is_reported() {
    let mut hosts = Hosts::booted();
    // Its gateway answers that it is dead.
    hosts.kill(2, "coordinator run --number 2");
    hosts.until(1, "coord-2 is removed", |status| status.code == Some(1));
    let done = Ran::of(&mut hosts.on(1, &["coordinator", "remove", "2", "--json"])).ends(0).json();
    assert_eq!(done["runs"], false, "{done}");
    hosts.start(2, "coordinator run --number 2");
    hosts.until(1, "coord-2 is a spare", |status| status.json["replacement"]["spares"] == json!(["coord-2"]));
    Ran::of(&mut hosts.on(1, &["coordinator", "add", "2"])).ends(0);
    // None answers for a process that runs.
    hosts.kill(3, "gateway");
    hosts.until(1, "host 3 is excluded", |status| status.reasons().contains("coord-3 not a member"));
    let removed = Ran::of(&mut hosts.on(1, &["coordinator", "remove", "3", "--json"])).ends(1);
    assert_eq!(removed.json()["runs"], Value::Null, "{removed:?}");
    assert!(removed.err.contains("whether it has ended is not known"), "{removed:?}");
    assert!(removed.err.contains("`obol stop coord-3` there"), "{removed:?}");
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
    // By the name of the cluster on any of its hosts.
    root.run(&["kill", "app-2", "--cluster", "default.3"]).ends(0);
    root.until("it is down", |status| status.reasons().contains("app-2 down"));
    root.run(&["start", "app-2", "--cluster", "default.3"]).ends(0);
    root.healthy();
    // A name of another host is refused, whether the file of hosts has it or a process.
    root.run(&["agent", "--name", "node-2"]).refused(&["node-2 is of host 2, and this is host 1"]);
    root.run(&["app", "--node", "node-1", "--name", "app-2"]).refused(&["app-2 is of host 2"]);
    let mut replica = root.command(&["smr", "server", "--name", "smr-1", "--cluster", "default.2"]);
    let mut replica = replica.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    root.until("it is a member", |status| status.incarnation("smr-1") != 0);
    root.run(&["smr", "server", "--name", "smr-1"]).refused(&["smr-1 runs already", "of host 2)"]);
    root.run(&["stop", "smr-1", "--cluster", "default.2"]).ends(0);
    assert!(replica.wait().expect("a child").success());
    root.healthy();
    // A coordinator of another host does not stay as a spare.
    let removed = root.run(&["coordinator", "remove", "3"]).ends(0);
    assert!(removed.out.contains("stopped coord-3"), "{removed:?}");
    root.until("it has ended", |status| status.incarnation("coord-3") == 0);
    root.run(&["coordinator", "add", "3"]).ends(0);
    root.healthy();
    root.run(&["kill", "gateway-3"]).ends(0);
    root.until("the others go on without the host", |status| {
        status.incarnation("app-3") == 0 && status.is_active("app-1") && status.is_active("app-2")
    });
    assert!(of(3).reasons().contains("the gateway of this host is down"), "{:?}", of(3));
    let missing = root.status();
    for name in ["app-3", "coord-3"] {
        let row = missing.process(name);
        assert_eq!((&row["host_number"], &row["alive"]), (&3.into(), &false.into()), "{missing:?}");
    }
    root.run(&["start", "gateway-3"]).ends(0);
    root.healthy();
    let stopped = root.run(&["stop", "gateway-2"]).ends(0);
    assert!(stopped.out.contains("stopped gateway-2") && stopped.out.contains("host 2"), "{stopped:?}");
    root.run(&["start", "gateway-2", "--cluster", "default.3"]).ends(0);
    root.healthy();
    root.run(&["kill", "nobody"]).refused(&[
        "no live process nobody",
        "gateway-3",
        "node-2 (host 2)",
        "app-3 (host 3)",
    ]);
    let shown = root.run(&["status"]).ends(0).out;
    assert!(shown.contains("gateway-1 (pid ") && !shown.contains(" 0 denied"), "{shown}");
    assert!(
        shown.lines().any(|line| line.starts_with("app-3 ") && line.split_whitespace().nth(1) == Some("3"))
    );
    let all = root.run(&["status", "--verbose"]).ends(0).out;
    assert!(all.contains("0 denied") && all.contains("0 strangers"), "{all}");
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

/// The processes that a report has as members.
fn reported(root: &Root, arguments: &[&str]) -> BTreeSet<String> {
    let report = root.run(&[&["report", "--format", "json"], arguments].concat()).json();
    let rows = report["processes"].as_array().expect("a list").iter();
    let members = rows.filter(|row| row["incarnation"].as_u64() > Some(0));
    members.map(|row| row["name"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn a_recording_and_a_report_have_the_processes_of_all_hosts() {
    let (root, up) = Root::with_cluster(&["--hosts", "3"]);
    let listed = root.healthy();
    let expected: BTreeSet<String> = listed.processes().into_keys().map(str::to_owned).collect();
    assert_eq!(expected.len(), 9, "{listed:?}");
    let file = root.note("obolrec");
    let file = file.to_str().expect("text");
    let recorded = || {
        let _ = fs::remove_file(file);
        root.run(&["record", file, "--for", "1s"]).ends(0);
        reported(&root, &[file])
    };
    let live = || reported(&root, &["--for", "500ms"]);
    // On a busy machine one may be out at a moment.
    for source in [&recorded as &dyn Fn() -> BTreeSet<String>, &live] {
        until_or(
            "it has all",
            || (source() == expected).then_some(()),
            || format!("{:?}, not {expected:?}", source()),
        );
    }
    root.run(&["down"]).ends(0);
    up.end().well();
}

/// Stops the gateway of a host of a root's cluster.
fn freeze_gateway(root: &Root, host: u8) -> i64 {
    let name = format!("--name gateway-{host} ");
    let is_it = |command: &str| command.contains(" gateway ") && command.contains(&name);
    let (pid, _) = root.processes().into_iter().find(|(_, command)| is_it(command)).expect("it runs");
    freeze(pid);
    pid
}

#[test]
fn a_host_with_a_frozen_gateway_is_excluded_and_the_processes_of_the_others_can_be_killed_and_started() {
    let (root, up) = Root::with_cluster(&["--hosts", "3"]);
    let before = root.healthy().view();
    let gateway = freeze_gateway(&root, 2);
    let is_out = |status: &Status| ["coord-2", "node-2", "app-2"].iter().all(|n| status.incarnation(n) == 0);
    root.until("the host is excluded", |status| status.view() > before && is_out(status));
    for name in ["app-1", "app-3"] {
        let down = format!("{name} down");
        root.run(&["kill", name]).ends(0);
        root.until("it is down", |status| status.reasons().contains(&down));
        root.run(&["start", name]).ends(0);
    }
    let others = ["node-1", "app-1", "node-3", "app-3"];
    root.until("the others act", |status| others.iter().all(|name| status.is_active(name)));
    signal("CONT", &[gateway]);
    root.healthy();
    root.run(&["down"]).ends(0);
    up.end().well();
}

#[test]
fn a_member_whose_gateway_is_frozen_is_reported_as_unreadable_and_as_nothing_else() {
    let root = Root::new();
    // It stays a member for as long as it is looked at.
    let mut profile = Profile::builtin("lan").expect("it is built in");
    profile.ip.detection = Nanos(60_000_000_000);
    let path = root.note("profile.toml");
    fs::write(&path, profile.to_toml()).expect("written");
    let up = root.up(&["--hosts", "3", "--profile", path.to_str().expect("text")]);
    let gateway = freeze_gateway(&root, 2);
    let silent = ["coord-2", "node-2", "app-2"];
    let says_silence = |status: &Status| {
        let all = status.reasons();
        let of_it: Vec<&str> =
            all.lines().filter(|why| silent.iter().any(|name| why.contains(name))).collect();
        let is_silence = |why: &&str| {
            let whose = if why.contains(", ") { "their" } else { "its" };
            why.contains(&format!("cannot be read: {whose} host does not answer"))
        };
        // On a busy machine the third host may not answer in time either.
        let is_doubt = |why: &&str| why.contains("not seen from this host");
        assert!(of_it.iter().all(|why| is_silence(why) || is_doubt(why)), "{status:#?}");
        let named = |name: &&str| of_it.iter().any(|why| is_silence(why) && why.contains(*name));
        silent.iter().all(named)
    };
    root.until("its silence is reported", says_silence);
    root.run(&["kill", "app-1"]).ends(0);
    root.until("the others go on", |status| says_silence(status) && status.reasons().contains("app-1 down"));
    signal("CONT", &[gateway]);
    root.run(&["start", "app-1"]).ends(0);
    root.healthy();
    root.run(&["down"]).ends(0);
    up.end().well();
}

#[test]
fn down_ends_what_was_started_by_hand_also_on_further_hosts() {
    let (root, up) = Root::with_cluster(&["--hosts", "2"]);
    root.run(&["stop", "node-2"]).ends(0);
    let mut agent = root.command(&["agent", "--name", "node-2", "--cluster", "default.2"]);
    let agent = agent.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    let mut agent = Daemon(agent);
    root.until("it is a member", |status| status.is_active("node-2"));
    root.run(&["down"]).ends(0);
    assert!(agent.0.try_wait().expect("a child").is_some(), "it has ended");
    up.end().well();
}

#[test]
fn down_removes_all_hosts_of_a_crashed_up_and_another_up_takes_their_place() {
    let (root, up) = Root::with_cluster(&["--hosts", "2"]);
    root.crash();
    drop(up);
    let (next, second) = (root.up(&["--hosts", "3"]), root.path().join("default.2"));
    root.crash();
    drop(next);
    // One of fewer hosts takes the place of all.
    let next = root.up(&["--hosts", "2"]);
    assert!(!root.path().join("default.3").exists());
    assert!(second.exists());
    root.crash();
    drop(next);
    root.run(&["down"]).ends(0);
    assert!(!second.exists() && !root.cluster().exists());
}
