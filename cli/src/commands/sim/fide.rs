//! `obol sim fide`: FiDe's tables, figures and algorithms.

use super::reproductions;
use clap::Args;
use obol_campaign::papers;
use obol_fide::perfect::{Counterexample, counterexamples};
use obol_term::output::{Failure, json, line};
use std::process::ExitCode;

/// `obol sim fide`.
#[derive(Debug, Args)]
pub(crate) struct Fide {
    /// Show how HSUC and HUC break outside of their assumptions, instead of the figures
    #[arg(long)]
    counterexamples: bool,
    /// The seed; the same seed gives the same figures
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &Fide) -> Result<ExitCode, Failure> {
    if options.counterexamples {
        let found = counterexamples();
        if options.json { json(&found)? } else { print_counterexamples(&found)? }
    } else {
        let fide = papers::fide(options.seed);
        if options.json { json(&fide)? } else { reproductions::print(&fide)? }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_counterexamples(found: &[Counterexample]) -> Result<(), Failure> {
    for one in found {
        line(format_args!(
            "{} among {}, assumption given up: {} ({} states)",
            one.algorithm, one.processes, one.assumption, one.states
        ))?;
        line(format_args!("  {}", one.finding()))?;
        for (number, action) in one.schedule.iter().enumerate() {
            line(format_args!("  {:>3}. {action}", number + 1))?;
        }
    }
    Ok(())
}
