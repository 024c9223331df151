//! A cluster over IP whose network fails. The hosts are loopback addresses in a network namespace.

use crate::support::network::Network;
use crate::support::{Ran, Root, Status, until_or};
use obol_checks::skipped;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The address of a host of `up --hosts`.
const fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, host)
}

/// The cluster as a host sees it.
fn seen_on(root: &Root, host: u8) -> Status {
    match host {
        1 => root.status(),
        _ => root.status_in(&["--cluster", &format!("default.{host}")]),
    }
}

fn until_seen_on(root: &Root, host: u8, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
    let found = || Some(seen_on(root, host)).filter(&holds);
    crate::support::until_or(what, found, || format!("{:#?}", seen_on(root, host)))
}

fn on_time(status: &Status, agent: &str) -> u64 {
    status.process(agent)["renewals"]["on_time"].as_u64().expect("an agent renews")
}

#[test]
fn a_host_that_is_cut_off_is_excluded_and_does_not_act_and_comes_back() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let up = root.up(&["--hosts", "3"]);
    root.network().cut(address(3));
    root.until("the others go on without the host", |status| {
        let gone = ["node-3", "app-3"].iter().all(|name| status.incarnation(name) == 0);
        gone && ["node-1", "node-2", "app-1", "app-2"].iter().all(|name| status.is_active(name))
    });
    until_seen_on(&root, 3, "the host that is cut off does not act", |status| {
        ["node-3", "app-3"].iter().all(|name| !status.is_active(name))
    });
    root.network().heal();
    for host in 1..=3 {
        until_seen_on(&root, host, "all act again", |status| {
            status.code == Some(0) && status.active().len() == 6
        });
    }
    root.run(&["down"]).ends(0);
    up.end().well();
    root.is_gone();
}

#[test]
fn a_leader_that_is_cut_off_is_replaced_and_comes_back() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3"]);
    root.network().cut(address(1));
    until_seen_on(&root, 2, "the others act under another leader", |status| {
        let others = ["node-2", "node-3", "app-2", "app-3"].iter().all(|name| status.is_active(name));
        others && status.incarnation("node-1") == 0 && status.json["leader"] != "coord-1"
    });
    root.until("the former leader's host does not act", |status| {
        ["node-1", "app-1"].iter().all(|name| !status.is_active(name))
    });
    root.network().heal();
    root.until("all act again", |status| status.code == Some(0) && status.active().len() == 6);
}

/// The port of a host's gateway.
fn gateway_port(root: &Root, host: u8) -> u16 {
    let listening = shown(root, "ss", &format!("-Htln src {}", address(host)));
    let local =
        listening.split_whitespace().find_map(|word| word.strip_prefix(&format!("{}:", address(host))));
    local.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("no gateway in {listening}"))
}

/// Waits until the members of a host are excluded and those of the others act, as host 2 sees it.
fn until_excluded(root: &Root, host: u8) {
    until_seen_on(root, 2, "the others go on without the host", |status| {
        let is_here = |name: &&str| name.ends_with(&format!("-{host}"));
        ["node-1", "node-3", "app-1", "app-2", "app-3", "node-2"]
            .iter()
            .all(|name| if is_here(name) { status.incarnation(name) == 0 } else { status.is_active(name) })
    });
}

fn until_whole(root: &Root) {
    for host in 1..=3 {
        until_seen_on(root, host, "all act again", |status| {
            status.code == Some(0) && status.active().len() == 6
        });
    }
}

