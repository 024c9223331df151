//! The health of a cluster: every command and screen uses this assessment.

use crate::absence::shown_fates;
use crate::missed::Missing;
use crate::reason::{Fault, Reason};
use crate::store::Store;
use crate::{Absence, Deciders, Health, Process, Snapshot};
use obol_fabric::host::Cluster;
use obol_fabric::{Instant, Name, Nanos, ViewId};
use obol_membership::Kind;
use obol_node::Deployment;
use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

/// While a view changes, programs wait for its lease: that is not an outage yet. One that lies further
/// ahead than this is one: without fences, a view waits until older leases have ended.
const CHANGE_MAX: Nanos = Nanos::from_millis(100);

/// The complaint about a program that may not act. Where none may, that is said once.
const NO_LEASE: &str = "has no active lease";

/// Names of missed members in one reason at most.
const NAMES_MAX: usize = 16;

/// The first reason of a health that is not known.
const NOT_KNOWN: &str = "whether any program may act is not known from this host";

/// Which processes should run.
pub struct Expected {
    /// The coordinators that count for the majority.
    pub deciders: Deciders,
    /// The other processes of the cluster, without those that left, and what they are.
    pub others: Vec<(String, Kind)>,
    /// Members that failed and are expected back, whether or not the cluster was begun with them.
    pub missed: Vec<Missing>,
    /// The replicated store, if there is one.
    pub store: Option<Store>,
    /// Why those of them that are not seen alive are not, in a cluster of several hosts. Others are
    /// down.
    pub absent: BTreeMap<String, Absence>,
    /// How processes of this host have ended, where their supervisor has noted it.
    pub fates: BTreeMap<String, String>,
    /// Why processes of other hosts cannot be read, if so.
    pub trouble: Option<String>,
    /// The coordinators whose memory on this host is lost: they cannot be restarted.
    pub forgotten: Vec<String>,
    /// The coordinators that cannot save views, and why.
    pub unsaved: Vec<(Name, String)>,
    /// The gateway of this host.
    pub gateway: Gateway,
    /// Whether members reach each other by RDMA devices, not by gateways.
    pub has_devices: bool,
    /// Addresses of this host that none of its interfaces has any more.
    pub lost_addresses: Vec<IpAddr>,
    /// What the pulses of other hosts show: silent hosts, lost paths.
    pub pulses: Vec<String>,
    /// When the newest view was seen first.
    pub newest_since: Instant,
}

/// Whether other hosts can reach this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gateway {
    /// A gateway runs, or none is needed.
    Serves,
    /// It is stopped, so it admits no connection and answers none. Its pid.
    Frozen(u32),
    /// There should be one, and none runs.
    Down,
}

impl Gateway {
    /// That of a cluster's host.
    pub fn of(deployment: &Deployment, cluster: &Cluster) -> Self {
        if !deployment.has_gateways() {
            return Self::Serves;
        }
        match cluster.gateway() {
            None => Self::Down,
            Some(info) if info.process.is_stopped() => Self::Frozen(info.process.pid),
            Some(_) => Self::Serves,
        }
    }

    /// `devices` is whether members reach each other by RDMA devices.
    fn complaint(self, devices: bool) -> Option<Reason> {
        let (pid, state, remedy) = match self {
            Self::Serves => return None,
            Self::Frozen(pid) => (Some(pid), "frozen (stopped)", ""),
            Self::Down => (None, "down", "; start it"),
        };
        let cost = if devices {
            "drills, halts and annotations of other hosts do not reach it"
        } else {
            "other hosts cannot reach it"
        };
        let text = format!("the gateway of this host is {state}: {cost}{remedy}");
        Some(Reason::new(Fault::Gateway(pid), text))
    }
}

