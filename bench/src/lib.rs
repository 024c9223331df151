//! `obol bench`: what this host can do at best, what the product does, and the ratio of the two, in
//! one run.
//!
//! Absolute times drift from machine to machine and from minute to minute; ratios of one run do
//! not. The benchmark fails if a figure misses what it must be.

mod bare;
mod cluster;
mod console;
mod export;
mod failover;
mod floor;
mod hogs;
mod idle;
mod ip;
mod ip_failover;
mod kill;
pub mod kv;
mod logs;
mod micro;
pub mod peer_server;
mod pulse;
pub mod smr;
mod upgrade;
mod vs;

use clap::{Args, Subcommand};
use obol_chaos::drills::Host;
use obol_fabric::Name;
use obol_node::network::listen;
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

pub use floor::{Floor, measure as measure_floor};
pub use ip_failover::run as failovers_over_ip;

/// Measure obol beside this host's floor, the fastest known program without obol, in one run
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 all figures meet their targets, 1 one does not, 2 refused."
)]
pub struct Bench {
    /// What to measure instead
    #[command(subcommand)]
    what: Option<BenchCommand>,
    /// Failovers, and failovers of the floor program
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    count: u32,
    /// Measure failovers only, while this number of threads keep the processors busy
    #[arg(long, value_name = "N", conflicts_with_all = ["rdma", "vs"], value_parser = clap::value_parser!(u32).range(1..=64))]
    hogs: Option<u32>,
    /// Measure consensus over RDMA instead, by this address of the host
    #[arg(long, value_name = "IP[:PORT]", value_parser = listen)]
    rdma: Option<SocketAddr>,
    /// Compare with other systems instead, as far as they are installed: separated by commas
    #[arg(long, value_name = "SYSTEM", value_enum, value_delimiter = ',', conflicts_with = "rdma")]
    vs: Vec<vs::Against>,
    /// Profile for --rdma: a name that `obol profile list` knows, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "soft-roce", requires = "rdma")]
    profile: String,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measure the cost of the console and the latency of its keys in a terminal of 200x50 on
    /// synthetic clusters
    #[command(
        after_help = "Measured on 32 and on 512 nodes, each with an app, with an hour of history: the share of a core, live \
        and frozen, resident memory, output to the terminal, and latency from a key to the screen. Needs `script` of \
        util-linux, and about 600 MB of /dev/shm.\n\
        \nExit codes: 0 all figures are within the design's budget, 1 one is not, 2 refused."
    )]
    Console(console::BenchConsole),
    /// Measure what a poll and a scrape of the exporter cost, on synthetic clusters
    #[command(
        after_help = "Measured on 9, 127 and 511 processes: READs, processor time and size. A scrape causes no READ; \
        the exporter polls at a rate of its own. Needs about 300 MB of /dev/shm.\n\
        \nExit codes: 0 all figures are within their bounds, 1 one is not, 2 refused."
    )]
    Export(export::BenchExport),
    /// Measure operations over IP against bare echoes over TCP: four hosts on loopback addresses
    #[command(after_help = "Exit codes: 0 all figures meet their targets, 1 one does not, 2 refused.")]
    Ip(BenchIp),
    /// Measure pulses between three hosts on loopback addresses: how soon a death and a silence are
    /// noticed, and what pulses cost
    #[command(
        after_help = "Deaths: against an echo over TCP. Silences: a gateway is stopped; against the timeout of the profile, \
        which `obol tune --network` derives. Costs: at a period of 100 us, the time of the thread that sends and judges \
        them, beside that of a timer and that of bare datagrams in the same rhythm, and that all arrive.\n\
        \nWith --hogs and --for, false suspicions are counted instead, beside threads that never sleep: no host is \
        stopped, so each suspicion is one. The timeout is derived from a measurement beside the same threads, as `obol \
        tune --network` does it, unless a profile is named.\n\
        \nExit codes: 0 all figures meet their targets, 1 one does not, 2 refused."
    )]
    Pulse(pulse::BenchPulse),
    /// Measure what logs cost a failover: clusters with and without, in turns
    #[command(after_help = "The clusters with logs write lines of every level to files.\n\
        \nExit codes: 0 every figure is as it must be, 1 one is missed, 2 refused.")]
    Logs(BenchLogs),
    /// Measure what an upgrade costs those who use a cluster, against a restart of all daemons at once
    #[command(
        after_help = "On clusters of three coordinators and three nodes, in turns: `obol upgrade --all` restarts one daemon after another; \
        a restart ends all at once and starts them on the memory that they left. Meanwhile clients check every answer of a cache of \
        three servers, and two programs ask every 200 us whether they are active: one with a core of its own, and one on an agent. The \
        figures are the longest of all turns.\n\
        \nExit codes: 0 no answer was wrong and no upgrade cost more than a restart, 1 otherwise, 2 refused."
    )]
    Upgrade(upgrade::BenchUpgrade),
}

