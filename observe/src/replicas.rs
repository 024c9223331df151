//! Replicas of a replicated log, as their memory says: what `obol smr status` prints, and what the
//! console shows and records. No replica has to answer, so a frozen one is read as well.

use crate::observer::Observer;
use crate::snapshot::{Process, Snapshot};
use crate::store::Store;
use obol_fabric::host::{Cluster, Observed};
use obol_fabric::{Address, Incarnation, Name};
use obol_membership::view::Member;
use obol_smr::{Activity, Area, Brief, Preset, REPLICA_PREFIX, Standing};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// Reads of a header that its owner is writing.
const TRIES: u32 = 16;

/// All replicas of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// The one that leads, and serves.
    pub leader: Option<Name>,
    /// Its term; without a leader, the term of the replica that has most of the log.
    pub term: Option<u64>,
    /// How the replicas exclude an earlier leader.
    pub preset: Option<String>,
    /// Members that have every entry that the leader knows to be committed, itself included. Absent
    /// without a leader.
    pub redundancy: Option<u64>,
    /// By their names.
    pub replicas: Vec<Replica>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub name: Name,
    /// Whether the newest view has it.
    pub member: bool,
    /// It leads, and serves.
    pub leads: bool,
    /// What it does. Absent if its host has not answered.
    pub activity: Option<Doing>,
    /// Whether it is stopped by a signal.
    pub frozen: bool,
    /// Of another host.
    pub elsewhere: bool,
    /// Absent if it has no log, or if its host has not answered.
    pub log: Option<Log>,
}

/// What a replica does, as it publishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// It follows, or has not begun.
    Follows,
    /// It is to lead, and collects what may have been committed.
    TakesOver,
    /// It leads, and serves.
    Leads,
    /// It is to lead, and has no log.
    Waits,
    /// It is to lead, or leads, and commits nothing: it lacks a majority of the voters.
    Stalls,
}

/// The log of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// In hexadecimal: JSON numbers are not that precise.
    pub id: String,
    /// The term of the newest leader that wrote here.
    pub term: u64,
    /// The term whose leader may write here; 0 if the preset does not restrict that.
    pub granted: u64,
    /// The newest entry that is here.
    pub accepted: u64,
    /// The newest entry that it knows to be committed.
    pub committed: u64,
    /// The newest entry that is a part of its state.
    pub applied: u64,
    /// Entries of the leader's that it has not applied.
    pub lag: u64,
    pub lag_bytes: u64,
    /// Entries up to this one were given up.
    pub pruned: u64,
    /// Whether it lacks some of those, and loads a snapshot.
    pub needs_snapshot: bool,
    /// Bytes of the newest snapshot that it makes, or made, for another replica; 0 for none.
    pub snapshot_bytes: u64,
    /// The snapshot that it loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loads: Option<Loads>,
    /// Bytes of the leader's ring here that were not applied yet.
    pub ring_used_bytes: u64,
    pub ring_bytes: u32,
    /// Sessions of clients in its state.
    pub sessions: u64,
}

/// How far a replica is with a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loads {
    /// The replica that makes it.
    pub from: Name,
    /// Bytes that were loaded, or are just being.
    pub bytes: u64,
    /// Bytes of all, about.
    pub of_bytes: u64,
}

const MEGABYTE: u64 = 1_000_000;

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, bytes, of_bytes } = self;
        write!(f, "loads {} of {} MB from {from}", bytes / MEGABYTE, of_bytes.div_ceil(MEGABYTE))
    }
}

impl From<Activity> for Doing {
    fn from(activity: Activity) -> Self {
        match activity {
            Activity::Follows => Self::Follows,
            Activity::TakesOver => Self::TakesOver,
            Activity::Leads => Self::Leads,
            Activity::Waits => Self::Waits,
            Activity::Stalls => Self::Stalls,
        }
    }
}

/// A replica, and what its memory says.
#[derive(Clone, Copy, Debug)]
struct Found {
    name: Name,
    incarnation: Incarnation,
    is_member: bool,
    frozen: bool,
    elsewhere: bool,
    /// `None` if its host has not answered.
    activity: Option<Activity>,
    standing: Option<Standing>,
}

