//! What this host and the cluster on it can promise, from distributions that were measured: each
//! with its samples and its confidence, and none without enough of them.

use crate::Subject;
use crate::pauses::Pauses;
use obol_chaos::drills::studies::tune::{Counted, Measured};
use obol_observe::failovers::{self, Departures};
use obol_observe::stats::{Distribution, Summary, shown};
use obol_observe::{Health, Observer};
use serde::Serialize;

/// What a host sustains.
#[derive(Serialize)]
struct OfHost {
    scheduling: String,
    share_percent: f64,
    confidence_percent: f64,
    /// Pauses that were measured.
    n: u64,
    lease_us: f64,
    suspected_after_us: f64,
}

/// What a cluster has done since its processes started.
#[derive(Serialize)]
struct OfCluster {
    health: Health,
    /// Failovers in the flight recorders, from the first notice to the last survivor.
    failovers_us: Summary,
    /// Those without a duration: stamps are missing, or within the error between clocks of hosts.
    failovers_incomplete: u64,
    renewals: u64,
    renewals_late: u64,
    /// Lower bound of the share of timely renewals with 95 % confidence, in percent.
    timely_percent: f64,
    false_suspicions: u64,
}

/// Both.
#[derive(Serialize)]
pub(crate) struct Promises {
    host: Option<OfHost>,
    cluster: Option<OfCluster>,
}

pub(crate) fn of(subject: &Subject<'_>, pauses: &[Pauses]) -> Promises {
    let host = pauses.iter().find(|pauses| pauses.wanted).and_then(|pauses| {
        let sustained = pauses.sustained.as_ref()?;
        Some(OfHost {
            scheduling: pauses.scheduling.clone(),
            share_percent: sustained.share_percent,
            confidence_percent: sustained.confidence_percent,
            n: pauses.pauses_us.n,
            lease_us: sustained.lease_us,
            suspected_after_us: sustained.suspected_after_us,
        })
    });
    Promises { host, cluster: subject.site.and_then(|_| of_cluster(subject)) }
}

fn of_cluster(subject: &Subject<'_>) -> Option<OfCluster> {
    let mut observer = Observer::open(subject.root, subject.cluster).ok()?;
    let (snapshot, events, _) = observer.poll(false);
    if snapshot.health == Health::Unreachable {
        return None;
    }
    let mut departures = Departures::default();
    if let Some(view) = &snapshot.view {
        departures.learn_from(view);
    }
    let mut failovers = Distribution::new();
    let mut failovers_incomplete = 0;
    for failover in failovers::all(&events.iter().cloned(), &departures) {
        match failover.total() {
            Some(total) => failovers.add(total),
            None => failovers_incomplete += 1,
        }
    }
    let measured = Measured::new("", subject.profile.timing.lease, Counted::of(&snapshot));
    Some(OfCluster {
        health: snapshot.health,
        failovers_us: failovers.summary(),
        failovers_incomplete,
        renewals: measured.renewals,
        renewals_late: measured.late,
        timely_percent: measured.claimed_percent,
        false_suspicions: measured.false_suspicions,
    })
}

impl Promises {
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines =
            vec!["what this host could promise, which is not how the cluster is set up:".to_owned()];
        lines.push(match &self.host {
            Some(host) => format!(
                "  this host, {} scheduling: leases of {} for {} % of renewals in time ({} % confidence, n {}); a frozen process is suspected after {}",
                host.scheduling,
                shown(host.lease_us),
                host.share_percent,
                host.confidence_percent,
                host.n,
                shown(host.suspected_after_us)
            ),
            None => "  this host: nothing, since too few pauses were measured, or they were too long; measure longer with --for".to_owned(),
        });
        lines.extend(self.cluster.as_ref().map_or_else(
            || vec!["  no cluster runs here that can be read, so nothing is known of failovers; `obol drill app --count 300` measures them".to_owned()],
            OfCluster::lines,
        ));
        lines
    }
}

impl OfCluster {
    fn lines(&self) -> Vec<String> {
        let Summary { n, p50, p99, max, .. } = self.failovers_us;
        let known =
            |value: Option<f64>, needs| value.map_or_else(|| format!("unknown (needs {needs})"), shown);
        let mut failovers = match n {
            0 => "  failovers: no duration is known; `obol drill app --count 300` measures them".to_owned(),
            _ => format!(
                "  failovers, n {n}: p50 {}, p99 {}, longest {}",
                known(p50, 5),
                known(p99, 299),
                shown(max)
            ),
        };
        if self.failovers_incomplete > 0 {
            failovers += &format!(
                "; {} without a duration: stamps are missing, or within the error between clocks of hosts",
                self.failovers_incomplete
            );
        }
        let renewals = format!(
            "  renewals since the agents started, n {}: at least {:.4} % in time (95 % confidence), {} late; {} suspicions",
            self.renewals, self.timely_percent, self.renewals_late, self.false_suspicions
        );
        vec![format!("  the cluster is {}", self.health.name()), failovers, renewals]
    }
}
