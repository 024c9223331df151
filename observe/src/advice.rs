//! What is said beside a reason of bad health: since when it is so, as far as flight recorders and notes
//! of supervisors know it, and what to do where the reason itself does not say it.

use crate::calendar::TwoClocks;
use crate::reason::{Fault, Reason};
use crate::{Absence, Health, ObservedEvent, Observer, Snapshot, timeline};
use obol_fabric::{Incarnation, Instant, Name, ViewId};
use obol_membership::recorder::EventKind;
use obol_node::Deployment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is said beside a reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// Since when it is so, in nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// What to do; the reason itself if it says only that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Its section in docs/alerts.md; `None` if it is that of the cluster's health.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The members that the reason is about; none if it is about the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Name>,
}

impl Advice {
    /// As it is said beside its reason, which may say by itself what to do.
    #[must_use]
    pub fn beside(self, reason: &str) -> Self {
        Self { remedy: self.remedy.filter(|remedy| remedy != reason), ..self }
    }
}

/// The advice beside each reason of the last snapshot, in their order. `events` are those of
/// [`Observer::events`].
pub fn of(observer: &Observer, snapshot: &Snapshot, events: &[ObservedEvent]) -> Vec<Advice> {
    let ended_at = |name: &str| observer.ended_at(name, &snapshot.processes);
    let advisor = Advisor::new(observer.deployment(), snapshot, events, &ended_at);
    observer.judged().iter().map(|reason| advisor.advise(reason)).collect()
}

/// What to do about a health whose reasons are known as texts only, as in a recording; `None` if nothing is wrong.
pub const fn of_health(health: Health) -> Option<&'static str> {
    Some(match health {
        Health::Healthy => return None,
        Health::Degraded => {
            "start what is down (`obol status` says how), continue what is frozen; `obol forget` a member that has gone for good"
        }
        Health::Unknown => "`obol status` on the hosts that cannot be read",
        Health::Unavailable | Health::Unreachable => {
            "start coordinators and agents that are down; `obol status` on any host says which"
        }
    })
}

struct Advisor<'a> {
    deployment: &'a Deployment,
    snapshot: &'a Snapshot,
    events: &'a [ObservedEvent],
    /// When a process of this host ended, as its supervisor noted it.
    ended_at: &'a dyn Fn(&str) -> Option<u64>,
    clocks: TwoClocks,
    /// When each view was decided.
    views: BTreeMap<ViewId, Instant>,
}

impl<'a> Advisor<'a> {
    fn new(
        deployment: &'a Deployment,
        snapshot: &'a Snapshot,
        events: &'a [ObservedEvent],
        ended_at: &'a dyn Fn(&str) -> Option<u64>,
    ) -> Self {
        let mut views = BTreeMap::new();
        timeline::note_views(&mut views, events);
        Self { deployment, snapshot, events, ended_at, clocks: TwoClocks::read(), views }
    }

    fn advise(&self, reason: &Reason) -> Advice {
        let fault = &reason.fault;
        let remedy = if *fault == Fault::ToDo { Some(reason.text.clone()) } else { self.remedy(fault) };
        let section = fault.section().map(str::to_owned);
        Advice { since: self.since(fault), remedy, section, names: reason.names.clone() }
    }