/// Its address is taken from a host, which says so on the host itself.
#[test]
fn a_host_that_has_lost_its_address_names_it_with_what_to_do() {
    const LOST: &str = "of this host is on none of its interfaces";
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3"]);
    let route = |words: &str| {
        let mut ip = root.network().command("ip");
        Ran::of(ip.args(["route"]).args(words.split(' ')).args(["dev", "lo", "table", "local"])).ends(0);
    };
    // The loopback interface has all addresses of this network.
    route("replace local 127.0.0.1");
    route("replace local 127.0.0.2");
    route("del local 127.0.0.0/8");
    let status = until_seen_on(&root, 3, "it names its address", |status| status.reasons().contains(LOST));
    assert!(status.reasons().contains(&format!("the address 127.0.0.3 {LOST}")), "{status:?}");
    assert!(!root.status().reasons().contains(LOST), "{:?}", root.status());
    route("replace local 127.0.0.0/8");
    until_whole(&root);
}

/// Over IP gateways read, and answer what they see, so a host that is cut off can ask nobody.
#[test]
fn a_diagnosis_names_a_host_that_nobody_reaches_and_says_no_more_than_it_knows() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3"]);
    root.until("all act", |status| status.active().len() == 6);
    let diagnosed = |words: &[&str], code: i32| {
        let ran = root.run(&[&["fabric", "diagnose", "--json"], words].concat()).ends(code);
        ran.json()["fault"].as_str().expect("a word").to_owned()
    };
    assert_eq!(diagnosed(&["3"], 0), "none");
    assert_eq!(diagnosed(&["127.0.0.3"], 0), "none");
    for (host, why) in [("1", "not another host"), ("9", "not another host"), ("x", "neither the number")] {
        root.run(&["fabric", "diagnose", host]).refused(&[why]);
    }
    root.network().cut(address(3));
    assert_eq!(diagnosed(&["3"], 1), "peer");
    let said = root.run(&["fabric", "diagnose", "3"]).ends(1).out;
    assert!(said.contains("at fault: the other host") && said.contains("host 2 by gateways:"), "{said}");
    assert_eq!(diagnosed(&["1", "--cluster", "default.3"], 2), "unknown");
    assert_eq!(diagnosed(&["2"], 0), "none");
    root.network().heal();
    until_whole(&root);
    assert_eq!(diagnosed(&["3"], 0), "none");
}

/// A firewall that blocks outgoing connections: the host is heard and read by all, and reaches nobody. How
/// soon: `links.rs` of the campaign's tests.
#[test]
fn a_host_that_cannot_connect_is_excluded_as_one_that_is_cut_off() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3", "--profile", "lan"]);
    // The last one is the leader's.
    for host in [3, 1] {
        root.network().refuse(address(host), gateway_port(&root, host));
        until_excluded(&root, host);
        until_seen_on(&root, host, "it does not act", |status| {
            [format!("node-{host}"), format!("app-{host}")].iter().all(|name| !status.is_active(name))
        });
        root.network().heal();
        until_whole(&root);
    }
}

#[test]
fn a_cluster_goes_on_while_every_tenth_packet_is_lost() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3"]);
    root.network().lose(100);
    let agents = ["node-1", "node-2", "node-3"];
    let before = root.until("all act", |status| status.active().len() == 6);
    root.until("leases are renewed on time", |status| {
        status.active().len() == 6
            && agents.iter().all(|name| on_time(status, name) >= on_time(&before, name) + 50)
    });
    root.run(&["kill", "app-2"]).ends(0);
    root.until("a death is noticed", |status| status.incarnation("app-2") == 0);
    root.run(&["start", "app-2"]).ends(0);
    root.until("it comes back", |status| status.is_active("app-2"));
    assert!(root.network().dropped() > 50, "{} packets were dropped", root.network().dropped());
}

/// A drill with one fault of the network between hosts, at the host of an agent.
fn host_drill(root: &Root, agent: &str, fault: &str) -> String {
    let at = root.path().join("drill.toml");
    let text = format!(
        "[drill]\nschema = 1\nid = \"network\"\ntitle = \"t\"\nenvironment = \"local\"\n\
         [guards]\ndead_man = \"20s\"\n\
         [targets]\nhost = {{ kind = \"agent\", name = \"{agent}\" }}\n\
         [[steady]]\nprobe = \"processes.up\"\n\
         [[step]]\nname = \"s\"\nfault = {{ {fault}, layer = \"host\", target = \"host\" }}\n"
    );
    std::fs::write(&at, text).expect("written");
    at.to_str().expect("text").to_owned()
}