impl Found {
    /// Whether it is to lead and, as far as its memory can be read here, serves.
    fn leads(&self, leader: Option<Incarnation>) -> bool {
        let is_to_lead = self.is_member && Some(self.incarnation) == leader;
        is_to_lead && self.activity.is_none_or(|activity| activity == Activity::Leads)
    }
}

impl Store {
    /// Reads that of a snapshot; `None` if no replica runs, or if regions have no room for a log.
    pub(crate) fn read(observer: &Observer, snapshot: &Snapshot) -> Option<Self> {
        let area = Area::of(observer.cluster().layout())?;
        let is_replica = |process: &&Process| {
            process.alive && process.seat == 0 && process.name.as_str().starts_with(REPLICA_PREFIX)
        };
        // `None` for a program that only has such a name.
        let brief = |process: &Process| -> Option<Option<Brief>> {
            if process.elsewhere.is_some() {
                let Some(copy) = observer.replica_elsewhere(process.region) else { return Some(None) };
                return Brief::of(&copy.values).map(Some);
            }
            let mut memory = Vec::new();
            let region = observer.region(process.region)?;
            let mut read =
                || region.reader().values(area.brief(), &mut memory).then(|| Brief::of(&memory)).flatten();
            (0..TRIES).find_map(|_| read()).map(Some)
        };
        let each = snapshot
            .all_processes()
            .filter(is_replica)
            .filter_map(|process| Some((snapshot.is_member(process) && !process.frozen, brief(process)?)));
        let mut all: Vec<_> = each.collect();
        let network = observer.deployment().network.as_ref();
        let is_elsewhere = |at| network.is_some_and(|network| !network.is_here(at));
        all.extend(unread_members(snapshot, is_elsewhere).map(|_| (true, None)));
        Self::of(&all)
    }
}

/// The replicas of other hosts that are members and have no row, because their memory cannot be read.
fn unread_members(
    snapshot: &Snapshot,
    is_elsewhere: impl Fn(Address) -> bool,
) -> impl Iterator<Item = &Member> {
    let members = snapshot.view.iter().flat_map(|view| &view.members);
    members.filter(move |member| {
        let is_read = || snapshot.all_processes().any(|p| p.incarnation == member.incarnation && p.alive);
        let is_replica = member.address.seat == 0 && member.name.as_str().starts_with(REPLICA_PREFIX);
        is_replica && is_elsewhere(member.address) && !is_read()
    })
}

/// The replica that leads, or has to: without views, a leader says so itself.
fn leader_of(found: &[Found], eldest: Option<Incarnation>) -> Option<Incarnation> {
    let leads_itself = |one: &&Found| {
        let preset = one.standing.and_then(|standing| standing.preset());
        let without_views = matches!(preset, Some(Preset::Mu | Preset::Dare));
        one.is_member && without_views && one.activity == Some(Activity::Leads)
    };
    let by_itself =
        found.iter().filter(leads_itself).max_by_key(|one| one.standing.map(|standing| standing.granted));
    by_itself.map(|one| one.incarnation).or(eldest)
}

/// What a replica does and where it stands, by its memory.
fn decode(area: &Area, memory: &[u8]) -> Option<(Activity, Option<Standing>)> {
    Some((Activity::of(memory)?, Standing::of(area, memory)))
}

/// Copies the memory of a replica of this host.
fn memory(cluster: &Cluster, area: &Area, region: u32) -> Option<(Activity, Option<Standing>)> {
    // It may have ended in between.
    let observed = Observed::open(cluster, region).ok()?;
    let mut memory = Vec::new();
    let mut read = || {
        let is_held = observed.reader().values(area.shared(), &mut memory);
        is_held.then(|| decode(area, &memory)).flatten()
    };
    (0..TRIES).find_map(|_| read())
}

