//! A cluster over IP whose network fails. The hosts are loopback addresses in a network namespace.

use crate::support::network::Network;
use crate::support::{Root, Status};
use std::net::Ipv4Addr;

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
    let root = Root::within(network);
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
    let root = Root::within(network);
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

#[test]
fn a_cluster_goes_on_while_every_tenth_packet_is_lost() {
    let Some(network) = Network::new() else { return };
    let root = Root::within(network);
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
