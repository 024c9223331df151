//! `obol sim table2`, `leases`, `scale` and `report`: the papers' experiments on simulated
//! testbeds.

use super::threads;
use clap::Args;
use obol_campaign::papers::{self, Figure};
use obol_observe::timeline::Phases;
use obol_profiles::Testbed;
use obol_term::output::{self, Failure, json, line};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What the papers' experiments have in common.
#[derive(Debug, Args)]
pub(crate) struct PapersOptions {
    /// Testbed: infiniband, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "infiniband")]
    pub(crate) model: String,
    /// The first seed; the same seed gives the same figures
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `obol sim report` asks of the experiments.
const REPORT_REPETITIONS: u32 = 300;
const REPORT_SPAN_MS: u32 = 20;
const REPORT_SCALE_REPETITIONS: u32 = 3;
/// The page in a directory.
const REPORT_PAGE: &str = "report.html";

pub(super) fn testbed(model: &str) -> Result<Testbed, Failure> {
    Testbed::load(model).map_err(Failure::refused)
}

/// A median, and the 99th percentile if it is known.
fn shown(figure: &Figure) -> String {
    let p99 = figure.p99.map_or(String::new(), |p99| format!(" [{p99:.1}]"));
    format!("{:.1}{p99}", figure.p50)
}

pub(super) fn table2(repetitions: u32, options: &PapersOptions) -> Result<ExitCode, Failure> {
    let testbed = testbed(&options.model)?;
    let table = papers::table2(&testbed, repetitions, options.seed, threads()).map_err(Failure::failed)?;
    if options.json {
        json(&table)?;
        return Ok(ExitCode::SUCCESS);
    }
    line(format_args!(
        "{:<7} {:<7} {:<10} {:>9} {:>16} {:>15} {:>9} {:>8} {:>16} {:>16}",
        "FAILED",
        "CACHES",
        "DETECTOR",
        "PUBLISHED",
        "WAITED",
        "95% INTERVAL",
        "DEVIATION",
        "ALL OUT",
        "FENCED",
        "EARLY NOTICE"
    ))?;
    for cell in &table.cells {
        line(format_args!(
            "{:<7} {:<7} {:<10} {:>9} {:>16} {:>15} {:>+8.1}% {:>8.1} {:>16} {:>16}",
            cell.failed,
            if cell.scenario.caches { "yes" } else { "no" },
            cell.scenario.detector.name(),
            cell.scenario.published,
            shown(&cell.waited),
            format!("{:.1} to {:.1}", cell.waited.p50_interval[0], cell.waited.p50_interval[1]),
            cell.deviation_percent,
            cell.waited.all_p50,
            shown(&cell.fenced),
            cell.early.as_ref().map_or("-".to_owned(), shown),
        ))?;
    }
    let heads: String = Phases::NAMES.iter().map(|name| format!("{name:>9}")).collect();
    line(format_args!(
        "\n{:<7} {:<7} {:<10} {:<14}{heads}  (means)",
        "FAILED", "CACHES", "DETECTOR", "SETTING"
    ))?;
    for cell in &table.cells {
        let figures =
            [("waited", Some(&cell.waited)), ("fenced", Some(&cell.fenced)), ("early", cell.early.as_ref())];
        for (setting, phases) in figures.into_iter().filter_map(|(s, f)| Some((s, f?.phases?))) {
            let (caches, detector) =
                (if cell.scenario.caches { "yes" } else { "no" }, cell.scenario.detector.name());
            let shown: String = phases.iter().map(|us| format!("{us:>9.1}")).collect();
            line(format_args!("{:<7} {caches:<7} {detector:<10} {setting:<14}{shown}", cell.failed))?;
        }
    }
    output::remark(format_args!(
        "{} repetitions on {}, times in us from the kill of the app to the first survivor that is active without it (ALL \
         OUT: without any process that failed); the largest deviation from the paper is {:.1} %",
        table.repetitions,
        table.testbed,
        table.worst()
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn leases(span_ms: u32, options: &PapersOptions) -> Result<ExitCode, Failure> {
    let testbed = testbed(&options.model)?;
    let sweep = papers::leases(&testbed, span_ms, options.seed).map_err(Failure::failed)?;
    if options.json {
        json(&sweep)?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = |cells: Vec<String>| cells.concat();
    let heads = sweep.lengths_us.iter().map(|us| format!("{:>8}", format!("{us}us"))).collect();
    line(format_args!("NETWORK  MEMORY {}", columns(heads)))?;
    for load in &sweep.loads {
        let shares = load.timely_percent.iter().map(|share| format!("{share:>8.3}")).collect();
        let (network, memory) = (load.network_percent, load.memory_percent);
        line(format_args!("{network:>6}%  {memory:>5}% {}", columns(shares)))?;
    }
    let renewals: u64 = sweep.loads.iter().map(|load| load.renewals).sum();
    output::remark(format_args!(
        "timely renewals in percent, {} members on {}, {renewals} renewals in all",
        sweep.renewers, sweep.testbed
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// A number of a few figures, as tables show loads.
fn rounded(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.1}M", v / 1e6),
        v if v >= 1e3 => format!("{:.1}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

pub(super) fn scale(largest: u32, repetitions: u32, options: &PapersOptions) -> Result<ExitCode, Failure> {
    let testbed = testbed(&options.model)?;
    let scaling =
        papers::scale(&testbed, largest, repetitions, options.seed, threads()).map_err(Failure::failed)?;
    if options.json {
        json(&scaling)?;
        return Ok(ExitCode::SUCCESS);
    }
    line(format_args!(
        "{:>7}  {:<14} {:>6} {:>9} {:>8} {:>10} {:>10} {:>10} {:>11} {:>10}",
        "MEMBERS",
        "METHOD",
        "CACHES",
        "LEASE us",
        "ACTIVE",
        "FIRST us",
        "LAST us",
        "COORD op/s",
        "CACHE msg/s",
        "FAILOVER op"
    ))?;
    for members in scaling.sizes() {
        let best = scaling.best(members).map(|best| best.method);
        for point in scaling.points.iter().filter(|point| point.members == members) {
            line(format_args!(
                "{:>7}  {:<14} {:>6} {:>9.0} {:>7.1}% {:>9.1}{} {:>10.1} {:>10} {:>11} {:>11}",
                point.members,
                point.method.name(),
                point.caches,
                point.lease_us,
                point.active_percent,
                point.first_us,
                if best == Some(point.method) { "*" } else { " " },
                point.last_us,
                rounded(point.coordinator_operations),
                if point.caches == 0 { "-".to_owned() } else { rounded(point.cache_datagrams) },
                rounded(point.failover_operations),
            ))?;
        }
    }
    output::remark(format_args!(
        "medians of {} failovers on {}: from the kill of an app to the first and to the last survivor that is active; \
         * the soonest first one of its size",
        scaling.repetitions, scaling.testbed
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn report(to: &Path, largest: u32, model: &str, seed: u64) -> Result<ExitCode, Failure> {
    let testbed = testbed(model)?;
    let page: PathBuf = if to.is_dir() { to.join(REPORT_PAGE) } else { to.to_owned() };
    // Fail now, not after minutes, if the result cannot be written.
    output::may_write(&page)?;
    output::remark(format_args!("Table 2: {REPORT_REPETITIONS} failovers of each kind"))?;
    let table = papers::table2(&testbed, REPORT_REPETITIONS, seed, threads()).map_err(Failure::failed)?;
    output::remark(format_args!("Figure 3: {REPORT_SPAN_MS} ms of each load"))?;
    let leases = papers::leases(&testbed, REPORT_SPAN_MS, seed).map_err(Failure::failed)?;
    output::remark(format_args!("scale: up to {largest} members"))?;
    let scaling = papers::scale(&testbed, largest, REPORT_SCALE_REPETITIONS, seed, threads())
        .map_err(Failure::failed)?;
    let report = papers::report(&table, &leases, &scaling).map_err(Failure::failed)?;
    output::file(&page, report.html())?;
    if to.is_dir() {
        for (name, svg) in report.figures() {
            output::file(&to.join(format!("{name}.svg")), svg)?;
        }
    }
    line(format_args!("{}", page.display()))?;
    Ok(ExitCode::SUCCESS)
}