fn read_one(observer: &mut Observer, area: &Area, process: &Process, snapshot: &Snapshot) -> Found {
    let elsewhere = process.elsewhere.is_some();
    let read = if elsewhere {
        let copy = observer.replica_elsewhere(process.region);
        copy.and_then(|copy| decode(area, &copy.values))
    } else {
        memory(observer.cluster(), area, process.region)
    };
    observer.count_read(area.shared().len());
    Found {
        name: process.name,
        incarnation: process.incarnation,
        is_member: snapshot.is_member(process),
        frozen: process.frozen,
        elsewhere,
        // What was not read of this host leads nothing.
        activity: read.map(|(activity, _)| activity).or((!elsewhere).then_some(Activity::Follows)),
        standing: read.and_then(|(_, standing)| standing),
    }
}

impl Replicas {
    /// Reads the replicas of a snapshot that run; `None` if the regions of the cluster have no room for a
    /// log. Those of other hosts have logs only for an observer that reads them
    /// ([`Observer::read_replicas`]).
    pub fn read(observer: &mut Observer, snapshot: &Snapshot) -> Option<Self> {
        let area = Area::of(observer.cluster().layout())?;
        let eldest = snapshot.view.as_ref().and_then(|view| obol_smr::replicas(view).next());
        let eldest = eldest.map(|leader| leader.incarnation);
        let is_replica =
            |process: &&Process| process.alive && process.name.as_str().starts_with(REPLICA_PREFIX);
        let mut processes: Vec<&Process> = snapshot.all_processes().filter(is_replica).collect();
        // The leader first: what it has committed by then the others have when they are read.
        processes.sort_by_key(|process| Some(process.incarnation) != eldest);
        let mut found: Vec<Found> =
            processes.iter().map(|process| read_one(observer, &area, process, snapshot)).collect();
        // For the same reason: copies of other hosts may be older than what was read of the leader.
        if found.iter().any(|one| one.elsewhere) {
            observer.read_elsewhere_again();
            let leader = leader_of(&found, eldest);
            for (one, process) in found.iter_mut().zip(&processes) {
                if Some(one.incarnation) != leader {
                    let again = read_one(observer, &area, process, snapshot);
                    *one = if again.activity.is_some() { again } else { *one };
                }
            }
        }
        Some(Self::of(found, eldest, area.ring_bytes()))
    }

    fn of(mut found: Vec<Found>, eldest: Option<Incarnation>, ring_bytes: u32) -> Self {
        found.sort_by_key(|one| (one.name, one.incarnation));
        let leader = leader_of(&found, eldest);
        // The leader has the whole log; without one, the replica counts that has most of it.
        let of_leader = found.iter().find(|one| one.leads(leader));
        let newest = of_leader.and_then(|one| one.standing).or_else(|| {
            let all = found.iter().filter_map(|one| one.standing);
            all.max_by_key(|standing| (standing.term, standing.accepted))
        });
        let has_all = |one: &&Found, leader: &Standing| {
            let has = |own: Standing| {
                own.log == leader.log && !own.needs_snapshot && own.accepted >= leader.committed
            };
            one.is_member && one.standing.is_some_and(has)
        };
        let redundancy = of_leader
            .and_then(|one| one.standing)
            .map(|leader| found.iter().filter(|one| has_all(one, &leader)).count() as u64);
        let loads = |who: Incarnation| {
            found.iter().filter(|one| one.is_member).find_map(|one| {
                let transfer = one.standing?.serves.filter(|transfer| transfer.to == who)?;
                let (bytes, of_bytes) = (transfer.sent.min(transfer.whole), transfer.whole);
                Some(Loads { from: one.name, bytes, of_bytes })
            })
        };
        let log = |own: Standing, who: Incarnation| {
            let behind =
                |of: fn(&Standing) -> u64, own: u64| newest.as_ref().map_or(0, of).saturating_sub(own);
            Log {
                id: format!("{:016x}", own.log),
                term: own.term.0,
                granted: own.granted.0,
                accepted: own.accepted.0,
                committed: own.committed.0,
                applied: own.applied.0,
                lag: behind(|newest| newest.accepted.0, own.applied.0),
                lag_bytes: behind(|newest| newest.accepted_bytes, own.applied_bytes),
                pruned: own.pruned.0,
                needs_snapshot: own.needs_snapshot,
                snapshot_bytes: own.serves.map_or(0, |transfer| transfer.whole),
                loads: if own.needs_snapshot { loads(who) } else { None },
                ring_used_bytes: own.ring_used,
                ring_bytes,
                sessions: own.sessions,
            }
        };
        let replica = |one: &Found| Replica {
            name: one.name,
            member: one.is_member,
            leads: one.leads(leader),
            activity: one.activity.map(Doing::from),
            frozen: one.frozen,
            elsewhere: one.elsewhere,
            log: one.standing.map(|standing| log(standing, one.incarnation)),
        };
        Self {
            leader: of_leader.map(|one| one.name),
            term: newest.map(|standing| standing.term.0),
            preset: newest.and_then(|standing| standing.preset()).map(|preset| preset.to_string()),
            redundancy,
            replicas: found.iter().map(replica).collect(),
        }
    }

