//! What the reproductions of a paper have in common: inputs and what comes out, kept apart.

use super::samples::Samples;
use serde::Serialize;

/// Something that is stated, by the paper or otherwise, and used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    pub name: &'static str,
    /// Its value, with the unit.
    pub value: String,
    /// Where it is from, or that it is assumed.
    pub source: &'static str,
}

/// A figure that comes out, beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub what: String,
    pub unit: &'static str,
    /// The published value, if there is one.
    pub published: Option<f64>,
    /// What comes out.
    pub found: f64,
    /// Its 95 % confidence interval, if it is a percentile of simulated runs.
    pub interval: Option<[f64; 2]>,
    /// The difference in percent of the published value.
    pub deviation_percent: Option<f64>,
    /// Why they differ, or how little the agreement means; empty if there is nothing to say.
    pub note: &'static str,
}

impl Row {
    /// A figure that follows from the inputs by a formula.
    pub(super) fn new(
        what: impl Into<String>,
        unit: &'static str,
        published: impl Into<Option<f64>>,
        found: f64,
    ) -> Self {
        let published = published.into();
        let deviation_percent = published.map(|published| (found / published - 1.0) * 100.0);
        Self { what: what.into(), unit, published, found, interval: None, deviation_percent, note: "" }
    }

    /// A percentile of simulated durations, in a unit of `nanos` ns; `None` if there are too few samples
    /// for it.
    pub(super) fn of(
        what: impl Into<String>,
        (unit, nanos): (&'static str, f64),
        published: impl Into<Option<f64>>,
        (samples, quantile): (&Samples, f64),
    ) -> Option<Self> {
        let found = samples.quantile(quantile)?.0 as f64 / nanos;
        let interval = samples.interval(quantile).map(|ends| ends.map(|end| end.0 as f64 / nanos));
        Some(Self { interval, ..Self::new(what, unit, published, found) })
    }

    /// The same with a remark.
    pub(super) const fn noting(mut self, note: &'static str) -> Self {
        self.note = note;
        self
    }
}

/// A table, a figure or a section of the paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What it is, with its place in the paper.
    pub name: &'static str,
    /// What is not reproduced, and why; empty if all is.
    pub missing: &'static str,
    pub rows: Vec<Row>,
}

/// A reproduction of a paper.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reproduction {
    pub paper: &'static str,
    /// What is used.
    pub inputs: Vec<Input>,
    /// Published results that were known when an input was chosen.
    pub looked_at: &'static [&'static str],
    /// What comes out.
    pub parts: Vec<Part>,
    /// Where the paper's text misleads who reproduces it.
    pub traps: &'static [&'static str],
}

/// Microseconds, and their ns.
pub(super) const US: (&str, f64) = ("us", 1e3);
/// Milliseconds, and their ns.
pub(super) const MS: (&str, f64) = ("ms", 1e6);
