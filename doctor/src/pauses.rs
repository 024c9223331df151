//! Pauses of the scheduler, measured: how much later than asked a sleeping thread runs again, on
//! each core, as obol's processes are scheduled. The lease that these pauses allow is that of `obol
//! tune`, by the same rules; `tune` measures renewals themselves, also under load.

use crate::{Finding, Severity};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::prctl::set_timerslack;
use nix::unistd::Pid;
use obol_chaos::drills::studies::tune::{self, Counted, Measured, PAUSES};
use obol_fabric::Nanos;
use obol_fabric::host::clock;
use obol_fabric::host::sched::{self, Slice};
use obol_observe::figures::total;
use obol_observe::stats::{Distribution, Summary, shown};
use obol_profiles::Profile;
use obol_term::output::Failure;
use serde::Serialize;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// What a thread asks to sleep.
const SLEEP: Duration = Duration::from_micros(250);
/// Renewals that must come in time, in percent, for a lease to be sustained: three seconds of two
/// cores suffice to claim it.
const SHARE_PERCENT: f64 = 99.9;
/// The priority that is tried where the profile has none.
const PRIORITY: u32 = 50;

/// One bar of the histogram.
#[derive(Clone, Copy, Debug, Serialize)]
struct Bar {
    /// Pauses up to this; the last bar has all longer ones.
    up_to_us: Option<f64>,
    n: u64,
}

/// What the measured pauses sustain.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sustained {
    /// In percent.
    pub(crate) share_percent: f64,
    /// With which confidence, in percent.
    pub(crate) confidence_percent: f64,
    pub(crate) lease_us: f64,
    pub(crate) suspected_after_us: f64,
}

/// The pauses under one kind of scheduling.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pauses {
    pub(crate) scheduling: String,
    /// Whether the profile asks for it.
    pub(crate) wanted: bool,
    cores: usize,
    pub(crate) pauses_us: Summary,
    histogram: Vec<Bar>,
    /// None if no lease of `obol tune`'s sweep is sustained.
    pub(crate) sustained: Option<Sustained>,
    /// Pauses that a lease of the profile does not outlast.
    pub(crate) longer_than_profile: u64,
    #[serde(skip)]
    outlasts: Nanos,
}

/// Measures ordinary scheduling, and real-time scheduling where it is allowed.
pub(crate) fn measure(profile: &Profile, time: Duration) -> Result<Vec<Pauses>, Failure> {
    let wanted = profile.scheduling.priority();
    let mut all = vec![of(profile, time, None, wanted.is_none())?];
    let priority = wanted.unwrap_or(PRIORITY);
    if sched::may_run_fifo(priority) {
        all.push(of(profile, time, Some(priority), wanted.is_some())?);
    }
    Ok(all)
}

/// The cores that this process may use.
fn cores() -> Result<Vec<u32>, Failure> {
    let own = Pid::from_raw(0);
    let set = sched_getaffinity(own).map_err(io::Error::from).map_err(Failure::failed)?;
    let all = (0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true));
    Ok(all.filter_map(|core| u32::try_from(core).ok()).collect())
}

fn of(profile: &Profile, time: Duration, priority: Option<u32>, wanted: bool) -> Result<Pauses, Failure> {
    let cores = cores()?;
    let threads: Vec<_> = cores
        .iter()
        .map(|core| {
            let core = *core;
            thread::Builder::new().name(format!("doctor-{core}")).spawn(move || on(core, time, priority))
        })
        .collect();
    let mut all = Distribution::new();
    for thread in threads {
        let measured = thread.map_err(Failure::failed)?.join();
        let measured =
            measured.map_err(|_| Failure::Failed("a thread that measures pauses has ended".to_owned()))?;
        all.add_all(&measured.map_err(Failure::failed)?);
    }
    let outlasts = Nanos(profile.timing.lease.0.saturating_sub(profile.timing.renew_every.0));
    Ok(Pauses {
        scheduling: priority
            .map_or_else(|| "ordinary".to_owned(), |priority| format!("SCHED_FIFO {priority}")),
        wanted,
        cores: cores.len(),
        pauses_us: all.summary(),
        histogram: histogram(&all),
        sustained: sustained(&all, profile),
        longer_than_profile: longer(&all, outlasts),
        outlasts,
    })
}

