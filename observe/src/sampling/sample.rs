//! The state of a cluster at one moment, as plain data that is polled, recorded, replayed and
//! drawn. It holds only what one-sided READs returned; nothing is derived here.

use crate::advice::Advice;
use crate::annotations::{Acknowledgement, DrillMark, Mark, RolloutMark, RolloutStep};
use crate::failovers::Dead;
use crate::histograms::{Counts, Histograms};
use crate::replicas::Replicas;
use crate::{Health, ObservedEvent, Process, Renewals, Snapshot, event_text};
use obol_fabric::{Address, Incarnation, Instant, Name, Nanos, ViewId};
use obol_fabric_ip::{PulsePath, PulsePathState, PulsePeer, PulseReport};
use obol_membership::consensus::Head;
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::recorder::{EventKind, Record, Stamped};
use obol_membership::view::{Acceptor, Departed, coordinator_name};
use obol_membership::{Change, Kind, Reason, View};
use obol_profiles::Alert;
use obol_term::plain::line as harmless;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When it was read, on the host's monotonic clock.
    pub at: Instant,
    /// The same moment in nanoseconds since 1970, UTC.
    pub unix: u64,
    /// Random id of the cluster, which distinguishes clusters of one name; `None` in old
    /// recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<u64>,
    /// The newest view that any process knows.
    pub view: Option<ViewRow>,
    /// Every listed process, coordinators first.
    pub processes: Vec<ProcessRow>,
    /// The health of the cluster.
    pub health: Health,
    /// Why it is not healthy.
    pub reasons: Vec<String>,
    /// What is said beside each of them; empty in old recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<Advice>,
    /// The leader, by the newest view.
    pub leader: Option<Name>,
    /// Flight recorder events since the previous sample, by their stamps.
    pub events: Vec<EventRow>,
    /// Histogram counts since the previous sample that has any; mostly empty, because histograms
    /// are read once a second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<SpanRow>,
    /// Renewals over all lives of the processes since the cluster was first read, also of those that
    /// have ended; `None` in old recordings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewals: Option<Renewals>,
    /// Annotations since the previous sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<MarkRow>,
    /// Names of members in its events that neither its view nor its processes have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<NameRow>,
    /// The paths by which pulses of other hosts arrive at this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathRow>,
    /// The replicas of a replicated log, if any runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<Box<Replicas>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thresholds: Option<Alert>,
    /// The cost of reading it.
    pub cost: Cost,
}

/// A path by which pulses of another host arrive, in the last second. What is missing was not reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRow {
    /// The other host, and its address.
    pub host: u8,
    pub address: IpAddr,
    pub state: PulsePathState,
    /// Whether the host is suspected.
    pub silent: bool,
    /// The timeout of pulses.
    pub timeout: Nanos,
    /// The longest gap between two new pulses of the host, by any path, and how many they were.
    pub gap: Option<Nanos>,
    pub pulses: Option<u64>,
    /// Frames that arrived by this path, and how much longer the slowest took than the fastest.
    pub frames: Option<u64>,
    pub jitter: Option<Nanos>,
}

impl PathRow {
    /// All paths of a report.
    pub fn all(report: &PulseReport) -> Vec<Self> {
        let of = |peer: &PulsePeer| {
            let (host, silent, block) = (peer.host, peer.silent, peer.block.clone());
            let row = |(n, path): (usize, &PulsePath)| {
                let delays = block.as_ref().and_then(|block| block.paths.get(n));
                Self {
                    host,
                    address: path.address,
                    state: path.state,
                    silent,
                    timeout: Nanos(report.timeout),
                    gap: block.as_ref().map(|block| Nanos(block.gap_max)).filter(|gap| *gap > Nanos::ZERO),
                    pulses: block.as_ref().map(|block| block.pulses),
                    frames: delays.map(|delays| delays.frames),
                    jitter: delays.filter(|delays| delays.frames > 0).map(|delays| Nanos(delays.spread_max)),
                }
            };
            peer.paths.iter().enumerate().map(row).collect::<Vec<_>>()
        };
        report.peers.iter().flat_map(of).collect()
    }

