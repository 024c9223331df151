//! `obol sim table2` and `obol sim leases`: the papers' experiments on simulated testbeds.

use super::threads;
use crate::cli::PapersOptions;
use crate::output::{self, Failure, json, line};
use obol_chaos::papers::{self, Figure};
use obol_profiles::Testbed;
use std::process::ExitCode;

fn testbed(options: &PapersOptions) -> Result<Testbed, Failure> {
    Testbed::load(&options.model).map_err(Failure::refused)
}

/// A median, and the 99th percentile if it is known.
fn shown(figure: &Figure) -> String {
    let p99 = figure.p99.map_or(String::new(), |p99| format!(" [{p99:.1}]"));
    format!("{:.1}{p99}", figure.p50)
}

pub(super) fn table2(repetitions: u32, options: &PapersOptions) -> Result<ExitCode, Failure> {
    let testbed = testbed(options)?;
    let table = papers::table2(&testbed, repetitions, options.seed, threads()).map_err(Failure::failed)?;
    if options.json {
        json(&table)?;
        return Ok(ExitCode::SUCCESS);
    }
    line(format_args!(
        "{:<7} {:<7} {:<10} {:>9} {:>16} {:>9} {:>16} {:>16}",
        "FAILED", "CACHES", "DETECTOR", "PUBLISHED", "WAITED", "DEVIATION", "FENCED", "EARLY NOTICE"
    ))?;
    for cell in &table.cells {
        line(format_args!(
            "{:<7} {:<7} {:<10} {:>9} {:>16} {:>+8.1}% {:>16} {:>16}",
            cell.failed,
            if cell.scenario.caches { "yes" } else { "no" },
            cell.scenario.detector.name(),
            cell.scenario.published,
            shown(&cell.waited),
            cell.deviation_percent,
            shown(&cell.fenced),
            cell.early.as_ref().map_or("-".to_owned(), shown),
        ))?;
    }
    output::remark(format_args!(
        "{} repetitions on {}, times in us; the largest deviation from the paper is {:.1} %",
        table.repetitions,
        table.testbed,
        table.worst()
    ))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn leases(span_ms: u32, options: &PapersOptions) -> Result<ExitCode, Failure> {
    let testbed = testbed(options)?;
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
