//! The command-line options of the console and of reports.

use crate::theme::Theme;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Report on a recording, or on a cluster over some time
#[derive(Debug, Args)]
#[command(after_help = "Failovers with their phases, latencies, alerts, annotations and processes.\n\
    \nFormats: md for a postmortem, html for a self-contained page, json, csv (failovers), perfetto (a trace for \
    ui.perfetto.dev), hdr (an HdrHistogram log), openmetrics.\n\
    \nExample: obol report night.obolrec --format perfetto --output night.json")]
pub struct Report {
    /// A recording [default: poll the cluster now]
    pub file: Option<PathBuf>,
    /// The format
    #[arg(long, value_name = "FORMAT", default_value = "md")]
    pub format: ReportFormat,
    /// How long to poll the cluster; flight recorders also cover earlier failovers
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "3s", conflicts_with = "file")]
    pub time: Duration,
    /// Write it to this file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(missing_docs, reason = "help would list the documented values a second time")]
pub enum ReportFormat {
    Md,
    Json,
    Csv,
    Perfetto,
    Html,
    Hdr,
    Openmetrics,
}

impl ReportFormat {
    /// The default name of its file.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Md => "report.md",
            Self::Json => "report.json",
            Self::Csv => "failovers.csv",
            Self::Perfetto => "trace.json",
            Self::Html => "report.html",
            Self::Hdr => "latency.hlog",
            Self::Openmetrics => "metrics.txt",
        }
    }
}

/// The console's appearance.
#[derive(Clone, Debug, Args)]
pub struct Look {
    /// Theme, keys and columns [default: console.toml in ~/.config/obol]; see `obol config`
    #[arg(long, value_name = "FILE", env = "OBOL_CONFIG", hide_env = true)]
    pub config: Option<PathBuf>,
    /// Colours: dark, light, safe (for all kinds of colour vision), 16 or mono [default: by TERM
    /// and NO_COLOR]
    #[arg(long, value_name = "NAME", value_parser = theme)]
    pub theme: Option<Theme>,
    /// Draw lines and graphs in ASCII [default: if the locale has no UTF-8]
    #[arg(long)]
    pub ascii: bool,
    /// Sound the terminal's bell on a new alert
    #[arg(long)]
    pub bell: bool,
}

/// A theme by its name.
fn theme(text: &str) -> Result<Theme, String> {
    text.parse().map_err(|_| format!("there are {}", Theme::NAMES.join(", ")))
}

/// The same, also in hours, such as `8h`: for what operators wait for.
pub fn long_duration(text: &str) -> Result<Duration, String> {
    let Some(hours) = text.strip_suffix('h') else { return duration(text) };
    match hours.parse::<u32>() {
        Ok(hours @ 1..=8760) => Ok(Duration::from_secs(u64::from(hours) * 3600)),
        _ => Err(format!("`{text}` is no number of hours from 1h to 8760h")),
    }
}

/// A time with its unit, at least a microsecond.
pub fn duration(text: &str) -> Result<Duration, String> {
    let span = obol_profiles::duration::parse(text).map_err(|error| error.to_string())?;
    if span < obol_fabric::Nanos::from_micros(1) {
        return Err(format!("`{text}` is less than 1us"));
    }
    Ok(span.to_std())
}
