//! PromQL on the table of metrics. Queries are made from [`Metric`] values, so none can name a
//! metric that does not exist.

use obol_observe::metrics::{Metric, Part};

/// Writes queries that all select the same series.
#[derive(Clone, Copy)]
pub(crate) struct Queries {
    /// Matchers of every series, such as `cluster=~"$cluster"`; empty for all.
    pub(crate) matchers: &'static str,
    /// The range of rates, such as `1m`.
    pub(crate) range: &'static str,
}

impl Queries {
    fn select(self, name: &str, more: &str) -> String {
        let comma = if self.matchers.is_empty() || more.is_empty() { "" } else { "," };
        match (self.matchers, more) {
            ("", "") => name.to_owned(),
            (all, more) => format!("{name}{{{all}{comma}{more}}}"),
        }
    }

    /// The series of a counter, a gauge or an info.
    pub(crate) fn series(self, metric: impl Into<Metric>) -> String {
        self.select(&metric.into().series(), "")
    }

    /// Those of them that match.
    pub(crate) fn matching(self, metric: impl Into<Metric>, matchers: &str) -> String {
        self.select(&metric.into().series(), matchers)
    }

    /// One of the series of a histogram.
    pub(crate) fn part(self, metric: impl Into<Metric>, part: Part, matchers: &str) -> String {
        self.select(&metric.into().part(part), matchers)
    }

    /// By how much a counter has grown.
    pub(crate) fn increase(self, metric: impl Into<Metric>) -> String {
        format!("increase({}[{}])", self.series(metric), self.range)
    }

    /// By how much a counter grows per second.
    pub(crate) fn rate(self, metric: impl Into<Metric>) -> String {
        format!("rate({}[{}])", self.series(metric), self.range)
    }

    /// The growth of the buckets of a histogram per second, by the bound and these labels.
    pub(crate) fn buckets(self, metric: impl Into<Metric>, by: &str) -> String {
        let comma = if by.is_empty() { "" } else { ", " };
        let buckets = self.part(metric, Part::Bucket, "");
        format!("sum by (le{comma}{by}) (rate({buckets}[{}]))", self.range)
    }

    /// A quantile of a histogram, by these labels.
    pub(crate) fn quantile(self, quantile: f64, metric: impl Into<Metric>, by: &str) -> String {
        format!("histogram_quantile({quantile}, {})", self.buckets(metric, by))
    }
}

/// The metrics that a query names, as names of series.
#[cfg(test)]
pub(crate) fn named(query: &str) -> std::collections::BTreeSet<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("obol_")).map(str::to_owned).collect()
}

/// Every name of a series that the exporter writes.
#[cfg(test)]
pub(crate) fn exported() -> std::collections::BTreeSet<String> {
    use obol_observe::metrics::{Type, Writer};
    let all = Metric::all().filter(|metric| metric.writer() != Writer::Report);
    all.flat_map(|metric| match metric.kind() {
        Type::Histogram => [Part::Bucket, Part::Count, Part::Sum].map(|part| metric.part(part)).to_vec(),
        _ => vec![metric.series()],
    })
    .collect()
}
