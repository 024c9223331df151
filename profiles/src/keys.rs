//! The table of keys: the single definition of a profile's contents. Reading, bounds, suggestions,
//! the written form and the reference are derived from it. A new constant is a row here and a line
//! in each built-in file.

use crate::kind::{Choice, Kind};
use crate::{Profile, Scheduling};
use obol_fabric::{Limits, Nanos, Wait};
use obol_fabric_ip::pulse;
use obol_fabric_verbs::arena::HugePages;
use obol_membership::timing::{LEASE_MAX, LEASE_MIN};

#[derive(Debug)]
pub(crate) struct Key {
    /// Its table and name, such as `lease.duration`; the top-level keys have no table.
    pub(crate) path: &'static str,
    /// Its type and bounds, and where the value is stored in a [`Profile`].
    pub(crate) kind: Kind,
    /// Its description and purpose, in sentences.
    pub(crate) doc: &'static str,
}

impl Key {
    /// The table; `None` for a top-level key.
    pub(crate) fn table(&self) -> Option<&'static str> {
        self.path.split_once('.').map(|(table, _)| table)
    }

    /// The name within the table.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// Whether it belongs to a table that may be missing, and is then left out: keys that a stored
    /// profile of an earlier release does not have.
    pub(crate) fn is_optional(&self) -> bool {
        self.table().is_some_and(|table| OPTIONAL_TABLES.contains(&table))
    }

    /// Whether the written form of the profile has it.
    pub(crate) fn is_written(&self, profile: &Profile) -> bool {
        !self.is_optional() || profile.pulse.enabled
    }

    /// The key on whose value this one depends, and that value.
    pub(crate) fn condition(&self) -> Option<(&'static str, &'static str)> {
        if self.kind.applies(&mut Profile::blank()) {
            return None;
        }
        KEYS.iter().find_map(|other| {
            let Kind::Choice(options) = &other.kind else { return None };
            options.iter().find_map(|option| {
                let mut profile = Profile::blank();
                (option.take)(&mut profile);
                self.kind.applies(&mut profile).then_some((other.path, option.name))
            })
        })
    }
}

/// Tables in the order of [`KEYS`].
pub(crate) fn tables() -> impl Iterator<Item = &'static str> {
    let mut last = None;
    KEYS.iter().filter_map(Key::table).filter(move |table| last.replace(*table) != Some(*table))
}

/// Tables that a profile need not have.
pub(crate) const OPTIONAL_TABLES: [&str; 1] = ["pulse"];

/// The value that leaves the choice to the program.
const AUTO: &str = "auto";
const US: Nanos = Nanos::from_micros(1);
const SECOND: Nanos = Nanos::from_secs(1);
/// Longer spans are probably a wrong unit: failures are detected within microseconds to seconds.
const MINUTE: Nanos = Nanos::from_secs(60);
/// The limit of spans on a human scale.
const HOUR: Nanos = Nanos::from_secs(3600);

const fn key(path: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key { path, kind, doc }
}

const fn span(low: Nanos, high: Nanos, at: fn(&mut Profile) -> Option<&mut Nanos>) -> Kind {
    Kind::Span { low, high, at }
}

const fn limit(unit: &'static str, at: fn(&mut Limits) -> &mut u32) -> Kind {
    Kind::Limit { unit, at }
}