/// The addresses of this host in the file of hosts that it does not have any more.
fn lost_address_reason(lost: &[IpAddr]) -> Option<Reason> {
    let listed: Vec<String> = lost.iter().map(IpAddr::to_string).collect();
    let (what, are, them) = match lost {
        [] => return None,
        [_] => ("address", "is", "it"),
        _ => ("addresses", "are", "them"),
    };
    Some(Reason::other(format!(
        "the {what} {} of this host {are} on none of its interfaces, so other hosts cannot reach it there: give {them} back \
         (`ip address` shows which it has), or change the file of hosts (docs/deploy.md)",
        listed.join(", ")
    )))
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

/// How to restore a majority when too few of its members are seen: `missing` more of `down` have to run.
fn unseen_remedy(missing: usize, down: &[String]) -> String {
    let what = match down {
        [one] => format!("start {one} on its host"),
        _ if missing == down.len() => format!("start {} on their hosts", down.join(", ")),
        _ => format!("start {missing} of {} on their hosts", down.join(", ")),
    };
    format!(
        "{what}, or find out by `obol status` there whether they are frozen or cut off; coordinators whose memory is lost: see \
         `obol coordinator recover --help`"
    )
}

/// The problem of a running process, if any. The newest view was seen first at `newest_since`.
fn complaint(process: &Process, snapshot: &Snapshot, newest_since: Instant) -> Option<Reason> {
    let newest = snapshot.view.as_ref().map(|view| view.id);
    let at = process.view.as_ref().map(|view| view.id);
    let is_member = snapshot.is_member(process);
    let name = process.name;
    let (fault, what) = if process.frozen {
        let what = format!("is frozen (stopped){}", if is_member { "" } else { " and was removed" });
        let (pid, host, who) = (process.process.pid, process.host, process.incarnation);
        (Fault::Frozen { name, pid, host, who }, what)
    } else if !is_member && process.left {
        // It has detached from the cluster.
        return None;
    } else if !is_member && process.lost_agent(snapshot) {
        let is_agent = |other: &&Process| (other.region, other.seat) == (process.region, 0);
        match snapshot.all_processes().find(is_agent) {
            None => (Fault::Other, "has no agent".to_owned()),
            Some(agent) => {
                let how = if agent.left { "left" } else { "is down" };
                let what = format!("has no agent and cannot act: {} {how}", agent.name);
                (Fault::NoAgent(agent.name), what)
            }
        }
    } else if !is_member {
        (Fault::NoMember(name), "is not a member".to_owned())
    } else if at < newest && process.elsewhere.is_some_and(|copy| copy.read < newest_since) {
        // The copy is older than the view.
        return None;
    } else if at != newest {
        let shown = |view: Option<ViewId>| view.map_or("none".to_owned(), |view| view.to_string());
        let what = format!("knows view {}, the newest is {}", shown(at), shown(newest));
        (newest.map_or(Fault::Other, |newest| Fault::Behind(name, newest)), what)
    } else if process.kind != Kind::Coordinator && !process.is_active(snapshot.at) {
        (Fault::NoLease(name), NO_LEASE.to_owned())
    } else {
        return None;
    };
    Some(Reason::new(fault, format!("{name} {what}")).about([name]))
}

/// The coordinators' majority.
struct Majority {
    exists: bool,
    /// What to do about a majority that this host cannot see, once it can read the others.
    remedy: Option<String>,
}

/// Whether a majority of the coordinators is among those that live, and the reasons why not all are.
fn majority(
    deciders: &Deciders,
    snapshot: &Snapshot,
    alive: &HashSet<&str>,
    expected: &Expected,
    reasons: &mut Vec<Reason>,
) -> Majority {
    let Expected { absent, fates, forgotten, trouble, .. } = expected;
    let coordinators = deciders.names().len();
    let down: Vec<String> =
        deciders.names().iter().filter(|name| !alive.contains(name.as_str())).cloned().collect();
    let running = coordinators - down.len();
    let has_majority = deciders.spare(running).is_some();
    // One that was removed may be frozen or cut off, and the memory of a frozen one still decides.
    let is_unseen = |name: &&String| match absent.get(*name) {
        None | Some(Absence::Down | Absence::Left) => false,
        Some(Absence::Removed(_) | Absence::NoMember | Absence::Unseen | Absence::Silent(_)) => true,
    };
    let unseen = down.iter().filter(is_unseen).count();
    let mut unseen_majority = None;
    if !has_majority && deciders.spare(running + unseen).is_some() {
        reasons.push(Reason::other("no majority of the coordinators is seen from this host"));
        reasons.extend(Absence::reasons(down.iter().map(String::as_str), absent, fates));
        let remedy = unseen_remedy(deciders.majority() - running, &down);
        // What keeps this host from reading the others is to be removed first.
        match trouble {
            None => reasons.push(Reason::to_do(remedy)),
            Some(_) => unseen_majority = Some(remedy),
        }
    } else if !has_majority {
        let names: Vec<&str> = down.iter().map(String::as_str).collect();
        let how = Some(shown_fates(&names, fates)).filter(|how| !how.is_empty());
        let how = how.map_or(String::new(), |how| format!("; {} down{how}", names.join(", ")));
        let fault = Fault::Majority { down: down.clone(), spare: coordinators - deciders.majority() };
        let text = format!(
            "coordinator majority lost: {running} of {coordinators} run, no view can be decided and all leases end{how}; {}",
            remedy(down, forgotten)
        );
        reasons.push(Reason::new(fault, text));
    } else {
        // A coordinator that left still counts for the majority, so it is reported as well.
        let has_left = |name: &String| {
            absent.get(name) == Some(&Absence::Left)
                || snapshot.all_processes().any(|p| p.left && p.name.as_str() == name)
        };
        let (left, down): (Vec<String>, Vec<String>) = down.into_iter().partition(has_left);
        reasons.extend(Absence::reasons(down.iter().map(String::as_str), absent, fates));
        if !left.is_empty() {
            let text = format!("{} left, and still counts for the majority", left.join(", "));
            reasons.push(Reason::new(Fault::Counted(left), text));
        }
    }
    Majority { exists: has_majority, remedy: unseen_majority }
}

/// Who failed and is expected back, and what to do.
fn missed_reason(missed: &[Missing], fates: &BTreeMap<String, String>) -> Option<Reason> {
    let names: Vec<&str> = missed.iter().map(|one| one.name.as_str()).take(NAMES_MAX).collect();
    let last = missed.iter().map(|one| one.at).max()?;
    let more = missed.len().saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (by, which) = match missed {
        [_] => ("by", "start it again, or `obol forget` it"),
        _ => ("last by", "start them again, or `obol forget` them"),
    };
    let how = shown_fates(&names, fates);
    let first = missed.iter().map(|one| one.unix).min()?;
    let text = format!(
        "{}{more} failed, removed {by} view {last}, and did not come back{how}; {which}",
        names.join(", ")
    );
    let named = missed.iter().map(|one| one.name).take(NAMES_MAX);
    Some(Reason::new(Fault::Missed(first), text).about(named))
}

/// The health of a cluster, and the reasons why it is not healthy.
pub fn judge(snapshot: &Snapshot, expected: &Expected) -> (Health, Vec<Reason>) {
    let mut reasons = Vec::new();
    // A process of another kind may have the name of one that is dead.
    let lives = |name: &str, kind| snapshot.all_processes().any(|p| p.alive && p.stands_for(name, kind));
    let coordinate: HashSet<&str> = snapshot
        .all_processes()
        .filter(|p| p.alive && p.kind == Kind::Coordinator)
        .map(|p| p.name.as_str())
        .collect();
    let Expected { deciders, others, absent, fates, trouble, unsaved, gateway, .. } = expected;
    let some_acts = deciders.acting(snapshot).next().is_some();
    let Majority { exists: has_majority, remedy: unseen_majority } =
        majority(deciders, snapshot, &coordinate, expected, &mut reasons);
    let missing = others.iter().filter(|(name, kind)| !lives(name, *kind)).map(|(name, _)| name.as_str());
    reasons.extend(Absence::reasons(missing, absent, fates));
    reasons.extend(missed_reason(&expected.missed, fates));
    reasons.extend(expected.store.as_ref().and_then(Store::complaint).map(Reason::other));
    reasons.extend(gateway.complaint(expected.has_devices));
    reasons.extend(lost_address_reason(&expected.lost_addresses));
    reasons.extend(expected.pulses.iter().map(|text| Reason::new(Fault::Pulses, text.as_str())));
    if let Some(trouble) = trouble {
        reasons.push(Reason::other(format!("processes of other hosts cannot be read: {trouble}")));
    }
    for (name, why) in unsaved.iter().filter(|(name, _)| coordinate.contains(name.as_str())) {
        let text = format!("{name} cannot save views, so it could not be recovered after a disaster: {why}");
        reasons.push(Reason::other(text).about([*name]));
    }
    reasons.extend(
        snapshot
            .all_processes()
            .filter(|p| p.alive)
            .filter_map(|p| complaint(p, snapshot, expected.newest_since)),
    );
    if !snapshot.all_processes().any(|p| p.alive) {
        return (Health::Unreachable, reasons);
    }
    if reasons.is_empty() {
        return (Health::Healthy, reasons);
    }
    let is_partial =
        trouble.is_some() || absent.values().any(|absence| matches!(absence, Absence::Silent(_)));
    match outage(snapshot, others, is_partial) {
        Outage::None => (Health::Degraded, reasons),
        Outage::NoPrograms if has_majority || !is_partial => (Health::Degraded, reasons),
        Outage::Change if has_majority && some_acts => (Health::Degraded, reasons),
        Outage::NoPrograms | Outage::Unseen => not_known(reasons),
        // Without access to the other hosts, it is unknown whether a coordinator decides there.
        Outage::Change if trouble.is_some() => not_known(reasons),
        Outage::Change => {
            reasons.extend(unseen_majority.map(Reason::to_do));
            (Health::Unavailable, reasons)
        }
        Outage::Lasting(why) => {
            if why == Cause::Ended {
                reasons.retain(|reason| !matches!(reason.fault, Fault::NoLease(_)));
            }
            let who = if is_partial { "no program that can be read may act" } else { "no program may act" };
            let fault = if why == Cause::Ended { Fault::Ended } else { Fault::Other };
            reasons.insert(0, Reason::new(fault, format!("{}: {who}", why.text())));
            // That of a majority that is lost is among the reasons,
            // except where trouble came first.
            let remedy = unseen_majority.or_else(|| has_majority.then(|| why.remedy().to_owned()));
            reasons.extend(remedy.map(Reason::to_do));
            // Members on hosts that cannot be read may act.
            if is_partial { not_known(reasons) } else { (Health::Unavailable, reasons) }
        }
    }
}

fn not_known(mut reasons: Vec<Reason>) -> (Health, Vec<Reason>) {
    reasons.insert(0, Reason::other(NOT_KNOWN));
    (Health::Unknown, reasons)
}

/// Whether any program may act.
enum Outage {
    /// One may.
    None,
    /// There is none, and none is missed.
    NoPrograms,
    /// None is seen that is a member; some may be on hosts that cannot be read.
    Unseen,
    /// None may at this moment, and some will in the next.
    Change,
    /// None may for longer than a view change takes, and why.
    Lasting(Cause),
}

/// Why no program may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    NoMember,
    Frozen,
    Ended,
    Later,
}