    /// What the longest gap leaves of the timeout.
    pub fn margin_percent(&self) -> Option<u64> {
        let left = self.timeout.0.saturating_sub(self.gap?.0);
        left.saturating_mul(100).checked_div(self.timeout.0)
    }
}

/// The name of a member that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    pub who: Incarnation,
    pub name: Name,
}

/// A part of a distribution of durations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanRow {
    pub of: Histogram,
    /// Samples per bucket, over all processes.
    #[serde(with = "counts")]
    pub counts: Counts,
}

/// A distribution, as pairs of bucket and number.
mod counts {
    use super::Counts;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Counts, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(value.pairs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Counts, D::Error> {
        Vec::deserialize(from).map(Counts::from_pairs)
    }
}

/// An annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkRow {
    /// When, on the host's monotonic clock.
    pub at: Instant,
    pub text: String,
    /// The drill that wrote it; `None` for an operator's annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillMark>,
    /// The rollout that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutMark>,
    /// The incident that it acknowledges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

impl From<Mark> for MarkRow {
    fn from(mark: Mark) -> Self {
        let Mark { at, text, drill, rollout, acknowledged, .. } = mark;
        Self { at: Instant(at), text, drill, rollout, acknowledged }
    }
}

impl MarkRow {
    /// Whether figures before and after it are compared: at an operator's annotation, and where a
    /// rollout begins.
    pub fn divides(&self) -> bool {
        let begins = |rollout: &RolloutMark| rollout.step == RolloutStep::Begins;
        self.drill.is_none() && self.acknowledged.is_none() && self.rollout.as_ref().is_none_or(begins)
    }

    /// Whether it only says how a rollout goes.
    pub fn is_progress(&self) -> bool {
        self.rollout.as_ref().is_some_and(|rollout| rollout.step == RolloutStep::Goes)
    }
}

/// A view, without its members' addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewRow {
    pub id: ViewId,
    pub base: ViewId,
    pub cleared: ViewId,
    pub lease: Nanos,
    pub members: usize,
    pub acceptors: usize,
    /// The coordinators that decide; empty in old recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deciders: Vec<Name>,
    pub changes: Vec<ChangeRow>,
    /// Recent departures; empty in old recordings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub departed: Vec<DepartedRow>,
}

/// A member that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartedRow {
    pub who: Incarnation,
    pub name: Name,
    pub kind: Kind,
    /// The first view without it.
    pub at: ViewId,
    /// Whether it left on request.
    pub left: bool,
}

/// A difference between a view and its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum ChangeRow {
    Joined {
        who: Incarnation,
    },
    Left {
        who: Incarnation,
    },
    Failed {
        who: Incarnation,
        accuser: Incarnation,
        #[serde(rename = "level")]
        reason: Reason,
    },
    Lease,
    /// The number of a coordinator that is an acceptor from the next slot on.
    AcceptorAdded {
        proposer: u16,
    },
    /// The number of one that is not an acceptor any more.
    AcceptorRemoved {
        proposer: u16,
    },
    Settled,
    /// An operator recovered the cluster from this view after a majority's memory was lost.
    Recovered {
        from: ViewId,
    },
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    Runs,
    /// Stopped by a signal; its memory is still readable.
    Frozen,
    Down,
    /// It left on request, so it is not missed.
    Left,
}

/// A process in one seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessKey {
    pub pid: u32,
    /// When it was started.
    pub started: u64,
    pub seat: u16,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessRow {
    pub name: Name,
    pub kind: Kind,
    pub pid: u32,
    /// Start time in clock ticks since boot: with the pid it identifies one life of a process.
    pub started: u64,
    pub region: u32,
    pub seat: u16,
    pub life: Life,
    pub incarnation: Incarnation,
    /// The newest view that it knows.
    pub view: Option<ViewId>,
    /// Its lease page; `None` for a coordinator, or if the page cannot be read.
    pub lease: Option<LeaseRow>,
    /// Whether the newest view that it knows was active for it.
    pub active: bool,
    /// Until when its join is on hold, because members of its name died, left or were suspected repeatedly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Instant>,
    /// Its heartbeat counter.
    pub heartbeat: u64,
    /// The newest slots in a coordinator's acceptor memory; `None` for others, or if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptor: Option<Box<Head>>,
    /// The least margin of its lease at a renewal since its histograms were last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<Nanos>,
    /// The longest renewal since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<Nanos>,
    /// In the order of the names in the recording's header.
    pub counters: Vec<u64>,
}

