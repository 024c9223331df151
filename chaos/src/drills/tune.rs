//! Which lease and which heartbeat a machine can sustain, after uKharon, Figure 3: what share of
//! renewals comes in time for leases of different lengths, without and with load beside them.
//!
//! What a lease has to outlast is the pause between two renewals beyond the one that was wanted:
//! the scheduler's. So the sweep is over that pause. A step's leases are renewed as often as is
//! cheap, and last that long beyond; in the same step a process has to stand still for as long to
//! be suspected. A profile for a pause follows by the ratios of [`for_pause`], and is tried before
//! it is recommended.

use super::journal::Host;
use super::report::document::{Document, Part, number, words};
use obol_fabric::{Name, Nanos};
use obol_membership::Kind;
use obol_membership::metrics::Counter;
use obol_observe::Snapshot;
use obol_observe::plot::{Axis, Chart, Series};
use obol_profiles::{FileError, Profile};
use serde::{Serialize, Serializer};

/// Pauses that are tried, from the shortest.
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
/// How often leases are renewed in the sweep, at the most: often enough to see many, and cheap.
const RENEW_EVERY_MAX: Nanos = Nanos::from_millis(1);
/// A lease of a profile that is made here, in pauses that it outlasts: what is left of it after
/// `renew_every`.
const LEASE_PER_PAUSE: f64 = 1.0 / 0.7;
/// A process that is removed falsely costs more than a lease that is renewed late, so its pause may
/// be so much longer.
const HEARTBEAT_PAUSES: u64 = 2;
/// What claims are made with.
const CONFIDENCE: f64 = 0.95;

fn part(span: Nanos, of: f64) -> Nanos {
    Nanos((span.0 as f64 * of) as u64).max(Nanos::from_micros(1))
}

/// A process that works stands still for its own `every` and a pause; it is suspected after
/// `confirm` READs, so after `confirm - 1` periods. Half a period for the first leaves this much
/// for the pause.
fn heartbeat(profile: &mut Profile, pause: Nanos) {
    let timing = &mut profile.timing;
    let periods = f64::from(timing.heartbeat_confirm) - 1.5;
    timing.heartbeat_period = part(pause, 1.0 / periods).max(Nanos::from_micros(4));
    timing.heartbeat_every = part(timing.heartbeat_period, 0.5);
}

/// The profile of a step of the sweep.
#[must_use]
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

/// The profile whose leases outlast a pause, and whose processes are suspected after a longer one.
/// It is checked as one from a file is.
pub fn for_pause(base: &Profile, lease: Nanos, silence: Nanos) -> Result<Profile, FileError> {
    let mut profile = base.clone();
    profile.name = Name::new("tuned").unwrap_or(base.name);
    profile.description = format!("Made by obol tune from {}: outlasts pauses of {lease}", base.name);
    let timing = &mut profile.timing;
    timing.lease = part(lease, LEASE_PER_PAUSE);
    // What is measured is one length; leases that grew would be another.
    timing.lease_max = timing.lease;
    timing.renew_every = part(timing.lease, 0.3);
    timing.renew_timeout = part(timing.lease, 0.5);
    timing.cache_timeout = part(timing.lease, 0.15);
    timing.cache_lease = timing.lease;
    heartbeat(&mut profile, silence);
    Profile::parse(&profile.to_toml(), "the tuned profile")
}

/// What a cluster has counted, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Renewals that came in time.
    pub timely: u64,
    /// Renewals that did not.
    pub late: u64,
    /// Suspicions of processes that nothing had hit.
    pub suspicions: u64,
}

impl Counted {
    /// From a look at the cluster. Nothing is broken in it, so every suspicion is a false one.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let agents = || snapshot.processes.iter().filter(|p| p.kind == Kind::Agent);
        let sum = |counter| agents().map(|p| p.counter(counter)).sum();
        let all = snapshot.processes.iter().filter(|p| p.kind != Kind::App);
        Self {
            timely: sum(Counter::RenewalsOnTime),
            late: sum(Counter::RenewalsLate) + sum(Counter::RenewalsFailed),
            suspicions: all.map(|p| p.counter(Counter::HeartbeatSuspicions)).sum(),
        }
    }

    /// What came since.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            timely: self.timely.saturating_sub(before.timely),
            late: self.late.saturating_sub(before.late),
            suspicions: self.suspicions.saturating_sub(before.suspicions),
        }
    }
}

/// The largest mean that a Poisson variable may have and still be at most `seen` with 5 %: the
/// exact one-sided bound, and its normal approximation where there are many.
fn poisson_above(seen: u64) -> f64 {
    let n = seen as f64;
    if seen > 500 {
        return n + 1.645 * n.sqrt() + 2.0;
    }
    let at_most = |mean: f64| {
        let mut term = (-mean).exp();
        let mut sum = term;
        for i in 1..=seen {
            term *= mean / i as f64;
            sum += term;
        }
        sum
    };
    let (mut low, mut high) = (n, n + 4.0 * n.sqrt() + 10.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if at_most(middle) > 1.0 - CONFIDENCE { low = middle } else { high = middle }
    }
    high
}

