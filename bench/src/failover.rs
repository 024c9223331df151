//! The product's failover on a cluster of nine real processes, in turns with the floor's, and what
//! that cluster costs while it is idle.

use super::cluster::{cluster, drill};
use super::hogs::Hogs;
use super::{Figure, bare, idle};
use obol_agent::{Attached, Embedded};
use obol_chaos::drills::Victims;
use obol_chaos::drills::engine::journal::Trial;
use obol_chaos::floor::Floors;
use obol_fabric::host::sched::Slice;
use obol_fabric::{Name, Nanos};
use obol_observe::stats::Distribution;
use obol_supervise::running::{Running, START_TIMEOUT};
use obol_term::output::{self, Failure};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Alternations of floor and product, so that a drift of the machine affects both.
const TURNS: u32 = 4;
/// A p99 is shown from this number of failovers on.
const LEAST_FOR_P99: u64 = 100;

fn us(span: Nanos) -> f64 {
    span.as_micros_f64()
}

/// Failovers of the product and of the floor, in turns.
struct Measured {
    floors: Floors,
    failover: Distribution,
    notice: Distribution,
    /// The longest wait for leases that a failover without fences would have had.
    wait_us: f64,
}

impl Measured {
    fn turns(running: &Running, root: &Path, share: u32, slice: Slice) -> Result<Self, Failure> {
        let mut all = Self {
            floors: Floors::default(),
            failover: Distribution::new(),
            notice: Distribution::new(),
            wait_us: 0.0,
        };
        for _ in 0..TURNS {
            all.floors.run(root, share, slice)?;
            for trial in drill(running, Victims::App, share)? {
                all.failover.add(Nanos(trial.failover_ns.unwrap_or_default()));
                all.notice.add(phase(&trial, "notice"));
                all.wait_us = all.wait_us.max(us(Nanos(trial.lease_wait_ns)));
            }
        }
        if all.floors.ordinary {
            // Informative only: the benchmark continues without it.
            let _ = output::remark(
                "bench: the floor's killer had no right to real-time priority (CAP_SYS_NICE or an RLIMIT_RTPRIO), so \
                 the floor is higher than it could be",
            );
        }
        Ok(all)
    }

    fn medians(&self) -> Vec<Figure> {
        let p50 = |distribution: &Distribution| us(distribution.quantile(0.5));
        let failover = p50(&self.failover);
        let last = "kill to last survivor active, p50";
        let notice = "kill to the leader's notice, p50";
        vec![
            Figure::against(last, "us", failover, p50(&self.floors.last), 1.5),
            Figure::against(notice, "us", p50(&self.notice), p50(&self.floors.detected), 1.2),
        ]
    }

    /// A p99 of fewer failovers is their maximum.
    fn tail(&self) -> Option<Figure> {
        let [p50, p99] = [0.5, 0.99].map(|q| us(self.failover.quantile(q)));
        let enough = self.failover.len() >= LEAST_FOR_P99;
        enough.then(|| Figure::against("kill to last survivor, p99 against p50", "us", p99, p50, 1.6))
    }
}

fn phase(trial: &Trial, name: &str) -> Nanos {
    Nanos(trial.phases_ns.get(name).copied().unwrap_or_default())
}

pub(super) fn run(root: &Path, count: u32) -> Result<Vec<Figure>, Failure> {
    let running = cluster(root)?;
    let mut others = idle::run(&running)?;
    others.extend(checks(&running)?);
    others.extend(bare::run(&running, count)?);
    let share = count.div_ceil(TURNS);
    let measured = Measured::turns(&running, root, share, Slice::Default)?;
    let mut leader = Distribution::new();
    for trial in drill(&running, Victims::Leader, share.max(10))? {
        leader.add(phase(&trial, "propose").saturating_add(phase(&trial, "decide")));
    }
    let mut figures = measured.medians();
    figures.extend(measured.tail());
    let failover = us(measured.failover.quantile(0.5));
    figures.push(Figure::against(
        "last survivor against the lease's wait",
        "us",
        failover,
        measured.wait_us,
        1.0,
    ));
    figures.append(&mut others);
    // Beside the hot figure: this one starts from sleep, with cold caches.
    let leader = us(leader.quantile(0.5));
    figures.push(Figure::at_most("leader change from sleep, notice to decision, p50", "us", leader, 100.0));
    Ok(figures)
}

/// Failovers of the product and of the floor beside threads that use all processor time they get.
/// There the floor is lowest with the slices that the product's daemons ask for.
pub(super) fn beside(root: &Path, count: u32, hogs: u32) -> Result<Vec<Figure>, Failure> {
    let running = cluster(root)?;
    let _hogs = Hogs::start(hogs)?;
    Ok(Measured::turns(&running, root, count.div_ceil(TURNS), Slice::Short)?.medians())
}

/// `active` as an attached and as an embedded program calls it.
fn checks(running: &Running) -> Result<Vec<Figure>, Failure> {
    let site = Arc::new(running.site()?);
    let name = |text: &str| Name::new(text).map_err(Failure::failed);
    let attached =
        Attached::open(&site, name("node-1")?, name("bench-attached")?).map_err(Failure::failed)?;
    attached.join(Nanos::from_secs(5)).map_err(Failure::failed)?;
    let embedded = Embedded::start(Arc::clone(&site), name("bench-embedded")?).map_err(Failure::failed)?;
    let end = Instant::now() + START_TIMEOUT;
    // Every join makes a new view, so the newest is looked up again before each batch.
    let ready = || {
        let views = embedded.view().zip(attached.view());
        views.is_some_and(|(own, seated)| embedded.active(&own) && attached.active(&seated))
    };
    while !ready() {
        if Instant::now() > end {
            return Err(Failure::Failed("the benchmark's programs did not become active".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let views = embedded.view().zip(attached.view());
    let (own, seated) = views.ok_or_else(|| Failure::Failed("the view went away".to_owned()))?;
    let times = super::micro::checks(|| attached.active(&seated), || embedded.active(&own));
    attached.leave(Nanos::from_secs(5)).map_err(Failure::failed)?;
    Ok(times)
}