#[derive(Debug, Args)]
struct BenchLogs {
    /// Failovers with logs, and as many without; a p90 needs 40
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(40..=10_000))]
    count: u32,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BenchIp {
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

/// The profile that is measured.
const PROFILE: &str = "laptop";

/// One figure of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    figure: Cow<'static, str>,
    unit: &'static str,
    measured: f64,
    /// What it is compared with, in the same unit.
    floor: Option<f64>,
    ratio: Option<f64>,
    /// What it must not exceed (or, for rates, fall below): the ratio where there is a floor, else
    /// the figure. `None` if nothing is demanded.
    must: Option<f64>,
    /// `true` if larger is better.
    at_least: bool,
    met: bool,
}

impl Figure {
    /// A figure that is judged by its ratio to a floor, or by itself if there is none. `bound` is what
    /// it must not exceed, or fall below if larger is better (`at_least`).
    fn judged(
        figure: Cow<'static, str>,
        measured: f64,
        unit: &'static str,
        floor: Option<f64>,
        bound: f64,
        at_least: bool,
    ) -> Self {
        let ratio = floor.map(|floor| measured / floor);
        let judged = ratio.unwrap_or(measured);
        let met = if at_least { judged >= bound } else { judged <= bound };
        Self { figure, unit, measured, floor, ratio, must: Some(bound), at_least, met }
    }

    /// A figure that must be at most `must` times its floor.
    pub fn against(
        figure: impl Into<Cow<'static, str>>,
        unit: &'static str,
        measured: f64,
        floor: f64,
        must: f64,
    ) -> Self {
        Self::judged(figure.into(), measured, unit, Some(floor), must, false)
    }

    /// A rate that must be at least `must` times its floor.
    pub fn at_least_times(
        figure: impl Into<Cow<'static, str>>,
        unit: &'static str,
        measured: f64,
        floor: f64,
        must: f64,
    ) -> Self {
        Self::judged(figure.into(), measured, unit, Some(floor), must, true)
    }

    /// A figure of which nothing is demanded, beside its floor.
    pub fn compared(
        figure: impl Into<Cow<'static, str>>,
        unit: &'static str,
        measured: f64,
        floor: f64,
    ) -> Self {
        Self { must: None, met: true, ..Self::against(figure, unit, measured, floor, f64::INFINITY) }
    }

    /// The same figure, of which nothing is demanded.
    pub fn undemanded(self) -> Self {
        Self { must: None, met: true, ..self }
    }

    /// What it must be, for people.
    fn demand(&self) -> String {
        let sign = if self.at_least { ">=" } else { "<=" };
        let Some(must) = self.must.map(|must| format!("{sign} {must:.4}")) else { return "--".to_owned() };
        let times = if self.ratio.is_some() { "x" } else { "" };
        must.trim_end_matches('0').trim_end_matches('.').to_owned() + times
    }

    /// A figure that must be at most `must` itself.
    fn at_most(figure: impl Into<Cow<'static, str>>, unit: &'static str, measured: f64, must: f64) -> Self {
        Self::judged(figure.into(), measured, unit, None, must, false)
    }

