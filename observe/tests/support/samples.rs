//! Artificial samples for tests.

use obol_fabric::metrics::bucket;
use obol_fabric::{Incarnation, Instant, Name, Nanos, ViewId};
use obol_fabric_ip::PulsePathState;
use obol_membership::consensus::{Ballot, Head};
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::recorder::EventKind;
use obol_membership::view::coordinator_name;
use obol_membership::{Kind, Reason};
use obol_observe::Health;
use obol_observe::advice::Advice;
use obol_observe::histograms::Counts;
use obol_observe::replicas::{Doing, Log, Replica, Replicas};
use obol_observe::sampling::record::{Header, Reading, Recorder, RecordingError};
use obol_observe::sampling::sample::{
    ChangeRow, Cost, EventRow, LeaseRow, Life, PathRow, ProcessRow, Sample, SpanRow, ViewRow,
};
use obol_observe::sampling::tape::Tape;
use obol_profiles::Alert;
use std::io::{Read, Write as _};
use std::path::Path;

/// 2023-11-14 22:13:20 UTC, when the host's clock was at zero.
const UNIX: u64 = 1_700_000_000_000_000_000;
const LEASE: Nanos = Nanos::from_millis(20);

pub(crate) fn name(name: &str) -> Name {
    Name::new(name).expect("a name")
}

pub(crate) fn empty(at: Instant) -> Sample {
    Sample {
        at,
        unix: UNIX + at.0,
        cluster_id: None,
        view: None,
        processes: Vec::new(),
        health: Health::Healthy,
        reasons: Vec::new(),
        advice: Vec::new(),
        leader: None,
        events: Vec::new(),
        spans: Vec::new(),
        renewals: None,
        marks: Vec::new(),
        names: Vec::new(),
        paths: Vec::new(),
        replicas: None,
        thresholds: Some(Alert {
            margin_percent: 10,
            late_renewals: 3,
            stale_after: Nanos::from_secs(1),
            false_suspicions: 2,
            spare_coordinators: 1,
        }),
        cost: Cost::default(),
    }
}

/// A plain event.
pub(crate) fn event(at: Instant, number: u64) -> EventRow {
    EventRow {
        at,
        process: name("coord-1"),
        kind: Kind::Coordinator,
        number,
        event: EventKind::Decide,
        reason: None,
        a: number,
        b: 0,
        doubt: Nanos::ZERO,
    }
}

/// An acceptor after coord-1 has decided a view and prepared the next slot.
fn acceptor(view: u64) -> Head {
    let ballot = |slot, number| Ballot { slot: ViewId(slot), number, proposer: 1 };
    Head { accepted: Some(ballot(view, 1)), prepared: Some(ballot(view + 1, 8)) }
}

fn process(kind: Kind, called: &str, n: u64, at: Instant) -> ProcessRow {
    let mut counters = vec![0; Counter::ALL.len()];
    counters[Counter::RenewalsOnTime as usize] = if kind == Kind::Agent { at.0 / 8_000_000 } else { 0 };
    counters[Counter::Served as usize] = if kind == Kind::App { at.0 / 1_000_000 } else { 0 };
    let lease = LeaseRow {
        view: ViewId(6),
        base: ViewId(6),
        start: Instant(0),
        end: at + Nanos::from_micros(14_900 + n),
        fence: ViewId(6),
    };
    ProcessRow {
        name: name(called),
        kind,
        pid: 100 + u32::try_from(n).expect("small"),
        started: 7,
        region: u32::try_from(n).expect("small"),
        seat: 0,
        life: Life::Runs,
        incarnation: Incarnation(n),
        view: Some(ViewId(6)),
        lease: (kind != Kind::Coordinator).then_some(lease),
        active: kind != Kind::Coordinator,
        held_until: None,
        heartbeat: at.0,
        acceptor: (kind == Kind::Coordinator).then(|| Box::new(acceptor(6))),
        least: (kind == Kind::Agent).then_some(Nanos::from_micros(12_000 + n)),
        slowest: (kind == Kind::Agent).then_some(Nanos::from_micros(90 + n)),
        counters,
    }
}

/// The counts of `nodes` nodes in a quarter of a second.
fn distributions(nodes: u64) -> Vec<SpanRow> {
    let some = |of, values: &[(u64, u64)]| {
        let pairs =
            values.iter().map(|(us, n)| (u16::try_from(bucket(us * 1000)).expect("small"), n * nodes));
        SpanRow { of, counts: Counts::from_pairs(pairs) }
    };
    vec![
        some(Histogram::Renewal, &[(6, 20), (7, 9), (9, 2), (95, 1)]),
        some(Histogram::Margin, &[(12_000, 1), (13_000, 5), (14_500, 26)]),
    ]
}