    /// Why no replica serves, and what to do; `None` if one does, or if there is none.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.replicas.is_empty() || self.leader.is_some() {
            return None;
        }
        let does = |what| self.replicas.iter().any(|one| one.member && one.activity == Some(what));
        Some(if does(Doing::Waits) {
            "none that runs has the log. Start those again that are frozen or cut off; if the log is lost, end all replicas and \
             start the first one with --force-empty (in C: obol_replica_open_empty): the store is empty then"
        } else if does(Doing::Stalls) {
            "one lacks a majority of the voters of its log. Bring those back that are frozen or cut off; if they are lost, \
             continue with what one has that is left: obol smr recover --from NAME, with the highest ACCEPTED"
        } else if does(Doing::TakesOver) {
            "one takes over. If it lasts, it does not reach voters that are members; see `obol status`"
        } else if self.replicas.iter().any(|one| one.frozen && one.log.is_some()) {
            "one that has the log is frozen. Continue it (`kill -CONT PID`, with the PID of `obol status`). If it lacks a majority of \
             the voters then, and they are lost: obol smr recover --from NAME"
        } else {
            "none is a member that is to lead; see `obol status`"
        })
    }
}

impl Replicas {
    /// Its texts, which a recording may have been crafted with.
    pub fn texts(&mut self) -> impl Iterator<Item = &mut String> {
        let logs = self.replicas.iter_mut().filter_map(|one| one.log.as_mut());
        self.preset.iter_mut().chain(logs.map(|log| &mut log.id))
    }
}

impl Replica {
    /// Whether its host has not answered.
    pub const fn is_unread(&self) -> bool {
        self.activity.is_none()
    }