    /// The same figure, with what it is at least on this host to compare it with.
    fn beside(self, floor: f64) -> Self {
        Self { floor: Some(floor), ..self }
    }

    /// A rate that must be at least `must`.
    fn at_least(figure: impl Into<Cow<'static, str>>, unit: &'static str, measured: f64, must: f64) -> Self {
        Self::judged(figure.into(), measured, unit, None, must, true)
    }
}

#[derive(Serialize)]
struct Report {
    bench: &'static str,
    figures: Vec<Figure>,
    host: Host,
    profile: &'static str,
}

/// Consensus over the RDMA device of this host.
fn over_rdma(root: &Path, at: SocketAddr, options: &Bench) -> Result<ExitCode, Failure> {
    let profile = Profile::load(&options.profile).map_err(Failure::refused)?;
    let report = micro::over_rdma(root, at, profile)?;
    output::json_or(options.json, &report, |report| output::line(report))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the command; the exit code says whether every figure is as it must be.
pub fn run(root: &Path, _: Name, options: &Bench) -> Result<ExitCode, Failure> {
    match &options.what {
        Some(BenchCommand::Console(options)) => return console::run(root, options),
        Some(BenchCommand::Export(options)) => return export::run(root, options),
        Some(BenchCommand::Ip(options)) => return report("ip", "lan", ip::run(root)?, options.json),
        Some(BenchCommand::Pulse(options)) => return pulse::run(root, options),
        Some(BenchCommand::Logs(options)) => {
            return report("logs", PROFILE, logs::run(root, options.count)?, options.json);
        }
        Some(BenchCommand::Upgrade(options)) => {
            return report("upgrade", PROFILE, upgrade::run(root, options)?, options.json);
        }
        None => {}
    }
    if let Some(at) = options.rdma {
        return over_rdma(root, at, options);
    }
    if !options.vs.is_empty() {
        return vs::run(root, &options.vs, options.count, options.json);
    }
    if let Some(hogs) = options.hogs {
        return report("hogs", PROFILE, failover::beside(root, options.count, hogs)?, options.json);
    }
    let mut figures = Vec::new();
    let progress = |what: &str| {
        // Informative only: the benchmark continues without it.
        let _ = output::remark(format_args!("bench: {what}"));
    };
    progress("consensus and lease checks");
    figures.extend(micro::run(root)?);
    progress("failover, floor and obol in turns");
    figures.extend(failover::run(root, options.count)?);
    progress("simulation");
    figures.push(micro::simulation());
    report("obol", PROFILE, figures, options.json)
}

fn report(
    bench: &'static str,
    profile: &'static str,
    figures: Vec<Figure>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let report = Report { bench, figures, host: Host::this(), profile };
    output::json_or(json, &report, print)?;
    Ok(code(&report.figures))
}

/// What the command ends with.
pub fn code(figures: &[Figure]) -> ExitCode {
    if figures.iter().all(|figure| figure.met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print(report: &Report) -> std::io::Result<()> {
    table(&report.figures)?;
    output::line(format_args!(
        "profile {}, {} cores, kernel {}",
        report.profile, report.host.cores, report.host.kernel
    ))
}

/// What a table says of a figure at its end.
pub(crate) const fn verdict(met: bool) -> &'static str {
    if met { "ok" } else { "MISSED" }
}

/// Prints figures, a line each.
pub fn table(figures: &[Figure]) -> std::io::Result<()> {
    output::line(format_args!(
        "{:<44} {:>12} {:>12} {:>7} {:>10}",
        "FIGURE", "MEASURED", "FLOOR", "RATIO", "MUST"
    ))?;
    for f in figures {
        let unit = f.unit;
        let floor = f.floor.map_or("--".to_owned(), |floor| format!("{floor:.2} {unit}"));
        let ratio = f.ratio.map_or("--".to_owned(), |ratio| format!("{ratio:.2}"));
        let must = f.demand();
        output::line(format_args!(
            "{:<44} {:>12} {floor:>12} {ratio:>7} {must:>10}  {}",
            f.figure,
            format!("{:.2} {unit}", f.measured),
            verdict(f.met)
        ))?;
    }
    Ok(())
}

/// The figures of several systems beside each other, a line each: what was measured, and its ratio to
/// the floor, which is shown where it is the same for all. Then those that are missed.
pub fn beside(systems: &[(&str, &[Figure])]) -> Vec<String> {
    let row = |figure: &str, floor: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>20}")).collect();
        format!("{figure:<44} {floor:>14}{cells}")
    };
    let names: Vec<String> = systems.iter().map(|(name, _)| (*name).to_owned()).collect();
    let mut lines = vec![row("FIGURE", "FLOOR", &names)];
    let Some((_, first)) = systems.first() else { return lines };
    for (n, f) in first.iter().enumerate() {
        let all: Vec<&Figure> = systems.iter().filter_map(|(_, figures)| figures.get(n)).collect();
        let cell = |f: &&Figure| {
            let ratio = f.ratio.map_or("--".to_owned(), |ratio| format!("{ratio:.2}x"));
            format!("{:.2} {ratio:>7}", f.measured)
        };
        let cells: Vec<String> = all.iter().map(cell).collect();
        let shared = f.floor.filter(|floor| all.iter().all(|other| other.floor == Some(*floor)));
        let floor = shared.map_or("--".to_owned(), |floor| format!("{floor:.2}"));
        lines.push(row(&format!("{}, {}", f.figure, f.unit), &floor, &cells));
    }
    for (name, figures) in systems {
        let missed = figures.iter().filter(|figure| !figure.met);
        lines.extend(missed.map(|f| format!("MISSED by {name}: {}, which must be {}", f.figure, f.demand())));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_beside_each_other_share_a_floor_only_if_it_is_the_same() {
        let figures = |time: f64, own: f64| {
            [Figure::against("PUT", "us", time, 2.0, 1.35), Figure::compared("tail", "us", time, own)]
        };
        let (one, other) = (figures(2.5, 2.0), figures(8.0, 4.0).map(Figure::undemanded));
        let lines = beside(&[("view", &one), ("mu", &other)]);
        let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["FIGURE", "FLOOR", "view", "mu"]);
        assert_eq!(words[1], ["PUT,", "us", "2.00", "2.50", "1.25x", "8.00", "4.00x"]);
        assert_eq!(words[2], ["tail,", "us", "--", "2.50", "1.25x", "8.00", "2.00x"]);
        assert_eq!(lines.len(), 3, "nothing is demanded of the second one");
        let lines = beside(&[("view", &figures(3.0, 2.0))]);
        assert_eq!(lines.last().map(String::as_str), Some("MISSED by view: PUT, which must be <= 1.35x"));
    }

    #[test]
    fn a_figure_is_ok_only_if_it_is_met() {
        let of = |measured| {
            [
                Figure::against("PUT", "us", measured, 2.0, 1.35),
                Figure::at_least_times("rate", "1/s", measured, 2.0, 1.35),
            ]
            .map(|figure| verdict(figure.met))
        };
        assert_eq!([of(2.7), of(2.8), of(f64::NAN)], [["ok"; 2], ["MISSED", "ok"], ["MISSED"; 2]]);
        assert_eq!(of(2.6), ["ok", "MISSED"]);
    }

    #[test]
    fn a_figure_that_is_missed_fails_the_benchmark() {
        let of = |ratio: f64, rate: f64, time: f64| {
            code(&[
                Figure::against("ratio", "us", ratio, 1.0, 2.0),
                Figure::at_least("rate", "/s", rate, 10.0),
                Figure::at_most("time", "us", time, 5.0),
            ])
        };
        assert_eq!(of(2.0, 10.0, 5.0), ExitCode::SUCCESS);
        for missed in [of(2.1, 10.0, 5.0), of(2.0, 9.9, 5.0), of(2.0, 10.0, 5.1), of(f64::NAN, 10.0, 5.0)] {
            assert_eq!(missed, ExitCode::FAILURE);
        }
    }
}
