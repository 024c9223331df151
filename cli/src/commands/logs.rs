//! `obol logs`: the log lines of all processes of this host, and the flight recorders of all hosts,
//! merged by time.

use crate::commands::up::hosts::further_hosts;
use crate::names::{self, Known};
use clap::Args;
use obol_console::output::{self, Failure};
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name, ViewId};
use obol_logs::read::{self, Found, JournalReader, Query, STAMP, Tail};
use obol_logs::when::{When, end_of};
use obol_logs::{Folder, Line, Place, Severity};
use obol_membership::recorder::Kind as Event;
use obol_node::Site;
use obol_node::network::print_id;
use obol_observe::Observer;
use obol_observe::calendar::{self, unix_now};
use obol_profiles::document::nearest;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

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
    \nExit codes: 0 done, also if there is no such line; 2 no such cluster or process, or not a time."
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
    /// Only so many newest lines [default: 200 without --since and --until, else all]
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
/// How often new lines are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Lines are held back for so long, in nanoseconds, to print those of all processes in order.
const HOLD_BACK: u64 = 600_000_000;
/// Printed lines whose recurrence is recognised.
const SEEN_MAX: usize = 1 << 16;

/// A cluster of which logs are read: on several hosts that are this one, there are several.
struct Source {
    /// Its processes' files.
    folder: Option<Folder>,
    /// The identity of the cluster, as it is printed.
    identity: String,
    /// The cluster, if it runs.
    live: Option<(Site, Observer)>,
    writes_to_journal: bool,
}

