//! `obol logs`: the log lines of all processes of this host, and the flight recorders of all hosts,
//! merged by time.

use clap::Args;
use obol_fabric::{Name, Nanos};
use obol_logs::merged::{CLOCK_ERROR, HOST, Sources};
use obol_logs::read::Query;
use obol_logs::when::{When, end_of};
use obol_logs::{Line, Severity};
use obol_observe::calendar::{self, unix_now};
use obol_supervise::hosts::further_hosts;
use obol_term::output::{self, Failure};
use std::io;
use std::iter;
use std::path::Path;
use std::process::ExitCode;

/// Print the logs and flight recorders of all processes, merged by time
#[derive(Debug, Args)]
#[command(
    after_help = "Times are in UTC: 02:10, 2026-11-25 02:10:30, 2026-11-25T02:10:30Z, or how long ago: 90s, 10m, 2h, 1d. A time \
    of day is the last one.\n\
    \nWith NAME: the lines of that process and those of others that name it. It may be frozen or dead: what it wrote is \
    in files, its flight recorder is read from its memory, and the others say what they did about it.\n\
    \nLog files lie in $XDG_STATE_HOME/obol/logs (~/.local/state/obol/logs), or where OBOL_LOG_DIR says; under systemd \
    lines are in the journal. Those of an ended cluster are kept for 7 days, and 64 MiB of all ended clusters.\n\
    \nExamples:\n  obol logs node-2 --since 02:10 --until 02:20\n  obol logs --since 10m --level debug\n  obol logs --follow\n\
    \nExit codes: 0 done, also if there is no such line; 1 the journal cannot be read, and only what else there is was printed; \
    2 no such cluster or process, or not a time."
)]
pub(crate) struct Logs {
    /// Lines of this process, and of others about it
    name: Option<Name>,
    /// From this time on
    #[arg(long, value_name = "TIME")]
    since: Option<When>,
    /// Up to this time
    #[arg(long, value_name = "TIME", conflicts_with = "follow")]
    until: Option<String>,
    /// Lines of this level and worse: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value_t = Severity::Info)]
    level: Severity,
    /// Print only the newest N lines [default: 200 without --since and --until, else all]
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    /// Continue with lines as they are written, until Ctrl-C or until the cluster ends
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// Print the fields of each line: view, incarnation, event, ...
    #[arg(long, conflicts_with = "json")]
    fields: bool,
    /// Read the journal of systemd also where no process of the cluster is known to write there
    #[arg(long)]
    journal: bool,
    /// Of an earlier cluster of this name, by its identity
    #[arg(long, value_name = "ID")]
    identity: Option<String>,
}

/// Lines without a span.
const LAST: usize = 200;
pub(crate) fn run(root: &Path, cluster: Name, options: &Logs) -> Result<ExitCode, Failure> {
    let query = query(options)?;
    let names: Vec<Name> = iter::once(cluster).chain(further_hosts(root, cluster)).collect();
    let mut sources = Sources::open(root, &names, options.identity.as_deref(), options.journal)?;
    let span = query.since.is_some() || query.until.is_some();
    let last = options.last.unwrap_or(if span { usize::MAX } else { LAST });
    let found = sources.read(&query, last, options.follow, |line| print(line, options))?;
    if let (true, false, Some(name)) = (found.is_empty, options.follow, options.name) {
        sources.require_known(name, &query)?;
    }
    if found.damaged > 0 {
        output::remark(format_args!(
            "obol: {} lines in the files are damaged or of another version",
            found.damaged
        ))?;
    }
    if options.follow {
        sources.follow(found.rest, &query, |line| print(line, options))?;
        output::remark("obol: the cluster has ended")?;
    }
    Ok(if found.is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn query(options: &Logs) -> Result<Query, Failure> {
    let now = unix_now();
    let since = options.since.map(|since| since.before(now));
    let until = options.until.as_deref().map(|text| match end_of(text) {
        Some(end) => Ok(end.before(now)),
        None => text.parse::<When>().map(|until| until.after(since, now)).map_err(Failure::refused),
    });
    let until = until.transpose()?;
    if let (Some(since), Some(until)) = (since, until)
        && until <= since
    {
        let [since, until] = [since, until].map(|at| calendar::utc(at, "%F %T"));
        return Err(Failure::Refused(format!("--until ({until}) is not after --since ({since})")));
    }
    let about = options.name.map(|name| name.to_string());
    Ok(Query { since, until, severity: options.level, about })
}

fn print(mut line: Line, options: &Logs) -> io::Result<()> {
    if options.json {
        return output::json(&line.to_json());
    }
    let error = line.field(CLOCK_ERROR).and_then(|error| error.parse().ok()).map(Nanos);
    let error = error.map_or(String::new(), |error| format!(", +-{error}"));
    if let Some(place) = line.field(HOST).map(|host| format!(" (host {host}{error})")) {
        line.text.push_str(&place);
    }
    if !options.fields {
        line.fields.clear();
    }
    output::line(line.to_text())
}
