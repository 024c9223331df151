//! Reports on a recording, or on a cluster over some time, in several formats with the same figures
//! as on the screens.

mod builder;
mod csv;
mod document;
mod hdr;
mod json;
mod openmetrics;
pub mod options;
mod outages;
mod perfetto;

use builder::Builder;
use clap::ValueEnum;
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, Nanos};
use obol_membership::metrics::Histogram;
use obol_node::{ClusterLocation, ending};
use obol_observe::Renewals;
use obol_observe::calendar::iso;
use obol_observe::failovers::Failover;
use obol_observe::histograms::Counts;
use obol_observe::incidents::incident::Incident;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::live::{Live, POLL_EVERY, Rate};
use obol_observe::sampling::record::Reading;
use obol_observe::sampling::sample::{MarkRow, Sample};
use obol_observe::sampling::windows::{PERCENTILES, Set, percentile};
use obol_observe::sampling::{Sink, Update};
use obol_term::output::{self, Failure};
use obol_term::plain;
use options::{Report as Options, ReportFormat};
use outages::Outages;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The data of a report.
pub struct Report {
    cluster: Name,
    /// How many it is made of; at least one.
    samples: u64,
    /// When the first was read, by both clocks.
    first: (Instant, u64),
    last: Arc<Sample>,
    /// Each cluster of this name, in the order of time; at least one.
    parts: Vec<Part>,
    outages: Outages,
    totals: Set,
    /// Counts of each histogram, by time.
    intervals: Vec<Interval>,
    /// How often leases were renewed meanwhile, over all lives of the processes; `None` in old
    /// recordings.
    renewals: Option<Renewals>,
    /// What is missing of the recording, if anything.
    gap: Option<String>,
    /// How long the cluster was to be polled, if an operator has ended it before.
    cut_short: Option<Duration>,
}

/// What was counted in a histogram until a moment since the interval before.
struct Interval {
    /// In nanoseconds since 1970, UTC.
    unix: u64,
    of: Histogram,
    counts: Counts,
}