pub(crate) fn run(root: &Path, cluster: Name, options: &Logs) -> Result<ExitCode, Failure> {
    let query = query(options)?;
    let mut sources = sources(root, cluster, options)?;
    let mut lines = Vec::new();
    let mut unknown = 0;
    for source in &mut sources {
        let found = source.files(&query)?;
        unknown += found.unknown;
        lines.extend(found.lines);
        if options.journal || source.writes_to_journal {
            lines.extend(journal(&source.identity, &query, false)?.all(&query).map_err(Failure::failed)?);
        }
    }
    let tails = options.follow.then(|| sources.iter().map(Source::tail).collect::<Result<Vec<_>, _>>());
    let tails = tails.transpose()?;
    let mut merge = Merge::default();
    merge.take(lines);
    for source in &mut sources {
        merge.take(source.recorders(&query, true)?);
    }
    let span = query.since.is_some() || query.until.is_some();
    let last = options.last.unwrap_or(if span { usize::MAX } else { LAST });
    let until = if options.follow { unix_now().saturating_sub(HOLD_BACK) } else { u64::MAX };
    let ready = merge.ready(until);
    if ready.is_empty() && !options.follow {
        known(options.name, &query, &mut sources)?;
    }
    print_all(&ready[ready.len().saturating_sub(last)..], options)?;
    if unknown > 0 {
        output::remark(format_args!("obol: {unknown} lines in the files are damaged or of another version"))?;
    }
    match tails {
        Some(tails) => follow(&mut sources, tails, merge, &query, options),
        None => Ok(ExitCode::SUCCESS),
    }
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

/// Where lines are: files of the cluster that runs or, if none does, of the last one.
fn sources(root: &Path, cluster: Name, options: &Logs) -> Result<Vec<Source>, Failure> {
    let base = obol_logs::base();
    let mut sources = Vec::new();
    for name in [cluster].into_iter().chain(further_hosts(root, cluster)) {
        let site = Site::open(root, name);
        let folders = base.as_ref().map(|base| Place::new(base, root, name).folders()).transpose();
        let mut folders = folders.map_err(Failure::failed)?.unwrap_or_default();
        let running = site.as_ref().ok().map(|site| print_id(site.cluster.nonce()));
        let wanted = options.identity.clone().or_else(|| running.clone());
        let is_elsewhere = options.identity.is_some() && running != options.identity && !options.journal;
        if is_elsewhere && folders.iter().all(|f| Some(&f.identity) != wanted.as_ref()) {
            let all: Vec<&str> = folders.iter().map(|folder| folder.identity.as_str()).collect();
            let all = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            return Err(Failure::Refused(format!(
                "no logs of a cluster {name} with this identity; there are: {all}"
            )));
        }
        folders.retain(|folder| wanted.as_ref().is_none_or(|wanted| folder.identity == *wanted));
        let folder = folders.into_iter().next();
        let live = site.ok().filter(|_| running == wanted && running.is_some());
        let identity = wanted.or_else(|| folder.as_ref().map(|folder| folder.identity.clone()));
        let Some(identity) = identity else { continue };
        let writes_to_journal = live.as_ref().is_some_and(|site| writes_to_journal(site.cluster.dir()));
        let live = match live {
            Some(site) => Some((site, Observer::open(root, name).map_err(Failure::refused)?)),
            None => None,
        };
        sources.push(Source { folder, identity, live, writes_to_journal });
    }
    if sources.is_empty() {
        let why = Site::open(root, cluster).err().map_or(String::new(), |error| format!(": {error}"));
        return Err(Failure::Refused(format!("there are no logs of cluster {cluster}{why}")));
    }
    Ok(sources)
}

/// Whether a process of the cluster says that it writes to the journal.
fn writes_to_journal(dir: &Path) -> bool {
    obol_logs::states(dir).any(|(_, state)| state.to == obol_logs::Destination::Journal.name())
}

fn journal(identity: &str, query: &Query, follow: bool) -> Result<JournalReader, Failure> {
    let failed = |error| {
        Failure::Failed(format!(
            "journalctl: {error}; the logs of this cluster are in the journal of systemd"
        ))
    };
    JournalReader::start(identity, query, follow).map_err(failed)
}

impl Source {
    fn files(&self, query: &Query) -> Result<Found, Failure> {
        let Some(folder) = &self.folder else { return Ok(Found::default()) };
        read::files(&folder.path, query)
            .map_err(|error| Failure::Failed(format!("{}: {error}", folder.path.display())))
    }

    fn tail(&self) -> Result<Option<Tail>, Failure> {
        let tail = |folder: &Folder| {
            Tail::new(&folder.path)
                .map_err(|error| Failure::Failed(format!("{}: {error}", folder.path.display())))
        };
        self.folder.as_ref().map(tail).transpose()
    }

    /// The flight recorders of all processes, from where they were last read.
    fn recorders(&mut self, query: &Query, reports: bool) -> Result<Vec<Line>, Failure> {
        let Some((site, observer)) = &mut self.live else { return Ok(Vec::new()) };
        let events = observer.events();
        if reports {
            for (member, why) in observer.unread() {
                output::remark(format_args!(
                    "obol: the events of {member}, on another host, cannot be read and are missing: {why}"
                ))?;
            }
        }
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let Known { names, causes } = names::known(site, observer, &events);
        // Two clocks at one moment.
        let (unix, now) = (unix_now(), clock::now());
        let utc = |at: Instant| {
            // Another host's stamp may seem to lie ahead.
            if at > now { unix.saturating_add(at.since(now).0) } else { unix.saturating_sub(now.since(at).0) }
        };
        let line = |seen: &obol_observe::ObservedEvent| {
            let mut line = obol_logs::event_line(seen.process, &seen.event, utc(seen.event.at), None, &names);
            let record = &seen.event.record;
            if let Some(causes) = causes.get(&ViewId(record.a)).filter(|_| record.kind == Event::Decide) {
                line.text = format!("{}: {causes}", line.text);
            }
            match seen.clock_error {
                obol_fabric::Nanos::ZERO => line,
                error => line.with("clock_error_ns", error.0),
            }
        };
        Ok(events.iter().map(line).filter(|line| query.takes(line)).collect())
    }
}

/// Lines in the order of time, each event once: as the line that its process wrote or, if it wrote
/// none, as its flight recorder has it.
#[derive(Default)]
struct Merge {
    waiting: BTreeMap<(u64, u64), Line>,
    taken: u64,
    seen: HashSet<(Name, String)>,
    /// The same in the order in which they came.
    order: std::collections::VecDeque<(Name, String)>,
}

impl Merge {
    fn take(&mut self, lines: Vec<Line>) {
        for line in lines {
            if let Some(stamp) = line.field(STAMP) {
                let key = (line.process, stamp.to_owned());
                if !self.seen.insert(key.clone()) {
                    continue;
                }
                self.order.push_back(key);
            }
            self.taken += 1;
            self.waiting.insert((line.unix, self.taken), line);
        }
    }

    /// Those before this moment.
    fn ready(&mut self, until: u64) -> Vec<Line> {
        let later = self.waiting.split_off(&(until, 0));
        let ready = std::mem::replace(&mut self.waiting, later).into_values().collect();
        while self.order.len() > SEEN_MAX {
            let gone = self.order.pop_front();
            gone.map(|gone| self.seen.remove(&gone));
        }
        ready
    }
}

/// Refuses the name of a process that is not known; with other names, there just is no line.
fn known(name: Option<Name>, query: &Query, sources: &mut [Source]) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    let all = Query { since: None, until: None, severity: Severity::Trace, about: None };
    let mut names = BTreeSet::new();
    for source in sources {
        names.extend(source.files(&all)?.lines.into_iter().map(|line| line.process.to_string()));
        if let Some((site, observer)) = &mut source.live {
            names.extend(site.deployment.names());
            names.extend(observer.snapshot().all_processes().map(|process| process.name.to_string()));
        }
    }
    if names.contains(name.as_str()) || names.is_empty() {
        let span = if query.since.is_some() || query.until.is_some() { " in that time" } else { "" };
        return Ok(output::remark(format_args!("obol: no line of or about {name}{span}, of this level"))?);
    }
    let near = nearest(name.as_str(), names.iter().map(String::as_str));
    let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    let names: Vec<String> = names.into_iter().collect();
    Err(Failure::Refused(format!("no process {name} has logs; there are: {}{near}", names.join(", "))))
}