    fn since(&self, fault: &Fault) -> Option<u64> {
        match fault {
            Fault::Absent(Absence::Removed(view), _) => self.decided_at(*view),
            Fault::Absent(Absence::Down, names) => {
                names.iter().filter_map(|name| self.gone_since(name)).min()
            }
            Fault::Majority { down, spare } => {
                let mut gone: Vec<u64> = down.iter().filter_map(|name| self.gone_since(name)).collect();
                gone.sort_unstable();
                // With the next one the majority was lost.
                gone.get(*spare).copied().filter(|_| gone.len() == down.len())
            }
            Fault::Counted(names) => names.iter().filter_map(|name| self.departed_at(name)).min(),
            Fault::Missed(unix) => unix.checked_mul(1_000_000_000),
            Fault::Frozen { name, who, .. } => self.suspected_at(self.was(*name, *who)),
            Fault::NoAgent(agent) => self.gone_since(agent.as_str()),
            Fault::NoMember(name) => {
                // One whose agent is frozen does not note it.
                let noted = self.last(*name, &[EventKind::Excluded, EventKind::Left, EventKind::Started]);
                noted.max(self.departed_at(name.as_str()))
            }
            Fault::Behind(_, newest) => self.decided_at(*newest),
            Fault::NoLease(name) => self.lost_lease_at(Some(*name)),
            Fault::Ended => self.lost_lease_at(None),
            Fault::Absent(_, _) | Fault::Gateway(_) | Fault::Pulses | Fault::ToDo | Fault::Other => None,
        }
    }

    fn decided_at(&self, view: ViewId) -> Option<u64> {
        Some(self.clocks.unix(*self.views.get(&view)?))
    }

    /// When the last member of this name departed.
    fn departed_at(&self, name: &str) -> Option<u64> {
        let gone = &self.snapshot.view.as_ref()?.departed;
        let last =
            gone.iter().filter(|gone| gone.name.as_str() == name).max_by_key(|gone| gone.incarnation)?;
        self.decided_at(last.at)
    }

    fn gone_since(&self, name: &str) -> Option<u64> {
        (self.ended_at)(name).or_else(|| self.departed_at(name))
    }

    /// The incarnation of a process. One that was removed may not have it any more.
    fn was(&self, name: Name, who: Incarnation) -> Incarnation {
        let Some(view) = self.snapshot.view.as_ref().filter(|_| who == Incarnation::NONE) else { return who };
        let gone = view.departed.iter().filter(|gone| gone.name == name);
        gone.map(|gone| gone.incarnation).max().unwrap_or(who)
    }

    /// Since when a member is suspected.
    fn suspected_at(&self, who: Incarnation) -> Option<u64> {
        let mut since = None;
        for ObservedEvent { event, .. } in self.events.iter().filter(|seen| seen.event.record.a == who.0) {
            match event.record.kind {
                EventKind::Suspect | EventKind::Notice => since = since.or(Some(event.at)),
                EventKind::Retract => since = None,
                _ => {}
            }
        }
        since.filter(|_| who != Incarnation::NONE).map(|at| self.clocks.unix(at))
    }

    /// When a process last recorded one of these events.
    fn last(&self, process: Name, kinds: &[EventKind]) -> Option<u64> {
        let is = |seen: &&ObservedEvent| seen.process == process && kinds.contains(&seen.event.record.kind);
        self.events.iter().rev().find(is).map(|seen| self.clocks.unix(seen.event.at))
    }

    /// When the lease of a process ended, or the last of all, unless a view was active there afterwards.
    fn lost_lease_at(&self, of: Option<Name>) -> Option<u64> {
        let is = |seen: &&ObservedEvent| {
            of.is_none_or(|name| seen.process == name)
                && matches!(seen.event.record.kind, EventKind::Active | EventKind::LeaseLost)
        };
        let last = self.events.iter().rev().find(is)?;
        (last.event.record.kind == EventKind::LeaseLost).then(|| self.clocks.unix(last.event.at))
    }

