//! Metrics as text: OpenMetrics 1.0, or the format 0.0.4 of Prometheus.

use super::{Metric, Part, Type};
use crate::histograms::Counts;
use obol_fabric::metrics::{HISTOGRAM_WORDS, bucket, bucket_floor};
use obol_fabric::{Name, Nanos};
use std::fmt::{self, Display, Write as _};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, with units and exemplars.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// Both.
    pub const ALL: [Self; 2] = [Self::OpenMetrics, Self::Prometheus];

    /// The content type for HTTP.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The upper bounds of exported histograms: 2^10 to 2^32 ns, less one, because a bucket of a
/// process ends before the next power of two. So the numbers are exact.
const BOUNDS: std::ops::RangeInclusive<u32> = 10..=32;

/// The upper bounds of the buckets of exported histograms, except infinity; inclusive.
pub fn bounds() -> impl DoubleEndedIterator<Item = Nanos> {
    BOUNDS.map(|power| Nanos((1 << power) - 1))
}

/// Nanoseconds as exact seconds, without zeros at the end.
pub fn seconds(span: Nanos) -> String {
    let text = format!("{}.{:09}", span.0 / 1_000_000_000, span.0 % 1_000_000_000);
    let text = text.trim_end_matches('0');
    text.strip_suffix('.').unwrap_or(text).to_owned()
}

/// A distribution of durations, with its sum.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    counts: Counts,
    sum_ns: f64,
}

impl Distribution {
    pub fn add(&mut self, span: Nanos) {
        // Every value has a bucket, and all numbers of buckets fit.
        let at = u16::try_from(bucket(span.0)).unwrap_or(u16::MAX);
        self.counts.add(&Counts::from_pairs([(at, 1)]));
        self.sum_ns += span.0 as f64;
    }

    /// Adds what a process has counted. It keeps no sum: that of the buckets' middles differs by
    /// 1/32 at most.
    pub fn add_counts(&mut self, counts: &Counts) {
        self.counts.add(counts);
        let middle = |at: u16| {
            let next = usize::from(at) + 1;
            let end = if next < HISTOGRAM_WORDS { bucket_floor(next) - 1 } else { u64::MAX };
            f64::midpoint(bucket_floor(usize::from(at)) as f64, end as f64)
        };
        self.sum_ns += counts.pairs().map(|(at, n)| n as f64 * middle(at)).sum::<f64>();
    }

    pub const fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// An example of a value in a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// Names and values of its labels: at most 128 characters together.
    pub labels: Vec<(&'static str, String)>,
    pub value: Nanos,
    /// When, in nanoseconds since 1970.
    pub unix: u64,
}

/// What OpenMetrics allows for all labels of an exemplar.
const EXEMPLAR_CHARS: usize = 128;

impl Display for Exemplar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = EXEMPLAR_CHARS;
        f.write_str(" # {")?;
        for (at, (name, value)) in self.labels.iter().enumerate() {
            let room = left.saturating_sub(name.chars().count());
            let value: String = value.chars().take(room).collect();
            left = room - value.chars().count();
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{name}=\"{}\"", Escaped(&value))?;
        }
        write!(
            f,
            "}} {} {}.{:03}",
            seconds(self.value),
            self.unix / 1_000_000_000,
            self.unix / 1_000_000 % 1000
        )
    }
}

/// A label's value with escapes.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Metrics that are being written.
pub struct Exposition {
    format: Format,
    cluster: Name,
    text: String,
}

impl Exposition {
    /// An empty text on a cluster.
    pub const fn new(format: Format, cluster: Name) -> Self {
        Self { format, cluster, text: String::new() }
    }

    /// Begins a family: all its samples follow. One without samples is not mentioned.
    pub fn family(&mut self, metric: impl Into<Metric>) -> Family<'_> {
        let metric = metric.into();
        Family { metric, name: metric_name(self.format, metric), began: false, to: self }
    }

    /// A family that has one sample without labels.
    pub fn value(&mut self, metric: impl Into<Metric>, value: impl Display) {
        self.family(metric).value(&[], value);
    }

    /// The whole text.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// The name of a family in `# TYPE`: Prometheus has that of the samples there.
fn metric_name(format: Format, metric: Metric) -> String {
    match format {
        Format::OpenMetrics => metric.name(),
        Format::Prometheus => metric.series(),
    }
}

/// The samples of one metric. Writing to a string cannot fail.
pub struct Family<'a> {
    metric: Metric,
    name: String,
    began: bool,
    to: &'a mut Exposition,
}

