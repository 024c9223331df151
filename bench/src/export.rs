//! `obol bench export`: what `obol export` costs, for each poll of the cluster and for each scrape,
//! on clusters of synthetic regions.
//!
//! The exporter is the shipped program in a process of its own. Its processor time is counted, not
//! elapsed time, because a busy machine stretches that.

use super::console::synthetic::Synthetic;
use super::{Figure, Report, print};
use clap::Args;
use obol_chaos::drills::Host;
use obol_config::duration;
use obol_fabric::Nanos;
use obol_fabric::host::this_program;
use obol_observe::metrics::{Derived, Metric};
use obol_observe::stats::Distribution;
use obol_observe::usage::{resident, used};
use obol_supervise::running::dies_with_parent;
use obol_term::output::{self, Failure};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub(crate) struct BenchExport {
    /// How long polls, and then polls and scrapes, are measured
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = measured)]
    pub(crate) time: Duration,
    /// The same in seconds: its former spelling
    #[arg(long, value_name = "S", hide = true, conflicts_with = "time", value_parser = clap::value_parser!(u64).range(2..=600))]
    pub(crate) seconds: Option<u64>,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long is measured: too short a time has no figures.
fn measured(text: &str) -> Result<Duration, String> {
    let times = Duration::from_secs(2)..=Duration::from_secs(600);
    let time = duration::argument(text)?;
    if times.contains(&time) { Ok(time) } else { Err("from 2s to 10m".to_owned()) }
}

/// The interval of polls, and of scrapes: each scrape gets another poll, so none repeats a text.
const EVERY: Duration = Duration::from_millis(200);
/// Until the exporter has mapped everything.
const SETTLE: Duration = Duration::from_secs(2);
/// An answer takes no longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// What must hold of one cluster. A poll that takes longer than some milliseconds would disturb the
/// processes on its core.
struct Bounds {
    /// Each with an app, beside three coordinators.
    nodes: u16,
    reads: f64,
    poll_ms: f64,
    scrape_ms: f64,
    resident_mib: f64,
    names: [&'static str; 7],
}

const BOUNDS: [Bounds; 3] = [
    Bounds {
        nodes: 3,
        reads: 60.0,
        poll_ms: 2.0,
        scrape_ms: 2.0,
        resident_mib: 24.0,
        names: [
            "9 processes, READs for a poll",
            "9 processes, kB READ for a poll",
            "9 processes, processor time of a poll",
            "9 processes, processor time of a scrape",
            "9 processes, kB of a scrape",
            "9 processes, resident",
            "9 processes, READs because of a scrape",
        ],
    },
    Bounds {
        nodes: 62,
        reads: 650.0,
        poll_ms: 10.0,
        scrape_ms: 12.0,
        resident_mib: 40.0,
        names: [
            "127 processes, READs for a poll",
            "127 processes, kB READ for a poll",
            "127 processes, processor time of a poll",
            "127 processes, processor time of a scrape",
            "127 processes, kB of a scrape",
            "127 processes, resident",
            "127 processes, READs because of a scrape",
        ],
    },
    Bounds {
        nodes: 254,
        reads: 2600.0,
        poll_ms: 40.0,
        scrape_ms: 45.0,
        resident_mib: 96.0,
        names: [
            "511 processes, READs for a poll",
            "511 processes, kB READ for a poll",
            "511 processes, processor time of a poll",
            "511 processes, processor time of a scrape",
            "511 processes, kB of a scrape",
            "511 processes, resident",
            "511 processes, READs because of a scrape",
        ],
    },
];

/// What `obol export --announce` prints.
#[derive(Deserialize)]
struct Announced {
    listen: SocketAddr,
}

/// The exporter; it ends with this.
struct Exporter {
    child: Child,
    at: SocketAddr,
}

impl Exporter {
    fn start(cluster: &Synthetic) -> Result<Self, Failure> {
        let program = this_program::file().map_err(Failure::failed)?;
        let mut command = dies_with_parent(&program.to_string_lossy(), None).map_err(Failure::failed)?;
        command.arg("--root").arg(&cluster.root).args(["--cluster", cluster.cluster.as_str()]);
        command.args(["export", "--announce", "--listen", "127.0.0.1:0"]);
        command.args(["--every", &format!("{}ms", EVERY.as_millis())]).stdin(Stdio::null());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(Failure::failed)?;
        let mut exporter = Self { child, at: SocketAddr::from(([0; 4], 0)) };
        let mut line = String::new();
        if let Some(out) = exporter.child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(Failure::failed)?;
        }
        if line.is_empty() {
            // It has ended, and says why.
            let said = exporter.child.stderr.take().map(std::io::read_to_string).transpose();
            let why = said.map_err(Failure::failed)?.unwrap_or_default();
            return Err(Failure::Failed(format!("the exporter did not start: {}", why.trim())));
        }
        let Announced { listen } = serde_json::from_str(&line).map_err(Failure::failed)?;
        exporter.at = listen;
        Ok(exporter)
    }

