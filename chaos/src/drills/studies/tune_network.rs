//! Period and timeout of pulses for a network, derived from what its gateways have measured.
//!
//! FiDe sets the timeout to the period, the least delay and twice the jitter. Here the deadline runs
//! from the arrival of the newest pulse, so the least delay cancels out, and what remains is the
//! longest gap between two new pulses: the period and the jitter of the network *and* of both
//! schedulers. The gap that the wanted rate allows is the answer of [`obol_observe::tail`] for the
//! longest gap of each second in any direction between two hosts, since all have one timeout: pauses
//! that are rare in one direction are extrapolated with those of the others.

pub mod measured;
mod seconds;
mod wanted;

use obol_config::FileError;
use obol_fabric::{Name, Nanos};
use obol_fabric_ip::PulseReport;
use obol_fabric_ip::pulse::{PERIOD_MIN, TIMEOUT_PERIODS_MIN};
use obol_observe::plot::{Axis, Cell, Chart, Document, Series};
use obol_observe::tail::{self, Level, Method, Refusal, Wanted};
use obol_profiles::Profile;
use seconds::{Common, Seconds};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

pub use wanted::{EVERY_MIN, confidence};

/// Seconds of a block: gateways report once a second.
const BLOCK_SECONDS: f64 = 1.0;
/// A period much shorter than the jitter costs packets and gains nothing.
const PERIODS_PER_JITTER: u64 = 4;
/// Digits of what is recommended.
const DIGITS: u32 = 2;
/// The wanted times that are tried when the wanted one is refused, longest first, in seconds.
const EVERY: [(f64, &str); 8] = [
    (31_557_600.0, "a year"),
    (2_629_800.0, "a month"),
    (604_800.0, "a week"),
    (86_400.0, "a day"),
    (43_200.0, "twelve hours"),
    (21_600.0, "six hours"),
    (3600.0, "an hour"),
    (600.0, "ten minutes"),
];

/// What one host has received from another one.
#[derive(Clone, Debug, Serialize)]
pub struct Direction {
    /// The sending host.
    pub from: u8,
    /// The receiving host, which has measured.
    pub to: u8,
    /// Seconds that count.
    pub seconds: usize,
    /// Seconds that do not: the host was silent, or had just been heard.
    pub left_out: usize,
    /// New pulses.
    pub pulses: u64,
    /// The longest gap between two new pulses, in microseconds.
    pub gap_max_us: f64,
    pub paths: Vec<PathMeasured>,
}