    /// What is remarkable about it.
    pub fn note(&self) -> Cow<'static, str> {
        if let Some(Log { loads: Some(loads), .. }) = &self.log
            && self.member
            && !self.frozen
        {
            return loads.to_string().into();
        }
        Cow::Borrowed(match &self.log {
            None if self.is_unread() => "its host does not answer",
            _ if self.frozen => "frozen",
            _ if !self.member => "no member",
            None if self.activity == Some(Doing::Waits) => "waits for a replica that has the log",
            None => "no log",
            Some(_) if self.activity == Some(Doing::Stalls) => "lacks a majority",
            Some(_) if self.activity == Some(Doing::TakesOver) => "takes over",
            Some(log) if log.needs_snapshot => "loads a snapshot",
            Some(_) if self.leads => "leads",
            Some(_) => "follows",
        })
    }

    /// The same as a clause.
    pub fn clause(&self) -> Cow<'static, str> {
        let note = self.note();
        match &*note {
            "its host does not answer" => note,
            "frozen" => Cow::Borrowed("it is frozen"),
            "no member" => Cow::Borrowed("it is not a member"),
            "no log" => Cow::Borrowed("it has no log"),
            _ => format!("it {note}").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;
    use obol_fabric::{Instant, Nanos};
    use obol_membership::{Kind, View};
    use obol_smr::{Index, Term, Transfer};
    use std::sync::Arc;

    fn standing(accepted: u64, committed: u64, applied: u64) -> Standing {
        Standing {
            log: 7,
            term: Term(5),
            granted: Term(0),
            accepted: Index(accepted),
            committed: Index(committed),
            applied: Index(applied),
            accepted_bytes: accepted * 100,
            applied_bytes: applied * 100,
            pruned: Index(0),
            needs_snapshot: false,
            serves: None,
            ring_used: (accepted - applied) * 100,
            sessions: 1,
        }
    }

    fn found(n: u64, activity: Activity, standing: Option<Standing>) -> Found {
        Found {
            name: Name::new(&format!("{REPLICA_PREFIX}{n}")).expect("a name"),
            incarnation: Incarnation(n),
            is_member: true,
            frozen: false,
            elsewhere: false,
            activity: Some(activity),
            standing,
        }
    }

    #[test]
    fn the_lag_is_what_the_leader_has_and_the_replica_has_not_applied() {
        let all = vec![
            found(3, Activity::Follows, Some(standing(10, 9, 8))),
            found(2, Activity::Follows, Some(standing(12, 11, 11))),
            found(1, Activity::Leads, Some(standing(12, 11, 11))),
        ];
        let read = Replicas::of(all, Some(Incarnation(1)), 4352);
        assert_eq!(
            (read.leader.map(|name| name.to_string()), read.term),
            (Some("smr-1".to_owned()), Some(5))
        );
        assert_eq!(read.redundancy, Some(2), "smr-3 lacks an entry that is committed");
        let lags: Vec<_> = read.replicas.iter().filter_map(|one| one.log.as_ref()).collect();
        let lags: Vec<_> = lags.iter().map(|log| (log.lag, log.lag_bytes)).collect();
        assert_eq!(lags, [(1, 100), (1, 100), (4, 400)]);
        assert_eq!(
            read.replicas.iter().map(Replica::note).collect::<Vec<_>>(),
            ["leads", "follows", "follows"]
        );
        assert_eq!(read.remedy(), None);
    }

    #[test]
    fn a_store_is_as_it_should_be_only_with_a_leader_and_all_copies() {
        let brief = |activity, whole| Brief { activity, log: 7, whole, target: 3 };
        let (leads, follows) = (brief(Activity::Leads, true), brief(Activity::Follows, true));
        let all = |replicas: &[(bool, Option<Brief>)]| Store::of(replicas).expect("a store").complaint();
        let one = |brief| (true, Some(brief));
        assert_eq!(Store::of(&[]), None);
        assert_eq!(all(&[one(leads), one(follows), one(follows)]), None);
        let says = |replicas: &[(bool, Option<Brief>)], what: &str| {
            let why = all(replicas);
            assert!(why.as_ref().is_some_and(|why| why.contains(what)), "{why:?}");
        };
        says(&[one(leads), one(follows)], "2 of 3 copies");
        says(&[one(leads), one(follows), one(brief(Activity::Follows, false))], "2 of 3 copies");
        says(&[one(leads), one(follows), one(Brief { log: 8, ..follows })], "2 of 3 copies");
        says(&[one(leads), one(follows), (false, Some(follows))], "2 of 3 copies");
        // A leader that is frozen or no member serves nobody.
        says(&[(false, Some(leads)), one(follows), one(follows)], "no replica leads");
        says(&[one(brief(Activity::TakesOver, true))], "no replica leads");
        says(&[one(brief(Activity::Stalls, true))], "no replica leads");
        says(&[one(Brief { log: 0, ..brief(Activity::Waits, false) })], "no replica that runs has it");
        assert_eq!(all(&[one(follows), (true, None)]), None, "the one that is not read may lead");
    }

    #[test]
    fn a_host_that_reads_no_other_one_does_not_say_that_the_store_does_not_serve() {
        let name = |text: &str| Name::new(text).expect("a name");
        let mut view = View::genesis(&[(name("coord-1"), Address::region(1))], Nanos(1), Nanos(1));
        let first = view.members[0];
        let member = |called: &str, who, host| Member {
            name: name(called),
            kind: Kind::App,
            incarnation: Incarnation(who),
            address: Address { host, ..first.address },
            ..first
        };
        view.members.extend([member("smr-1", 7, 1), member("smr-3", 8, 3), member("web-1", 9, 1)]);
        let own = Process {
            alive: true,
            incarnation: Incarnation(8),
            ..Process::missing(name("smr-3"), Kind::App)
        };
        let mut snapshot = Snapshot {
            at: Instant(1),
            view: Some(Arc::new(view)),
            processes: vec![own],
            remote: Vec::new(),
            health: Health::Unknown,
            reasons: Vec::new(),
        };
        let unread = |snapshot: &Snapshot| {
            unread_members(snapshot, |at| at.host != 3)
                .map(|member| member.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(unread(&snapshot), ["smr-1"]);
        let read = Process {
            alive: true,
            incarnation: Incarnation(7),
            ..Process::missing(name("smr-1"), Kind::App)
        };
        snapshot.remote.push(read);
        assert_eq!(unread(&snapshot), [""; 0]);
    }

    #[test]
    fn without_a_leader_there_is_no_redundancy_and_a_remedy() {
        let told = [
            (Activity::TakesOver, "takes over", "does not reach voters that are members"),
            (Activity::Stalls, "lacks a majority", "obol smr recover --from NAME"),
        ];
        for (activity, note, remedy) in told {
            let all = vec![found(1, activity, Some(standing(4, 4, 4))), found(2, Activity::Follows, None)];
            let read = Replicas::of(all, Some(Incarnation(1)), 4352);
            assert_eq!((read.leader, read.redundancy, read.term), (None, None, Some(5)));
            assert!(read.remedy().is_some_and(|why| why.contains(remedy)), "{:?}", read.remedy());
            assert_eq!(read.replicas.iter().map(Replica::note).collect::<Vec<_>>(), [note, "no log"]);
            let clauses = [format!("it {note}"), "it has no log".to_owned()];
            assert_eq!(read.replicas.iter().map(Replica::clause).collect::<Vec<_>>(), clauses);
            let frozen = Replica { frozen: true, ..read.replicas[0].clone() };
            assert_eq!(frozen.clause(), "it is frozen");
        }
        assert_eq!(Replicas::default().remedy(), None);
        // Nobody is to lead: the only one that has the log was excluded while it was frozen.
        let away = |frozen| {
            let one =
                Found { is_member: false, frozen, ..found(2, Activity::Follows, Some(standing(4, 4, 4))) };
            Replicas::of(vec![one], None, 4352).remedy()
        };
        assert!(away(true).is_some_and(|why| why.contains("frozen. Continue it")), "{:?}", away(true));
        assert!(away(false).is_some_and(|why| why.contains("none is a member")), "{:?}", away(false));
    }

    #[test]
    fn a_replica_that_loads_a_snapshot_or_has_another_log_does_not_count() {
        let behind = Standing { needs_snapshot: true, ..standing(11, 11, 3) };
        let other = Standing { log: 8, ..standing(20, 20, 20) };
        let all = vec![
            found(1, Activity::Leads, Some(standing(12, 11, 11))),
            found(2, Activity::Follows, Some(behind)),
            found(3, Activity::Follows, Some(other)),
            Found { is_member: false, ..found(4, Activity::Follows, Some(standing(12, 12, 12))) },
        ];
        let read = Replicas::of(all, Some(Incarnation(1)), 4352);
        assert_eq!(read.redundancy, Some(1));
        assert_eq!(
            read.replicas.iter().map(Replica::note).collect::<Vec<_>>(),
            ["leads", "loads a snapshot", "follows", "no member"]
        );
    }

    #[test]
    fn a_replica_that_loads_shows_how_much_and_from_which() {
        let behind = Standing { needs_snapshot: true, ..standing(11, 11, 3) };
        let serves = Some(Transfer { to: Incarnation(3), sent: 37_200_000, whole: 149_900_000 });
        let all = vec![
            found(1, Activity::Leads, Some(standing(12, 11, 11))),
            found(2, Activity::Follows, Some(Standing { serves, ..standing(11, 11, 11) })),
            found(3, Activity::Follows, Some(behind)),
            found(4, Activity::Follows, Some(behind)),
        ];
        let read = Replicas::of(all, Some(Incarnation(1)), 4352);
        let notes: Vec<_> = read.replicas.iter().map(Replica::note).collect();
        let second = read.replicas[1].name;
        let loads = format!("loads 37 of 150 MB from {second}");
        assert_eq!(notes, ["leads", "follows", &loads, "loads a snapshot"]);
    }
}
