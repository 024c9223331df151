//! Reports on a recording, or on a cluster over some time, in several formats with the same figures
//! as on the screens.

mod csv;
mod document;
mod hdr;
mod json;
mod openmetrics;
mod outages;
mod perfetto;
pub(crate) mod svg;

use crate::options::{Report as Options, ReportFormat};
use crate::output::{self, Failure};
use crate::poll::live::{Live, POLL_EVERY, Rate};
use crate::poll::record::Recording;
use crate::poll::sample::{EventRow, MarkRow, Sample};
use crate::poll::{ClusterLocation, Sink, Update};
use crate::state::data::Data;
use crate::state::windows::{PERCENTILES, Set, percentile};
use clap::ValueEnum;
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::metrics::Histogram;
use obol_observe::failovers::{self, Failover};
use obol_observe::histograms::Counts;
use obol_observe::{ObservedEvent, calendar, plain};
use outages::Outages;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// The data of a report.
pub(crate) struct Report {
    pub(crate) cluster: Name,
    /// Oldest first; at least one.
    samples: Vec<Arc<Sample>>,
    last: Arc<Sample>,
    /// Each cluster of this name, in the order of time; at least one.
    parts: Vec<Part>,
    outages: Outages,
    totals: Set,
    /// What this report lacks, if known.
    gap: Option<String>,
}

/// The data of one cluster: names, views and incarnations are its own.
struct Part {
    data: Data,
    failovers: Vec<Failover>,
}

impl Part {
    fn dead(&self, failover: &Failover) -> String {
        let names: Vec<String> = failover.dead.iter().map(|dead| self.data.who(dead.who)).collect();
        names.join(", ")
    }
}

/// One distribution in figures. For the margin small values are bad, so its percentiles count from
/// above.
pub(crate) struct Latency {
    pub(crate) of: Histogram,
    pub(crate) n: u64,
    /// In the order of [`PERCENTILES`]; `None` with too few samples.
    pub(crate) percentiles: [Option<Nanos>; PERCENTILES.len()],
    pub(crate) worst: Option<Nanos>,
}

impl Report {
    /// A report on these samples; `None` if there are none.
    pub(crate) fn new(cluster: Name, samples: Vec<Arc<Sample>>) -> Option<Self> {
        let last = Arc::clone(samples.last()?);
        let mut parts = Vec::new();
        let mut data = Data::default();
        let mut outages = Outages::default();
        let mut totals = Set::default();
        // What a part keeps of its events is limited; its failovers are those of all.
        let mut events: Vec<ObservedEvent> = Vec::new();
        let part = |data: Data, events: &mut Vec<ObservedEvent>| {
            let failovers = failovers::all(&events.iter().cloned(), &data.departures);
            events.clear();
            Part { failovers, data }
        };
        for sample in &samples {
            if let Some(before) = data.sample.clone().filter(|_| data.is_of_another_cluster(sample)) {
                outages.part(&before);
                parts.push(part(std::mem::take(&mut data), &mut events));
            }
            events.extend(sample.events.iter().map(EventRow::seen));
            outages.take(sample);
            data.take(Arc::clone(sample));
            for span in &sample.spans {
                totals[span.of as usize].add(&span.counts);
            }
        }
        parts.push(part(data, &mut events));
        Some(Self { cluster, samples, last, parts, outages, totals, gap: None })
    }

    /// The cluster was gone after the last sample, until the end of the report.
    fn ends_without_cluster(&mut self, until: Instant) {
        self.outages.end(&self.last, until);
    }