fn print_all(lines: &[Line], options: &Logs) -> std::io::Result<()> {
    lines.iter().try_for_each(|line| print(line, options))
}

fn print(line: &Line, options: &Logs) -> std::io::Result<()> {
    if options.json {
        return output::json(&line.to_json());
    }
    let plain =
        Line { fields: if options.fields { line.fields.clone() } else { Vec::new() }, ..line.clone() };
    output::line(plain.to_text())
}

/// Prints lines as they come.
fn follow(
    sources: &mut [Source],
    mut tails: Vec<Option<Tail>>,
    mut merge: Merge,
    query: &Query,
    options: &Logs,
) -> Result<ExitCode, Failure> {
    let now = unix_now();
    let later = Query { since: Some(query.since.map_or(now, |since| since.max(now))), ..query.clone() };
    let wants_journal = |source: &&Source| options.journal || source.writes_to_journal;
    let journals = sources.iter().filter(wants_journal).map(|source| journal(&source.identity, &later, true));
    let journals: Vec<JournalReader> = journals.collect::<Result<_, _>>()?;
    let dirs: Vec<PathBuf> =
        sources.iter().filter_map(|source| Some(source.live.as_ref()?.0.cluster.dir().to_owned())).collect();
    loop {
        // Looked at before the last lines are.
        let has_ended = dirs.iter().all(|dir| !dir.exists());
        for tail in tails.iter_mut().flatten() {
            merge.take(tail.news(query).map_err(Failure::failed)?.lines);
        }
        for journal in &journals {
            merge.take(journal.news(query));
        }
        if !has_ended {
            for source in &mut *sources {
                merge.take(source.recorders(query, false)?);
            }
        }
        let until = if has_ended { u64::MAX } else { unix_now().saturating_sub(HOLD_BACK) };
        print_all(&merge.ready(until), options)?;
        if has_ended {
            output::remark("obol: the cluster has ended")?;
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