/// The packet filters of drills in the namespace.
fn filters(root: &Root) -> usize {
    let shown = ["egress", "ingress"].map(|direction| {
        let mut tc = root.network().command("tc");
        let shown = tc.args(["filter", "show", "dev", "lo", direction]).output().expect("iproute2 has tc");
        String::from_utf8(shown.stdout).expect("text")
    });
    // The test's own has preference 1.
    shown
        .iter()
        .flat_map(|all| all.lines())
        .filter(|line| line.contains("handle") && !line.contains("pref 1 "))
        .count()
}

#[test]
fn a_drill_cuts_a_host_off_and_brings_it_back() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3"]);
    let cut = host_drill(&root, "node-3", "kind = \"partition\", for = \"5s\"");
    let plan = root.run(&["drill", "plan", &cut]).ends(0).out;
    for name in ["coord-3", "node-3", "app-3"] {
        assert!(plan.contains(&format!("{name} (host 3, ")), "{plan}");
    }
    // Without the privilege nothing is touched, and the reason is named.
    let mut powerless = root.network().command("setpriv");
    powerless.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_obol")]);
    powerless.args(["drill", "run", &cut, "--root"]).arg(root.path());
    Ran::of(&mut powerless).refused(&["guard means", "partition", "CAP_NET_ADMIN"]);
    assert_eq!(filters(&root), 0);
    let ran = root.run(&["drill", "run", &cut, "--json"]);
    let journal = ran.json();
    assert!(matches!(ran.code, Some(0 | 3 | 6)), "{journal:#}");
    let trial = &journal["trials"][0];
    assert!(trial["stamps"][0]["error"].is_null() && trial["stamps"][0]["host"] == 3, "{journal:#}");
    assert!(trial["failed"].as_u64() >= Some(3) && trial["overlap_ns"] == 0, "{journal:#}");
    assert_eq!(filters(&root), 0);
    root.until("all act again", |status| status.code == Some(0) && status.active().len() == 6);
    // One direction is enough.
    for direction in ["in", "out"] {
        let fault = format!("kind = \"partition\", direction = \"{direction}\", for = \"3s\"");
        let journal = run_until_cue(&root, &host_drill(&root, "node-3", &fault), || {
            assert_eq!(filters(&root), 0, "{direction}");
        });
        assert!(journal["trials"][0]["failed"].as_u64() >= Some(3), "{direction}: {journal:#}");
        root.until("all act again", |status| status.code == Some(0) && status.active().len() == 6);
    }
    let cut = host_drill(&root, "node-3", "kind = \"partition\", for = \"5s\"");
    // Its own host is never cut off from its runner.
    let own = root.run(&["drill", "run", &cut, "--cluster", "default.3"]);
    own.refused(&["this host would be cut off"]);
}

/// The fault agents, or the wardens beside them.
fn fault_agents(root: &Root, wardens: bool) -> Vec<i64> {
    let is_one =
        |command: &str| command.contains(" fault-agent ") && command.contains(" --warden ") == wardens;
    let agents = root.processes().into_iter().filter(|(_, command)| is_one(command));
    let agents: Vec<i64> = agents.map(|(pid, _)| pid).collect();
    assert!(!agents.is_empty(), "there is one");
    agents
}

/// Kills them, and not the wardens beside them.
fn kill_fault_agents(root: &Root) {
    crate::support::signal("KILL", &fault_agents(root, false));
}