/// A lease page and its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow {
    pub view: ViewId,
    pub base: ViewId,
    pub start: Instant,
    pub end: Instant,
    pub fence: ViewId,
}

/// An event of a flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    pub at: Instant,
    pub process: Name,
    pub kind: Kind,
    /// The event's number in its recorder; a gap indicates that the ring overflowed.
    pub number: u64,
    pub event: EventKind,
    #[serde(rename = "level")]
    pub reason: Option<Reason>,
    pub a: u64,
    pub b: u64,
    /// Clock error: by how much the time may be off, for a process of another host.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub doubt: Nanos,
}

fn is_zero(span: &Nanos) -> bool {
    *span == Nanos::ZERO
}

/// The cost of reading a sample on this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub took: Nanos,
    /// READs of a part of a region.
    pub reads: u64,
    pub bytes: u64,
    /// READs repeated because of a concurrent writer.
    pub torn: u64,
}

impl ProcessRow {
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters.get(counter as usize).copied().unwrap_or(0)
    }

    /// The remaining time of its lease.
    pub fn margin(&self, now: Instant) -> Option<Nanos> {
        self.lease.map(|lease| lease.end.since(now))
    }

    /// For how long its join is still on hold.
    pub fn hold_left(&self, now: Instant) -> Option<Nanos> {
        let waits = self.life == Life::Runs && self.incarnation == Incarnation::NONE;
        let left = self.held_until.filter(|_| waits)?.since(now);
        (left > Nanos::ZERO).then_some(left)
    }

    /// What stays the same while its counters continue.
    pub const fn process(&self) -> ProcessKey {
        ProcessKey { pid: self.pid, started: self.started, seat: self.seat }
    }

    fn of(process: &Process, at: Instant) -> Self {
        Self {
            active: process.is_active(at),
            name: process.name,
            kind: process.kind,
            pid: process.process.pid,
            started: process.process.started,
            region: process.region,
            seat: process.seat,
            life: match (process.alive, process.frozen) {
                (false, _) if process.left => Life::Left,
                (false, _) => Life::Down,
                (true, true) => Life::Frozen,
                (true, false) => Life::Runs,
            },
            incarnation: process.incarnation,
            view: process.view.as_ref().map(|view| view.id),
            lease: process.lease.map(|(page, fence)| LeaseRow {
                view: page.view,
                base: page.base,
                start: page.start,
                end: page.end,
                fence,
            }),
            held_until: process.held_until,
            heartbeat: process.heartbeat,
            acceptor: (process.head != Head::default()).then(|| Box::new(process.head)),
            least: None,
            slowest: None,
            counters: process.counters.clone(),
        }
    }
}

impl ViewRow {
    pub fn of(view: &View) -> Self {
        Self {
            id: view.id,
            base: view.base,
            cleared: view.cleared,
            lease: view.lease,
            members: view.members.len(),
            acceptors: view.acceptors.len(),
            deciders: view.acceptors.iter().map(|acceptor| coordinator_name(acceptor.proposer)).collect(),
            changes: view.changes.iter().map(ChangeRow::of).collect(),
            departed: view.departed.iter().map(DepartedRow::of).collect(),
        }
    }
}

impl ViewRow {
    /// A member that departed, with who reported it if this view says so.
    pub fn dead(&self, departed: Incarnation) -> Dead {
        let report = self.changes.iter().find_map(|change| match *change {
            ChangeRow::Failed { who, accuser, reason } if who == departed => Some((accuser, reason)),
            _ => None,
        });
        let (accuser, reason) = report.unzip();
        Dead { who: departed, accuser: accuser.unwrap_or(Incarnation::NONE), reason }
    }
}