/// A step of the sweep, or the trial of what is recommended.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What ran beside the cluster.
    pub load: String,
    /// The pause that leases outlast here, and that a process may make without being suspected.
    #[serde(serialize_with = "micros")]
    pub pause_us: Nanos,
    /// Renewals that were seen.
    pub renewals: u64,
    /// Those of them that came too late, or found no majority.
    pub late: u64,
    /// The share that came in time, in percent.
    pub timely_percent: f64,
    /// The share that is claimed with 95 %, in percent: at least that.
    pub claimed_percent: f64,
    /// Suspicions of processes that nothing had hit.
    pub false_suspicions: u64,
}

fn micros<S: Serializer>(span: &Nanos, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(span.as_micros_f64())
}

impl Measured {
    /// Whether there was a cluster to count in: with leases that are far too short, none becomes
    /// healthy.
    #[must_use]
    pub const fn came_up(&self) -> bool {
        self.renewals > 0
    }

    /// Renewals, late, in time, claimed and false suspicions, as a table has them; `none` where no
    /// cluster came up.
    #[must_use]
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

    /// From what was counted.
    #[must_use]
    pub fn new(load: &str, pause: Nanos, counted: Counted) -> Self {
        let renewals = counted.timely + counted.late;
        let share =
            |late: f64| if renewals == 0 { 0.0 } else { (1.0 - late / renewals as f64).max(0.0) * 100.0 };
        Self {
            load: load.to_owned(),
            pause_us: pause,
            renewals,
            late: counted.late,
            timely_percent: share(counted.late as f64),
            claimed_percent: share(poisson_above(counted.late)),
            false_suspicions: counted.suspicions,
        }
    }
}

/// Whether a step can no longer claim what is wanted, however well its rest goes: `part` of its
/// time is over.
#[must_use]
pub fn is_hopeless(counted: Counted, part: f64, wanted_percent: f64) -> bool {
    let seen = (counted.timely + counted.late) as f64;
    // Renewals come at the same pace, and not one of the others is late.
    let at_best = 100.0 * (1.0 - poisson_above(counted.late) * part / seen);
    counted.late > 0 && seen > 0.0 && at_best < wanted_percent
}

/// What is recommended.
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
    /// A frozen process is suspected after about so long.
    #[serde(serialize_with = "micros")]
    pub suspected_after_us: Nanos,
    /// The profile, tried under each load.
    pub tried: Vec<Measured>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The profile that it started from.
    pub base: String,
    /// The machine.
    pub host: Host,
    /// The share of timely renewals that is wanted, in percent.
    pub wanted_percent: f64,
    /// Seconds of each step, unless it was hopeless before.
    pub step_seconds: f64,
    /// Every step.
    pub sweep: Vec<Measured>,
    /// What is recommended; nothing if no pause sufficed.
    pub recommended: Option<Recommended>,
}

/// The shortest pauses that suffice under every load: for leases by the claimed share, for
/// heartbeats by the absence of any false suspicion, there and at each longer pause.
#[must_use]
pub fn choose(sweep: &[Measured], wanted_percent: f64) -> Option<(Nanos, Nanos)> {
    let (lease, silence) = (timely(sweep, wanted_percent)?, quiet(sweep)?);
    Some((lease, Nanos(silence.max(lease).0.saturating_mul(HEARTBEAT_PAUSES))))
}

/// The shortest pause from which on leases are renewed in time.
fn timely(sweep: &[Measured], wanted_percent: f64) -> Option<Nanos> {
    shortest(sweep, |m| m.claimed_percent >= wanted_percent)
}

/// The shortest pause from which on nobody is suspected who only made one.
fn quiet(sweep: &[Measured]) -> Option<Nanos> {
    shortest(sweep, |m| m.came_up() && m.false_suspicions == 0)
}

fn shortest(sweep: &[Measured], good: impl Fn(&Measured) -> bool) -> Option<Nanos> {
    let bad = sweep.iter().filter(|m| !good(m)).map(|m| m.pause_us).max();
    sweep.iter().map(|m| m.pause_us).filter(|pause| bad.is_none_or(|bad| *pause > bad)).min()
}

impl Recommended {
    /// A profile that was tried.
    #[must_use]
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

    /// Whether the trial gave what is wanted.
    #[must_use]
    pub fn holds(&self, wanted_percent: f64) -> bool {
        self.tried.iter().all(|m| m.timely_percent >= wanted_percent && m.false_suspicions == 0)
    }
}