    /// The cluster's health at the end.
    fn health(&self) -> &'static str {
        self.outages.at_end().unwrap_or_else(|| self.last.health.name())
    }

    /// The data of the newest cluster.
    fn data(&self) -> &Data {
        &self.parts[self.parts.len() - 1].data
    }

    /// Every failover with its cluster, oldest first.
    fn failovers(&self) -> impl DoubleEndedIterator<Item = (&Part, &Failover)> {
        self.parts.iter().flat_map(|part| part.failovers.iter().map(move |failover| (part, failover)))
    }

    /// Every annotation, oldest first.
    fn marks(&self) -> impl Iterator<Item = &MarkRow> {
        self.parts.iter().flat_map(|part| &part.data.marks)
    }

    /// The time of a stamp in nanoseconds since 1970, UTC.
    fn unix(&self, at: Instant) -> u64 {
        let Sample { at: last, unix, .. } = *self.last;
        if at > last { unix.saturating_add(at.since(last).0) } else { unix.saturating_sub(last.since(at).0) }
    }

    fn latencies(&self) -> impl Iterator<Item = Latency> + '_ {
        Histogram::ALL.iter().zip(&self.totals).map(|(of, counts)| {
            let small_is_bad = *of == Histogram::Margin;
            Latency {
                of: *of,
                n: counts.len(),
                percentiles: std::array::from_fn(|at| percentile(counts, at, small_is_bad)),
                worst: if small_is_bad { counts.least() } else { counts.most() },
            }
        })
    }

    /// The counts of each histogram in a sample.
    fn parts(&self) -> impl Iterator<Item = (&Sample, Histogram, &Counts)> {
        self.samples
            .iter()
            .flat_map(|sample| sample.spans.iter().map(|span| (&**sample, span.of, &span.counts)))
    }

    /// The covered time.
    fn span(&self) -> Nanos {
        self.samples.first().map_or(Nanos::ZERO, |first| self.last.at.since(first.at))
    }

    /// The report in one format.
    pub(crate) fn text(&self, format: ReportFormat) -> Result<String, Failure> {
        let text = match format {
            ReportFormat::Md => document::document(self)?.markdown(None),
            ReportFormat::Json => json::text(self)?,
            ReportFormat::Csv => csv::text(self),
            ReportFormat::Perfetto => perfetto::text(self)?,
            ReportFormat::Html => document::document(self)?.html(),
            ReportFormat::Hdr => hdr::text(self)?,
            ReportFormat::Openmetrics => openmetrics::text(self),
        };
        // Untrusted text is escaped in every format, because files are read in terminals, too.
        let neutral = match format {
            ReportFormat::Json | ReportFormat::Perfetto => plain::json(&text),
            _ => plain::lines(&text),
        };
        Ok(neutral.into_owned())
    }

    /// Writes every format, and the screen if there is one, into a new folder of the working
    /// directory; returns its name.
    pub(crate) fn export(&self, screen: Option<&str>) -> Result<String, Failure> {
        let mut number = 1u32;
        let dir = loop {
            let dir = PathBuf::from(format!("obol-{}-{number}", self.cluster));
            match std::fs::create_dir(&dir) {
                Ok(()) => break dir,
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(Failure::failed_at(&dir)(error)),
            }
        };
        for &format in ReportFormat::value_variants() {
            output::file(&dir.join(format.file()), self.text(format)?)?;
        }
        if let Some(screen) = screen {
            output::file(&dir.join("screen.svg"), screen)?;
        }
        Ok(dir.display().to_string())
    }
}

/// A moment in nanoseconds since 1970 as ISO 8601 in UTC, to the microsecond.
pub fn iso(unix: u64) -> String {
    calendar::utc(unix, "%FT%T.%6fZ")
}

/// Keeps samples. A cluster that was there may come back.
#[derive(Default)]
struct Keep {
    samples: Vec<Arc<Sample>>,
    lost: Option<String>,
}

impl Sink for Keep {
    fn take(&mut self, update: Update) -> bool {
        match update {
            Update::Sample(sample) => {
                self.samples.push(Arc::new(*sample));
                self.lost = None;
            }
            Update::Lost { why } => self.lost = Some(why),
        }
        !self.samples.is_empty()
    }
}

/// The report on a cluster that is polled for some time.
fn live(location: &ClusterLocation, time: Duration) -> Result<Option<Report>, Failure> {
    let (_quit, quit) = mpsc::channel();
    let mut keep = Keep::default();
    Live::new(location.clone()).with_all_buckets().for_time(time).run(
        &Rate::new(POLL_EVERY),
        &quit,
        &mut keep,
    );
    let Keep { samples, lost } = keep;
    let Some(mut report) = Report::new(location.cluster, samples) else {
        return lost.map_or(Ok(None), |why| Err(Failure::Refused(why)));
    };
    if lost.is_some() {
        report.ends_without_cluster(clock::now());
    }
    Ok(Some(report))
}

/// The report on a recording.
fn recorded(file: &Path) -> Result<Option<Report>, Failure> {
    let recording = Recording::open(file).map_err(Failure::refused)?;
    let cluster = Name::new(&recording.header.cluster)
        .map_err(|error| Failure::Refused(format!("{}: cluster name: {error}", file.display())))?;
    let gap = recording.gap();
    if let Some(gap) = &gap {
        output::remark(format_args!("obol: {}: {gap}", file.display()))?;
    }
    let samples = recording.samples.into_iter().map(Arc::new).collect();
    Ok(Report::new(cluster, samples).map(|report| Report { gap, ..report }))
}

/// `obol report`: reports on a recording, or on a cluster polled for some time.
pub fn run(location: &ClusterLocation, options: &Options) -> Result<ExitCode, Failure> {
    let (report, what) = match &options.file {
        Some(file) => (recorded(file)?, file.display().to_string()),
        None => (live(location, options.time)?, format!("cluster {}", location.cluster)),
    };
    let report =
        report.ok_or_else(|| Failure::Refused(format!("{what}: there is no sample to report on")))?;
    let text = report.text(options.format)?;
    match &options.output {
        Some(path) => output::file(path, &text)?,
        None => output::text(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
pub(crate) mod tests;