    fn remedy(&self, fault: &Fault) -> Option<String> {
        Some(match fault {
            Fault::Absent(Absence::Down, names) => {
                let mut all: Vec<String> = names.iter().map(|name| self.start(name)).collect();
                all.dedup();
                all.join(", ")
            }
            // They may run.
            Fault::Absent(Absence::Removed(_) | Absence::NoMember, names) => {
                let they = if names.len() == 1 { "it is" } else { "they are" };
                format!(
                    "run `obol status` on {}: {they} down there, frozen, or cut off",
                    self.hosts_of(names)
                )
            }
            Fault::Absent(Absence::Unseen, names) => {
                format!("run `obol status` on {}, and check the gateway there", self.hosts_of(names))
            }
            Fault::Absent(Absence::Silent(host), _) => {
                format!("run `obol status` on host {host}, and check the gateway there")
            }
            Fault::Counted(names) => {
                let each = |name: &String| match name.strip_prefix("coord-") {
                    Some(number) => format!("{}, or `obol coordinator remove {number}`", self.start(name)),
                    None => self.start(name),
                };
                names.iter().map(each).collect::<Vec<_>>().join("; ")
            }
            Fault::Frozen { name, pid, host, .. } => format!(
                "`kill -CONT {pid}`{} lets it continue, `obol kill {name}` ends it",
                self.on(Some(*host))
            ),
            Fault::NoAgent(agent) => self.start(agent.as_str()),
            Fault::NoMember(name) => match self.frozen_agent(*name) {
                Some(agent) => format!(
                    "when its agent {agent} continues, it joins, or is ended if it runs under `obol run` without --on-lost"
                ),
                None => format!("`obol logs {name} --since 5m` says why it does not join"),
            },
            Fault::Behind(name, _) | Fault::NoLease(name) => {
                format!("`obol logs {name} --since 1m` says what it waits for")
            }
            Fault::Gateway(Some(pid)) => format!("`kill -CONT {pid}` lets it continue"),
            Fault::Pulses => {
                "see whether that host runs (`obol status` there) and what its network lost (`ip -s link`)"
                    .to_owned()
            }
            Fault::Absent(Absence::Left, _)
            | Fault::Majority { .. }
            | Fault::Missed(_)
            | Fault::Gateway(None)
            | Fault::Ended
            | Fault::ToDo
            | Fault::Other => return None,
        })
    }

    /// The agent of a program, if it is stopped.
    fn frozen_agent(&self, program: Name) -> Option<Name> {
        let all = || self.snapshot.all_processes();
        let region = all().find(|p| p.name == program && p.seat != 0)?.region;
        all().find(|p| p.region == region && p.seat == 0 && p.frozen).map(|agent| agent.name)
    }

    /// How a process is started again.
    fn start(&self, name: &str) -> String {
        let Ok(named) = Name::new(name) else { return format!("start {name}") };
        let home = self.deployment.home_of(named);
        let how = match &self.deployment.network {
            Some(network) if self.deployment.is_prepared() => {
                let kind = self.deployment.kind(named);
                home.map_or_else(
                    || format!("start {name}"),
                    |home| network.supervisor(home).by_hand(kind, named),
                )
            }
            _ => format!("`obol start {name}`"),
        };
        format!("{how}{}", self.on(home))
    }

    /// On which host something is to be done, if there are several.
    fn on(&self, host: Option<u8>) -> String {
        let has_others = self.deployment.network.as_ref().is_some_and(|network| network.hosts.len() > 1);
        match host.filter(|_| has_others) {
            None => String::new(),
            Some(host) if host == self.deployment.own_host() => " on this host".to_owned(),
            Some(host) => format!(" on host {host}"),
        }
    }

