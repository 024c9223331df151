//! The file of a cluster of several hosts: its contents are read, and each mistake is reported with
//! its position.

use obol_fabric::Name;
use obol_fabric::host::PER_HOST;
use obol_membership::Kind;
use obol_node::{HostSupervisor, Hosts, Network};
use std::net::SocketAddr;
use std::path::Path;

const THREE: &str = r#"schema = 1
cluster = "prod"
id = "0f3c5a7e91b2d468"
profile = "roce"
keys = "none"

[[hosts]]
address = "10.0.0.1"
coordinator = 1
agents = ["node-1"]

[[hosts]]
address = "10.0.0.2"
coordinator = 3
agents = ["node-2", "node-3"]
caches = ["cache-1"]

[[hosts]]
address = "10.0.0.3"
coordinator = 2
"#;

fn refused(change: impl Fn(String) -> String) -> String {
    Hosts::parse(&change(THREE.to_owned()), Path::new("c.toml")).expect_err("refused").to_string()
}

#[test]
fn each_host_sees_the_cluster_from_its_own_place() {
    let hosts = Hosts::parse(THREE, Path::new("c.toml")).expect("a good file");
    assert_eq!(hosts.find(&["127.0.0.1", "10.0.0.2"].map(|a| a.parse().expect("an address"))), Some(1));
    assert_eq!(hosts.find(&["10.0.0.9".parse().expect("an address")]), None);
    let deployment = hosts.deployment(1, Path::new("c.toml")).expect("a deployment");
    assert_eq!((deployment.coordinators, deployment.apps, deployment.caches), (3, 3, 1));
    let Some(Network { id, host, address, coordinators, .. }) = deployment.network else {
        panic!("a network")
    };
    assert_eq!((id, host, address.to_string().as_str()), (0x0f3c_5a7e_91b2_d468, 2, "10.0.0.2"));
    let listen: Vec<_> = coordinators.iter().map(ToString::to_string).collect();
    // Later coordinators are assigned to the same hosts in turn.
    let spare = ["10.0.0.1:7474", "10.0.0.3:7475", "10.0.0.2:7476", "10.0.0.1:7477"];
    assert_eq!(listen[..3], ["10.0.0.1:7471", "10.0.0.3:7472", "10.0.0.2:7473"]);
    assert_eq!(listen[3..], spare);
}

#[test]
fn processes_are_restarted_where_the_file_names_a_supervisor_and_programs_where_it_names_them() {
    let text =
        THREE.replace("coordinator = 3", "coordinator = 3\nsupervisor = \"systemd start\"\napps = [\"web\"]");
    let hosts = Hosts::parse(&text, Path::new("c.toml")).expect("a good file");
    let deployment = hosts.deployment(0, Path::new("c.toml")).expect("a deployment");
    assert!(deployment.names().contains(&"web".to_owned()), "it should run");
    let name = |name: &str| Name::new(name).expect("a name");
    assert_eq!(deployment.kind(name("web")), Kind::App);
    // Whether or not it runs, and from every host.
    let homes =
        ["coord-1", "coord-2", "node-1", "node-2", "web", "nobody"].map(|who| deployment.home_of(name(who)));
    assert_eq!(homes, [Some(1), Some(3), Some(1), Some(2), Some(2), None]);
    let mut simulated = deployment.clone();
    if let Some(network) = &mut simulated.network {
        (network.members, network.apps, network.homes) = Default::default();
    }
    simulated.apps = 4;
    let homes = ["node-1", "app-2", "app-3", "node-4", "app-5"].map(|who| simulated.home_of(name(who)));
    assert_eq!(homes, [Some(1), Some(2), Some(3), Some(1), None]);
    let network = deployment.network.expect("a network");
    assert_eq!(network.supervisor(2), HostSupervisor::Systemd { start: true });
    for (host, kind, process, restarted) in [
        (1, Kind::Agent, "node-1", false),
        (2, Kind::Agent, "node-2", true),
        (2, Kind::Coordinator, "coord-3", true),
        (2, Kind::App, "web", true),
        (2, Kind::App, "mine", false),
        (3, Kind::Coordinator, "coord-2", false),
        (9, Kind::Agent, "node-9", false),
    ] {
        assert_eq!(network.restarts(host, kind, name(process)), restarted, "{process} on {host}");
    }
    // The regions of coordinators are numbered as they are, those of others by their host.
    let regions = [1, 2, 3, 4, PER_HOST, 2 * PER_HOST + 1].map(|region| network.number_of(region));
    assert_eq!(regions, [Some(1), Some(3), Some(2), Some(1), Some(1), Some(2)]);
}