impl DepartedRow {
    fn of(gone: &Departed) -> Self {
        let Departed { incarnation, name, kind, at, left, .. } = *gone;
        Self { who: incarnation, name, kind, at, left }
    }
}

impl ChangeRow {
    fn of(change: &Change) -> Self {
        match *change {
            Change::Joined(who) => Self::Joined { who },
            Change::Left(who) => Self::Left { who },
            Change::Failed { accused, accuser, reason } => Self::Failed { who: accused, accuser, reason },
            Change::Lease => Self::Lease,
            Change::AcceptorAdded(acceptor) => Self::AcceptorAdded { proposer: acceptor.proposer },
            Change::AcceptorRemoved(acceptor) => Self::AcceptorRemoved { proposer: acceptor.proposer },
            Change::Settled => Self::Settled,
            Change::Recovered(from) => Self::Recovered { from },
        }
    }
}

impl ChangeRow {
    pub(crate) const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }

    /// The change in the form of views; the addresses of acceptors are not known.
    pub fn change(self) -> Change {
        let acceptor = |proposer| Acceptor { proposer, address: Address::default() };
        match self {
            Self::Joined { who } => Change::Joined(who),
            Self::Left { who } => Change::Left(who),
            Self::Failed { who, accuser, reason } => Change::Failed { accused: who, accuser, reason },
            Self::Lease => Change::Lease,
            Self::AcceptorAdded { proposer } => Change::AcceptorAdded(acceptor(proposer)),
            Self::AcceptorRemoved { proposer } => Change::AcceptorRemoved(acceptor(proposer)),
            Self::Settled => Change::Settled,
            Self::Recovered { from } => Change::Recovered(from),
        }
    }
}

impl EventRow {
    fn of(seen: &ObservedEvent) -> Self {
        let Record { kind: event, reason, a, b } = seen.event.record;
        Self {
            at: seen.event.at,
            process: seen.process,
            kind: seen.kind,
            number: seen.event.number,
            event,
            reason: Reason::from_repr(reason).filter(|_| reason != 0),
            a,
            b,
            doubt: seen.clock_error,
        }
    }

    /// The event in the form of the time lines.
    pub fn seen(&self) -> ObservedEvent {
        let reason = self.reason.map_or(0, |reason| reason as u8);
        let record = Record { kind: self.event, reason, a: self.a, b: self.b };
        let event = Stamped { number: self.number, at: self.at, record };
        ObservedEvent { process: self.process, kind: self.kind, event, clock_error: self.doubt }
    }
}

/// The processes of all hosts, coordinators first, without those whose state is unknown because
/// their host cannot be read.
fn rows(snapshot: &Snapshot) -> Vec<ProcessRow> {
    let mut known: Vec<&Process> = snapshot.all_processes().filter(|p| !snapshot.is_unread(p)).collect();
    known.sort_by_key(|p| (p.kind, p.name));
    known.into_iter().map(|process| ProcessRow::of(process, snapshot.at)).collect()
}

/// The names of those whom the newest view admits, and who have no row yet.
fn unread_names(view: &View, snapshot: &Snapshot) -> Vec<NameRow> {
    let is_read = |who: Incarnation| snapshot.all_processes().any(|p| p.incarnation == who);
    let joined = view.changes.iter().filter_map(|change| match *change {
        Change::Joined(who) if !is_read(who) => view.member(who),
        _ => None,
    });
    joined.map(|member| NameRow { who: member.incarnation, name: member.name }).collect()
}

impl Sample {
    /// A snapshot with its events.
    pub fn new(snapshot: Snapshot, events: &[ObservedEvent], unix: u64, cost: Cost) -> Self {
        let at = snapshot.at;
        let names = snapshot.view.as_deref().map_or_else(Vec::new, |view| unread_names(view, &snapshot));
        Self {
            at,
            leader: snapshot.leader_name(),
            unix,
            cluster_id: None,
            view: snapshot.view.as_deref().map(ViewRow::of),
            processes: rows(&snapshot),
            health: snapshot.health,
            reasons: snapshot.reasons,
            advice: Vec::new(),
            events: events.iter().map(EventRow::of).collect(),
            spans: Vec::new(),
            renewals: None,
            marks: Vec::new(),
            names,
            paths: Vec::new(),
            replicas: None,
            thresholds: None,
            cost,
        }
    }