#[test]
fn filters_that_a_killed_fault_agent_left_are_removed_before_its_runner_ends() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let _up = root.up(&["--hosts", "3"]);
    let lose = host_drill(&root, "node-3", "kind = \"loss\", percent = 10, for = \"1m\"");
    let mut runner = root.command(&["drill", "run", &lose, "--json"]);
    let mut runner = runner.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
    crate::support::until("packets are lost", || filters(&root) == 2 && root.network().dropped() > 0);
    kill_fault_agents(&root);
    let ended = runner.wait().expect("a child");
    assert_eq!(ended.code(), Some(4), "the runner reports that it lost a fault agent");
    assert_eq!(filters(&root), 0);
    assert!(root.run(&["drill", "recover"]).ends(0).out.contains("nothing is left to undo"));
}

/// A runner whose fault holds: the packets of host 2 are dropped.
fn cutting_runner(root: &Root) -> std::process::Child {
    // Far longer than the test lasts.
    let cut = host_drill(root, "node-2", "kind = \"partition\", for = \"10m\"");
    let started = || {
        let mut runner = root.command(&["drill", "run", &cut, "--json"]);
        let mut runner = runner.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
        let dropped = root.network().dropped();
        let mut ended = || runner.try_wait().expect("a child").is_some();
        let cuts = || filters(root) == 2 && root.network().dropped() > dropped;
        let found = || cuts().then_some(true).or_else(|| ended().then_some(false));
        until_or("packets are dropped, or no cue arrives in time", found, String::new).then_some(runner)
    };
    (0..CUES_MAX).find_map(|_| started()).expect("a cue arrives in time")
}

/// The fault is on another host than its runner, which is killed with the fault agents. It ends all the same:
/// their wardens undo it. If those are killed as well, the host where it hurts names it, and the other one
/// knows that it reaches that host no more.
#[test]
fn what_a_killed_drill_has_left_of_a_network_fault_is_named_on_its_host_or_undone() {
    let Some(network) = Network::new() else { return };
    let root = Root::within(network);
    let _up = root.up(&["--hosts", "2", "--coordinators", "1", "--apps", "2"]);
    let kill = |pids: &[i64]| crate::support::signal("KILL", pids);
    let mut runner = cutting_runner(&root);
    kill(&[&fault_agents(&root, false)[..], &[i64::from(runner.id())]].concat());
    runner.wait().expect("a child");
    crate::support::until("the filters are removed", || filters(&root) == 0);
    root.until("all act again", |status| status.code == Some(0) && status.active().len() == 4);

    let mut runner = cutting_runner(&root);
    // One after the other: each would undo when it sees the next one's end.
    for pids in [fault_agents(&root, true), fault_agents(&root, false), vec![i64::from(runner.id())]] {
        kill(&pids);
    }
    runner.wait().expect("a child");
    const LEFT: [&str; 2] =
        ["packets of the cluster may be dropped", "obol drill recover --cluster default.2"];
    let is_named = |text: &str| LEFT.iter().all(|word| text.contains(word));
    until_seen_on(&root, 2, "it is named, and the host does not act", |status| {
        is_named(&status.json["warnings"].to_string()) && !status.is_active("node-2")
    });
    let doctor = root.run(&["doctor", "--json", "--for", "10ms", "--cluster", "default.2"]).out;
    assert!(is_named(&doctor), "{doctor}");
    let here = root.until("its silence is named", |status| {
        status.reasons().contains("node-2") && status.incarnation("node-2") == 0
    });
    assert!(!here.json["warnings"].to_string().contains("a drill was killed"), "{here:?}");
    assert_eq!(filters(&root), 2);
    root.run(&["drill", "recover", "--cluster", "default.2"]).ends(0);
    assert_eq!(filters(&root), 0);
    root.until("all act again", |status| status.code == Some(0) && status.active().len() == 4);
    assert!(!is_named(&seen_on(&root, 2).json["warnings"].to_string()));
}

/// What a program prints in the namespace.
fn shown(root: &Root, program: &str, arguments: &str) -> String {
    let mut command = root.network().command(program);
    let shown = command.args(arguments.split(' ')).output().expect("iproute2 has it");
    assert!(shown.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&shown.stderr));
    String::from_utf8(shown.stdout).expect("text")
}

