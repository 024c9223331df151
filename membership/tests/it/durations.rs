//! Statements about lease durations: leases grow, shrink, lapse and resume.

use crate::instant::{Cluster, TIMING};
use obol_fabric::Nanos;
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::recorder::{EventKind, Record};
use obol_membership::wire::Message;
use obol_membership::{ActiveMutant, Kind, Timing};

/// Leases of 1 ms that may grow to 6 ms and shrink after 10 ms of calm.
fn adaptive() -> Cluster {
    let timing = Timing { lease_max: Nanos(6 * TIMING.lease.0), heartbeat_confirm: 20, ..TIMING };
    let mut cluster = Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(2);
    cluster.run(Nanos::from_millis(30));
    cluster
}

/// The agent is frozen beyond its lease, too briefly to be suspected.
fn freeze_beyond_lease(cluster: &mut Cluster, agent: usize) {
    cluster.nodes[agent].frozen = true;
    cluster.run(Nanos(TIMING.lease.0 * 11 / 10));
    cluster.nodes[agent].frozen = false;
    cluster.run(Nanos::from_micros(50));
}

#[test]
fn a_holder_that_is_late_again_gets_longer_leases_and_calm_shortens_them() {
    let mut cluster = adaptive();
    let (usual, base) = (TIMING.lease, cluster.view(0).base);
    freeze_beyond_lease(&mut cluster, 3);
    assert_eq!(cluster.view(0).lease, usual, "once is a pause of that process");
    freeze_beyond_lease(&mut cluster, 3);
    assert!(cluster.counted(3, Counter::RenewalsLate) >= 2);
    // Each renewal has its margin; that of a late one is nothing.
    let spans = &cluster.nodes[3].spans;
    let margins = || spans.iter().filter(|(of, _)| *of == Histogram::Margin).map(|(_, span)| *span);
    let (late, on_time) = (Counter::RenewalsLate, Counter::RenewalsOnTime);
    assert_eq!(margins().filter(|left| *left == Nanos::ZERO).count() as u64, cluster.counted(3, late));
    let renewals = cluster.counted(3, late) + cluster.counted(3, on_time);
    assert_eq!(margins().count() as u64, renewals);
    assert_eq!(cluster.view(0).lease, Nanos(2 * usual.0));
    cluster.run(Nanos::from_millis(1));
    let longer = cluster.newest();
    assert_eq!(cluster.view(4).base, base, "no lease was disturbed");
    assert!(cluster.is_active(3, longer) && cluster.is_active(4, longer));
    freeze_beyond_lease(&mut cluster, 3);
    assert!(cluster.is_active(3, longer), "now it may sleep as long");
    cluster.run(TIMING.lease_calm.saturating_add(Nanos::from_millis(1)));
    assert_eq!((cluster.view(0).lease, cluster.view(0).base), (usual, base));
}

/// Whether an agent that stalls for this many heartbeat periods remains a member, with leases of
/// `lease` where the profile has 1 ms and at most 6 ms.
fn keeps_a_member_that_stalls(lease: Nanos, periods: u64) -> bool {
    let timing = Timing { lease_max: Nanos(6 * TIMING.lease.0), ..TIMING };
    let mut cluster = Cluster::with_timing(3, 3, timing, ActiveMutant::NONE).with_agents(2);
    cluster.send_to_coordinators(&Message::SetLease(lease).encode());
    cluster.run(Nanos::from_millis(1));
    assert_eq!(cluster.view(0).lease, lease);
    let me = cluster.view(0).of_kind(Kind::Agent).map(|m| m.incarnation).min().expect("node-1, the first");
    cluster.freeze([3]);
    cluster.run(Nanos(periods * timing.heartbeat_period.0));
    cluster.view(0).member(me).is_some()
}

#[test]
fn the_heartbeat_timeout_grows_with_the_leases() {
    let confirm = u64::from(TIMING.heartbeat_confirm);
    for (lease, times) in [(TIMING.lease, 1), (Nanos(3 * TIMING.lease.0), 3), (Nanos(6 * TIMING.lease.0), 6)]
    {
        assert!(keeps_a_member_that_stalls(lease, times * confirm - 1), "{lease} {times}");
        assert!(!keeps_a_member_that_stalls(lease, times * confirm + 3), "{lease} {times}");
    }
    // An operator's lease beyond the profile's maximum does not keep frozen members longer.
    assert!(!keeps_a_member_that_stalls(Nanos(600 * TIMING.lease.0), 6 * confirm + 3));
}

