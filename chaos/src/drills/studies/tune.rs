//! Which lease and which heartbeat a machine can sustain, after uKharon, Figure 3: the share of
//! timely renewals for leases of different lengths, with and without load.
//!
//! A lease has to outlast the scheduling delay between two renewals, here called a pause. So the
//! sweep is over the length of pauses. In each step, leases are renewed as often as is cheap and
//! last that long beyond; and a process is suspected only after a pause of that length. The ratios
//! of [`for_pause`] give the profile for a pause, which is tried before it is recommended.

use crate::drills::engine::journal::Host;
use obol_config::FileError;
use obol_fabric::{Name, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_observe::figures::total;
use obol_observe::plot::{Axis, Cell, Chart, Document, Series};
use obol_observe::{Snapshot, poisson};
use obol_profiles::Profile;
use serde::{Serialize, Serializer};

/// The pauses of the sweep, ascending.
pub const PAUSES: [Nanos; 10] = [
    Nanos::from_micros(250),
    Nanos::from_micros(500),
    Nanos::from_millis(1),
    Nanos::from_millis(2),
    Nanos::from_millis(4),
    Nanos::from_millis(8),
    Nanos::from_millis(16),
    Nanos::from_millis(32),
    Nanos::from_millis(64),
    Nanos::from_millis(128),
];
/// Longest renewal interval of the sweep: short enough for many renewals, and cheap.
const RENEW_EVERY_MAX: Nanos = Nanos::from_millis(1);
/// Lease duration of a recommended profile per pause: what is left of it after `renew_every`
/// outlasts the pause.
const LEASE_PER_PAUSE: f64 = 1.0 / 0.7;
/// A false removal costs more than a late renewal, so heartbeats tolerate a pause this many times
/// longer.
const HEARTBEAT_PAUSES: u64 = 2;

fn part(span: Nanos, of: f64) -> Nanos {
    Nanos((span.0 as f64 * of) as u64).max(Nanos::from_micros(1))
}

/// A process beats each `every`, and stalls for that and a pause; it is suspected after `confirm`
/// READs, that is after `confirm - 1` periods. With half a period for the first, this much is left
/// for the pause.
fn heartbeat(profile: &mut Profile, pause: Nanos) {
    let timing = &mut profile.timing;
    let periods = f64::from(timing.heartbeat_confirm) - 1.5;
    timing.heartbeat_period = part(pause, 1.0 / periods).max(Nanos::from_micros(4));
    timing.heartbeat_every = part(timing.heartbeat_period, 0.5);
}

/// The profile of a step of the sweep.
pub fn step(base: &Profile, pause: Nanos) -> Profile {
    let mut profile = base.clone();
    let timing = &mut profile.timing;
    timing.renew_every = RENEW_EVERY_MAX.min(part(pause, 0.25));
    timing.renew_timeout = part(pause, 0.5);
    timing.cache_timeout = part(pause, 0.125);
    timing.lease = timing.renew_every.saturating_add(pause);
    timing.lease_max = timing.lease;
    timing.cache_lease = timing.lease;
    heartbeat(&mut profile, pause);
    profile
}

/// The profile whose leases outlast one pause, and whose heartbeats another, longer one. It is
/// checked like a profile from a file.
pub fn for_pause(base: &Profile, lease: Nanos, silence: Nanos) -> Result<Profile, FileError> {
    let mut profile = base.clone();
    profile.name = Name::new("tuned").unwrap_or(base.name);
    profile.description = format!("Made by obol tune from {}: outlasts pauses of {lease}", base.name);
    let timing = &mut profile.timing;
    timing.lease = part(lease, LEASE_PER_PAUSE);
    // The measurement is for a fixed length, so leases must not be scaled.
    timing.lease_max = timing.lease;
    timing.renew_every = part(timing.lease, 0.3);
    timing.renew_timeout = part(timing.lease, 0.5);
    timing.cache_timeout = part(timing.lease, 0.15);
    timing.cache_lease = timing.lease;
    heartbeat(&mut profile, silence);
    Profile::parse(&profile.to_toml(), "the tuned profile")
}

/// Counters of a cluster since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Timely renewals.
    pub timely: u64,
    /// Late renewals.
    pub late: u64,
    /// Suspicions of processes that no fault had hit.
    pub suspicions: u64,
}

