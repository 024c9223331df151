//! `obol sim detectors`: failure detectors on the same delays.

use crate::values;
use clap::Args;
use obol_fabric::Nanos;
use obol_fide::detectors::{Comparison, Delays, FRAMES, Model, compare};
use obol_term::output::{self, Failure, json, line};
use std::path::PathBuf;
use std::process::ExitCode;

/// `obol sim detectors`.
#[derive(Debug, Args)]
pub(crate) struct Detectors {
    /// Recorded delays, of `obol tune --network --record`; or a line for each frame, with the nanoseconds at which it was sent and
    /// received, or - if it was lost
    #[arg(long = "recording", alias = "network", value_name = "FILE")]
    network: Option<PathBuf>,
    /// Which stream of the recording: a path in one direction
    #[arg(long, value_name = "N", default_value_t = 1, requires = "network")]
    stream: usize,
    /// Interval between two frames of the modelled network
    #[arg(long = "every", alias = "period", value_name = "TIME", default_value = "100us", value_parser = values::span, conflicts_with = "network")]
    period: Nanos,
    /// Frames of the modelled network
    #[arg(long, value_name = "N", default_value_t = FRAMES, value_parser = clap::value_parser!(u32).range(10_000..=20_000_000), conflicts_with = "network")]
    frames: u32,
    /// Draw false suspicions over detection times to this file
    #[arg(long = "out", alias = "svg", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The seed; the same seed gives the same figures
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

/// Periods of a modelled network.
const PERIODS: std::ops::RangeInclusive<Nanos> = Nanos(1_000)..=Nanos(10_000_000_000);

pub(super) fn run(options: &Detectors) -> Result<ExitCode, Failure> {
    let delays = match &options.network {
        Some(path) => Delays::load(path, options.stream).map_err(Failure::refused)?,
        None if !PERIODS.contains(&options.period) => {
            return Err(Failure::refused(format_args!(
                "--every is {}, but must lie in {} to {}",
                options.period,
                PERIODS.start(),
                PERIODS.end()
            )));
        }
        None => Model::default().draw(options.period, options.frames, options.seed),
    };
    let comparison = compare(&delays, options.seed);
    if let Some(to) = &options.svg {
        output::file(to, comparison.svg().map_err(Failure::failed)?)?;
    }
    if options.json {
        json(&comparison)?;
    } else {
        print(&comparison)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(comparison: &Comparison) -> Result<(), Failure> {
    let shown = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
    line(format_args!(
        "{:<21} {:>9} {:>14} {:>10} {:>10} {:>10} {:>10}  us",
        "DETECTOR", "SETTING", "FALSE AN HOUR", "P50", "P99", "P99.9", "P99.99"
    ))?;
    for l in &comparison.lines {
        let wrong = match l.per_hour_at_most {
            Some(bound) => format!("< {bound:.0}"),
            None => format!("{:.0}", l.per_hour),
        };
        line(format_args!(
            "{:<21} {:>9} {wrong:>14} {:>10} {:>10} {:>10} {:>10}",
            l.detector,
            l.setting,
            shown(l.p50_us),
            shown(l.p99_us),
            shown(l.p999_us),
            shown(l.p9999_us)
        ))?;
    }
    let [p50, p99, p9999, most] = comparison.delay_us;
    output::remark(format_args!(
        "{} frames, one each {:.1} us, {:.4} hours, {} lost; delays {p50:.1} us at the median, {p99:.1} at 99 %, {p9999:.1} at \
         99.99 %, {most:.1} at most; {}",
        comparison.frames, comparison.period_us, comparison.hours, comparison.lost, comparison.delays
    ))?;
    Ok(())
}