    /// The hosts of these processes, in words.
    fn hosts_of(&self, names: &[String]) -> String {
        let home = |name: &String| self.deployment.home_of(Name::new(name).ok()?);
        let mut hosts: Vec<u8> = names.iter().filter_map(home).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let listed: Vec<String> = hosts.iter().map(u8::to_string).collect();
        match hosts.len() {
            0 if names.len() == 1 => "its host".to_owned(),
            0 => "their hosts".to_owned(),
            1 => format!("host {}", listed.join("")),
            _ => format!("hosts {}", listed.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use obol_fabric::{Address, Nanos};
    use obol_membership::recorder::{Record, Stamped};
    use obol_membership::view::Departed;
    use obol_membership::{Kind, View};
    use obol_node::network::Fabric;
    use obol_node::{HostSupervisor, Network};
    use std::sync::Arc;

    const AT: u64 = 5_000;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    /// An event of a process at a moment.
    fn event(process: &str, at: u64, kind: EventKind, a: u64) -> ObservedEvent {
        let record = Record { kind, reason: 0, a, b: 0 };
        let event = Stamped { number: at, at: Instant(at), record };
        ObservedEvent { process: name(process), kind: Kind::Agent, event, clock_error: Nanos::ZERO }
    }

    fn snapshot() -> Snapshot {
        let mut view = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos(1));
        view.departed = vec![Departed {
            token: 1,
            incarnation: Incarnation(6),
            name: name("node-2"),
            kind: Kind::Agent,
            at: ViewId(9),
            left: false,
        }];
        Snapshot {
            at: Instant(AT),
            view: Some(Arc::new(view)),
            processes: Vec::new(),
            remote: Vec::new(),
            health: Health::Degraded,
            reasons: Vec::new(),
        }
    }

    fn local() -> Deployment {
        let profile = obol_profiles::Profile::builtin("laptop").expect("built in");
        Deployment::new(3, 3, 0, profile).expect("in bounds")
    }

    /// Three hosts under systemd; this is the second one.
    fn hosts() -> Deployment {
        let at = |n: u8| std::net::IpAddr::from([127, 0, 0, n]);
        let network = Network {
            fabric: Fabric::Ip { keys: "/etc/obol/keys".into() },
            host: 2,
            hosts: vec![at(1), at(2), at(3)],
            state: Some("/var/lib/obol".into()),
            members: vec!["node-1".to_owned(), "node-2".to_owned()],
            homes: vec![1, 2],
            supervisors: vec![HostSupervisor::Systemd { start: false }; 3],
            ..Network::local(1, at(2), 1, 3)
        };
        local().over(network)
    }

    /// What is said of a fault: since how long, by the events' clock, and what to do.
    fn said(deployment: &Deployment, events: &[ObservedEvent], fault: Fault) -> (Option<u64>, String) {
        let snapshot = snapshot();
        let ended_at = |name: &str| (name == "app-1").then_some(77);
        let advisor = Advisor::new(deployment, &snapshot, events, &ended_at);
        let Advice { since, remedy, .. } = advisor.advise(&Reason::new(fault, ""));
        let moment = |unix| if unix == 77 { 77 } else { advisor.clocks.instant(unix).0 };
        (since.map(moment), remedy.unwrap_or_default())
    }

    fn frozen(host: u8) -> Fault {
        Fault::Frozen { name: name("node-2"), pid: 4711, host, who: Incarnation(6) }
    }

    #[test]
    fn a_frozen_process_continues_by_its_pid_and_is_frozen_since_it_was_suspected() {
        let events = [
            event("coord-1", 10, EventKind::Suspect, 6),
            event("coord-1", 20, EventKind::Retract, 6),
            event("coord-1", 25, EventKind::Suspect, 7),
            event("node-1", 30, EventKind::Suspect, 6),
            event("coord-1", 40, EventKind::Notice, 6),
        ];
        let remedy = "`kill -CONT 4711` lets it continue, `obol kill node-2` ends it";
        assert_eq!(said(&local(), &events, frozen(1)), (Some(30), remedy.to_owned()));
        assert_eq!(said(&local(), &events[..2], frozen(1)).0, None, "the suspicion was retracted");
        let removed = Fault::Frozen { name: name("node-2"), pid: 4711, host: 1, who: Incarnation::NONE };
        assert_eq!(said(&local(), &events, removed).0, Some(30), "by the view that removed it");
        let (_, remedy) = said(&hosts(), &events, frozen(2));
        assert!(remedy.starts_with("`kill -CONT 4711` on this host lets"), "{remedy}");
    }

    #[test]
    fn who_is_down_is_so_since_its_end_or_the_view_that_removed_it() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let down = |all: &[&str]| Fault::Absent(Absence::Down, names(all));
        let events =
            [event("node-1", 60, EventKind::ViewReceived, 9), event("coord-1", 50, EventKind::Decide, 9)];
        assert_eq!(said(&local(), &events, down(&["app-1"])), (Some(77), "`obol start app-1`".to_owned()));
        assert_eq!(said(&local(), &events, down(&["node-2"])).0, Some(50));
        assert_eq!(said(&local(), &events, down(&["node-3"])).0, None, "no view is known to have removed it");
        let (_, remedy) = said(&hosts(), &events, down(&["node-1", "node-2"]));
        assert_eq!(
            remedy,
            "`systemctl start obol-agent@node-1` on host 1, `systemctl start obol-agent@node-2` on this host"
        );
        let removed = Fault::Absent(Absence::Removed(ViewId(9)), names(&["node-1"]));
        let (since, remedy) = said(&hosts(), &events, removed);
        assert!(
            since == Some(50) && remedy.starts_with("run `obol status` on host 1: it is down"),
            "{remedy}"
        );
        let (_, remedy) = said(&hosts(), &events, Fault::Absent(Absence::Silent(3), names(&["job-1"])));
        assert_eq!(remedy, "run `obol status` on host 3, and check the gateway there");
        for (all, whose) in [(&["job-1"][..], "its host,"), (&["job-1", "job-2"], "their hosts,")] {
            let (_, remedy) = said(&hosts(), &events, Fault::Absent(Absence::Unseen, names(all)));
            assert!(remedy.starts_with(&format!("run `obol status` on {whose}")), "{remedy}");
        }
        let majority = |down: &[&str], spare| Fault::Majority { down: names(down), spare };
        assert_eq!(said(&local(), &events, majority(&["app-1", "node-2"], 1)).0, Some(50), "the second one");
        assert_eq!(said(&local(), &events, majority(&["app-1", "node-3"], 0)).0, None, "one may be earlier");
    }

    #[test]
    fn a_program_whose_agent_is_frozen_is_no_member_since_its_removal_and_joins_with_it() {
        let fault = || Fault::NoMember(name("node-2"));
        let events = [event("node-2", 20, EventKind::Started, 1), event("coord-1", 50, EventKind::Decide, 9)];
        let (since, remedy) = said(&local(), &events, fault());
        assert!(since == Some(50) && remedy.starts_with("`obol logs node-2"), "{since:?} {remedy}");
        let restarted = [&events[..], &[event("node-2", 70, EventKind::Started, 2)]].concat();
        assert_eq!(said(&local(), &restarted, fault()).0, Some(70));
        let mut snapshot = snapshot();
        let agent = Process { region: 3, frozen: true, ..Process::missing(name("node-3"), Kind::Agent) };
        let app = Process { region: 3, seat: 1, ..Process::missing(name("app-3"), Kind::App) };
        snapshot.processes = vec![agent, app];
        let deployment = local();
        let advisor = Advisor::new(&deployment, &snapshot, &[], &|_| None);
        let remedy = advisor.remedy(&Fault::NoMember(name("app-3")));
        assert!(
            remedy
                .as_ref()
                .is_some_and(|remedy| remedy.starts_with("when its agent node-3 continues, it joins")),
            "{remedy:?}"
        );
    }

    #[test]
    fn a_lease_is_lost_since_it_ended_unless_another_view_was_active() {
        let events = [
            event("app-1", 10, EventKind::LeaseLost, 4),
            event("app-2", 20, EventKind::LeaseLost, 4),
            event("app-1", 30, EventKind::Active, 5),
        ];
        let lost = |app: &str| said(&local(), &events, Fault::NoLease(name(app))).0;
        assert_eq!((lost("app-1"), lost("app-2"), lost("app-3")), (None, Some(20), None));
        assert_eq!(said(&local(), &events, Fault::Ended).0, None);
        assert_eq!(said(&local(), &events[..2], Fault::Ended).0, Some(20));
    }
}