impl Tuned {
    /// Whether something is recommended, and its trial gave what is wanted.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.recommended.as_ref().is_some_and(|found| found.holds(self.wanted_percent))
    }

    /// What to do, in a sentence.
    #[must_use]
    pub fn advice(&self) -> String {
        match &self.recommended {
            Some(found) if self.holds() => format!(
                "For {} % of renewals in time: leases of {}, renewed every {}; heartbeats read every {}, so that a frozen \
                 process is suspected after about {}.",
                self.wanted_percent,
                found.lease_us,
                found.renew_every_us,
                found.heartbeat_period_us,
                found.suspected_after_us
            ),
            Some(found) => format!(
                "The sweep suggests leases of {}, but the trial of that profile did not give {} % without a false \
                 suspicion. Tune again with longer steps (--time), or while the machine does less.",
                found.lease_us, self.wanted_percent
            ),
            // Each of the two wants something else of the machine.
            None if timely(&self.sweep, self.wanted_percent).is_some() => format!(
                "Leases would be renewed in time, but somebody was falsely suspected at the longest pauses that were tried, \
                 up to {}: processes stood still for longer here. Tune again while the machine does less, or give the \
                 cluster cores and priority (profile dedicated).",
                self.sweep.iter().map(|m| m.pause_us).max().unwrap_or_default()
            ),
            None => format!(
                "No pause that was tried gives {} % in time with 95 % confidence. Take longer steps (--time) to claim \
                 more, want less (--share), or give the cluster cores and priority (profile dedicated).",
                self.wanted_percent
            ),
        }
    }

    fn document(&self) -> Document {
        let mut doc = Document::new("Which lease and heartbeat this machine sustains".to_owned());
        doc.say(self.advice());
        doc.say(format!(
            "Started from profile {}, {} cores, Linux {}, up to {} s for each step: one that could not reach what is wanted any more was ended. With fences, a failover does not wait for \
             leases, so a longer lease costs only those failovers in which somebody can neither be fenced nor proved dead.",
            self.base, self.host.cores, self.host.kernel, self.step_seconds
        ));
        if let Some((lease, silence)) = timely(&self.sweep, self.wanted_percent).zip(quiet(&self.sweep)) {
            doc.say(format!(
                "{lease} is the shortest pause from which on that share was claimed under each load, and {silence} the shortest \
                 from which on nobody was falsely suspected. A lease outlasts the first; a standstill is suspected after \
                 {HEARTBEAT_PAUSES} times the longer of the two at the earliest, because a false removal costs more than a \
                 late renewal."
            ));
        }
        doc.add(Part::Heading("The sweep"));
        if let Some(svg) = self.chart() {
            let caption = "Renewals that came too late, at most, with 95 % confidence, by the pause that a lease outlasts. \
                           Dashed: what is wanted. Where no cluster came up there is no point. A lease of a profile is its pause / \
                           0.7."
                .to_owned();
            doc.add(Part::Figure { name: "sweep", svg, caption });
        }
        doc.add(table(&self.sweep));
        if let Some(found) = &self.recommended {
            doc.add(Part::Heading("The recommended profile, tried"));
            doc.add(table(&found.tried));
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
    #[must_use]
    pub fn html(&self) -> String {
        self.document().html()
    }
}

fn table(rows: &[Measured]) -> Part {
    let row = |m: &Measured| {
        let mut row = vec![words(m.load.clone()), number(m.pause_us.to_string())];
        row.extend(m.cells("did not come up").map(number));
        row
    };
    let heads = vec!["load", "pause", "renewals", "late", "in time", "claimed with 95 %", "false suspicions"];
    Part::Table { heads, rows: rows.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(load: &str, pause_ms: u64, late: u64, suspicions: u64) -> Measured {
        Measured::new(load, Nanos::from_millis(pause_ms), Counted { timely: 40_000 - late, late, suspicions })
    }

    #[test]
    fn a_share_is_claimed_from_enough_renewals_alone() {
        let of = |timely, late| {
            Measured::new("none", Nanos::from_millis(1), Counted { timely, late, suspicions: 0 })
                .claimed_percent
        };
        assert!(of(29_960, 0) >= 99.99 && of(29_900, 0) < 99.99, "{} {}", of(29_960, 0), of(29_900, 0));
        assert!(of(100_000, 3) < 99.993 && of(100_000, 3) > 99.99, "{}", of(100_000, 3));
        assert_eq!(of(0, 0), 0.0);
        // Exact bounds of the Poisson distribution, as tables have them.
        for (seen, bound) in [(0, 2.996), (1, 4.744), (10, 16.962), (100, 118.079)] {
            assert!((poisson_above(seen) - bound).abs() < 0.01, "{seen}: {}", poisson_above(seen));
        }
        assert!((poisson_above(501) - poisson_above(500)).abs() < 3.0);
    }

    #[test]
    fn a_step_is_ended_early_only_where_its_rest_could_not_save_it() {
        let of = |timely, late| Counted { timely, late, suspicions: 0 };
        assert!(is_hopeless(of(2000, 40), 0.1, 99.99));
        // One late renewal of a tenth: the whole step has 50,000, which claim 99.9905 %.
        assert!(!is_hopeless(of(4999, 1), 0.1, 99.99));
        assert!(is_hopeless(of(4499, 1), 0.1, 99.99));
        // Too few to claim anything is no reason: the step's time is what was asked for.
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
        // A longer pause that fails is no reason to trust a shorter one that happened not to.
        let odd = [measured("none", 1, 0, 0), measured("none", 2, 70, 0), measured("none", 4, 0, 0)];
        assert_eq!(choose(&odd, 99.99), Some((ms(4), ms(8))));
    }

    #[test]
    fn each_step_and_each_recommendation_is_a_profile_that_may_be_used() {
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