/// An interface of the host, by which no other one is reached.
const INTERFACE: &str = "obol-nic";

#[test]
fn a_drill_sets_an_interface_down_and_it_comes_up_with_its_routes() {
    const ROUTE: &str = "10.99.0.0/16 via 10.77.0.2";
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    shown(&root, "ip", &format!("link add {INTERFACE} type veth peer name obol-end"));
    shown(&root, "ip", &format!("addr add 10.77.0.1/24 dev {INTERFACE}"));
    for name in [INTERFACE, "obol-end"] {
        shown(&root, "ip", &format!("link set dev {name} up"));
    }
    shown(&root, "ip", &format!("route add {ROUTE} dev {INTERFACE}"));
    let is_up = || shown(&root, "ip", &format!("-oneline link show dev {INTERFACE}")).contains("UP,LOWER_UP");
    let is_whole = || is_up() && shown(&root, "ip", &format!("route show dev {INTERFACE}")).contains(ROUTE);
    let _up = root.up(&["--hosts", "2", "--coordinators", "1", "--apps", "2"]);
    let drill = |lasts: &str, interface: &str, guards: &str| {
        let fault = format!(
            "kind = \"nic-down\", interface = \"{interface}\", for = \"{lasts}\", expect = \"tolerated\""
        );
        let at = host_drill(&root, "node-2", &fault);
        let text = std::fs::read_to_string(&at).expect("written").replace(", layer = \"host\"", "");
        std::fs::write(&at, text.replace("[guards]\n", &format!("[guards]\n{guards}"))).expect("written");
        at
    };
    const ALLOWED: &str = "allow_nic_down = true\n";
    let refused = |drill: &str, why: &str| root.run(&["drill", "run", drill]).refused(&["guard means", why]);
    refused(&drill("1s", INTERFACE, ""), "allow_nic_down");
    refused(&drill("30s", INTERFACE, ALLOWED), "dead_man");
    let own = root.run(&["drill", "run", &drill("1s", "lo", ALLOWED)]).ends(4).out;
    assert!(own.contains("loopback"), "{own}");
    assert!(is_whole());
    let journal = run_until_cue(&root, &drill("300ms", INTERFACE, ALLOWED), || assert!(is_whole()));
    assert!(journal["trials"][0]["stamps"][0]["error"].is_null(), "{journal:#}");
    assert_eq!(
        (&journal["verdict"], &journal["trials"][0]["failed"]),
        (&"passed".into(), &0.into()),
        "{journal:#}"
    );
    // One whose fault agent was killed comes up as well.
    let long = drill("15s", INTERFACE, ALLOWED);
    let mut runner = (0..CUES_MAX)
        .find_map(|_| {
            let mut runner = root.command(&["drill", "run", &long, "--json"]);
            let mut runner = runner.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts");
            let mut ended = || runner.try_wait().expect("a child").is_some();
            let found = || (!is_up()).then_some(true).or_else(|| ended().then_some(false));
            until_or("the interface is down, or no cue arrives in time", found, String::new).then_some(runner)
        })
        .expect("a cue arrives in time");
    assert!(!is_whole());
    kill_fault_agents(&root);
    assert_eq!(runner.wait().expect("a child").code(), Some(4), "the runner lost its fault agent");
    assert!(is_whole());
}

/// Whether the kernel has what delays packets. `OBOL_NETEM=require` makes its absence a failure.
fn delays_here(root: &Root) -> bool {
    let make = "ip link add obol-probe type ifb && tc qdisc add dev obol-probe root netem delay 1ms";
    let made = root.network().command("sh").args(["-c", make]).output().expect("a shell");
    let _ = root.network().command("ip").args(["link", "del", "dev", "obol-probe"]).output();
    if !made.status.success() {
        let why = String::from_utf8_lossy(&made.stderr);
        assert_ne!(std::env::var("OBOL_NETEM").as_deref(), Ok("require"), "{why}");
        skipped("netem-here", why);
    }
    made.status.success()
}