impl Counted {
    /// From a snapshot. No fault is injected, so every suspicion is false.
    pub fn of(snapshot: &Snapshot) -> Self {
        let agents = || snapshot.processes.iter().filter(|p| p.kind == Kind::Agent);
        let sum = |counter| total(agents().map(|p| p.counter(counter)));
        let all = snapshot.processes.iter().filter(|p| p.kind != Kind::App);
        Self {
            timely: sum(Counter::RenewalsOnTime),
            late: total([sum(Counter::RenewalsLate), sum(Counter::RenewalsFailed)]),
            suspicions: total(all.map(|p| p.counter(Counter::HeartbeatSuspicions))),
        }
    }

    /// All renewals.
    pub const fn renewals(self) -> u64 {
        self.timely.saturating_add(self.late)
    }

    /// The difference.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            timely: self.timely.saturating_sub(before.timely),
            late: self.late.saturating_sub(before.late),
            suspicions: self.suspicions.saturating_sub(before.suspicions),
        }
    }
}

/// A step of the sweep, or the trial of the recommended profile.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The load beside the cluster.
    pub load: String,
    /// The pause that leases outlast, and that is not suspected.
    #[serde(serialize_with = "micros")]
    pub pause_us: Nanos,
    pub renewals: u64,
    /// Those that came too late, or found no majority.
    pub late: u64,
    /// The share of timely ones, in percent.
    pub timely_percent: f64,
    /// Lower bound of that share with 95 % confidence, in percent.
    pub claimed_percent: f64,
    /// Suspicions of processes that no fault had hit.
    pub false_suspicions: u64,
}

fn micros<S: Serializer>(span: &Nanos, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.as_micros_f64())
}

impl Measured {
    /// Whether the cluster came up: with leases that are far too short, it never becomes healthy.
    pub const fn came_up(&self) -> bool {
        self.renewals > 0
    }

    /// Whether it shows the wanted share, with confidence, and no false suspicion.
    pub fn suffices(&self, wanted_percent: f64) -> bool {
        self.is_timely(wanted_percent) && self.is_quiet()
    }

    fn is_timely(&self, wanted_percent: f64) -> bool {
        self.claimed_percent >= wanted_percent
    }

    const fn is_quiet(&self) -> bool {
        self.came_up() && self.false_suspicions == 0
    }

    /// Table cells: renewals, late, in time, lower bound, false suspicions; `none` if no cluster
    /// came up.
    pub fn cells(&self, none: &str) -> [String; 5] {
        if !self.came_up() {
            return [none, "--", "--", "--", "--"].map(str::to_owned);
        }
        let percent = |share: f64| format!("{share:.4} %");
        [
            self.renewals.to_string(),
            self.late.to_string(),
            percent(self.timely_percent),
            percent(self.claimed_percent),
            self.false_suspicions.to_string(),
        ]
    }

    pub fn new(load: &str, pause: Nanos, counted: Counted) -> Self {
        let renewals = counted.renewals();
        let share =
            |late: f64| if renewals == 0 { 0.0 } else { (1.0 - late / renewals as f64).max(0.0) * 100.0 };
        Self {
            load: load.to_owned(),
            pause_us: pause,
            renewals,
            late: counted.late,
            timely_percent: share(counted.late as f64),
            claimed_percent: share(poisson::above(counted.late)),
            false_suspicions: counted.suspicions,
        }
    }
}

/// The number of renewals without a late one that proves a percentage with 95 % confidence.
pub fn renewals_needed(wanted_percent: f64) -> u64 {
    (poisson::above(0) / (1.0 - wanted_percent / 100.0)).ceil() as u64
}

/// Whether a step can no longer reach the wanted share, even without further late renewals: `part`
/// of its time is over.
pub fn is_hopeless(counted: Counted, part: f64, wanted_percent: f64) -> bool {
    let seen = counted.renewals() as f64;
    // Assume the same rate of renewals, and no further late one.
    let at_best = 100.0 * (1.0 - poisson::above(counted.late) * part / seen);
    counted.late > 0 && seen > 0.0 && at_best < wanted_percent
}