    fn scrape(&self) -> Result<String, Failure> {
        let mut stream = TcpStream::connect(self.at).map_err(Failure::failed)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(Failure::failed)?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: obol\r\nConnection: close\r\n\r\n")
            .map_err(Failure::failed)?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(Failure::failed)?;
        match text.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            _ => Err(Failure::Failed(format!(
                "the exporter answers: {}",
                text.lines().next().unwrap_or("nothing")
            ))),
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a metric without labels of its own.
fn value(text: &str, metric: Derived) -> Result<f64, Failure> {
    let name = Metric::from(metric).series();
    let line = text.lines().find(|line| line.strip_prefix(&name).is_some_and(|rest| rest.starts_with('{')));
    let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    value.ok_or_else(|| Failure::Failed(format!("the exporter has no {name}")))
}

/// Processor time in milliseconds, over some time in which `each` is called at every interval.
fn over(
    exporter: &Exporter,
    time: Duration,
    mut each: impl FnMut() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let (before, began) = (used(exporter.child.id()), Instant::now());
    while began.elapsed() < time {
        each()?;
        std::thread::sleep(EVERY);
    }
    Ok((used(exporter.child.id()) - before) as f64 / 1e6)
}

fn measure(
    root: &Path,
    bounds: &Bounds,
    time: Duration,
    latency: &mut Distribution,
) -> Result<Vec<Figure>, Failure> {
    let cluster = Synthetic::start(root, bounds.nodes)?;
    let exporter = Exporter::start(&cluster)?;
    std::thread::sleep(SETTLE);
    let before = exporter.scrape()?;
    let of_polls = over(&exporter, time, || Ok(()))?;
    let text = exporter.scrape()?;
    let grown = |metric| Ok::<_, Failure>(value(&text, metric)? - value(&before, metric)?);
    let polls = grown(Derived::Polls)?;
    let mut scrapes = 0;
    let with_scrapes = over(&exporter, time, || {
        let began = Instant::now();
        exporter.scrape()?;
        latency.add(Nanos::from_std(began.elapsed()));
        scrapes += 1;
        Ok(())
    })?;
    let after = exporter.scrape()?;
    let later = |metric| Ok::<_, Failure>(value(&after, metric)? - value(&text, metric)?);
    let reads = grown(Derived::Reads)? / polls;
    let because = (later(Derived::Reads)? - reads * later(Derived::Polls)?) / f64::from(scrapes);
    // On a busy machine the second part may have fewer polls, or more.
    let of_scrape = (with_scrapes - of_polls / polls * later(Derived::Polls)?) / f64::from(scrapes);
    if of_scrape <= 0.0 {
        return Err(Failure::Failed(format!(
            "{scrapes} scrapes took no processor time that can be distinguished from that of polls: repeat it with a longer --for, on \
             a machine without other work"
        )));
    }
    let of = &bounds.names;
    Ok(vec![
        Figure::at_most(of[0], "", reads, bounds.reads),
        Figure::at_most(of[1], "kB", grown(Derived::ReadBytes)? / polls / 1000.0, bounds.reads * 5.0),
        Figure::at_most(of[2], "ms", of_polls / polls, bounds.poll_ms),
        Figure::at_most(of[3], "ms", of_scrape, bounds.scrape_ms),
        Figure::at_most(of[4], "kB", text.len() as f64 / 1000.0, bounds.reads * 3.0),
        Figure::at_most(of[5], "MiB", resident(exporter.child.id()) as f64 / 1024.0, bounds.resident_mib),
        // Repeated READs make some difference.
        Figure::at_most(of[6], "", because, bounds.reads * 0.02),
    ])
}

/// `obol bench export`.
pub(crate) fn run(root: &Path, options: &BenchExport) -> Result<ExitCode, Failure> {
    let time = options.seconds.map_or(options.time, Duration::from_secs);
    let mut figures = Vec::new();
    for bounds in &BOUNDS {
        // Informative only: the benchmark continues without it.
        let _ = output::remark(format_args!("bench export: {} nodes", bounds.nodes));
        let mut latency = Distribution::new();
        figures.extend(measure(root, bounds, time, &mut latency)?);
        let summary = latency.summary();
        let _ = output::remark(format_args!(
            "bench export: {} scrapes answered within {:.1} ms, half of them within {:.1} ms",
            summary.n,
            summary.max / 1000.0,
            summary.p50.unwrap_or(summary.max) / 1000.0
        ));
    }
    let met = figures.iter().all(|figure| figure.met);
    let report = Report { bench: "export", figures, host: Host::this(), profile: super::PROFILE };
    output::json_or(options.json, &report, print)?;
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