/// The pauses of a thread on one core.
fn on(core: u32, time: Duration, priority: Option<u32>) -> std::io::Result<Distribution> {
    sched::pin_to_core(core)?;
    match priority {
        Some(priority) => sched::run_fifo_alone(priority)?,
        // As daemons do; older kernels ignore it.
        None => drop(sched::set_slice(None, Slice::Short)),
    }
    set_timerslack(1)?;
    let mut all = Distribution::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let began = clock::now();
        thread::sleep(SLEEP);
        all.add(clock::now().since(began + Nanos::from_std(SLEEP)));
    }
    Ok(all)
}

/// The pauses that were measured, to a thousandth, and how often each.
fn each(all: &Distribution) -> impl Iterator<Item = (Nanos, u64)> + '_ {
    let histogram = all.histogram();
    let recorded = histogram.iter_recorded();
    recorded.map(|one| (Nanos(histogram.lowest_equivalent(one.value_iterated_to())), one.count_at_value()))
}

fn longer(all: &Distribution, than: Nanos) -> u64 {
    total(each(all).filter(|(pause, _)| *pause > than).map(|(_, n)| n))
}

fn histogram(all: &Distribution) -> Vec<Bar> {
    let up_to = PAUSES.iter().map(|pause| Some(pause.as_micros_f64())).chain([None]);
    let mut bars: Vec<Bar> = up_to.map(|up_to_us| Bar { up_to_us, n: 0 }).collect();
    for (pause, n) in each(all) {
        let at = PAUSES.partition_point(|up_to| *up_to < pause);
        if let Some(bar) = bars.get_mut(at) {
            bar.n += n;
        }
    }
    bars
}

/// The lease and the heartbeat for these pauses, as `obol tune` chooses them: each pause stands for
/// one renewal.
fn sustained(all: &Distribution, profile: &Profile) -> Option<Sustained> {
    let sweep = PAUSES.map(|pause| {
        let late = longer(all, pause);
        Measured::new("measured pauses", pause, Counted { timely: all.len() - late, late, suspicions: 0 })
    });
    let (lease, silence) = tune::choose(&sweep, SHARE_PERCENT)?;
    let timing = tune::for_pause(profile, lease, silence).ok()?.timing;
    let suspected_after =
        Nanos(timing.heartbeat_period.0.saturating_mul(u64::from(timing.heartbeat_confirm)));
    Some(Sustained {
        share_percent: SHARE_PERCENT,
        confidence_percent: 95.0,
        lease_us: timing.lease.as_micros_f64(),
        suspected_after_us: suspected_after.as_micros_f64(),
    })
}

impl Pauses {
    /// The histogram, and what the pauses sustain.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Summary { n, p50, p99, max, .. } = self.pauses_us;
        let known = |value: Option<f64>| value.map_or_else(|| "--".to_owned(), shown);
        let mut lines = vec![format!(
            "pauses under {} scheduling, {} cores, n {n}: p50 {}, p99 {}, longest {}",
            self.scheduling,
            self.cores,
            known(p50),
            known(p99),
            shown(max)
        )];
        let most = self.histogram.iter().map(|bar| bar.n).max().unwrap_or(1).max(1);
        for bar in self.histogram.iter().filter(|bar| bar.n > 0) {
            let up_to = bar.up_to_us.map_or_else(|| "longer".to_owned(), |us| format!("<= {}", shown(us)));
            // A bar of any length is seen.
            let width = (bar.n.saturating_mul(40) / most).max(1);
            lines.push(format!("  {up_to:>10} {:>8}  {}", bar.n, "#".repeat(width as usize)));
        }
        lines
    }

    fn finding(&self, profile: &Profile) -> Finding {
        let Summary { n, max, .. } = self.pauses_us;
        let lease = profile.timing.lease;
        let found = format!(
            "{}: {} of {n} are longer than the {} that a lease of {lease} outlasts; the longest is {}",
            self.scheduling,
            self.longer_than_profile,
            self.outlasts,
            shown(max)
        );
        if n == 0 {
            let advice =
                ("which leases its pauses allow is not known", "measure longer: `obol doctor --for 10s`");
            return Finding::note("pauses", format!("{}: none was measured", self.scheduling), advice);
        }
        if self.longer_than_profile == 0 {
            return Finding::good("pauses", found);
        }
        let late = "as many renewals come late, and programs cannot act until the next one";
        let suffices = self.sustained.as_ref().filter(|found| found.lease_us <= lease.as_micros_f64());
        let costs = match (&self.sustained, suffices) {
            (_, Some(found)) => format!("{late}; {} % in time are claimed all the same", found.share_percent),
            (Some(found), None) => format!(
                "{late}; {} % in time would need leases of {}",
                found.share_percent,
                shown(found.lease_us)
            ),
            (None, None) => format!("{late}; no lease of obol tune's sweep gives {SHARE_PERCENT} % in time"),
        };
        let severity = if suffices.is_some() { Severity::Note } else { Severity::Warning };
        let remedy = "`obol tune --out mine.toml` finds lease and heartbeat; cores of its own and real-time scheduling (profile dedicated) shorten pauses";
        Finding::bad("pauses", severity, found, (costs, remedy))
    }
}