/// The recommendation.
#[derive(Clone, Debug, Serialize)]
pub struct Recommended {
    /// The pause that leases outlast.
    #[serde(serialize_with = "micros")]
    pub pause_us: Nanos,
    /// `lease.duration`.
    #[serde(serialize_with = "micros")]
    pub lease_us: Nanos,
    /// `lease.renew_every`.
    #[serde(serialize_with = "micros")]
    pub renew_every_us: Nanos,
    /// `heartbeat.period`.
    #[serde(serialize_with = "micros")]
    pub heartbeat_period_us: Nanos,
    /// About how long after it stops a frozen process is suspected.
    #[serde(serialize_with = "micros")]
    pub suspected_after_us: Nanos,
    /// The trial of the profile under each load.
    pub tried: Vec<Measured>,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The profile that it started from.
    pub base: String,
    /// The machine.
    pub host: Host,
    /// The share of timely renewals that is wanted, in percent.
    pub wanted_percent: f64,
    /// Seconds of each step, unless it ended early as hopeless.
    #[serde(rename = "step_s")]
    pub step_seconds: f64,
    /// Every step.
    pub sweep: Vec<Measured>,
    /// The recommendation; `None` if no pause sufficed.
    pub recommended: Option<Recommended>,
}

/// The shortest pauses that suffice under every load, also at each longer pause: for leases by the
/// lower bound of the share, for heartbeats by the absence of false suspicions.
pub fn choose(sweep: &[Measured], wanted_percent: f64) -> Option<(Nanos, Nanos)> {
    let (lease, silence) = (timely(sweep, wanted_percent)?, quiet(sweep)?);
    Some((lease, Nanos(silence.max(lease).0.saturating_mul(HEARTBEAT_PAUSES))))
}

/// The shortest pause from which on renewals are timely.
fn timely(sweep: &[Measured], wanted_percent: f64) -> Option<Nanos> {
    shortest(sweep, |m| m.is_timely(wanted_percent))
}

/// The shortest pause from which on there are no false suspicions.
fn quiet(sweep: &[Measured]) -> Option<Nanos> {
    shortest(sweep, Measured::is_quiet)
}

fn shortest(sweep: &[Measured], good: impl Fn(&Measured) -> bool) -> Option<Nanos> {
    let bad = sweep.iter().filter(|m| !good(m)).map(|m| m.pause_us).max();
    sweep.iter().map(|m| m.pause_us).filter(|pause| bad.is_none_or(|bad| *pause > bad)).min()
}

impl Recommended {
    /// A profile that was tried.
    pub fn new(profile: &Profile, pause: Nanos, tried: Vec<Measured>) -> Self {
        let timing = &profile.timing;
        Self {
            pause_us: pause,
            lease_us: timing.lease,
            renew_every_us: timing.renew_every,
            heartbeat_period_us: timing.heartbeat_period,
            suspected_after_us: Nanos(timing.heartbeat_period.0 * u64::from(timing.heartbeat_confirm)),
            tried,
        }
    }

    /// Whether the trial showed the wanted share under each load, by the same rule as the sweep.
    pub fn holds(&self, wanted_percent: f64) -> bool {
        self.tried.iter().all(|m| m.suffices(wanted_percent))
    }
}

impl Tuned {
    /// Whether there is a recommendation whose trial reached the wanted share.
    pub fn holds(&self) -> bool {
        self.recommended.as_ref().is_some_and(|found| found.holds(self.wanted_percent))
    }