#[test]
fn leases_grow_up_to_their_limit_and_old_complaints_do_nothing() {
    let mut cluster = adaptive();
    let report_late = |cluster: &mut Cluster, lease: u64| {
        cluster.send_to_coordinators(&Message::LeaseTooShort(Nanos(lease)).encode());
        cluster.run(Nanos::from_micros(10));
        cluster.view(0).lease.0 / TIMING.lease.0
    };
    let usual = TIMING.lease.0;
    assert_eq!(report_late(&mut cluster, usual), 2);
    assert_eq!(report_late(&mut cluster, usual), 2, "a copy that comes late");
    assert_eq!(report_late(&mut cluster, 2 * usual), 4);
    assert_eq!(report_late(&mut cluster, 4 * usual), 6, "the most");
    assert_eq!(report_late(&mut cluster, 6 * usual), 6);
    cluster.kill(0);
    cluster.run(TIMING.lease_calm.saturating_add(Nanos::from_millis(1)));
    assert_eq!(cluster.view(1).lease.0, 3 * usual, "a new leader shortens it just the same");
    cluster.run(Nanos(2 * TIMING.lease_calm.0 + 1_000_000));
    assert_eq!(cluster.view(1).lease.0, usual);
}

#[test]
fn a_lease_that_is_too_short_again_and_again_is_shortened_less_and_less_often() {
    let mut cluster = adaptive();
    let (usual, calm, moment) = (TIMING.lease, TIMING.lease_calm, Nanos::from_millis(1));
    let report_late = |cluster: &mut Cluster| {
        cluster.send_to_coordinators(&Message::LeaseTooShort(usual).encode());
        cluster.run(Nanos::from_micros(10));
        assert_eq!(cluster.view(0).lease, Nanos(2 * usual.0));
    };
    for calms in [1, 2, 4, 8] {
        report_late(&mut cluster);
        cluster.run(Nanos(calms * calm.0 - moment.0));
        assert_eq!(cluster.view(0).lease, Nanos(2 * usual.0), "{calms}");
        cluster.run(Nanos(2 * moment.0));
        assert_eq!(cluster.view(0).lease, usual, "{calms}");
    }
    cluster.run(Nanos(8 * calm.0 + moment.0));
    report_late(&mut cluster);
    cluster.run(Nanos(calm.0 + moment.0));
    assert_eq!(cluster.view(0).lease, usual, "that was long ago");
}

/// How many lapses each recorded one says there were.
fn lapses(records: &[Record]) -> Vec<u64> {
    records.iter().filter(|r| r.kind == EventKind::LeaseLost).map(|r| r.b).collect()
}

/// Three coordinators that do not suspect a process frozen for a few leases.
fn with_slow_detectors() -> Cluster {
    Cluster::with_timing(3, 3, Timing { heartbeat_confirm: 20, ..TIMING }, ActiveMutant::NONE)
}

#[test]
fn a_flapping_lease_does_not_push_a_failover_out_of_the_recorder() {
    let mut cluster = with_slow_detectors().with_agents(2);
    cluster.kill(4);
    cluster.run(Nanos::from_millis(5));
    let failover = cluster.newest();
    let before = cluster.nodes[3].records.len();
    let late = cluster.counted(3, Counter::RenewalsLate);
    for _ in 0..1_000 {
        freeze_beyond_lease(&mut cluster, 3);
    }
    let count = cluster.counted(3, Counter::RenewalsLate) - late;
    assert_eq!(cluster.newest(), failover, "no member was removed");
    assert!(count >= 1_000, "only {count}");
    let noted = &cluster.nodes[3].records[before..];
    // The first four, then each power of two up to the count, each with its resumption.
    let most = 2 * (4 + count.ilog2() as usize - 2);
    assert!(noted.len() <= most, "{} events of {count} lapses", noted.len());
    assert_eq!(lapses(noted)[..6], [1, 2, 3, 4, 8, 16], "each says how many there were");
    assert_eq!(noted.last().map(|r| r.kind), Some(EventKind::Active));
}

#[test]
fn a_long_lapse_is_always_recorded() {
    let mut cluster = with_slow_detectors().with_agents(1);
    for _ in 0..5 {
        freeze_beyond_lease(&mut cluster, 3);
    }
    let before = cluster.nodes[3].records.len();
    // The sixth lapse, which is not recorded at once; there is no coordinator to poll.
    (0..3).for_each(|node| cluster.kill(node));
    cluster.run(Nanos::from_millis(500));
    let lost = |cluster: &Cluster| lapses(&cluster.nodes[3].records[before..]);
    assert_eq!(lost(&cluster), [0; 0]);
    cluster.run(Nanos::from_secs(2));
    assert_eq!(lost(&cluster), [6]);
}