/// How often a drill is run until its cue arrives in time: on an emulated processor one may not.
const CUES_MAX: u32 = 5;

/// Runs a drill until its fault is injected, and looks after each run. Returns the journal.
fn run_until_cue(root: &Root, drill: &str, after: impl Fn()) -> serde_json::Value {
    let journal = (0..CUES_MAX).find_map(|_| {
        let ran = root.run(&["drill", "run", drill, "--json"]);
        let journal = ran.json();
        assert!(matches!(ran.code, Some(0 | 3 | 6)), "{journal:#}");
        after();
        journal["trials"][0]["stamps"].get(0).is_some().then_some(journal)
    });
    journal.expect("a cue arrives in time")
}

#[test]
fn a_drill_delays_the_packets_of_a_host_and_leaves_the_queues_of_its_interface_alone() {
    const BY: Duration = Duration::from_millis(50);
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    // No more processes than it needs, so that an emulated processor suffices.
    let _up = root.up(&["--hosts", "2", "--coordinators", "1", "--apps", "2"]);
    let devices = || shown(&root, "ip", "-oneline link show").matches("obol-late2").count();
    let queues = || shown(&root, "tc", "qdisc show dev lo");
    let before = queues();
    let slow = host_drill(&root, "node-2", "kind = \"delay\", by = \"50ms\", for = \"500ms\"");
    if !delays_here(&root) {
        let refused = root.run(&["drill", "run", &slow]).ends(4).out;
        assert!(refused.contains("delays and bursts between hosts need the kernel's"), "{refused}");
        assert_eq!((filters(&root), devices(), queues()), (0, 0, before));
        return;
    }
    let clean = || assert_eq!((filters(&root), devices(), queues()), (0, 0, before.clone()));
    let journal = run_until_cue(&root, &slow, clean);
    let stamp = &journal["trials"][0]["stamps"][0];
    assert!(stamp["error"].is_null() && stamp["host"] == 2, "{journal:#}");
    root.until("all act again", |status| status.code == Some(0) && status.active().len() == 4);

    let slow = host_drill(&root, "node-2", "kind = \"delay\", by = \"50ms\", for = \"1m\"");
    let begin = || {
        let mut runner = root.command(&["drill", "run", &slow, "--json"]);
        runner.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts")
    };
    let late = || match devices() {
        0 => String::new(),
        _ => shown(&root, "tc", "-s qdisc show dev obol-late2"),
    };
    let is_late = || filters(&root) == 2 && !late().contains(" 0 pkt");
    let mut runner = (0..CUES_MAX)
        .find_map(|_| {
            let mut runner = begin();
            let mut ended = || runner.try_wait().expect("a child").is_some();
            let found = || is_late().then_some(true).or_else(|| ended().then_some(false));
            until_or("packets go through the device, or no cue arrives in time", found, late)
                .then_some(runner)
        })
        .expect("a cue arrives in time");
    // Both ways of a connection to its gateway are late.
    let port = shown(&root, "ss", "-Htln src 127.0.0.2");
    let port = port
        .split_whitespace()
        .find_map(|word| word.strip_prefix("127.0.0.2:"))
        .expect("a gateway")
        .to_owned();
    let begun = Instant::now();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.2/{port}");
    let connected = root.network().command("bash").args(["-c", &connect]).status().expect("a shell");
    assert!(connected.success() && begun.elapsed() >= 2 * BY, "{:?}", begun.elapsed());
    kill_fault_agents(&root);
    assert_eq!(runner.wait().expect("a child").code(), Some(4), "the runner lost its fault agent");
    assert_eq!((filters(&root), devices(), queues()), (0, 0, before));
}