impl Interval {
    /// Half as many, each twice as long.
    fn merged(all: Vec<Self>) -> Vec<Self> {
        let mut open: Vec<Self> = Vec::new();
        let mut merged = Vec::with_capacity(all.len() / 2 + Histogram::ALL.len());
        for mut interval in all {
            match open.iter().position(|other| other.of == interval.of) {
                Some(at) => {
                    interval.counts.add(&open.swap_remove(at).counts);
                    merged.push(interval);
                }
                None => open.push(interval),
            }
        }
        open.sort_by_key(|interval| interval.unix);
        merged.extend(open);
        merged
    }
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
struct Latency {
    pub(crate) of: Histogram,
    pub(crate) n: u64,
    /// In the order of [`PERCENTILES`]; `None` with too few samples.
    pub(crate) percentiles: [Option<Nanos>; PERCENTILES.len()],
    pub(crate) worst: Option<Nanos>,
}

impl Report {
    /// A report on these samples; `None` if there are none.
    pub fn new(cluster: Name, samples: impl IntoIterator<Item = Arc<Sample>>) -> Option<Self> {
        let mut builder = Builder::new(cluster);
        samples.into_iter().for_each(|sample| builder.take(sample));
        builder.finish()
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

    /// The incidents of the covered time, oldest first.
    fn incidents(&self) -> impl Iterator<Item = Incident> {
        self.parts.iter().flat_map(|part| {
            let all = part.data.incidents().into_iter().chain(part.data.ended_incidents());
            let mut all: Vec<Incident> = all.filter(|one| !self.is_before(one.last)).collect();
            all.sort_by_key(|one| one.since);
            all
        })
    }

    /// The time of a stamp in nanoseconds since 1970, UTC.
    fn unix(&self, at: Instant) -> u64 {
        self.last.unix_at(at)
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

    /// The covered time.
    fn span(&self) -> Nanos {
        self.last.at.since(self.first.0)
    }

    /// Whether a moment is before the first sample: flight recorders and the annotations of a cluster
    /// reach further back.
    fn is_before(&self, at: Instant) -> bool {
        at < self.first.0
    }

    /// What is not in this report though it may have happened, each in a sentence.
    fn lacks(&self) -> Vec<String> {
        let cut_short = self.cut_short.map(|wanted| {
            format!(
                "This report was cut short by a signal: it covers {} of {}.",
                self.span(),
                Nanos::from_std(wanted)
            )
        });
        let gap = self.gap.iter().map(|gap| format!("The recording is not whole: {gap}."));
        let unread = self.parts.iter().filter_map(|part| {
            let unread = part.data.unread_views()?;
            let began = match unread.first {
                Some(at) => format!("the flight recorders that were read begin at {}", iso(self.unix(at))),
                None => "no flight recorder that was read has a decision".to_owned(),
            };
            Some(format!(
                "{} of the {} view changes of this cluster are not in these events ({began}): failovers among them are \
                 missing here; `obol logs` may have them.",
                unread.missing, unread.of
            ))
        });
        cut_short.into_iter().chain(gap).chain(unread).collect()
    }

    /// The report in one format.
    pub fn text(&self, format: ReportFormat) -> Result<String, Failure> {
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
    pub fn export(&self, screen: Option<&str>) -> Result<String, Failure> {
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

/// Reports on samples as they come. A cluster that was there may come back.
struct Keep {
    builder: Builder,
    is_empty: bool,
    lost: Option<String>,
}

impl Sink for Keep {
    fn take(&mut self, update: Update) -> bool {
        match update {
            Update::Sample(sample) => {
                self.builder.take(Arc::new(*sample));
                (self.is_empty, self.lost) = (false, None);
            }
            Update::Lost { why } => self.lost = Some(why),
        }
        !self.is_empty
    }
}

/// The report on a cluster that is polled for some time, or until a signal.
fn live(location: &ClusterLocation, time: Duration) -> Result<Option<Report>, Failure> {
    let quit = ending::messages().map_err(Failure::failed)?;
    let began = clock::now();
    let mut keep = Keep { builder: Builder::new(location.cluster), is_empty: true, lost: None };
    Live::new(location.clone()).with_all_buckets().for_time(time).run(
        &Rate::new(POLL_EVERY),
        &quit,
        &mut keep,
    );
    let Keep { builder, lost, .. } = keep;
    let Some(mut report) = builder.finish() else {
        return lost.map_or(Ok(None), |why| Err(Failure::Refused(why)));
    };
    if lost.is_some() {
        report.ends_without_cluster(clock::now());
    }
    report.cut_short = (clock::now().since(began) < Nanos::from_std(time)).then_some(time);
    Ok(Some(report))
}

/// The report on a recording.
fn recorded(file: &Path) -> Result<Option<Report>, Failure> {
    let mut reading = Reading::open(file).map_err(Failure::refused)?;
    let cluster = Name::new(&reading.header.cluster)
        .map_err(|error| Failure::Refused(format!("{}: cluster name: {error}", file.display())))?;
    let mut builder = Builder::new(cluster);
    while let Some(sample) = reading.sample().map_err(Failure::refused)? {
        builder.take(Arc::new(sample));
    }
    Ok(builder.finish().map(|report| {
        let gaps: Vec<String> = [&report.gap, &reading.gap()].into_iter().flatten().cloned().collect();
        Report { gap: (!gaps.is_empty()).then(|| gaps.join("; ")), ..report }
    }))
}

/// `obol report`: reports on a recording, or on a cluster polled for some time.
pub fn run(location: &ClusterLocation, options: &Options) -> Result<ExitCode, Failure> {
    let (report, what) = match &options.file {
        Some(file) => (recorded(file)?, file.display().to_string()),
        None => (live(location, options.time)?, format!("cluster {}", location.cluster)),
    };
    let report =
        report.ok_or_else(|| Failure::Refused(format!("{what}: there is no sample to report on")))?;
    for lack in report.lacks() {
        output::remark(format_args!("obol: {what}: {lack}"))?;
    }
    let text = report.text(options.format())?;
    match &options.output {
        Some(path) => output::file(path, &text)?,
        None => output::text(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[path = "../tests/support/logged.rs"]
mod logged;
#[cfg(test)]
#[path = "../../observe/tests/support/samples.rs"]
#[allow(dead_code, reason = "tests of other crates use the rest")]
mod samples;
#[cfg(test)]
mod tests;