    /// What to do, in a sentence.
    pub fn advice(&self) -> String {
        match &self.recommended {
            Some(found) if self.holds() => format!(
                "For {} % of renewals in time, with 95 % confidence: leases of {}, renewed every {}; heartbeats read every {}, so that a frozen \
                 process is suspected after about {}.",
                self.wanted_percent,
                found.lease_us,
                found.renew_every_us,
                found.heartbeat_period_us,
                found.suspected_after_us
            ),
            Some(found) => format!(
                "The sweep suggests leases of {}, but the trial of that profile does not show {} % in time with \
                 95 % confidence and without a false suspicion. Tune again with longer steps (--for), or with less load on the machine.",
                found.lease_us, self.wanted_percent
            ),
            // Each of the two needs another remedy.
            None if timely(&self.sweep, self.wanted_percent).is_some() => format!(
                "Leases would be renewed in time, but there were false suspicions at the longest pauses that were tried, \
                 up to {}: processes stall for longer here. Tune again with less load on the machine, or give the \
                 cluster cores and priority (profile dedicated).",
                self.sweep.iter().map(|m| m.pause_us).max().unwrap_or_default()
            ),
            None => format!(
                "No pause that was tried gives {} % in time with 95 % confidence. Use longer steps (--for) for a tighter \
                 bound, a smaller --timely, or give the cluster cores and priority (profile dedicated).",
                self.wanted_percent
            ),
        }
    }

    fn document(&self) -> Document {
        let mut doc = Document::new("Which lease and heartbeat this machine sustains");
        doc.say(self.advice());
        doc.say(format!(
            "Started from profile {}, {} cores, Linux {}, up to {} s for each step; a step ends early when it can no longer reach the wanted share, and the trial goes on \
             until it has enough renewals to show it. With fences, a failover does not wait for \
             leases, so a longer lease only delays failovers in which a holder can neither be fenced nor proved dead.",
            self.base, self.host.cores, self.host.kernel, self.step_seconds
        ));
        if let Some((lease, silence)) = timely(&self.sweep, self.wanted_percent).zip(quiet(&self.sweep)) {
            doc.say(format!(
                "{lease} is the shortest pause from which on that share was reached under each load, and {silence} the shortest \
                 without false suspicions. A lease outlasts the first; a stalled process is suspected after \
                 {HEARTBEAT_PAUSES} times the longer of the two at the earliest, because a false removal costs more than a \
                 late renewal."
            ));
        }
        doc.heading("The sweep");
        if let Some(svg) = self.chart() {
            let caption = "Upper bound of late renewals with 95 % confidence, by the pause that a lease outlasts. \
                           Dashed: the wanted share. No point: the cluster did not come up. The lease of a profile is its pause / \
                           0.7.";
            doc.figure("sweep", svg, caption);
        }
        table(&mut doc, &self.sweep);
        if let Some(found) = &self.recommended {
            doc.heading("The recommended profile, tried");
            table(&mut doc, &found.tried);
        }
        doc
    }

    fn chart(&self) -> Option<String> {
        let mut chart = Chart::new(
            Axis::log("pause that a lease outlasts, us"),
            Axis::log("% of renewals that are late, at most"),
        );
        let mut loads: Vec<&str> = self.sweep.iter().map(|m| m.load.as_str()).collect();
        loads.dedup();
        let late = |m: &Measured| (m.pause_us.as_micros_f64(), 100.0 - m.claimed_percent);
        for load in loads {
            let points = self.sweep.iter().filter(|m| m.load == load && m.came_up()).map(late);
            chart = chart.with(Series::line(&format!("load: {load}"), points.collect()));
        }
        let ends =
            [self.sweep.iter().map(|m| m.pause_us).min()?, self.sweep.iter().map(|m| m.pause_us).max()?];
        let wanted = ends.map(|pause| (pause.as_micros_f64(), 100.0 - self.wanted_percent));
        chart.with(Series::dashes("wanted", wanted.to_vec())).svg().ok()
    }

    /// The report as one HTML page.
    pub fn html(&self) -> String {
        self.document().html()
    }
}