/// This many nodes, each with an agent and an app, and three coordinators; all healthy.
pub(crate) fn many(at: Instant, nodes: u64) -> Sample {
    let mut processes: Vec<ProcessRow> =
        (1..=3).map(|n| process(Kind::Coordinator, &format!("coord-{n}"), n, at)).collect();
    processes.extend((1..=nodes).map(|n| process(Kind::Agent, &format!("node-{n}"), 2 + 2 * n, at)));
    processes.extend((1..=nodes).map(|n| {
        let app = process(Kind::App, &format!("app-{n}"), 3 + 2 * n, at);
        ProcessRow { region: u32::try_from(2 + 2 * n).expect("small"), seat: 1, ..app }
    }));
    let members = processes.len();
    let view = ViewRow {
        id: ViewId(6),
        base: ViewId(6),
        cleared: ViewId(6),
        lease: LEASE,
        members,
        acceptors: 3,
        deciders: (1..=3).map(coordinator_name).collect(),
        changes: vec![ChangeRow::Joined { who: Incarnation(9) }],
        departed: Vec::new(),
    };
    let spans = distributions(nodes);
    let cost = Cost { took: Nanos::from_micros(412), reads: 36, bytes: 21_480, torn: 0 };
    Sample { view: Some(view), processes, leader: Some(name("coord-1")), spans, cost, ..empty(at) }
}

/// The paths of a host of three with two networks; one of host 3 is lost, and it was nearly silent.
pub(crate) fn paths() -> Vec<PathRow> {
    let path = |host: u8, net: u8| PathRow {
        host,
        address: [10, net, 0, host].into(),
        state: PulsePathState::Up,
        silent: false,
        timeout: Nanos::from_millis(20),
        gap: Some(Nanos::from_micros(if host == 3 { 19_200 } else { 1_020 })),
        pulses: Some(1000),
        frames: Some(1000 - u64::from(net)),
        jitter: Some(Nanos::from_micros(21)),
    };
    let lost = PathRow { state: PulsePathState::Lost, frames: Some(0), jitter: None, ..path(3, 2) };
    vec![path(2, 1), path(2, 2), path(3, 1), lost]
}

/// Three replicas of a log: the first leads, the second is behind and frozen, and the third loads a
/// snapshot.
pub(crate) fn replicas() -> Box<Replicas> {
    const NEWEST: u64 = 48_213;
    let log = |granted, accepted: u64, applied: u64| Log {
        id: "0000000000020107".to_owned(),
        term: 9,
        granted,
        accepted,
        committed: (accepted - 1).max(applied),
        applied,
        lag: NEWEST - applied,
        lag_bytes: (NEWEST - applied) * 112,
        pruned: 48_090,
        needs_snapshot: false,
        snapshot_bytes: 0,
        loads: None,
        ring_used_bytes: (accepted - applied) * 112,
        ring_bytes: 14_016,
        sessions: 12,
    };
    let one = |n: u32, activity, log| Replica {
        name: name(&format!("smr-{n}")),
        member: true,
        leads: n == 1,
        activity: Some(activity),
        frozen: false,
        elsewhere: false,
        log: Some(log),
    };
    let first = one(1, Doing::Leads, Log { snapshot_bytes: 31_744, ..log(9, NEWEST, 48_210) });
    let second = Replica { frozen: true, ..one(2, Doing::Follows, log(9, 48_170, 48_130)) };
    let joins = Log { needs_snapshot: true, sessions: 0, pruned: 0, ..log(7, 1_204, 1_204) };
    let others = [
        one(3, Doing::Follows, joins),
        Replica { elsewhere: true, activity: None, log: None, ..one(4, Doing::Follows, log(0, 1, 0)) },
    ];
    Box::new(Replicas {
        leader: Some(name("smr-1")),
        term: Some(9),
        preset: Some("mu+views".to_owned()),
        redundancy: Some(2),
        replicas: [first, second].into_iter().chain(others).collect(),
    })
}

/// Three healthy nodes.
pub(crate) fn healthy(at: Instant) -> Sample {
    many(at, 3)
}