/// Every key, in the order of the written form. A key follows the one that it depends on.
pub(crate) static KEYS: &[Key] = &[
    key(
        "schema",
        Kind::Schema,
        "Version of this file format. A profile of another version is refused, not guessed at.",
    ),
    key("name", Kind::Name(|p| &mut p.name), "The profile's name in the console and in reports."),
    key("description", Kind::Line(|p| &mut p.description), "The machines that it is meant for."),
    key(
        "lease.duration",
        span(LEASE_MIN, LEASE_MAX, |p| Some(&mut p.timing.lease)),
        "How long a lease lasts from the post of its READs (uKharon 6.2, delta). A longer lease survives \
         longer pauses of the scheduler; without fencing it also delays every failover.",
    ),
    key(
        "lease.renew_every",
        span(US, MINUTE, |p| Some(&mut p.timing.renew_every)),
        "Pause between two renewals. A shorter one notices newer views sooner and costs more READs.",
    ),
    key(
        "lease.renew_timeout",
        span(US, MINUTE, |p| Some(&mut p.timing.renew_timeout)),
        "Timeout of a renewal without a majority of answers; it is then posted again.",
    ),
    key(
        "lease.max",
        span(LEASE_MIN, LEASE_MAX, |p| Some(&mut p.timing.lease_max)),
        "Limit up to which leases grow while renewals are late (uKharon 6.3); they shrink again later. If \
         equal to lease.duration, leases never grow.",
    ),
    key(
        "lease.calm",
        span(US, MINUTE, |p| Some(&mut p.timing.lease_calm)),
        "Two late renewals of a holder within this time double the lease; none for this long halves it, \
         down to lease.duration.",
    ),
    key(
        "lease.drift_ppm",
        Kind::Number { unit: "ppm", low: 1, high: 10_000, at: |p| Some(&mut p.timing.drift_ppm) },
        "Assumed drift of any clock. Leases are shortened and waits lengthened by it; a clock that exceeds \
         it makes leases unsafe. More than 1 % is a broken clock, and no clock is exact.",
    ),
    key(
        "lease.fencing",
        Kind::Flag(|p| &mut p.timing.fencing),
        "Whether leases are fenced. Without fencing every failover waits for leases to expire, as in the \
         paper.",
    ),
    key(
        "lease.fan_out_from",
        Kind::Number { unit: "holders", low: 1, high: 1_000_000, at: |p| Some(&mut p.timing.fan_out_from) },
        "Number of living holders from which on the leader delegates their fences to the lease caches, if \
         there are any. Otherwise each fence costs the leader a CAS.",
    ),
    key(
        "cache.lease",
        span(US, MINUTE, |p| Some(&mut p.timing.cache_lease)),
        "How long a lease cache's own lease lasts (uKharon 6.3, Delta). While a view names a cache, every \
         wait is longer by it.",
    ),
    key(
        "cache.timeout",
        span(US, MINUTE, |p| Some(&mut p.timing.cache_timeout)),
        "Timeout of a lease cache's answer; the acceptors are polled instead.",
    ),
    key(
        "heartbeat.every",
        span(US, MINUTE, |p| Some(&mut p.timing.heartbeat_every)),
        "Longest pause between two increments of a process's heartbeat.",
    ),
    key(
        "heartbeat.period",
        span(US, MINUTE, |p| Some(&mut p.timing.heartbeat_period)),
        "Pause between two READs of a successor's heartbeat, from the completion of the first.",
    ),
    key(
        "heartbeat.confirm",
        Kind::Number { unit: "READs", low: 2, high: 1000, at: |p| Some(&mut p.timing.heartbeat_confirm) },
        "Consecutive READs with the same value that make a suspicion; proportionally more while leases are \
         longer than lease.duration. One READ alone cannot show a stall.",
    ),
    key(
        "link.watch",
        Kind::Flag(|p| &mut p.timing.link_watch),
        "Whether processes monitor their links to all others and report broken ones; the leader then keeps \
         the largest set of members that all reach each other, including itself. Costs a datagram between \
         every two processes per period.",
    ),
    key(
        "link.every",
        span(US, MINUTE, |p| Some(&mut p.timing.link_every)),
        "Period at which every process multicasts a heartbeat and repeats its report of broken links.",
    ),
    key(
        "link.timeout",
        span(US, MINUTE, |p| Some(&mut p.timing.link_timeout)),
        "Silence after which a member is read; if that fails, too, the link to it is down. The leader waits \
         as long again for other reports before it excludes a member.",
    ),
    key(
        "notice.after",
        span(US, MINUTE, |p| Some(&mut p.timing.notice_after)),
        "Delay before a coordinator that does not lead announces a death: the leader usually knows by \
         itself.",
    ),
    key(
        "notice.every",
        span(US, MINUTE, |p| Some(&mut p.timing.notice_every)),
        "Period at which a notice is repeated until a view excludes the accused, because datagrams may be \
         lost.",
    ),
    key(
        "coordinator.standby",
        span(US, MINUTE, |p| Some(&mut p.timing.standby)),
        "Time after which a restarted coordinator that no leader admits leads by itself.",
    ),
    key(
        "coordinator.poll_every",
        span(US, MINUTE, |p| Some(&mut p.timing.poll_every)),
        "Period at which coordinators poll for missed views, because multicast may be lost.",
    ),
    key(
        "coordinator.backoff_max",
        span(US, SECOND, |p| Some(&mut p.timing.backoff_max)),
        "First limit of the random pause of contending leaders, so that one of them gets through.",
    ),
    key(
        "coordinator.resync_after",
        span(US, MINUTE, |p| Some(&mut p.timing.resync_after)),
        "Time without news from a majority after which a process fetches the newest view before it trusts a \
         slot: the ring may have wrapped.",
    ),
    key(
        "coordinator.announce_hold",
        span(Nanos::ZERO, SECOND, |p| Some(&mut p.timing.announce_hold)),
        "Longest time for which a leader holds an announcement back so that its CLEAR fits in the same \
         datagram and members are woken once. 0: never, where waking costs nothing.",
    ),
    key(
        "coordinator.replace",
        Kind::Flag(|p| &mut p.timing.replace),
        "Whether the leader replaces a missing decider (dead, frozen, cut off) by a spare automatically. A \
         spare is a running coordinator that does not decide; `obol up` starts one when needed.",
    ),
    key(
        "coordinator.replace_after",
        span(US, HOUR, |p| Some(&mut p.timing.replace_after)),
        "Time after which a missing coordinator is replaced: longer than a restart takes.",
    ),
    key(
        "coordinator.replace_pause",
        span(US, HOUR, |p| Some(&mut p.timing.replace_pause)),
        "Minimum time between a replacement and the previous change of deciders, of any origin, so that an \
         apparent death of many does not cause a series of replacements.",
    ),
    key(
        "coordinator.join_every",
        span(US, MINUTE, |p| Some(&mut p.timing.join_every)),
        "Period at which an unanswered join or leave is repeated.",
    ),
    key(
        "coordinator.join_burst",
        Kind::Number { unit: "failures", low: 1, high: 1_000_000, at: |p| Some(&mut p.timing.join_burst) },
        "Members of one name that may fail within coordinator.join_window; joins of a name that fails more \
         often are put on hold, because each disturbs all others. Graceful leaves may be four times as many.",
    ),
    key(
        "coordinator.join_window",
        span(US, MINUTE, |p| Some(&mut p.timing.join_window)),
        "See coordinator.join_burst. A name that has not failed for this long, not counting holds, starts \
         over.",
    ),
    key(
        "coordinator.join_hold",
        span(Nanos::ZERO, MINUTE, |p| Some(&mut p.timing.join_hold)),
        "First hold on joins; each further failure of the name doubles it. 0: never.",
    ),
    key(
        "coordinator.join_hold_max",
        span(US, MINUTE, |p| Some(&mut p.timing.join_hold_max)),
        "Longest hold on joins.",
    ),
    key(
        "coordinator.join_pause",
        span(Nanos::ZERO, SECOND, |p| Some(&mut p.timing.join_pause)),
        "Minimum time between two views that admit members, if the second only admits members, so that \
         joins share views.",
    ),
    key(
        "wait.strategy",
        Kind::Choice(&[
            Choice { name: "spin", is: |p| matches!(p.wait, Wait::Spin), take: |p| p.wait = Wait::Spin },
            Choice {
                name: "hybrid",
                is: |p| matches!(p.wait, Wait::Hybrid { .. }),
                take: |p| p.wait = Wait::Hybrid { yield_for: Nanos::ZERO },
            },
            Choice { name: "block", is: |p| matches!(p.wait, Wait::Block), take: |p| p.wait = Wait::Block },
        ]),
        "How a process waits for its next event: spin needs a core for each process; hybrid yields for a while, then \
         blocks; block sleeps at once.",
    ),
    key(
        "wait.yield_for",
        span(US, SECOND, |p| match &mut p.wait {
            Wait::Hybrid { yield_for } => Some(yield_for),
            Wait::Spin | Wait::Block => None,
        }),
        "How long a hybrid wait yields before it blocks. Blocking costs a wake-up, yielding costs other \
         processes CPU time.",
    ),
    key(
        "scheduling.policy",
        Kind::Choice(&[
            Choice {
                name: "other",
                is: |p| matches!(p.scheduling, Scheduling::Other),
                take: |p| p.scheduling = Scheduling::Other,
            },
            Choice {
                name: "fifo",
                is: |p| matches!(p.scheduling, Scheduling::Fifo { .. }),
                take: |p| p.scheduling = Scheduling::Fifo { priority: 0 },
            },
        ]),
        "How the kernel schedules coordinators and agents: other like any program; fifo before all ordinary \
         programs, where the system allows it.",
    ),
    key(
        "scheduling.priority",
        Kind::Number {
            unit: "SCHED_FIFO",
            low: 1,
            high: 99,
            at: |p| match &mut p.scheduling {
                Scheduling::Fifo { priority } => Some(priority),
                Scheduling::Other => None,
            },
        },
        "Real-time priority; the kernel's own threads usually have 50.",
    ),
    key(
        "rdma.device",
        Kind::DeviceOr { word: AUTO, at: |p| &mut p.rdma.device },
        "The RDMA device, as listed by `obol fabric list`; auto selects the one of the host's address in \
         the cluster.",
    ),
    key(
        "rdma.port",
        Kind::NumberOr { word: AUTO, unit: "port", low: 1, high: 255, at: |p| &mut p.rdma.port },
        "The device's port; auto selects the first active one.",
    ),
    key(
        "rdma.gid_index",
        Kind::NumberOr { word: AUTO, unit: "index", low: 0, high: 255, at: |p| &mut p.rdma.gid_index },
        "The port's GID to send from; auto selects the one of the host's address, on RoCE its version 2.",
    ),
    key(
        "rdma.traffic_class",
        Kind::Number { unit: "class", low: 0, high: 255, at: |p| Some(&mut p.rdma.traffic_class) },
        "The traffic class of all packets, by which switches choose a queue; on RoCE the DSCP times four.",
    ),
    key(
        "rdma.detection",
        span(US, MINUTE, |p| Some(&mut p.rdma.detection)),
        "Timeout after which a peer whose network adapter does not answer is reported as unreachable: the \
         limit of all retries of a packet together.",
    ),
    key(
        "rdma.pages",
        Kind::Choice(&[
            Choice {
                name: "huge",
                is: |p| p.rdma.pages == HugePages::Explicit,
                take: |p| p.rdma.pages = HugePages::Explicit,
            },
            Choice {
                name: "transparent",
                is: |p| p.rdma.pages == HugePages::Transparent,
                take: |p| p.rdma.pages = HugePages::Transparent,
            },
            Choice {
                name: "plain",
                is: |p| p.rdma.pages == HugePages::Plain,
                take: |p| p.rdma.pages = HugePages::Plain,
            },
        ]),
        "Pages of the memory for pending operations, on the NUMA node of the device: huge from the reserved \
         pool (vm.nr_hugepages), else transparent; transparent, if the kernel grants them on advice; or \
         plain. The adapter needs fewer translations for huge pages.",
    ),
    key(
        "rdma.core",
        Kind::NumberOr { word: "any", unit: "core", low: 0, high: 8191, at: |p| &mut p.rdma.core },
        "The core that the thread of a coordinator, agent or lease cache is pinned to.",
    ),
    key(
        "ip.detection",
        span(US, MINUTE, |p| Some(&mut p.ip.detection)),
        "Timeout after which a host whose gateway does not answer is reported as silent, in a cluster over IP.",
    ),
    key(
        "pulse.mode",
        Kind::Choice(&[
            Choice { name: "off", is: |p| !p.pulse.enabled, take: |p| p.pulse.enabled = false },
            Choice { name: "on", is: |p| p.pulse.enabled, take: |p| p.pulse.enabled = true },
        ]),
        "Whether the gateways of hosts send each other pulses, and suspect hosts whose pulses stay away; over \
         RDMA they only show these. The whole table may be missing: off.",
    ),
    key(
        "pulse.period",
        span(pulse::PERIOD_MIN, pulse::PERIOD_MAX, |p| p.pulse.enabled.then_some(&mut p.pulse.period)),
        "Pause between two pulses of a host. Each is a datagram to every other host on every path.",
    ),
    key(
        "pulse.timeout",
        span(US, MINUTE, |p| p.pulse.enabled.then_some(&mut p.pulse.timeout)),
        "A host from which no new pulse arrives by any path for this long is suspected. `obol tune --network` \
         derives it from the delays of the network.",
    ),
    key(
        "pulse.paths",
        Kind::Number {
            unit: "paths",
            low: 1,
            high: pulse::PATHS_MAX as u32,
            at: |p| p.pulse.enabled.then_some(&mut p.pulse.paths),
        },
        "How many of the paths of the hosts file are used, the first ones; at most as many as there are.",
    ),
    key(
        "pulse.priority",
        Kind::NumberOr { word: "none", unit: "SCHED_FIFO", low: 1, high: 99, at: |p| &mut p.pulse.priority },
        "Real-time priority of the thread that sends and judges pulses, where the system allows it; without \
         one, other programs delay it, and the timeout has to be longer.",
    ),
    key(
        "alert.margin_percent",
        Kind::Number { unit: "percent", low: 1, high: 100, at: |p| Some(&mut p.alert.margin_percent) },
        "The console alerts when a renewal of the last minute found less than this share of its lease left.",
    ),
    key(
        "alert.late_renewals",
        Kind::Number { unit: "renewals", low: 1, high: 1_000_000, at: |p| Some(&mut p.alert.late_renewals) },
        "Number of late or failed renewals of one process in a minute from which on the console alerts.",
    ),
    key(
        "alert.stale_after",
        span(US, MINUTE, |p| Some(&mut p.alert.stale_after)),
        "The console alerts when the memory of a living process could not be read whole for this long.",
    ),
    key(
        "alert.false_suspicions",
        Kind::Number {
            unit: "suspicions",
            low: 1,
            high: 1_000_000,
            at: |p| Some(&mut p.alert.false_suspicions),
        },
        "Number of false suspicions by one process in a minute from which on the console alerts: the \
         detector is faster than the scheduler.",
    ),
    key(
        "alert.spare_coordinators",
        Kind::Number { unit: "coordinators", low: 1, high: 3, at: |p| Some(&mut p.alert.spare_coordinators) },
        "The console alerts when a coordinator is missing and fewer than this many others may still fail.",
    ),
    key(
        "limits.seats",
        // The layout allows one, but then no program could attach to an agent.
        Kind::Number { unit: "seats", low: 2, high: Limits::BOUNDS[0].2, at: |p| Some(&mut p.limits.seats) },
        "Seats of a region: its owner and the attached programs.",
    ),
    key(
        "limits.slots",
        limit("slots", |l| &mut l.slots),
        "Slots of the ring of decided views. A process that misses more views than this fetches the newest.",
    ),
    key("limits.proposers", limit("coordinators", |l| &mut l.proposers), "Maximum number of coordinators."),
    key(
        "limits.value_bytes",
        limit("bytes", |l| &mut l.value_bytes),
        "Size limit of an encoded view: bounds the number of members.",
    ),
    key(
        "limits.lanes",
        limit("senders", |l| &mut l.lanes),
        "Senders whose datagrams a region can receive: its possible peers.",
    ),
    key(
        "limits.lane_slots",
        limit("datagrams", |l| &mut l.lane_slots),
        "Datagrams queued in a lane before more are lost (and counted).",
    ),
    key("limits.datagram_bytes", limit("bytes", |l| &mut l.datagram_bytes), "Largest datagram."),
    key(
        "limits.recorder_events",
        limit("events", |l| &mut l.recorder_events),
        "Events kept in a seat's flight recorder for the time line of a failover.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::RULES;
    use std::collections::BTreeSet;

    #[test]
    fn every_key_is_documented_once() {
        let mut paths = BTreeSet::new();
        for key in KEYS {
            assert!(paths.insert(key.path), "{} is twice in the table", key.path);
            assert!(key.doc.ends_with('.') && key.doc.len() > 10, "{}: {:?}", key.path, key.doc);
            assert!(!key.doc.contains(['|', '\n']) && !key.doc.contains("  "), "{}: {:?}", key.path, key.doc);
            assert!(!key.kind.wanted().is_empty());
        }
        assert_eq!(
            tables().count(),
            tables().collect::<BTreeSet<_>>().len(),
            "a table's keys stand together"
        );
        for rule in RULES {
            assert!(rule.keys.iter().all(|key| paths.contains(key)), "{}", rule.must);
            assert!(rule.must.starts_with(rule.keys[0]), "{}", rule.must);
        }
    }

    #[test]
    fn a_dependent_key_comes_after_the_choice_that_it_depends_on() {
        let mut seen = BTreeSet::new();
        let mut dependent = Vec::new();
        for key in KEYS {
            if let Some((other, needed)) = key.condition() {
                assert!(seen.contains(other), "{} is read before {other}", key.path);
                dependent.push((key.path, other, needed));
            }
            seen.insert(key.path);
        }
        assert_eq!(
            dependent,
            [
                ("wait.yield_for", "wait.strategy", "hybrid"),
                ("scheduling.priority", "scheduling.policy", "fifo"),
                ("pulse.period", "pulse.mode", "on"),
                ("pulse.timeout", "pulse.mode", "on"),
                ("pulse.paths", "pulse.mode", "on"),
            ]
        );
    }

    /// A field without a key would keep its blank value.
    #[test]
    fn the_keys_fill_every_field() {
        let mut other = Profile::blank();
        for key in KEYS {
            match &key.kind {
                Kind::Flag(at) => *at(&mut other) = true,
                Kind::Number { at, .. } => {
                    let _ = at(&mut other).map(|number| *number = u32::MAX);
                }
                Kind::Limit { at, .. } => *at(&mut other.limits) = u32::MAX,
                Kind::Span { at, .. } => {
                    let _ = at(&mut other).map(|span| *span = Nanos::MAX);
                }
                Kind::DeviceOr { at, .. } => *at(&mut other) = Some("all".to_owned()),
                Kind::NumberOr { at, .. } => *at(&mut other) = Some(u32::MAX),
                Kind::Choice(options) if ["rdma.pages", "pulse.mode"].contains(&key.path) => {
                    options.iter().for_each(|option| (option.take)(&mut other));
                }
                _ => {}
            }
        }
        let text = format!("{other:?}");
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        assert_eq!(words.find(|word| ["0", "false", "None"].contains(word)), None, "{text}");
    }
}