fn table(doc: &mut Document, rows: &[Measured]) {
    let row = |m: &Measured| {
        let mut row = vec![Cell::text(m.load.clone()), Cell::number(m.pause_us.to_string())];
        row.extend(m.cells("did not come up").map(Cell::number));
        row
    };
    let heads = ["load", "pause", "renewals", "late", "in time", "lower bound (95 %)", "false suspicions"];
    doc.table(&heads, rows.iter().map(row));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(load: &str, pause_ms: u64, late: u64, suspicions: u64) -> Measured {
        Measured::new(load, Nanos::from_millis(pause_ms), Counted { timely: 40_000 - late, late, suspicions })
    }

    #[test]
    fn the_lower_bound_needs_enough_renewals() {
        let of = |timely, late| {
            Measured::new("none", Nanos::from_millis(1), Counted { timely, late, suspicions: 0 })
                .claimed_percent
        };
        assert!(of(29_960, 0) >= 99.99 && of(29_900, 0) < 99.99, "{} {}", of(29_960, 0), of(29_900, 0));
        assert!(of(100_000, 3) < 99.993 && of(100_000, 3) > 99.99, "{}", of(100_000, 3));
        assert_eq!(of(0, 0), 0.0);
    }

    #[test]
    fn a_step_ends_early_only_if_it_is_hopeless() {
        let of = |timely, late| Counted { timely, late, suspicions: 0 };
        assert!(is_hopeless(of(2000, 40), 0.1, 99.99));
        // One late renewal in a tenth: the whole step has 50,000, which give 99.9905 %.
        assert!(!is_hopeless(of(4999, 1), 0.1, 99.99));
        assert!(is_hopeless(of(4499, 1), 0.1, 99.99));
        // Too few renewals so far do not end a step.
        assert!(!is_hopeless(of(10, 0), 0.5, 99.99) && !is_hopeless(of(0, 0), 0.5, 99.99));
    }

    #[test]
    fn the_shortest_pause_that_suffices_under_every_load_is_chosen() {
        let ms = Nanos::from_millis;
        let sweep = [
            measured("none", 1, 50, 0),
            measured("none", 2, 0, 0),
            measured("none", 4, 0, 0),
            measured("busy", 1, 900, 3),
            measured("busy", 2, 40, 1),
            measured("busy", 4, 0, 0),
        ];
        assert_eq!(choose(&sweep, 99.99), Some((ms(4), ms(8))));
        assert_eq!(choose(&sweep, 99.0), Some((ms(2), ms(8))));
        assert_eq!(choose(&sweep, 99.9999), None);
        assert_eq!(choose(&[], 50.0), None);
        // A longer pause that fails disqualifies a shorter one that happened not to.
        let odd = [measured("none", 1, 0, 0), measured("none", 2, 70, 0), measured("none", 4, 0, 0)];
        assert_eq!(choose(&odd, 99.99), Some((ms(4), ms(8))));
    }

    #[test]
    fn a_trial_is_judged_by_the_bound_that_the_sweep_is_judged_by() {
        let of = |timely, late, suspicions| Counted { timely, late, suspicions };
        let tried = |counted| {
            let one = Measured::new("busy", Nanos::from_millis(4), counted);
            let profile = Profile::builtin("laptop").expect("it ships");
            let found = Recommended::new(&profile, one.pause_us, vec![one.clone()]);
            // As the sweep would choose by it.
            assert_eq!(found.holds(90.0), choose(&[one], 90.0).is_some());
            found.holds(90.0)
        };
        // The share is 90.1 %, but only 89 % can be claimed.
        assert!(!tried(of(901, 99, 0)));
        assert!(tried(of(950, 50, 0)) && !tried(of(950, 50, 1)));
        // All in time, and too few.
        assert!(!tried(of(10, 0, 0)) && tried(of(renewals_needed(90.0), 0, 0)));
        assert_eq!(renewals_needed(99.99), 29_958);
    }

    #[test]
    fn each_step_and_each_recommendation_is_a_valid_profile() {
        for name in obol_profiles::BUILTIN {
            let base = Profile::builtin(name).expect("it ships");
            for pause in PAUSES {
                let step = step(&base, pause);
                Profile::parse(&step.to_toml(), "step")
                    .unwrap_or_else(|error| panic!("{name} {pause}: {error}"));
                let tuned =
                    for_pause(&base, pause, Nanos(pause.0 * HEARTBEAT_PAUSES)).expect("it is in order");
                let left = tuned.timing.lease.0 - tuned.timing.renew_every.0;
                assert!(left >= pause.0 * 99 / 100, "{name} {pause}: {left}");
            }
        }
    }
}