/// The same after app-2 has died, node-3 was stopped, and coord-1 has decided the view without the
/// app.
pub(crate) fn degraded(at: Instant) -> Sample {
    let mut sample = healthy(at);
    sample.health = Health::Degraded;
    sample.reasons = vec!["app-2 down".to_owned(), "node-3 is frozen (stopped)".to_owned()];
    let said = |who: &str, remedy: &str| Advice {
        remedy: Some(remedy.to_owned()),
        names: vec![name(who)],
        ..Advice::default()
    };
    let continues = "`kill -CONT 108` lets it continue, `obol kill node-3` ends it";
    sample.advice = vec![said("app-2", "`obol start app-2`"), said("node-3", continues)];
    for row in &mut sample.processes {
        row.view = Some(ViewId(7));
        row.lease = row.lease.map(|lease| LeaseRow { view: ViewId(7), base: ViewId(7), ..lease });
        row.acceptor = row.acceptor.as_ref().map(|_| Box::new(acceptor(7)));
        match row.name.as_str() {
            "app-2" => {
                row.life = Life::Down;
                row.active = false;
            }
            "node-3" | "app-3" => {
                row.view = Some(ViewId(6));
                row.active = false;
                row.lease = row.lease.map(|lease| LeaseRow { view: ViewId(6), fence: ViewId(7), ..lease });
                row.counters[Counter::RenewalsLate as usize] = u64::from(row.seat == 0);
            }
            _ => {}
        }
        if row.name.as_str() == "node-3" {
            row.life = Life::Frozen;
            row.heartbeat = 17;
        }
    }
    let failed = ChangeRow::Failed { who: Incarnation(7), accuser: Incarnation(1), reason: Reason::Deadbeat };
    if let Some(view) = &mut sample.view {
        view.id = ViewId(7);
        view.base = ViewId(7);
        view.members -= 1;
        view.changes = vec![failed];
    }
    let at = |us| Instant(sample.at.0 - 900_000 + us * 1_000);
    let (coord, app) = (Kind::Coordinator, Kind::App);
    let row = |who: &str, kind, event, us, a, b| EventRow {
        at: at(us),
        process: name(who),
        kind,
        number: us,
        event,
        reason: (event == EventKind::Notice).then_some(Reason::Deadbeat),
        a,
        b,
        doubt: Nanos::ZERO,
    };
    sample.events = vec![
        row("coord-1", coord, EventKind::Notice, 100, 7, 1),
        row("coord-1", coord, EventKind::Propose, 105, 7, 0),
        row("coord-1", coord, EventKind::Decide, 118, 7, 0),
        row("coord-1", coord, EventKind::Fenced, 130, 7, 3),
        row("coord-1", coord, EventKind::Clear, 131, 7, 0),
        row("node-1", Kind::Agent, EventKind::ViewReceived, 140, 7, 0),
        row("app-1", app, EventKind::Active, 256, 7, 0),
        row("app-1", app, EventKind::Service, 260, 7, 0),
    ];
    sample
}

/// A recording of these samples.
pub(crate) fn written(samples: &[Sample]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut recorder =
        Recorder::begin(&mut bytes, Path::new("memory"), &Header::new(name("default"))).expect("written");
    samples.iter().for_each(|sample| recorder.sample(sample).expect("written"));
    drop(recorder);
    bytes
}

/// The bytes of a frame with a valid checksum.
pub(crate) fn frame(payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).expect("small").to_le_bytes().to_vec();
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// A recording of these bytes, in a file without a name.
pub(crate) fn opened(bytes: &[u8]) -> Result<Tape, RecordingError> {
    let mut file = tempfile::tempfile().expect("made");
    file.write_all(bytes).expect("written");
    Tape::of(file, Path::new("night.obolrec"))
}

/// A recording of these samples, in a file without a name.
pub(crate) fn tape(samples: &[Sample]) -> Tape {
    opened(&written(samples)).expect("a recording")
}

/// The same of what may not be samples.
pub(crate) fn tape_of_values(samples: &[serde_json::Value]) -> Tape {
    let frames = samples.iter().map(|sample| serde_json::json!({ "sample": sample }).to_string());
    let frames: Vec<u8> = frames.flat_map(|payload| frame(payload.as_bytes())).collect();
    opened(&[written(&[]), frames].concat()).expect("a recording")
}

/// A recording that was read as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recording {
    pub(crate) header: Header,
    pub(crate) samples: Vec<Sample>,
    /// Bytes at the end that are ignored.
    pub(crate) torn: u64,
}

impl Recording {
    /// Reads a file.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordingError> {
        Self::rest(Reading::open(path)?)
    }

    /// Reads from any reader; `path` is for errors.
    pub(crate) fn read(from: impl Read, path: &Path) -> Result<Self, RecordingError> {
        Self::rest(Reading::begin(from, path)?)
    }

    fn rest<R: Read>(mut reading: Reading<R>) -> Result<Self, RecordingError> {
        let mut samples = Vec::new();
        while let Some(sample) = reading.sample()? {
            samples.push(sample);
        }
        let torn = reading.torn();
        Ok(Self { header: reading.header, samples, torn })
    }
}