#[test]
fn each_mistake_is_reported_with_its_position() {
    for (from, to, message) in [
        (
            "address = \"10.0.0.1\"",
            "adress = \"10.0.0.1\"",
            "c.toml:8:1: unknown key hosts.adress; did you mean hosts.address?",
        ),
        ("10.0.0.2", "10.0.0", "c.toml:13:11: hosts.address is \"10.0.0\", but must be an IP address"),
        (
            "coordinator = 3",
            "coordinator = 4",
            "coordinators must be numbered from 1 without gaps; here 1, 2, 4",
        ),
        ("coordinator = 3", "coordinator = 1", "c.toml:14:15: coordinator 1 is on two hosts"),
        ("\"node-3\"", "\"node-1\"", "c.toml:15:21: node-1 is the name of two processes"),
        ("10.0.0.3", "10.0.0.1", "10.0.0.1 is the address of two hosts"),
        ("10.0.0.3", "0.0.0.0", "hosts.address: 0.0.0.0 stands for all addresses of a host"),
        ("10.0.0.3", "224.0.0.1", "hosts.address: 224.0.0.1 is a multicast address"),
        ("10.0.0.3", "255.255.255.255", "hosts.address: 255.255.255.255 is the broadcast address"),
        ("10.0.0.3", "0.1.2.3", "hosts.address: 0.1.2.3 is of 0.0.0.0/8, which no host has"),
        ("10.0.0.3", "240.0.0.1", "hosts.address: 240.0.0.1 is of 240.0.0.0/4, which is reserved"),
        ("10.0.0.3", "::ffff:10.0.0.3", "hosts.address: ::ffff:10.0.0.3 is an IPv4 address in IPv6"),
        ("10.0.0.3", "fe80::1", "hosts.address: fe80::1 is link-local"),
        (
            "10.0.0.3",
            "127.0.0.1",
            "hosts.address: 127.0.0.1 is reached by its own host alone, and other hosts are elsewhere",
        ),
        (
            "0f3c5a7e91b2d468",
            "0f3c",
            "c.toml:3:6: id is the string \"0f3c\", but must be 16 hexadecimal digits",
        ),
        ("schema = 1", "schema = 2", "c.toml:1:10: schema is 2, but this obol reads schema 1 only"),
        ("cluster = \"prod\"\n", "", "c.toml:1:1: missing key cluster, a name"),
        ("caches = [", "caches = [[", "syntax: "),
        (
            "coordinator = 3",
            "coordinator = 3\nsupervisor = \"sistemd\"",
            "c.toml:15:14: hosts.supervisor: \"sistemd\" is not a supervisor: known are none, systemd, systemd start, and \
             command PROGRAM ARGUMENTS; did you mean systemd?",
        ),
        ("coordinator = 3", "coordinator = 3\nsuperviser = \"none\"", "did you mean hosts.supervisor?"),
        ("caches = [", "apps = [\"node-1\"]\ncaches = [", "node-1 is the name of two processes"),
    ] {
        let text = refused(|file| file.replace(from, to));
        assert!(text.contains(message), "{from} -> {to}: {text}");
    }
    let text = refused(|file| file + "\n[groups]\ncoordinators = \"10.0.0.9\"\neveryone = \"239.1.1.1\"\n");
    assert!(text.contains("is not a multicast address"), "{text}");
}

