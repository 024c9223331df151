//! The health of a cluster: every command and screen uses this assessment.

use crate::{Deciders, Health, Process, Snapshot};
use obol_fabric::{Name, Nanos, ViewId};
use obol_membership::Kind;
use std::collections::HashSet;

/// While a view changes, programs wait for its lease: that is no outage yet. One that lies further
/// ahead than this is one: without fences, a view waits until older leases have ended.
const CHANGE_MAX: Nanos = Nanos::from_millis(100);

/// Which processes should run.
pub struct Expected {
    /// The coordinators that count for the majority.
    pub deciders: Deciders,
    /// The other processes of the cluster, without those that left.
    pub others: Vec<String>,
    /// Why processes of other hosts cannot be read, if so.
    pub trouble: Option<String>,
    /// The coordinators whose memory on this host is lost: they cannot be restarted.
    pub forgotten: Vec<String>,
    /// The coordinators that cannot save views, and why.
    pub unsaved: Vec<(Name, String)>,
    /// Whether this host should have a gateway, and none runs.
    pub lacks_gateway: bool,
}

/// How to restore the majority.
fn remedy(down: Vec<String>, forgotten: &[String]) -> String {
    let (lost, whole): (Vec<_>, Vec<_>) = down.into_iter().partition(|name| forgotten.contains(name));
    let mut next = Vec::new();
    if !whole.is_empty() {
        next.push(format!("start {}", whole.join(", ")));
    }
    if !lost.is_empty() {
        let lost = lost.join(", ");
        next.push(format!("{lost} lost their memory: see `obol coordinator recover --help`"));
    }
    next.join("; ")
}

/// The problem of a running process, if any.
fn complaint(process: &Process, snapshot: &Snapshot) -> Option<String> {
    let newest = snapshot.view.as_ref().map(|view| view.id);
    let at = process.view.as_ref().map(|view| view.id);
    let is_member = snapshot.is_member(process);
    let what = if process.frozen {
        format!("is frozen (stopped){}", if is_member { "" } else { " and was removed" })
    } else if !is_member && process.left {
        // It may have detached from the cluster.
        return None;
    } else if !is_member && process.lost_agent(snapshot) {
        "has no agent".to_owned()
    } else if !is_member {
        "is not a member".to_owned()
    } else if at != newest {
        let shown = |view: Option<ViewId>| view.map_or("none".to_owned(), |view| view.to_string());
        format!("knows view {}, the newest is {}", shown(at), shown(newest))
    } else if process.kind != Kind::Coordinator && !process.is_active(snapshot.at) {
        "has no active lease".to_owned()
    } else {
        return None;
    };
    Some(format!("{} {what}", process.name))
}

/// The health of a cluster, and the reasons why it is not healthy.
pub fn judge(snapshot: &Snapshot, expected: Expected) -> (Health, Vec<String>) {
    let mut reasons = Vec::new();
    let alive: HashSet<&str> =
        snapshot.all_processes().filter(|p| p.alive).map(|p| p.name.as_str()).collect();
    let live = |name: &str| alive.contains(name);
    let Expected { deciders, others, trouble, forgotten, unsaved, lacks_gateway } = expected;
    let coordinators = deciders.names().len();
    let some_acts = deciders.acting(snapshot).next().is_some();
    let down: Vec<String> = deciders.names().iter().filter(|name| !live(name)).cloned().collect();
    let running = coordinators - down.len();
    let has_majority = deciders.spare(running).is_some();
    if !has_majority && trouble.is_some() {
        reasons.push(format!("{} not seen", down.join(", ")));
    } else if !has_majority {
        reasons.push(format!(
            "coordinator majority lost: {running} of {coordinators} run, no view can be decided and all leases end; {}",
            remedy(down, &forgotten)
        ));
    } else {
        // A coordinator that left still counts for the majority, so it is reported as well.
        let has_left = |name: &String| snapshot.all_processes().any(|p| p.left && p.name.as_str() == name);
        let (left, down): (Vec<String>, Vec<String>) = down.into_iter().partition(has_left);
        for (names, how) in [(down, "down"), (left, "left, and still counts for the majority")] {
            if !names.is_empty() {
                reasons.push(format!("{} {how}", names.join(", ")));
            }
        }
    }
    let down: Vec<&str> = others.iter().map(String::as_str).filter(|name| !live(name)).collect();
    if !down.is_empty() {
        reasons.push(format!("{} down", down.join(", ")));
    }
    if lacks_gateway {
        reasons.push("the gateway of this host is down: other hosts cannot reach it".to_owned());
    }
    if let Some(trouble) = &trouble {
        reasons.push(format!("processes of other hosts cannot be read: {trouble}"));
    }
    for (name, why) in unsaved.iter().filter(|(name, _)| live(name.as_str())) {
        reasons
            .push(format!("{name} cannot save views, so it could not be recovered after a disaster: {why}"));
    }
    reasons.extend(snapshot.all_processes().filter(|p| p.alive).filter_map(|p| complaint(p, snapshot)));
    if alive.is_empty() {
        return (Health::Unreachable, reasons);
    }
    if reasons.is_empty() {
        return (Health::Healthy, reasons);
    }
    // Without access to the other hosts, it is unknown whether a coordinator decides there.
    let decides = has_majority && some_acts || trouble.is_some();
    match outage(snapshot, &others, trouble.is_some()) {
        Outage::None => (Health::Degraded, reasons),
        Outage::Change if decides => (Health::Degraded, reasons),
        Outage::Change => (Health::Unavailable, reasons),
        Outage::Lasting(why) => {
            reasons.insert(0, format!("{why}: no program may act"));
            (Health::Unavailable, reasons)
        }
    }
}

/// Whether any program may act.
enum Outage {
    /// One may, or there is none.
    None,
    /// None may at this moment, and some will in the next.
    Change,
    /// None may for longer than a view change takes, and why.
    Lasting(&'static str),
}

fn outage(snapshot: &Snapshot, wanted: &[String], is_partial: bool) -> Outage {
    let is_app = |p: &Process| {
        p.kind == Kind::App && (p.alive && !p.left || wanted.iter().any(|name| name == p.name.as_str()))
    };
    // An agent stands for the programs that it may get.
    let acting = if snapshot.all_processes().any(is_app) { Kind::App } else { Kind::Agent };
    let mut programs = snapshot.all_processes().filter(|p| p.kind == acting && p.alive).peekable();
    if programs.peek().is_none() && wanted.is_empty() {
        return Outage::None;
    }
    let members: Vec<&Process> = programs.filter(|p| snapshot.is_member(p)).collect();
    if members.is_empty() {
        // They may be on the hosts that are not seen.
        return if is_partial { Outage::None } else { Outage::Lasting("no program is a member") };
    }
    let running: Vec<&&Process> = members.iter().filter(|p| !p.frozen).collect();
    if running.is_empty() {
        return Outage::Lasting("every program is frozen");
    }
    if running.iter().any(|p| p.is_active(snapshot.at)) {
        return Outage::None;
    }
    let mut leases = running.iter().filter(|p| p.holds_lease(snapshot.at)).peekable();
    if leases.peek().is_none() {
        return Outage::Lasting("every lease has ended");
    }
    let soon = snapshot.at + CHANGE_MAX;
    if leases.all(|p| p.lease.is_some_and(|(page, _)| page.start > soon)) {
        return Outage::Lasting("every lease begins later");
    }
    Outage::Change
}