pub(crate) fn check(all: &[Pauses], profile: &Profile) -> Vec<Finding> {
    // What the profile does not ask for has no finding: it is only compared.
    all.iter().filter(|pauses| pauses.wanted).map(|pauses| pauses.finding(profile)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laptop() -> Profile {
        Profile::builtin("laptop").expect("it ships")
    }

    fn pauses(of_us: impl Iterator<Item = u64>) -> Distribution {
        let mut all = Distribution::new();
        of_us.for_each(|us| all.add(Nanos::from_micros(us)));
        all
    }

    #[test]
    fn the_lease_is_that_which_tune_recommends_for_the_same_pauses() {
        // One in 10,000 is longer than 2 ms: 99.9 % in time can be claimed from 4 ms on, and from
        // 2 ms on, too.
        let all = pauses((0..30_000).map(|n| if n % 10_000 == 0 { 3000 } else { 60 }));
        let found = sustained(&all, &laptop()).expect("sustained");
        let wanted = tune::for_pause(&laptop(), Nanos::from_micros(250), Nanos::from_micros(500))
            .expect("it is in order");
        assert_eq!(found.lease_us, wanted.timing.lease.as_micros_f64());
        // One in 500 is too often.
        let all = pauses((0..30_000).map(|n| if n % 500 == 0 { 3000 } else { 60 }));
        let wanted =
            tune::for_pause(&laptop(), Nanos::from_millis(4), Nanos::from_millis(8)).expect("it is in order");
        assert_eq!(
            sustained(&all, &laptop()).expect("sustained").lease_us,
            wanted.timing.lease.as_micros_f64()
        );
        // So few samples claim nothing.
        assert!(sustained(&pauses((0..2000).map(|_| 60)), &laptop()).is_none());
    }

    #[test]
    fn every_pause_is_in_one_bar() {
        let all = pauses((0..1000).map(|n| n * n).chain(PAUSES.map(|pause| pause.0 / 1000)));
        let bars = histogram(&all);
        assert_eq!(bars.iter().map(|bar| bar.n).sum::<u64>(), 1000 + PAUSES.len() as u64);
        assert!(bars.last().is_some_and(|bar| bar.up_to_us.is_none() && bar.n > 0));
        assert_eq!(longer(&all, Nanos::from_secs(2)), 0);
        assert_eq!(longer(&all, Nanos::from_micros(998_001)), 0);
        assert!(longer(&all, Nanos::from_millis(128)) > 600);
    }

    #[test]
    fn pauses_that_the_lease_does_not_outlast_are_a_warning_if_they_are_too_many() {
        let of = |longest_us, every| {
            let all = pauses((1..5000).map(|n| if n % every == 0 { longest_us } else { 60 }));
            let outlasts = Nanos::from_millis(14);
            Pauses {
                scheduling: "ordinary".to_owned(),
                wanted: true,
                cores: 1,
                pauses_us: all.summary(),
                histogram: histogram(&all),
                sustained: sustained(&all, &laptop()),
                longer_than_profile: longer(&all, outlasts),
                outlasts,
            }
        };
        let severity = |longest_us, every| of(longest_us, every).finding(&laptop()).severity;
        assert_eq!(severity(13_000, 4000), Severity::Good);
        let none = Pauses { pauses_us: Distribution::new().summary(), ..of(60, 1) };
        assert_eq!(none.finding(&laptop()).severity, Severity::Note, "nothing measured is not good");
        // One in 5000 leaves 99.9 % in time, as can be claimed.
        assert_eq!(severity(15_000, 4000), Severity::Note);
        assert_eq!(severity(15_000, 100), Severity::Warning);
        let bad = of(15_000, 100).finding(&laptop());
        assert!(bad.found.contains("49 of 4999") && bad.remedy.is_some(), "{bad:?}");
        assert!(
            bad.cost.as_ref().is_some_and(|cost| cost.contains("would need leases of 22.9ms")),
            "{bad:?}"
        );
        let lines = of(15_000, 100).lines();
        assert!(lines.iter().any(|line| line.contains("<= 16.0ms")), "{lines:?}");
    }
}
