//! `obol sim mu`, `obol sim dare`, and what `obol sim fide` has in common with them: papers
//! reproduced, with inputs and results kept apart.

use super::papers::{PapersOptions, testbed};
use super::threads;
use clap::Args;
use obol_campaign::papers::{self, Reproduction, Row};
use obol_term::output::{self, Failure, json, line};
use std::path::PathBuf;
use std::process::ExitCode;

/// `obol sim mu`.
#[derive(Debug, Args)]
pub(crate) struct Mu {
    /// Failovers of a delayed leader behind each percentile
    #[arg(long = "count", alias = "failovers", value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    failovers: u32,
    /// Draw the distribution of failover times to this file
    #[arg(long = "out", alias = "svg", value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    options: PapersOptions,
}

/// `obol sim dare`.
#[derive(Debug, Args)]
pub(crate) struct Dare {
    /// Draw reliability by the number of servers (Figure 7) to this file
    #[arg(long = "out", alias = "svg", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The seed; the same seed gives the same figures
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

pub(super) fn mu(command: &Mu) -> Result<ExitCode, Failure> {
    let Mu { failovers, svg, options } = command;
    let testbed = testbed(&options.model)?;
    if let Some(to) = svg {
        // Fail now, not after a minute, if the result cannot be written.
        output::may_write(to)?;
    }
    let mu = papers::mu(&testbed, *failovers, options.seed, threads()).map_err(Failure::failed)?;
    if let Some(to) = svg {
        output::file(to, mu.svg().map_err(Failure::failed)?)?;
    }
    if options.json {
        json(&mu)?;
    } else {
        print(&mu.reproduction)?;
        output::remark(format_args!(
            "{} failovers of a delayed leader, the shipped replicas of the preset mu on {}; intervals are of 95 %",
            mu.failovers, testbed.name
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn dare(command: &Dare) -> Result<ExitCode, Failure> {
    if let Some(to) = &command.svg {
        output::file(to, papers::dare_svg().map_err(Failure::failed)?)?;
    }
    let dare = papers::dare(command.seed);
    if command.json {
        json(&dare)?;
    } else {
        print(&dare)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn print(of: &Reproduction) -> Result<(), Failure> {
    line(format_args!("{}, reproduced\n\nINPUTS", of.paper))?;
    for input in &of.inputs {
        line(format_args!("  {}: {}\n      {}", input.name, input.value, input.source))?;
    }
    line("\nLOOKED AT BEFORE AN INPUT WAS CHOSEN")?;
    for known in of.looked_at {
        line(format_args!("  - {known}"))?;
    }
    line(format_args!(
        "\n{:<46} {:>10} {:>10} {:>20} {:>9}  UNIT",
        "RESULTS", "PUBLISHED", "HERE", "95% INTERVAL", "OFF BY"
    ))?;
    for part in &of.parts {
        line(part.name)?;
        for row in &part.rows {
            print_row(row)?;
        }
        if !part.missing.is_empty() {
            line(format_args!("  Not reproduced: {}", part.missing))?;
        }
    }
    line("\nTRAPS IN THE PAPER'S TEXT")?;
    for trap in of.traps {
        line(format_args!("  - {trap}"))?;
    }
    Ok(())
}

fn print_row(row: &Row) -> Result<(), Failure> {
    let published = row.published.map_or("-".to_owned(), |published| published.to_string());
    let interval = row.interval.map_or(String::new(), |[low, high]| format!("{low:.2} to {high:.2}"));
    let off = row.deviation_percent.map_or(String::new(), |off| format!("{off:+.1}%"));
    line(format_args!(
        "  {:<44} {published:>10} {:>10.2} {interval:>20} {off:>9}  {}",
        row.what, row.found, row.unit
    ))?;
    if !row.note.is_empty() {
        line(format_args!("      {}", row.note))?;
    }
    Ok(())
}
