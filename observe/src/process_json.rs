//! A process of a snapshot, as `obol status --json` has it. Times in microseconds.

use crate::{Process, Snapshot};
use obol_fabric::Nanos;
use obol_fabric::version::Version;
use obol_membership::Kind;
use obol_membership::consensus::{Ballot, Head};
use obol_membership::metrics::Counter;
use obol_membership::view::coordinator_name;
use serde::Serialize;
use std::collections::BTreeMap;

/// A lease in JSON.
#[derive(Serialize)]
struct LeaseJson {
    view: u64,
    fence: u64,
    active: bool,
    margin_us: f64,
}

/// Renewals in JSON, since the process started.
#[derive(Serialize)]
struct RenewalsJson {
    on_time: u64,
    late: u64,
    failed: u64,
}

/// A ballot of a slot in JSON.
#[derive(Serialize)]
struct BallotJson {
    slot: u64,
    ballot: u16,
    proposer: String,
}

/// What a coordinator's acceptor memory says of the newest slots.
#[derive(Serialize)]
struct AcceptorJson {
    accepted: Option<BallotJson>,
    prepared: Option<BallotJson>,
}

impl AcceptorJson {
    fn of(head: Head) -> Self {
        let ballot = |of: Ballot| BallotJson {
            slot: of.slot.0,
            ballot: of.number,
            proposer: coordinator_name(of.proposer).to_string(),
        };
        Self { accepted: head.accepted.map(ballot), prepared: head.prepared.map(ballot) }
    }
}

/// A process in JSON.
#[derive(Serialize)]
pub struct ProcessJson<'a> {
    pub name: &'a str,
    kind: &'static str,
    /// Whether it runs on another host, where `pid` counts.
    pub distant: bool,
    /// The number of its host; none if that is not known.
    host_number: Option<u8>,
    pub pid: u32,
    pub alive: bool,
    frozen: bool,
    /// Whether it left on request, so that it is not missed.
    left: bool,
    /// How it ended, such as `killed by SIGKILL` or `exit status 3`; none if it runs, or if the `obol up`
    /// of this host has not seen its end.
    pub ended: Option<String>,
    deadbeat: &'static str,
    /// Of obol; none if it does not say.
    version: Option<String>,
    incarnation: Option<u64>,
    host: Option<String>,
    /// Of a program at an agent: whether that agent runs.
    agent_alive: Option<bool>,
    /// For how many microseconds its join is still on hold, if it is, because its name failed or
    /// left again and again.
    held_back_us: Option<f64>,
    view: Option<u64>,
    lease: Option<LeaseJson>,
    renewals: Option<RenewalsJson>,
    acceptor: Option<AcceptorJson>,
    counters: BTreeMap<&'static str, u64>,
}

impl<'a> ProcessJson<'a> {
    /// `p` is a process of the snapshot; its end is not known yet.
    pub fn of(p: &'a Process, distant: bool, snapshot: &'a Snapshot) -> Self {
        let host = (p.seat != 0).then(|| {
            let agent = snapshot.all_processes().find(|o| o.region == p.region && o.seat == 0);
            agent.map_or(String::new(), |agent| agent.name.to_string())
        });
        Self {
            name: p.name.as_str(),
            kind: p.kind.name(),
            distant,
            host_number: (p.host != 0).then_some(p.host),
            pid: p.process.pid,
            alive: p.alive,
            frozen: p.frozen,
            left: p.left,
            ended: None,
            deadbeat: p.detection.name(),
            version: (p.version != Version::default()).then(|| p.version.to_string()),
            incarnation: snapshot.is_member(p).then_some(p.incarnation.0),
            agent_alive: p.agent_lives(snapshot),
            host,
            held_back_us: Some(p.hold_left(snapshot.at))
                .filter(|n| *n > Nanos::ZERO)
                .map(Nanos::as_micros_f64),
            view: p.view.as_ref().map(|view| view.id.0),
            lease: p.lease.as_ref().map(|(page, fence)| LeaseJson {
                view: page.view.0,
                fence: fence.0,
                active: p.is_active(snapshot.at),
                margin_us: page.end.since(snapshot.at).as_micros_f64(),
            }),
            renewals: (p.lease.is_some() && p.seat == 0).then(|| RenewalsJson {
                on_time: p.counter(Counter::RenewalsOnTime),
                late: p.counter(Counter::RenewalsLate),
                failed: p.counter(Counter::RenewalsFailed),
            }),
            acceptor: (p.kind == Kind::Coordinator).then(|| AcceptorJson::of(p.head)),
            counters: Counter::ALL
                .iter()
                .map(|c| (c.name(), p.counter(*c)))
                .filter(|(_, n)| *n > 0)
                .collect(),
        }
    }
}