impl Cause {
    const fn text(self) -> &'static str {
        match self {
            Self::NoMember => "no program is a member",
            Self::Frozen => "every program is frozen",
            Self::Ended => "every lease has ended",
            Self::Later => "every lease begins later",
        }
    }

    /// What to do while a majority of the coordinators runs.
    const fn remedy(self) -> &'static str {
        match self {
            Self::NoMember => {
                "start agents and programs that are down; `obol events` says why one that runs does not join"
            }
            Self::Frozen => "let the frozen processes continue (`kill -CONT PID`), or `obol kill` them",
            Self::Ended => "`obol logs NODE --since 1m` says why a node's agent does not renew its lease",
            Self::Later => "wait: they begin when leases on older views have ended",
        }
    }
}

fn outage(snapshot: &Snapshot, wanted: &[(String, Kind)], is_partial: bool) -> Outage {
    let is_app = |p: &Process| {
        p.kind == Kind::App
            && (p.alive && !p.left || wanted.iter().any(|(name, kind)| p.stands_for(name, *kind)))
    };
    // An agent stands for the programs that it may get.
    let acting = if snapshot.all_processes().any(is_app) { Kind::App } else { Kind::Agent };
    let mut programs = snapshot.all_processes().filter(|p| p.kind == acting && p.alive).peekable();
    if programs.peek().is_none() && wanted.is_empty() {
        return Outage::NoPrograms;
    }
    let members: Vec<&Process> = programs.filter(|p| snapshot.is_member(p)).collect();
    if members.is_empty() {
        // They may be on the hosts that are not seen.
        return if is_partial { Outage::Unseen } else { Outage::Lasting(Cause::NoMember) };
    }
    let running: Vec<&&Process> = members.iter().filter(|p| !p.frozen).collect();
    if running.is_empty() {
        return Outage::Lasting(Cause::Frozen);
    }
    if running.iter().any(|p| p.is_active(snapshot.at)) {
        return Outage::None;
    }
    let mut leases = running.iter().filter(|p| p.holds_lease(snapshot.at)).peekable();
    if leases.peek().is_none() {
        return Outage::Lasting(Cause::Ended);
    }
    let soon = snapshot.at + CHANGE_MAX;
    if leases.all(|p| p.lease.is_some_and(|(page, _)| page.start > soon)) {
        return Outage::Lasting(Cause::Later);
    }
    Outage::Change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Elsewhere;
    use obol_fabric::Address;
    use obol_membership::View;
    use std::sync::Arc;

    const TROUBLE: &str = "the certificate of this host is not valid now";

    /// What host 2 of three sees: its own coordinator, in a view of all three.
    fn seen(absent: &[(&str, Absence)], trouble: Option<&str>) -> (Health, Vec<String>) {
        seen_with(absent, trouble, Vec::new())
    }

    /// The same with more processes of its own.
    fn seen_with(
        absent: &[(&str, Absence)],
        trouble: Option<&str>,
        more: Vec<Process>,
    ) -> (Health, Vec<String>) {
        let name = |text: &str| Name::new(text).expect("a name");
        let all = [1, 2, 3].map(|n| (name(&format!("coord-{n}")), Address::region(n)));
        let view = Arc::new(View::genesis(&all, Nanos(1), Nanos(1)));
        let own = Process {
            process: obol_fabric::host::Process { pid: 7, started: 8 },
            alive: true,
            incarnation: obol_fabric::Incarnation(2),
            view: Some(Arc::clone(&view)),
            ..Process::missing(name("coord-2"), Kind::Coordinator)
        };
        let snapshot = Snapshot {
            at: Instant(1),
            view: Some(Arc::clone(&view)),
            processes: [vec![own], more].concat(),
            remote: Vec::new(),
            health: Health::Unreachable,
            reasons: Vec::new(),
        };
        assert_eq!(snapshot.leader_name(), None, "coord-1 is not seen, and may lead");
        let expected = Expected {
            missed: Vec::new(),
            store: None,
            deciders: Deciders::of(&view),
            others: ["node-1", "node-3"].map(|name| (name.to_owned(), Kind::Agent)).to_vec(),
            fates: [("coord-1", "killed by SIGKILL"), ("node-1", "exit status 3")]
                .map(|(name, how)| (name.to_owned(), how.to_owned()))
                .into(),
            absent: absent.iter().map(|(name, absence)| ((*name).to_owned(), *absence)).collect(),
            trouble: trouble.map(str::to_owned),
            forgotten: Vec::new(),
            unsaved: Vec::new(),
            gateway: Gateway::Serves,
            has_devices: false,
            lost_addresses: Vec::new(),
            pulses: Vec::new(),
            newest_since: Instant(1),
        };
        let (health, reasons) = judge(&snapshot, &expected);
        (health, reasons.into_iter().map(|reason| reason.text).collect())
    }

    const UNSEEN: [(&str, Absence); 4] = [
        ("coord-1", Absence::Unseen),
        ("coord-3", Absence::Unseen),
        ("node-1", Absence::Unseen),
        ("node-3", Absence::Unseen),
    ];

    #[test]
    fn hosts_that_cannot_be_read_are_neither_dead_nor_a_lost_majority() {
        let (health, reasons) = seen(&UNSEEN, Some(TROUBLE));
        assert_eq!(health, Health::Unknown);
        assert_eq!(
            reasons,
            [
                NOT_KNOWN,
                "no majority of the coordinators is seen from this host",
                "coord-1, coord-3 not seen from this host",
                "node-1, node-3 not seen from this host",
                "processes of other hosts cannot be read: the certificate of this host is not valid now",
            ]
        );
    }

    #[test]
    fn programs_that_are_called_like_coordinators_are_none() {
        let program = |text: &str| Process {
            process: obol_fabric::host::Process { pid: 9, started: 8 },
            alive: true,
            ..Process::missing(Name::new(text).expect("a name"), Kind::App)
        };
        let (_, reasons) = seen_with(&[], None, vec![program("coord-1"), program("coord-3")]);
        assert!(
            reasons.iter().any(|reason| {
                reason.starts_with("coordinator majority lost: 1 of 3 run")
                    && reason.ends_with(
                        "coord-1, coord-3 down (coord-1: killed by SIGKILL); start coord-1, coord-3",
                    )
            }),
            "{reasons:?}"
        );
    }

    fn live(text: &str, kind: Kind) -> Process {
        Process {
            process: obol_fabric::host::Process { pid: 9, started: 8 },
            alive: true,
            ..Process::missing(Name::new(text).expect("a name"), kind)
        }
    }

    #[test]
    fn a_program_that_is_called_like_an_agent_does_not_hide_its_death() {
        let (_, reasons) = seen_with(&[], None, vec![live("node-1", Kind::App)]);
        assert!(reasons.contains(&"node-1, node-3 down (node-1: exit status 3)".to_owned()), "{reasons:?}");
        let (_, reasons) = seen_with(&[], None, vec![live("node-1", Kind::Agent)]);
        assert!(reasons.contains(&"node-3 down".to_owned()), "{reasons:?}");
        // The file of hosts does not say which of its members are lease caches.
        let (_, reasons) = seen_with(&[], None, vec![live("node-1", Kind::LeaseCache)]);
        assert!(reasons.contains(&"node-3 down".to_owned()), "{reasons:?}");
    }

    #[test]
    fn who_failed_and_is_not_back_is_said_with_what_to_do() {
        let missing = |text: &str, at| Missing {
            name: Name::new(text).expect("a name"),
            kind: Kind::App,
            who: obol_fabric::Incarnation(7),
            at: ViewId(at),
            unix: 3,
            region: None,
        };
        let fates = [("kv-2".to_owned(), "killed by SIGKILL".to_owned())].into();
        assert_eq!(missed_reason(&[], &fates), None);
        assert_eq!(
            missed_reason(&[missing("kv-2", 9)], &fates),
            Some(Reason::new(
                Fault::Missed(3),
                "kv-2 failed, removed by view 9, and did not come back: killed by SIGKILL; start it again, or `obol \
                 forget` it"
            )
            .about([Name::new("kv-2").expect("a name")]))
        );
        let many: Vec<Missing> = (1..=20).map(|n| missing(&format!("job-{n}"), n)).collect();
        let reason = missed_reason(&many, &fates).expect("a reason").text;
        assert!(reason.contains("job-16 and 4 more failed, removed last by view 20"), "{reason}");
    }

    #[test]
    fn what_makes_a_cluster_available_again_is_said_with_the_names() {
        let down = ["coord-1", "coord-3"].map(str::to_owned);
        assert!(unseen_remedy(1, &down).starts_with("start 1 of coord-1, coord-3 on their hosts"));
        assert!(unseen_remedy(2, &down).starts_with("start coord-1, coord-3 on their hosts"));
        assert!(unseen_remedy(1, &down[..1]).starts_with("start coord-1 on its host"));
        // The own agent is all that is left, and its lease has ended.
        let removed = Absence::Removed(ViewId(9));
        let absent = [("coord-1", removed), ("coord-3", Absence::Unseen), ("node-3", removed)];
        let agent = Process {
            process: obol_fabric::host::Process { pid: 9, started: 8 },
            alive: true,
            ..Process::missing(Name::new("node-1").expect("a name"), Kind::Agent)
        };
        let (health, reasons) = seen_with(&absent, None, vec![agent]);
        assert_eq!(health, Health::Unavailable);
        assert!(reasons[0].ends_with("no program may act"), "{reasons:?}");
        let says = |reasons: &[String]| {
            reasons.iter().any(|why| why.starts_with("start 1 of coord-1, coord-3 on their hosts"))
        };
        assert!(says(&reasons), "{reasons:?}");
        assert!(reasons.iter().all(|why| !why.ends_with(NO_LEASE)), "it was said of all: {reasons:?}");
        // What keeps this host from reading the others comes first.
        let (health, reasons) = seen(&UNSEEN, Some(TROUBLE));
        assert!(health == Health::Unknown && !says(&reasons), "{reasons:?}");
    }

    #[test]
    fn a_cluster_is_not_unavailable_because_of_hosts_that_cannot_be_read() {
        let agent = Process {
            process: obol_fabric::host::Process { pid: 9, started: 8 },
            alive: true,
            incarnation: obol_fabric::Incarnation(3),
            ..Process::missing(Name::new("node-1").expect("a name"), Kind::Agent)
        };
        // The gateways of both other hosts are dead, and the lease of the own agent has ended. It is the
        // member with the last number.
        let absent = [
            ("coord-1", Absence::Silent(1)),
            ("coord-3", Absence::Silent(3)),
            ("node-3", Absence::Silent(3)),
        ];
        let (health, reasons) = seen_with(&absent, None, vec![agent]);
        assert_eq!(health, Health::Unknown, "{reasons:?}");
        assert!(
            reasons.iter().any(|why| why.ends_with("no program that can be read may act")),
            "{reasons:?}"
        );
    }

    #[test]
    fn an_address_that_this_host_has_lost_is_named() {
        assert_eq!(lost_address_reason(&[]), None);
        let said = |lost: &[IpAddr]| lost_address_reason(lost).expect("a reason").text;
        let lost = [IpAddr::from([10, 0, 0, 3]), IpAddr::from([10, 1, 0, 3])];
        assert!(
            said(&lost[..1]).starts_with("the address 10.0.0.3 of this host is on none of its interfaces")
        );
        assert!(said(&lost).starts_with("the addresses 10.0.0.3, 10.1.0.3 of this host are on none"));
    }

    #[test]
    fn a_majority_that_was_read_as_dead_is_lost() {
        let (_, reasons) = seen(&UNSEEN[2..], None);
        assert!(reasons[1].starts_with("coordinator majority lost: 1 of 3 run"), "{reasons:?}");
        assert!(reasons[1].ends_with("start coord-1, coord-3"), "{reasons:?}");
    }

    #[test]
    fn coordinators_that_were_removed_may_decide_all_the_same() {
        // Frozen ones: the memory of one of them has decided the view without the other.
        let removed = |at| Absence::Removed(ViewId(at));
        let (_, reasons) =
            seen(&[("coord-1", removed(8)), ("coord-3", removed(9)), UNSEEN[2], UNSEEN[3]], None);
        assert!(
            reasons.contains(&"no majority of the coordinators is seen from this host".to_owned()),
            "{reasons:?}"
        );
        assert!(reasons.iter().all(|why| !why.contains("majority lost")), "{reasons:?}");
        assert!(reasons.iter().any(|why| why.contains("whether they are frozen or cut off")), "{reasons:?}");
    }

    #[test]
    fn a_process_of_another_host_that_was_removed_is_not_called_down() {
        let removed = Absence::Removed(ViewId(9));
        let absent = [("coord-3", removed), ("node-3", removed), ("node-1", Absence::Unseen)];
        let (_, reasons) = seen(&[&absent[..], &UNSEEN[..1]].concat(), None);
        assert!(
            reasons.contains(&"coord-3 not a member: removed as failed by view 9".to_owned()),
            "{reasons:?}"
        );
        assert!(reasons.iter().all(|reason| !reason.contains("down")), "{reasons:?}");
    }

    #[test]
    fn members_of_a_host_that_does_not_answer_are_reported_with_it() {
        let absent = [("coord-3", Absence::Silent(3)), ("node-3", Absence::Silent(3))];
        let (health, reasons) = seen(&[&absent[..], &UNSEEN[..1], &UNSEEN[2..3]].concat(), None);
        assert_eq!(health, Health::Unknown);
        assert_eq!(reasons[..2], [NOT_KNOWN, "no majority of the coordinators is seen from this host"]);
        for name in ["coord-3", "node-3"] {
            let expected = format!("{name} cannot be read: its host does not answer");
            assert!(reasons.contains(&expected), "{reasons:?}");
        }
    }

    #[test]
    fn a_copy_that_is_older_than_the_newest_view_is_no_fault_of_its_process() {
        let name = Name::new("coord-1").expect("a name");
        let old = View::genesis(&[(name, Address::region(1))], Nanos(1), Nanos(1));
        let newest = Arc::new(View { id: ViewId(old.id.0 + 1), ..old.clone() });
        let behind = Process {
            alive: true,
            incarnation: old.members[0].incarnation,
            view: Some(Arc::new(old)),
            elsewhere: Some(Elsewhere { clock_error: Nanos(1), page: None, read: Instant(50) }),
            ..Process::missing(name, Kind::Coordinator)
        };
        let snapshot = Snapshot {
            at: Instant(90),
            view: Some(newest),
            processes: Vec::new(),
            remote: vec![behind.clone()],
            health: Health::Unreachable,
            reasons: Vec::new(),
        };
        assert_eq!(complaint(&behind, &snapshot, Instant(60)), None);
        let late = complaint(&behind, &snapshot, Instant(50)).expect("a complaint").text;
        assert!(late.starts_with("coord-1 knows view"), "{late}");
        let here = Process { elsewhere: None, ..behind };
        assert!(complaint(&here, &snapshot, Instant(60)).is_some());
    }

    #[test]
    fn a_gateway_is_missed_where_other_hosts_need_it() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("made");
        let name = |text: &str| Name::new(text).expect("a name");
        let profile = obol_profiles::Profile::builtin("laptop").expect("built in");
        let deployment = Deployment::new(1, 0, 0, profile).expect("in bounds");
        let network = obol_node::Network {
            fabric: obol_node::network::Fabric::Ip { keys: folder.path().to_owned() },
            ..obol_node::Network::local(1, std::net::Ipv4Addr::LOCALHOST.into(), 1, 1)
        };
        let site = obol_node::Site::create(&folder.path().join("root"), name("gateway"), deployment.clone())
            .expect("made");
        let state = |deployment: &Deployment| Gateway::of(deployment, &site.cluster);
        assert_eq!(state(&deployment), Gateway::Serves, "none is needed");
        let loopback = [1, 2].map(|n| std::net::Ipv4Addr::new(127, 0, 0, n).into());
        let by_rdma = obol_node::Network {
            fabric: obol_node::network::Fabric::Rdma,
            hosts: loopback.to_vec(),
            ..network.clone()
        };
        let one_by_rdma = obol_node::Network { hosts: Vec::new(), ..by_rdma.clone() };
        assert_eq!(state(&deployment.clone().over(one_by_rdma)), Gateway::Serves, "it has one host");
        for several in [network, by_rdma] {
            assert_eq!(state(&deployment.clone().over(several)), Gateway::Down);
        }
        for (devices, cost) in [(false, "other hosts cannot reach it"), (true, "drills, halts")] {
            let says = |gateway: Gateway| gateway.complaint(devices).map(|reason| reason.text);
            assert_eq!(says(Gateway::Serves), None);
            for gateway in [Gateway::Frozen(7), Gateway::Down] {
                assert!(says(gateway).is_some_and(|text| text.contains(cost)), "{gateway:?}");
            }
        }
    }
}
