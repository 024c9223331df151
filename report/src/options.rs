//! The command-line options of reports.

use clap::{Args, ValueEnum};
use obol_config::duration;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Report on a recording, or on a cluster over some time
#[derive(Debug, Args)]
#[command(after_help = "Failovers with their phases, latencies, alerts, annotations and processes.\n\
    \nFormats: md for a postmortem, html for a self-contained page, json, csv (failovers), perfetto (a trace for \
    ui.perfetto.dev), hdr (an HdrHistogram log), openmetrics.\n\
    \nExample: obol report night.obolrec --format perfetto --out night.json")]
pub struct Report {
    /// A recording [default: poll the cluster now]
    pub file: Option<PathBuf>,
    /// The format [default: by the name of the output file, such as .html, .json or .csv; else md]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<ReportFormat>,
    /// How long to poll the cluster; Ctrl-C reports on what there is by then. Flight recorders also cover
    /// earlier failovers
    #[arg(long = "for", value_name = "TIME", value_parser = duration::argument, default_value = "3s", conflicts_with = "file")]
    pub time: Duration,
    /// Write it to this file
    #[arg(long = "out", alias = "output", short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl Report {
    /// The format that is asked for, or that the name of the file has.
    pub fn format(&self) -> ReportFormat {
        self.format.or_else(|| ReportFormat::of(self.output.as_deref()?)).unwrap_or(ReportFormat::Md)
    }
}

/// The format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
    /// The first format whose files have names like this one.
    fn of(file: &Path) -> Option<Self> {
        let extension = |file: &Path| Some(file.extension()?.to_str()?.to_ascii_lowercase());
        let wanted = match extension(file)?.as_str() {
            "htm" => "html".to_owned(),
            "markdown" | "txt" => "md".to_owned(),
            other => other.to_owned(),
        };
        let is_so = |format: &&Self| extension(Path::new(format.file())).as_ref() == Some(&wanted);
        Self::value_variants().iter().find(is_so).copied()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_output_says_its_format() {
        let of = |file: &str| ReportFormat::of(Path::new(file));
        assert_eq!(of("/tmp/x.html"), Some(ReportFormat::Html));
        assert_eq!(of("x.HTM"), Some(ReportFormat::Html));
        assert_eq!(of("x.md"), Some(ReportFormat::Md));
        assert_eq!(of("x.txt"), Some(ReportFormat::Md));
        assert_eq!(of("x.json"), Some(ReportFormat::Json));
        assert_eq!(of("x.csv"), Some(ReportFormat::Csv));
        assert_eq!(of("x.hlog"), Some(ReportFormat::Hdr));
        assert_eq!([of("x"), of("x.pdf"), of(".html")], [None; 3]);
        let file = Some("a.html".into());
        let report = Report { file: None, format: None, time: Duration::ZERO, output: file };
        assert_eq!(report.format(), ReportFormat::Html);
        assert_eq!(Report { format: Some(ReportFormat::Csv), ..report }.format(), ReportFormat::Csv);
    }
}