impl Family<'_> {
    fn begin(&mut self) {
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        let Self { metric, name, to, .. } = self;
        let kind = match (to.format, metric.kind()) {
            (Format::Prometheus, Type::Info) => Type::Gauge,
            (_, kind) => kind,
        };
        let _ = writeln!(to.text, "# TYPE {name} {}", kind.name());
        // Names end with the unit in any case; some readers reject it for distributions.
        let may_have_unit = matches!(kind, Type::Counter | Type::Gauge);
        if let (Format::OpenMetrics, true, Some(unit)) = (to.format, may_have_unit, metric.unit()) {
            let _ = writeln!(to.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(to.text, "# HELP {name} {}", metric.help());
    }

    /// Begins a sample: its name and labels, whose values are in the order of [`Metric::labels`].
    fn sample(&mut self, suffix: &str, values: &[&str], more: Option<(&str, &str)>) {
        self.begin();
        let names = self.metric.labels();
        debug_assert_eq!(names.len(), values.len(), "{}", self.name);
        let text = &mut self.to.text;
        let _ = write!(text, "{}{suffix}{{cluster=\"{}\"", self.metric.name(), self.to.cluster);
        for (name, value) in names.iter().copied().zip(values.iter().copied()).chain(more) {
            let _ = write!(text, ",{name}=\"{}\"", Escaped(value));
        }
        text.push_str("} ");
    }

    /// A counter, a gauge or an info.
    pub fn value(&mut self, labels: &[&str], value: impl Display) {
        self.sample(self.metric.suffix(), labels, None);
        let _ = writeln!(self.to.text, "{value}");
    }

    /// A histogram. Exemplars are shown with the buckets that they are in, the last one of each.
    pub fn histogram(&mut self, labels: &[&str], of: &Distribution, exemplars: &[Exemplar]) {
        let bucket_suffix = "_bucket";
        let mut from = None;
        for bound in bounds().map(Some).chain([None]) {
            let n = match bound {
                Some(bound) => of.counts.below(u16::try_from(bucket(bound.0 + 1)).unwrap_or(u16::MAX)),
                None => of.counts.len(),
            };
            let le = bound.map_or_else(|| "+Inf".to_owned(), seconds);
            self.sample(bucket_suffix, labels, Some(("le", &le)));
            let _ = write!(self.to.text, "{n}");
            if self.to.format == Format::OpenMetrics {
                let is_in = |one: &&Exemplar| {
                    from.is_none_or(|from| one.value > from) && bound.is_none_or(|bound| one.value <= bound)
                };
                if let Some(one) = exemplars.iter().rfind(is_in) {
                    let _ = write!(self.to.text, "{one}");
                }
            }
            self.to.text.push('\n');
            from = bound;
        }
        self.sample("_sum", labels, None);
        let _ = writeln!(self.to.text, "{}", of.sum_ns / 1e9);
        self.sample("_count", labels, None);
        let _ = writeln!(self.to.text, "{}", of.counts.len());
    }

    /// A summary: quantiles that are known, and the number of samples.
    pub fn summary(&mut self, labels: &[&str], quantiles: impl Iterator<Item = (f64, Nanos)>, n: u64) {
        for (quantile, value) in quantiles {
            self.sample("", labels, Some(("quantile", &quantile.to_string())));
            let _ = writeln!(self.to.text, "{}", seconds(value));
        }
        self.sample("_count", labels, None);
        let _ = writeln!(self.to.text, "{n}");
    }
}

/// The label that selects the bucket up to the largest bound that is at most `limit`, and that
/// bound; `None` if all are larger.
pub fn bound_within(limit: Nanos) -> Option<(Nanos, String)> {
    let bound = bounds().rfind(|bound| *bound <= limit)?;
    Some((bound, seconds(bound)))
}

/// The name of the series of a histogram's buckets.
pub fn buckets(metric: impl Into<Metric>) -> String {
    metric.into().part(Part::Bucket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Derived;
    use obol_membership::metrics::{Counter, Histogram};

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn a_histogram_counts_exactly_the_values_up_to_each_bound() {
        let mut values: Vec<u64> = (0..64).flat_map(|b| [1u64 << b, (1 << b) - 1, (1 << b) + 1]).collect();
        values.extend([0, 999, 1_500_000, 20_000_000]);
        let mut all = Distribution::default();
        values.iter().for_each(|value| all.add(Nanos(*value)));
        let mut text = Exposition::new(Format::OpenMetrics, name("a"));
        text.family(Derived::Failover).histogram(&[], &all, &[]);
        let text = text.finish();
        for bound in bounds() {
            let line = format!("obol_failover_seconds_bucket{{cluster=\"a\",le=\"{}\"}} ", seconds(bound));
            let found = text.lines().find_map(|known| known.strip_prefix(&line)).expect("a bucket");
            let wanted = values.iter().filter(|value| **value <= bound.0).count();
            assert_eq!(found, wanted.to_string(), "{bound}");
        }
        assert!(text.contains(&format!("le=\"+Inf\"}} {}\n", values.len())), "{text}");
        assert!(text.contains(&format!("_count{{cluster=\"a\"}} {}\n", values.len())), "{text}");
    }

    #[test]
    fn the_sum_of_a_process_s_counts_is_within_a_32nd() {
        let values: Vec<u64> = (0..500).map(|n| 900 + n * n * 37).collect();
        let counts = values.iter().map(|value| (u16::try_from(bucket(*value)).expect("small"), 1));
        let mut all = Distribution::default();
        all.add_counts(&Counts::from_pairs(counts));
        let exact = values.iter().sum::<u64>() as f64;
        assert!((all.sum_ns - exact).abs() <= exact / 32.0, "{} {exact}", all.sum_ns);
    }

    #[test]
    fn an_exemplar_is_with_the_bucket_of_its_value_and_within_the_limit_of_characters() {
        let exemplar = |value, view: &str| Exemplar {
            labels: vec![("view", view.to_owned()), ("dead", "x".repeat(200))],
            value: Nanos(value),
            unix: 1_700_000_000_123_456_789,
        };
        let mut all = Distribution::default();
        [1500, 1600, 3000].into_iter().for_each(|n| all.add(Nanos(n)));
        let exemplars = [exemplar(1500, "1"), exemplar(1600, "2"), exemplar(3000, "3")];
        for format in Format::ALL {
            let mut text = Exposition::new(format, name("a"));
            text.family(Derived::Failover).histogram(&[], &all, &exemplars);
            let text = text.finish();
            let found: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
            if format == Format::Prometheus {
                assert_eq!(found, [""; 0]);
                continue;
            }
            let [second, third] = &found[..] else { panic!("{found:?}") };
            assert!(second.contains("le=\"0.000002047\"} 2 # {view=\"2\",dead=\"xxx"), "{second}");
            assert!(second.ends_with("x\"} 0.0000016 1700000000.123"), "{second}");
            assert!(third.contains("le=\"0.000004095\"} 3 # {view=\"3\""), "{third}");
            let chars = second.split(['{', '}']).nth(3).expect("labels").replace(['"', '=', ','], "").len();
            assert_eq!(chars, EXEMPLAR_CHARS);
        }
    }

    #[test]
    fn both_formats_have_the_same_samples() {
        let write = |format| {
            let mut text = Exposition::new(format, name("a"));
            text.family(Counter::Takeovers).value(&["coord-1", "coordinator"], 3);
            text.family(Derived::Build).value(&["1 \"x\" \\"], 1);
            text.value(Derived::LeaseDuration, seconds(Nanos(20_000_000)));
            let _ = text.family(Histogram::Renewal);
            text.finish()
        };
        let open = write(Format::OpenMetrics);
        assert_eq!(
            open,
            "# TYPE obol_takeovers counter\n# HELP obol_takeovers Times that this process became leader.\n\
             obol_takeovers_total{cluster=\"a\",process=\"coord-1\",kind=\"coordinator\"} 3\n\
             # TYPE obol_build info\n# HELP obol_build The version of obol.\n\
             obol_build_info{cluster=\"a\",version=\"1 \\\"x\\\" \\\\\"} 1\n\
             # TYPE obol_lease_duration_seconds gauge\n# UNIT obol_lease_duration_seconds seconds\n\
             # HELP obol_lease_duration_seconds How long a lease on the newest view lasts.\n\
             obol_lease_duration_seconds{cluster=\"a\"} 0.02\n# EOF\n"
        );
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        let prometheus = write(Format::Prometheus);
        assert_eq!(samples(&prometheus), samples(&open));
        assert!(prometheus.starts_with("# TYPE obol_takeovers_total counter\n"), "{prometheus}");
        assert!(prometheus.contains("# TYPE obol_build_info gauge\n") && !prometheus.contains("UNIT"));
    }

    #[test]
    fn seconds_are_exact() {
        let shown =
            [0, 1, 20_000_000, 1_000_000_000, 10_000_000_000, 1_500_000_001].map(|n| seconds(Nanos(n)));
        assert_eq!(shown, ["0", "0.000000001", "0.02", "1", "10", "1.500000001"]);
        assert_eq!(
            bound_within(Nanos::from_millis(2)),
            Some((Nanos((1 << 20) - 1), "0.001048575".to_owned()))
        );
        assert_eq!(bound_within(Nanos(1)), None);
    }
}