#[test]
fn one_mistake_is_one_problem_and_what_follows_from_it_is_not_reported() {
    for (from, to) in [
        ("coordinator = 3", "cordinator = 3"),
        ("coordinator = 3", "coordinator = \"3\""),
        ("keys = \"none\"", "key = \"none\""),
        ("keys = \"none\"", "fabrik = \"ip\""),
        ("keys = \"none\"", "fabric = \"iq\""),
        ("[[hosts]]", "[[host]]"),
        ("address = \"10.0.0.2\"", "adress = \"10.0.0.2\""),
        ("coordinator = ", "coordinators = "),
    ] {
        let told = refused(|file| file.replacen(from, to, if from == "[[hosts]]" { 3 } else { 1 }));
        assert_eq!(told.lines().count(), 1, "{to}:\n{told}");
    }
    let paths = "paths = [\"10.1.0.1\"]\nagents = [\"node-1\"]";
    let told = refused(|file| {
        file.replacen("agents = [\"node-1\"]", paths, 1)
            .replacen("coordinator = 3", "coordinator = 3\npaths = [\"10.1.0\"]", 1)
            .replacen("coordinator = 2", "coordinator = 2\npaths = [\"10.1.0.3\"]", 1)
    });
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn keys_beside_a_file_with_a_relative_path_are_found_from_any_directory() {
    let text = THREE.replace("keys = \"none\"", "keys = \"keys\"");
    let hosts = Hosts::parse(&text, Path::new("c.toml")).expect("a good file");
    let network = hosts.deployment(0, Path::new("c.toml")).expect("a deployment").network.expect("a network");
    let keys = network.keys().expect("it has keys");
    assert_eq!(keys, std::env::current_dir().expect("one").join("keys"));
}

#[test]
fn over_rdma_the_file_says_by_what_the_hosts_know_each_other() {
    let keys = |text: &str| {
        let hosts = Hosts::parse(text, Path::new("/etc/obol/c.toml")).expect("a good file");
        let network = hosts.deployment(0, Path::new("/etc/obol/c.toml")).expect("a deployment").network;
        network.expect("a network").keys().map(Path::to_owned)
    };
    assert_eq!(keys(THREE), None);
    let with = |keys: &str| THREE.replace("keys = \"none\"", keys);
    assert_eq!(keys(&with("keys = \"keys\"")).as_deref(), Some(Path::new("/etc/obol/keys")));
    let text = refused(|file| file.replace("keys = \"none\"\n", ""));
    assert!(text.contains("keys is missing") && text.contains("keys = \"none\" to trust"), "{text}");
    let text = refused(|file| file.replace("profile = \"roce\"", "profile = \"lan\"\nfabric = \"ip\""));
    assert!(text.contains("c.toml:6:8: keys must be a directory"), "{text}");
}

#[test]
fn over_rdma_each_host_has_a_gateway_below_the_coordinators() {
    let ports = |text: &str| -> Vec<u16> {
        let hosts = Hosts::parse(text, Path::new("c.toml")).expect("a good file");
        let network = hosts.deployment(0, Path::new("c.toml")).expect("a deployment").network;
        network.expect("a network").gateways().iter().map(SocketAddr::port).collect()
    };
    assert_eq!(ports(THREE), [7470; 3]);
    let with = |port: &str| format!("port = {port}\n{THREE}");
    assert_eq!(ports(&with("2")), [1; 3]);
    let text = refused(|file| format!("port = 1\n{file}"));
    assert!(text.contains("c.toml:1:") && text.contains("gateways listen one port below"), "{text}");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = refused(|file| {
        file.replace("10.0.0.2", "here").replace("0f3c5a7e91b2d468", "x").replace("node-3", "")
    });
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn a_missing_profile_is_reported() {
    let hosts =
        Hosts::parse(&THREE.replace("\"roce\"", "\"rocc\""), Path::new("c.toml")).expect("a good file");
    let message = hosts.deployment(0, Path::new("c.toml")).expect_err("no such profile").to_string();
    assert!(message.contains("did you mean roce?"), "{message}");
}

#[test]
fn a_profile_for_one_host_is_refused_and_each_for_several_is_not() {
    let with = |profile: &str| {
        let text = THREE.replace("\"roce\"", &format!("\"{profile}\""));
        Hosts::parse(&text, Path::new("c.toml")).expect("a good file").deployment(0, Path::new("c.toml"))
    };
    for profile in ["laptop", "dedicated"] {
        let message = with(profile).expect_err("made for one host").to_string();
        let expected =
            format!("c.toml: profile {profile} is made for one host: its limits.datagram_bytes is 4096");
        assert!(message.starts_with(&expected), "{message}");
    }
    for profile in ["infiniband", "roce", "soft-roce"] {
        with(profile).expect("made for several hosts");
    }
}

#[test]
fn a_file_that_does_not_end_is_refused() {
    let message = Hosts::load(Path::new("/dev/zero")).expect_err("endless").to_string();
    assert_eq!(message, "/dev/zero: is a device, not a regular file");
}

#[test]
fn every_host_has_an_address_on_each_path_or_none_names_any() {
    let with = |paths: [&str; 3]| {
        (1..).zip(paths).fold(THREE.to_owned(), |text, (n, paths)| {
            let address = format!("address = \"10.0.0.{n}\"\n");
            text.replace(&address, &format!("{address}{paths}\n"))
        })
    };
    let paths = [1, 2, 3].map(|n| format!("paths = [\"10.1.0.{n}\", \"10.2.0.{n}\"]"));
    let paths = paths.each_ref().map(String::as_str);
    let network = |text: &str| {
        let hosts = Hosts::parse(text, Path::new("c.toml")).expect("a good file");
        hosts.deployment(0, Path::new("c.toml")).expect("a deployment").network.expect("a network")
    };
    let shown = network(&with(paths)).paths.iter().map(|of| format!("{of:?}")).collect::<Vec<_>>();
    assert_eq!(shown, ["[10.1.0.1, 10.2.0.1]", "[10.1.0.2, 10.2.0.2]", "[10.1.0.3, 10.2.0.3]"]);
    assert!(network(THREE).paths.is_empty());
    for (third, why) in [
        ("", "c.toml:20:1: 0 paths, and the first host has 2; every host needs an address on each path"),
        ("paths = [\"10.1.0.3\"]", "1 paths, and the first host has 2"),
        ("paths = [\"10.1.0.1\", \"10.2.0.3\"]", "c.toml:22:10: hosts.paths: 10.1.0.1 is there twice"),
        ("paths = []", "hosts.paths must be 1 to 4 addresses"),
        ("paths = \"10.1.0.3\"", "hosts.paths is the string \"10.1.0.3\", but must be a list of addresses"),
        ("path = []", "unknown key hosts.path; did you mean hosts.paths?"),
    ] {
        let text = with([paths[0], paths[1], third]);
        let said = Hosts::parse(&text, Path::new("c.toml")).expect_err(third).to_string();
        assert!(said.contains(why), "{said}");
    }
}