/// A path in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct PathMeasured {
    /// The sending host's address on it.
    pub address: IpAddr,
    /// Frames that have arrived.
    pub frames: u64,
    /// Pulses that have arrived by other paths only, in percent.
    pub lost_percent: f64,
    /// The least difference of arrival and sending, in nanoseconds by the clocks of both hosts.
    #[serde(skip)]
    pub floor: i64,
    /// Half of the least delay there and back, in microseconds; none if only one direction was
    /// measured.
    pub floor_us: Option<f64>,
    /// The median of how much longer the slowest frame of a second took than the fastest.
    pub jitter_us: f64,
    /// The most of that.
    pub jitter_max_us: f64,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkTuned {
    /// The wanted rate for the whole cluster.
    pub wanted: Wanted,
    /// The period that was measured with, in microseconds.
    pub period_us: f64,
    /// Each direction that was measured.
    pub directions: Vec<Direction>,
    pub directions_of_cluster: usize,
    /// The latest seconds, as many as all hosts have that have measured.
    pub seconds: usize,
    /// The gap in any direction that the wanted rate allows, in microseconds.
    #[serde(flatten)]
    pub level: Option<Level>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The recommended period and timeout, in microseconds.
    pub recommended: Option<(f64, f64)>,
    /// The longest time for which the samples bear an answer, if not for the wanted one.
    pub bears: Option<&'static str>,
    /// These seconds.
    #[serde(skip)]
    common: Common,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// What is collected of a path.
struct Path {
    frames: u64,
    /// The shortest delay of all seconds.
    floor: i64,
    /// By how much delays exceed the shortest one, for each second.
    spreads: Vec<u64>,
}

/// The paths of one direction, as they are collected.
#[derive(Default)]
struct Collected {
    seconds: usize,
    gap_max_us: f64,
    left_out: usize,
    pulses: u64,
    paths: BTreeMap<IpAddr, Path>,
}

impl Collected {
    /// Returns the longest gap of the second, in microseconds, if the second counts.
    fn add(&mut self, peer: &obol_fabric_ip::PulsePeer) -> Option<f64> {
        let block = peer.block.as_ref()?;
        if block.silences > 0 || block.gap_max == 0 {
            self.left_out += 1;
            return None;
        }
        let gap_us = us(block.gap_max);
        self.seconds += 1;
        self.gap_max_us = self.gap_max_us.max(gap_us);
        self.pulses = self.pulses.saturating_add(block.pulses);
        for (path, delays) in peer.paths.iter().zip(&block.paths).filter(|(_, delays)| delays.frames > 0) {
            let new = || Path { frames: 0, floor: i64::MAX, spreads: Vec::new() };
            let path = self.paths.entry(path.address).or_insert_with(new);
            path.frames = path.frames.saturating_add(delays.frames);
            path.floor = path.floor.min(delays.floor);
            path.spreads.push(delays.spread_max);
        }
        Some(gap_us)
    }

    fn direction(self, (to, from): (u8, u8)) -> Direction {
        let path = |(address, Path { frames, floor, mut spreads }): (IpAddr, Path)| {
            spreads.sort_unstable();
            PathMeasured {
                address,
                frames,
                lost_percent: (1.0 - frames as f64 / self.pulses.max(1) as f64).max(0.0) * 100.0,
                floor,
                floor_us: None,
                jitter_us: us(spreads.get(spreads.len() / 2).copied().unwrap_or_default()),
                jitter_max_us: us(spreads.last().copied().unwrap_or_default()),
            }
        };
        Direction {
            from,
            to,
            seconds: self.seconds,
            left_out: self.left_out,
            pulses: self.pulses,
            gap_max_us: self.gap_max_us,
            paths: self.paths.into_iter().map(path).collect(),
        }
    }
}

impl NetworkTuned {
    /// From the reports of gateways, each with the number of its host, in a cluster of `hosts` hosts.
    /// Only seconds with the period of the last report count, and each once: copies of a gateway's
    /// files overlap.
    pub fn of(reports: &[(u8, Vec<PulseReport>)], hosts: usize, wanted: Wanted) -> Self {
        let last = reports.iter().flat_map(|(_, all)| all).max_by_key(|report| report.at);
        let period = last.map_or(0, |report| report.period);
        let mut collected: BTreeMap<(u8, u8), Collected> = BTreeMap::new();
        let (mut counted, mut seconds) = (BTreeSet::new(), Seconds::default());
        for (to, all) in reports {
            for report in all.iter().filter(|report| report.period == period) {
                if !counted.insert((*to, report.at)) {
                    continue;
                }
                for peer in report.peers.iter().filter(|peer| peer.heard) {
                    if let Some(gap_us) = collected.entry((*to, peer.host)).or_default().add(peer) {
                        seconds.add(*to, report.at, gap_us);
                    }
                }
            }
        }
        let mut directions: Vec<_> =
            collected.into_iter().map(|(ends, collected)| collected.direction(ends)).collect();
        floors(&mut directions);
        let common = seconds.common();
        let mut tuned = Self {
            wanted,
            period_us: us(period),
            directions,
            directions_of_cluster: hosts * hosts.saturating_sub(1),
            seconds: common.maxima_us.len(),
            level: None,
            refused: None,
            recommended: None,
            bears: None,
            common,
        };
        match tuned.level_for(wanted) {
            Ok(level) => tuned.level = Some(level),
            Err(refusal) => tuned.refused = Some(refusal.to_string()),
        }
        tuned.recommended = tuned.level.map(|level| recommend(level.level, tuned.period_us));
        if tuned.recommended.is_none() {
            let bears = |every_seconds| tuned.level_for(Wanted { every_seconds, ..wanted }).is_ok();
            let shorter = EVERY.iter().filter(|(every, _)| *every < wanted.every_seconds);
            tuned.bears = shorter.copied().find(|(every, _)| bears(*every)).map(|(_, text)| text);
        }
        tuned
    }

    /// The wanted time for the measured directions alone, whose share of the cluster's rate it is.
    fn every_seconds(&self, wanted: Wanted) -> f64 {
        let all = self.seconds * self.directions_of_cluster;
        wanted.every_seconds * all as f64 / self.common.directions.max(1) as f64
    }

    fn level_for(&self, wanted: Wanted) -> Result<Level, Refusal> {
        let every_seconds = self.every_seconds(wanted);
        let mut level =
            tail::level(&self.common.maxima_us, BLOCK_SECONDS, Wanted { every_seconds, ..wanted })?;
        if matches!(level.method, Method::Extrapolated { .. }) {
            // Also those in seconds that not all hosts have.
            let measured = self.directions.iter().map(|of| of.gap_max_us);
            level.level = measured.fold(level.level, f64::max);
        }
        Ok(level)
    }

    /// The profile with what is recommended.
    ///
    /// # Errors
    /// If the profile would break a rule.
    pub fn profile(&self, base: &Profile) -> Result<Option<Profile>, FileError> {
        let Some((period, timeout)) = self.recommended else { return Ok(None) };
        let nanos = |us: f64| Nanos((us * 1000.0).round() as u64);
        let mut profile = base.clone();
        profile.name = Name::new("tuned").unwrap_or(base.name);
        (profile.pulse.period, profile.pulse.timeout) = (nanos(period), nanos(timeout));
        Profile::parse(&profile.to_toml(), "tune").map(Some)
    }

    /// What to do, in a sentence or two.
    pub fn advice(&self) -> String {
        let percent = self.wanted.confidence * 100.0;
        let measured = self.directions.iter().filter(|of| of.seconds > 0).count();
        let scope = if measured < self.directions_of_cluster {
            format!(
                " Only {measured} of {} directions were measured: run this on the other hosts as well, or give \
                 it their files (--samples), and take the longest timeout.",
                self.directions_of_cluster
            )
        } else {
            String::new()
        };
        match self.recommended {
            Some((period, timeout)) => format!(
                "For at most one false suspicion in {}, with a confidence of {percent} %: a pulse every {}, and a \
                 timeout of {}.{scope}",
                span(self.wanted.every_seconds),
                Nanos((period * 1000.0) as u64),
                Nanos((timeout * 1000.0) as u64)
            ),
            None if measured == 0 => {
                "There are no samples: the cluster's profile has no [pulse], no other host \
                                      was heard, or the gateways have just started."
                    .to_owned()
            }
            None => {
                let why = self.refused.as_deref().unwrap_or_default();
                let bears = self.bears.map_or_else(
                    || "Measure for longer.".to_owned(),
                    |every| format!("They bear one in {every} (--every), or measure for longer."),
                );
                format!(
                    "The samples do not bear one false suspicion in {}: {why}. {bears}",
                    span(self.wanted.every_seconds)
                )
            }
        }
    }

    fn document(&self) -> Document {
        let mut doc = Document::new("How long a silence this network makes by itself");
        doc.say(self.advice());
        doc.say(format!(
            "Measured with a pulse every {} us. A gap is the time between two new pulses, by whichever path each came \
             first. {}",
            self.period_us,
            self.text()
        ));
        if let Some(svg) = self.chart() {
            let caption = "How often the longest gap of a second, in any direction, reaches a length: points \
                           are measured, the line is the fit, and the dashed line is the \
                           level for the wanted rate.";
            doc.figure("gaps", svg, caption);
        }
        for of in &self.directions {
            doc.heading(format!("From host {} to host {}", of.from, of.to));
            doc.say(of.text());
            let row = |path: &PathMeasured| path.cells().map(Cell::number).to_vec();
            doc.table(&PATH_HEADS, of.paths.iter().map(row));
        }
        doc
    }

    /// The level and how it was found, in a sentence or two.
    pub fn text(&self) -> String {
        let measured = format!("Seconds that all measured hosts have: {}.", self.seconds);
        match (&self.level, &self.refused) {
            (Some(Level { level, method: Method::Counted { beyond } }), _) => {
                format!("{measured} Level {level:.1} us, counted (seconds with a longer gap: {beyond}).")
            }
            (Some(Level { level, method: Method::Extrapolated { fit, estimate, factor } }), _) => format!(
                "{measured} Level {level:.1} us, extrapolated to {factor:.1} times the measurement from the longest \
                 {:.1} % of the seconds (estimate {estimate:.1}, shape {:.2}).",
                100.0 * fit.share,
                fit.excess.shape
            ),
            (None, Some(why)) => format!("{measured} No level: {why}."),
            (None, None) => measured,
        }
    }

    fn chart(&self) -> Option<String> {
        let mut sorted = self.common.maxima_us.clone();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let points = sorted.iter().enumerate().map(|(i, x)| ((n + 1.0) / (n - i as f64), *x));
        let mut chart = Chart::new(Axis::log("return period, s"), Axis::log("gap, us"))
            .with(Series::dots("measured", points.collect()));
        let level = self.level?;
        let every = self.every_seconds(self.wanted);
        if let Method::Extrapolated { fit, .. } = level.method {
            let from = fit.share.recip();
            let steps = (0..=60).map(|i| from * (every / from).powf(f64::from(i) / 60.0));
            chart = chart.with(Series::line("fit", steps.map(|t| (t, fit.beyond_once_in(t))).collect()));
        }
        chart.with(Series::dashes("level", vec![(1.0, level.level), (every, level.level)])).svg().ok()
    }

    /// The report as one HTML page.
    pub fn html(&self) -> String {
        self.document().html()
    }
}

/// The columns of a table of paths.
pub const PATH_HEADS: [&str; 6] = ["path", "frames", "missed", "floor, us", "jitter, us", "jitter max, us"];

impl PathMeasured {
    /// The cells of [`PATH_HEADS`].
    pub fn cells(&self) -> [String; 6] {
        [
            self.address.to_string(),
            self.frames.to_string(),
            format!("{:.3} %", self.lost_percent),
            self.floor_us.map_or("--".to_owned(), |floor| format!("{floor:.1}")),
            format!("{:.1}", self.jitter_us),
            format!("{:.1}", self.jitter_max_us),
        ]
    }
}

impl Direction {
    /// What was measured, in a sentence.
    pub fn text(&self) -> String {
        let left_out = match self.left_out {
            0 => String::new(),
            n => format!(" ({n} left out: the host was silent, or just heard)"),
        };
        format!(
            "{} s{left_out}, {} pulses, longest gap {:.1} us.",
            self.seconds, self.pulses, self.gap_max_us
        )
    }
}

/// Floors of delays: half of what there and back take, by the same pair of addresses' order.
fn floors(directions: &mut [Direction]) {
    let known: BTreeMap<(u8, u8, usize), i64> = directions
        .iter()
        .flat_map(|of| of.paths.iter().enumerate().map(|(n, path)| ((of.from, of.to, n), path.floor)))
        .collect();
    for of in directions {
        let back = (of.to, of.from);
        for (n, path) in of.paths.iter_mut().enumerate() {
            let both = known.get(&(back.0, back.1, n)).map(|back| path.floor.saturating_add(*back));
            path.floor_us = both.map(|both| both as f64 / 2000.0);
        }
    }
}

/// For a period that is a quarter of the jitter in the level: shorter ones cost packets and gain
/// little. The jitter does not depend on the period.
fn recommend(level: f64, period_us: f64) -> (f64, f64) {
    let jitter = (level - period_us).max(0.0);
    let period = rounded((jitter / PERIODS_PER_JITTER as f64).max(us(PERIOD_MIN.0)));
    let timeout = rounded((period + jitter).max(period * TIMEOUT_PERIODS_MIN as f64));
    (period, timeout)
}

/// Rounded up.
fn rounded(us: f64) -> f64 {
    let unit = 10f64.powi(us.max(1.0).log10().floor() as i32 + 1 - DIGITS as i32);
    (us / unit - 1e-9).ceil() * unit
}

/// A time in the largest unit that divides it.
fn span(seconds: f64) -> String {
    if let Some((_, name)) = EVERY.iter().find(|(every, _)| (every - seconds).abs() < 1.0) {
        return (*name).to_owned();
    }
    format!("{seconds} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric_ip::{PulseBlock, PulseDelays, PulsePath, PulsePathState, PulsePeer};
    use obol_rng::Rng;

    /// Seconds of pulses every millisecond, with exponential jitter of 50 us.
    fn seconds(host: u8, n: usize) -> Vec<PulseReport> {
        let mut rng = Rng::new(u64::from(host));
        let mut jitter = || {
            let uniform = (rng.below(1 << 32) as f64 + 0.5) / 4_294_967_296.0;
            (-uniform.ln() * 50_000.0) as u64
        };
        (0..n as u64)
            .map(|at| {
                let gap_max = 1_000_000 + (0..1000).map(|_| jitter()).max().unwrap_or_default();
                let delays =
                    |floor| PulseDelays { frames: 990, floor, spread_max: 300_000, spread_mean: 50_000 };
                let block = PulseBlock {
                    pulses: 1000,
                    gap_max,
                    silences: 0,
                    paths: vec![delays(5_000_000 + 20_000), delays(5_000_000 + 40_000)],
                };
                let path = |net| PulsePath { address: [10, net, 0, 2].into(), state: PulsePathState::Up };
                let peer = PulsePeer {
                    host: 3 - host,
                    heard: true,
                    silent: false,
                    paths: vec![path(1), path(2)],
                    block: Some(block),
                    frames: Vec::new(),
                };
                let peers = vec![peer];
                PulseReport { at, period: 1_000_000, timeout: 9_000_000, peers, ..PulseReport::default() }
            })
            .collect()
    }

    const WEEK: Wanted = Wanted { every_seconds: 86_400.0, confidence: 0.95 };

    #[test]
    fn a_timeout_is_period_and_jitter_and_fits_a_profile() {
        let mut back = seconds(2, 600);
        for report in &mut back {
            for delays in report.peers.iter_mut().flat_map(|peer| &mut peer.block).flat_map(|b| &mut b.paths)
            {
                delays.floor -= 10_000_000;
            }
        }
        let tuned = NetworkTuned::of(&[(1, seconds(1, 600)), (2, back)], 2, WEEK);
        let (period, timeout) = tuned.recommended.unwrap_or_else(|| panic!("{}", tuned.advice()));
        let level = tuned.level.expect("a level").level;
        assert!(
            (period - (level - 1000.0) / 4.0).abs() < 20.0 && period + level - 1000.0 <= timeout,
            "{tuned:?}"
        );
        // One of 2 * 86,400,000 has a jitter of about 50 us * ln(2 * 86,400,000).
        let right = 50.0 * (2.0 * 86_400_000f64).ln();
        assert!((0.9..2.2).contains(&((level - 1000.0) / right)), "{level} {right}");
        let path = &tuned.directions[0].paths[1];
        assert!((path.floor_us.expect("both") - 40.0).abs() < 0.1 && (path.lost_percent - 1.0).abs() < 0.01);
        let mut base = Profile::builtin("lan").expect("built in");
        base.pulse.enabled = true;
        base.pulse.paths = 2;
        let made = tuned.profile(&base).expect("valid").expect("recommended");
        assert_eq!(made.pulse.timeout, Nanos((timeout * 1000.0).round() as u64));
        assert!(tuned.html().contains("From host 2 to host 1"));
    }

    #[test]
    fn a_second_counts_once_however_often_it_was_copied() {
        let all = seconds(1, 100);
        let overlapping = [(1, all[..80].to_vec()), (1, all[20..].to_vec()), (2, seconds(2, 100))];
        let tuned = NetworkTuned::of(&overlapping, 2, WEEK);
        let counted: Vec<_> = tuned.directions.iter().map(|of| (of.to, of.seconds, of.pulses)).collect();
        assert_eq!(counted, [(1, 100, 100_000), (2, 100, 100_000)]);
    }

    #[test]
    fn what_the_samples_do_not_bear_is_refused_and_what_they_bear_is_said() {
        let year = Wanted { every_seconds: EVERY[0].0, ..WEEK };
        let tuned = NetworkTuned::of(&[(1, seconds(1, 600))], 2, year);
        assert_eq!((tuned.recommended, tuned.bears), (None, Some("a day")), "{}", tuned.advice());
        assert!(tuned.advice().contains("do not bear one false suspicion in a year"), "{}", tuned.advice());
        assert!(tuned.profile(&Profile::default()).expect("none").is_none());
        let none = NetworkTuned::of(&[], 2, year);
        assert!(none.advice().starts_with("There are no samples"));
    }

    #[test]
    fn seconds_with_a_silence_or_another_period_do_not_count() {
        let mut all = seconds(1, 100);
        for report in all.iter_mut().take(20) {
            report.period = 7;
        }
        if let Some(block) = &mut all[50].peers[0].block {
            block.silences = 1;
            block.gap_max = 99_000_000;
        }
        let tuned = NetworkTuned::of(&[(1, all)], 2, WEEK);
        assert_eq!((tuned.directions[0].seconds, tuned.directions[0].left_out), (79, 1));
        assert!(tuned.directions[0].gap_max_us < 99_000.0);
    }

    #[test]
    fn a_level_is_no_shorter_than_any_gap_and_hosts_without_samples_do_not_count() {
        let mut longer = seconds(1, 900);
        // Before the other host had any samples.
        longer[100].peers[0].block.as_mut().expect("pulses").gap_max = 30_000_000;
        // Host 3 was heard once, and is down.
        for report in longer.iter_mut().skip(1) {
            let down = PulsePeer { host: 3, block: None, ..report.peers[0].clone() };
            report.peers.push(down);
        }
        let tuned = NetworkTuned::of(&[(1, longer), (2, seconds(2, 600))], 3, WEEK);
        assert_eq!((tuned.directions.len(), tuned.seconds), (3, 600));
        assert_eq!(tuned.level.map(|level| level.level), Some(30_000.0), "{}", tuned.text());
        // Two of six directions.
        assert!((tuned.every_seconds(WEEK) - 3.0 * WEEK.every_seconds).abs() < 1e-6);
        assert!(tuned.advice().contains("Only 2 of 6 directions"), "{}", tuned.advice());
    }

    #[test]
    fn times_are_rounded_up_to_two_digits() {
        for (us, to) in [(137.0, 140.0), (50.0, 50.0), (1201.0, 1300.0), (99.5, 100.0)] {
            assert!((rounded(us) - to).abs() < 1e-6, "{us}: {}", rounded(us));
        }
    }
}
