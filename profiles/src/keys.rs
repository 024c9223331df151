//! The table of keys: the one place that knows what a profile can say. Reading, bounds,
//! suggestions, the written form and the reference all follow from it; a new constant is a row here
//! and a line in each built-in file.

use crate::kind::{Choice, Kind};
use crate::{Profile, Scheduling};
use obol_fabric::Wait;
use obol_fabric::verbs::arena::HugePages;
use obol_fabric::{Limits, Nanos};
use obol_membership::timing::{LEASE_MAX, LEASE_MIN};

/// One key.
#[derive(Debug)]
pub(crate) struct Key {
    /// Its table and name, such as `lease.duration`; the four of the top level have no table.
    pub(crate) path: &'static str,
    /// What it holds, within which bounds, and where that goes in a [`Profile`].
    pub(crate) kind: Kind,
    /// What it is and why it exists, in sentences.
    pub(crate) doc: &'static str,
}

impl Key {
    /// The table, or nothing for a key of the top level.
    pub(crate) fn table(&self) -> Option<&'static str> {
        self.path.split_once('.').map(|(table, _)| table)
    }

    /// The name within the table.
    pub(crate) fn name(&self) -> &'static str {
        self.path.split_once('.').map_or(self.path, |(_, name)| name)
    }

    /// The key whose value decides whether this one means anything, and the value that it needs.
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

/// Leaves the choice to the program.
const AUTO: &str = "auto";
const US: Nanos = Nanos::from_micros(1);
const SECOND: Nanos = Nanos::from_secs(1);
/// Longer spans are slips of a unit: the service is for clusters that notice a death in
/// microseconds.
const MINUTE: Nanos = Nanos::from_secs(60);
/// What takes people's time into account.
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