    /// A moment on the host's monotonic clock in nanoseconds since 1970.
    pub fn unix_at(&self, at: Instant) -> u64 {
        if at > self.at {
            self.unix.saturating_add(at.since(self.at).0)
        } else {
            self.unix.saturating_sub(self.at.since(at).0)
        }
    }

    /// The reverse.
    pub fn instant_at(&self, unix: u64) -> Instant {
        if unix > self.unix {
            Instant(self.at.0.saturating_add(unix - self.unix))
        } else {
            Instant(self.at.0.saturating_sub(self.unix - unix))
        }
    }

    /// Whether a program's agent runs.
    pub fn has_agent(&self, row: &ProcessRow) -> bool {
        let runs = |p: &ProcessRow| matches!(p.life, Life::Runs | Life::Frozen);
        self.processes.iter().any(|p| (p.region, p.seat) == (row.region, 0) && runs(p))
    }

    /// Adds the names of members in its events, as far as they are known to `name` and not to it.
    pub fn take_names(&mut self, name: impl Fn(Incarnation) -> Option<Name>) {
        let mut missing: Vec<Incarnation> = self
            .events
            .iter()
            .map(|event| event_text::members(event.event, event.a, event.b))
            .flat_map(|(who, by)| [who, by].into_iter().flatten())
            .filter(|who| {
                *who != Incarnation::NONE && self.processes.iter().all(|row| row.incarnation != *who)
            })
            .collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|who| self.names.iter().all(|named| named.who != *who));
        self.names.extend(missing.into_iter().filter_map(|who| Some(NameRow { who, name: name(who)? })));
    }

    /// Escapes untrusted text to one line each. Every sample passes here, polled or recorded.
    pub fn neutralise(&mut self) {
        let Self { reasons, advice, marks, replicas, .. } = self;
        let advice = advice.iter_mut().flat_map(|said| said.remedy.iter_mut().chain(&mut said.section));
        let of_replicas = replicas.iter_mut().flat_map(|replicas| replicas.texts());
        let names = marks.iter_mut().flat_map(|mark| {
            let MarkRow { text, drill, rollout, acknowledged, .. } = mark;
            let acknowledged = acknowledged.iter_mut().flat_map(|known| [&mut known.incident, &mut known.by]);
            let of_drill =
                drill.iter_mut().flat_map(|drill| [&mut drill.name].into_iter().chain(&mut drill.verdict));
            let of_rollout = rollout.iter_mut().flat_map(|rollout| {
                let RolloutMark { name, phase, compared, wrong, .. } = rollout;
                [name, phase].into_iter().chain(compared).chain(wrong)
            });
            [text].into_iter().chain(of_drill).chain(of_rollout).chain(acknowledged)
        });
        for text in reasons.iter_mut().chain(advice).chain(names).chain(of_replicas) {
            if let Cow::Owned(shown) = harmless(text) {
                *text = shown;
            }
        }
    }

    /// Adds histogram counts.
    pub fn take_spans(&mut self, spans: &[Histograms]) {
        for which in Histogram::ALL {
            let mut counts = Counts::default();
            spans.iter().filter_map(|one| one.of(*which)).for_each(|part| counts.add(part));
            if !counts.is_empty() {
                self.spans.push(SpanRow { of: *which, counts });
            }
        }
        let by_name: BTreeMap<Name, &Histograms> = spans.iter().map(|one| (one.process, one)).collect();
        for row in self.processes.iter_mut().filter(|row| row.seat == 0) {
            let of = |which| by_name.get(&row.name).and_then(|one| one.of(which));
            row.least = of(Histogram::Margin).and_then(Counts::least);
            row.slowest = of(Histogram::Renewal).and_then(Counts::most);
        }
    }
}