/// Every key, in the order of the written form. A key that depends on a choice comes after it.
pub(crate) static KEYS: &[Key] = &[
    key(
        "schema",
        Kind::Schema,
        "Version of this file format. A profile of another version is refused, not guessed at.",
    ),
    key("name", Kind::Name(|p| &mut p.name), "What the profile is called in the console and in reports."),
    key("description", Kind::Line(|p| &mut p.description), "For which machines it is meant."),
    key(
        "lease.duration",
        span(LEASE_MIN, LEASE_MAX, |p| Some(&mut p.timing.lease)),
        "How long a lease lasts from the post of its READs (uKharon 6.2, delta). Longer outlasts longer pauses of the \
         scheduler; without fencing it also delays every failover.",
    ),
    key(
        "lease.renew_every",
        span(US, MINUTE, |p| Some(&mut p.timing.renew_every)),
        "Pause between a renewal and the next. Shorter notices a newer view sooner and costs more READs.",
    ),
    key(
        "lease.renew_timeout",
        span(US, MINUTE, |p| Some(&mut p.timing.renew_timeout)),
        "A renewal without a majority of answers for so long has failed and is posted again.",
    ),
    key(
        "lease.max",
        span(LEASE_MIN, LEASE_MAX, |p| Some(&mut p.timing.lease_max)),
        "Leases become longer, up to this, while holders find that renewals come too late (uKharon 6.3), and shorter again \
         later. As long as lease.duration: they never do.",
    ),
    key(
        "lease.calm",
        span(US, MINUTE, |p| Some(&mut p.timing.lease_calm)),
        "Two late renewals of a holder within this time make leases twice as long; none for so long, half as long again, down \
         to lease.duration.",
    ),
    key(
        "lease.drift_ppm",
        Kind::Number { unit: "ppm", low: 1, high: 10_000, at: |p| Some(&mut p.timing.drift_ppm) },
        "How far any clock's rate may be off. Leases are shortened and waits lengthened by it; a clock that is worse \
         makes leases unsafe. More than 1 % is a broken clock, and no clock is exact.",
    ),
    key(
        "lease.fencing",
        Kind::Flag(|p| &mut p.timing.fencing),
        "Whether leases are fenced. Without it every failover waits for leases to run out, as in the paper.",
    ),
    key(
        "lease.fan_out_from",
        Kind::Number { unit: "holders", low: 1, high: 1_000_000, at: |p| Some(&mut p.timing.fan_out_from) },
        "From so many living holders on, the leader lets the lease caches raise their fences, if there are caches. One \
         by one, each costs the leader a CAS.",
    ),
    key(
        "cache.lease",
        span(US, MINUTE, |p| Some(&mut p.timing.cache_lease)),
        "How long a lease cache's own lease lasts (uKharon 6.3, Delta). While a view names a cache, every wait is longer \
         by it.",
    ),
    key(
        "cache.timeout",
        span(US, MINUTE, |p| Some(&mut p.timing.cache_timeout)),
        "A lease cache that does not answer for so long is passed over, and the acceptors are asked.",
    ),
    key(
        "heartbeat.every",
        span(US, MINUTE, |p| Some(&mut p.timing.heartbeat_every)),
        "Every process advances its heartbeat at least so often.",
    ),
    key(
        "heartbeat.period",
        span(US, MINUTE, |p| Some(&mut p.timing.heartbeat_period)),
        "Pause between two READs of a successor's heartbeat, from the completion of the first.",
    ),
    key(
        "heartbeat.confirm",
        Kind::Number { unit: "READs", low: 2, high: 1000, at: |p| Some(&mut p.timing.heartbeat_confirm) },
        "This many READs in a row that find the same value make a suspicion; proportionally more while leases are longer than lease.duration. Fewer than two can not show a standstill.",
    ),
    key(
        "link.watch",
        Kind::Flag(|p| &mut p.timing.link_watch),
        "Whether every process listens for every other, and reports links that are down; the leader then keeps the \
         largest set of members that all reach each other, and itself. Costs a datagram from everybody to everybody.",
    ),
    key(
        "link.every",
        span(US, MINUTE, |p| Some(&mut p.timing.link_every)),
        "Every process multicasts a heartbeat so often, and repeats its report of links that are down.",
    ),
    key(
        "link.timeout",
        span(US, MINUTE, |p| Some(&mut p.timing.link_timeout)),
        "A member that is silent for so long is read; if that fails, too, the link to it is down. The leader waits as \
         long again for the reports of others before it excludes anybody.",
    ),
    key(
        "notice.after",
        span(US, MINUTE, |p| Some(&mut p.timing.notice_after)),
        "A coordinator that does not lead tells of a death only after so long: the leader mostly knows by itself.",
    ),
    key(
        "notice.every",
        span(US, MINUTE, |p| Some(&mut p.timing.notice_every)),
        "A notice is repeated so often until a view excludes the accused, because datagrams may be lost.",
    ),
    key(
        "coordinator.standby",
        span(US, MINUTE, |p| Some(&mut p.timing.standby)),
        "A restarted coordinator that no leader admits for so long leads by itself.",
    ),
    key(
        "coordinator.poll_every",
        span(US, MINUTE, |p| Some(&mut p.timing.poll_every)),
        "Coordinators look so often for decided views that they missed, because multicast may be lost.",
    ),
    key(
        "coordinator.backoff_max",
        span(US, SECOND, |p| Some(&mut p.timing.backoff_max)),
        "Contending leaders pause at random, up to this at first, so that one of them gets through.",
    ),
    key(
        "coordinator.resync_after",
        span(US, MINUTE, |p| Some(&mut p.timing.resync_after)),
        "After so long without news from a majority, a process fetches the newest view before it trusts a slot: the \
         ring may have come round.",
    ),
    key(
        "coordinator.announce_hold",
        span(Nanos::ZERO, SECOND, |p| Some(&mut p.timing.announce_hold)),
        "A leader holds a view's announcement back for so long at most, so that members are woken once: the news that no \
         older lease is left goes with it. 0: never, where waking costs nothing.",
    ),
    key(
        "coordinator.replace",
        Kind::Flag(|p| &mut p.timing.replace),
        "Whether the leader replaces a coordinator that decides and is missing (dead, frozen, cut off) by a spare one, \
         without an operator. A spare is a coordinator that runs and does not decide; `obol up` starts one at need.",
    ),
    key(
        "coordinator.replace_after",
        span(US, HOUR, |p| Some(&mut p.timing.replace_after)),
        "A coordinator is replaced when it has been missing for so long: longer than a restart takes.",
    ),
    key(
        "coordinator.replace_pause",
        span(US, HOUR, |p| Some(&mut p.timing.replace_pause)),
        "And only so long after the last change of those who decide, whoever made it, so that nothing that looks like the \
         death of many makes one replacement follow the other.",
    ),
    key(
        "coordinator.join_every",
        span(US, MINUTE, |p| Some(&mut p.timing.join_every)),
        "A join or leave without an answer is repeated so often.",
    ),
    key(
        "coordinator.join_burst",
        Kind::Number { unit: "failures", low: 1, high: 1_000_000, at: |p| Some(&mut p.timing.join_burst) },
        "So many members of one name may fail within coordinator.join_window; joins of a name that fails more often are held \
         back, because each disturbs all others.",
    ),
    key(
        "coordinator.join_window",
        span(US, MINUTE, |p| Some(&mut p.timing.join_window)),
        "See coordinator.join_burst. A name that has not failed for so long, beside what it was held back, begins anew.",
    ),
    key(
        "coordinator.join_hold",
        span(Nanos::ZERO, MINUTE, |p| Some(&mut p.timing.join_hold)),
        "For so long a join is held back at first; each further failure of its name doubles that. 0: never.",
    ),
    key(
        "coordinator.join_hold_max",
        span(US, MINUTE, |p| Some(&mut p.timing.join_hold_max)),
        "For so long a join is held back at most.",
    ),
    key(
        "coordinator.join_pause",
        span(Nanos::ZERO, SECOND, |p| Some(&mut p.timing.join_pause)),
        "A view that only admits members comes at least so long after the last that admitted any, so that joins share views.",
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
        "How long a hybrid wait yields before it blocks. Blocking costs a wake-up, yielding costs the others' time.",
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
        "How the kernel schedules coordinators and agents: other as any program; fifo before any ordinary program, \
         where the system allows it.",
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
        "Real-time priority; the kernel's own threads mostly have 50.",
    ),
    key(
        "rdma.device",
        Kind::DeviceOr { word: AUTO, at: |p| &mut p.rdma.device },
        "The RDMA device, as `obol fabric list` names it; auto takes that of the host's address in the cluster.",
    ),
    key(
        "rdma.port",
        Kind::NumberOr { word: AUTO, unit: "port", low: 1, high: 255, at: |p| &mut p.rdma.port },
        "The device's port; auto takes the first that is active.",
    ),
    key(
        "rdma.gid_index",
        Kind::NumberOr { word: AUTO, unit: "index", low: 0, high: 255, at: |p| &mut p.rdma.gid_index },
        "Which of the port's GIDs sends; auto takes that of the host's address, on RoCE its version 2.",
    ),
    key(
        "rdma.traffic_class",
        Kind::Number { unit: "class", low: 0, high: 255, at: |p| Some(&mut p.rdma.traffic_class) },
        "The traffic class of all packets, which switches choose their queue by; on RoCE the DSCP times four.",
    ),
    key(
        "rdma.detection",
        span(US, MINUTE, |p| Some(&mut p.rdma.detection)),
        "A peer whose network adapter does not answer for so long is reported as unreachable: the longest that all \
         repeats of a packet may take together.",
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
        "Pages of the memory for what is under way, on the NUMA node of the device: huge of the reserved pool \
         (vm.nr_hugepages), else transparent; transparent, if the kernel gives them on advice; or plain. The adapter \
         needs fewer translations for huge ones.",
    ),
    key(
        "rdma.core",
        Kind::NumberOr { word: "any", unit: "core", low: 0, high: 8191, at: |p| &mut p.rdma.core },
        "The core that the thread of a coordinator, agent or lease cache is pinned to.",
    ),
    key(
        "alert.margin_percent",
        Kind::Number { unit: "percent", low: 1, high: 100, at: |p| Some(&mut p.alert.margin_percent) },
        "The console alerts where a renewal of the last minute found less than this part of its lease left.",
    ),
    key(
        "alert.late_renewals",
        Kind::Number { unit: "renewals", low: 1, high: 1_000_000, at: |p| Some(&mut p.alert.late_renewals) },
        "The console alerts from so many late or failed renewals of one process in a minute on.",
    ),
    key(
        "alert.stale_after",
        span(US, MINUTE, |p| Some(&mut p.alert.stale_after)),
        "The console alerts where the memory of a living process could not be read whole for so long.",
    ),
    key(
        "alert.false_suspicions",
        Kind::Number {
            unit: "suspicions",
            low: 1,
            high: 1_000_000,
            at: |p| Some(&mut p.alert.false_suspicions),
        },
        "The console alerts from so many false suspicions by one process in a minute on: the detector is faster than \
         the scheduler.",
    ),
    key(
        "alert.spare_coordinators",
        Kind::Number { unit: "coordinators", low: 1, high: 3, at: |p| Some(&mut p.alert.spare_coordinators) },
        "The console alerts where a coordinator is missing and fewer than so many others may still fail.",
    ),
    key(
        "limits.seats",
        // The layout allows one: an agent to which nothing can attach, which no cluster that is
        // started from a profile is for.
        Kind::Number { unit: "seats", low: 2, high: Limits::BOUNDS[0].2, at: |p| Some(&mut p.limits.seats) },
        "Seats of a region: its owner and the attached programs.",
    ),
    key(
        "limits.slots",
        limit("slots", |l| &mut l.slots),
        "Slots of the ring of decided views. A process that misses more views than this fetches the newest.",
    ),
    key(
        "limits.proposers",
        limit("coordinators", |l| &mut l.proposers),
        "Coordinators that the cluster can have.",
    ),
    key(
        "limits.value_bytes",
        limit("bytes", |l| &mut l.value_bytes),
        "Bytes of one encoded view: bounds the members.",
    ),
    key(
        "limits.lanes",
        limit("senders", |l| &mut l.lanes),
        "Senders that a region can hear: its possible peers.",
    ),
    key(
        "limits.lane_slots",
        limit("datagrams", |l| &mut l.lane_slots),
        "Datagrams that wait in a lane before more are lost (and counted).",
    ),
    key("limits.datagram_bytes", limit("bytes", |l| &mut l.datagram_bytes), "Largest datagram."),
    key(
        "limits.recorder_events",
        limit("events", |l| &mut l.recorder_events),
        "Events that a seat's flight recorder keeps for the time line of a failover.",
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
                ("scheduling.priority", "scheduling.policy", "fifo")
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
                Kind::Choice(options) if key.path == "rdma.pages" => {
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
