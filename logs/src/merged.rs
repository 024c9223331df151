//! The lines of all processes of a cluster, of files, of the journal and of flight recorders, merged by
//! time.

use crate::events::{self, decided, event_line};
use crate::place::{self, Folder, Place};
use crate::read::{self, Found, JournalReader, Query, STAMP, Seconds, Tail};
use crate::settings::Destination;
use crate::{Line, control};
use obol_config::nearest;
use obol_fabric::{Name, Nanos, ViewId};
use obol_node::Site;
use obol_node::network::print_id;
use obol_observe::calendar::{TwoClocks, unix_now};
use obol_observe::names::{self, Known};
use obol_observe::{ObservedEvent, Observer};
use obol_term::output::{self, Failure};
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Lines that are in memory at once, of a long span.
const LINES_AT_ONCE: u64 = 1 << 17;
/// Bytes of files that are read at once, whatever they have.
const BYTES_AT_ONCE: u64 = 16 << 20;
/// How often new lines are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long lines are held back, in nanoseconds, to print those of all processes in order.
const HOLD_BACK: u64 = 600_000_000;
/// Printed lines whose recurrence is recognised.
const SEEN_MAX: usize = 1 << 16;
/// The field with the number of the process's host, in a cluster of several.
pub const HOST: &str = "host";
/// The field with the possible error of the time of another host's event, in nanoseconds.
pub const CLOCK_ERROR: &str = "clock_error_ns";

/// A host whose logs are read: of a cluster on several hosts that are this one, there are several.
struct Source {
    /// Its processes' files.
    folder: Option<Folder>,
    /// The identity of the cluster, as it is printed.
    identity: String,
    /// The cluster, if it runs.
    live: Option<(Site, Observer)>,
    writes_to_journal: bool,
    /// The number of the host, in a cluster of several.
    host: Option<u8>,
}

/// All that is read, and what is known of the cluster's views.
pub struct Sources {
    hosts: Vec<Source>,
    /// Whether the journal is read also where no process is known to write there.
    reads_journal: bool,
    /// What each view changed, as far as it is known.
    causes: BTreeMap<ViewId, String>,
}

/// What was read.
pub struct Outcome {
    /// Whether there was no line.
    pub is_empty: bool,
    /// Lines in the files that are damaged or of another version.
    pub damaged: u64,
    /// Whether all sources could be read.
    pub is_complete: bool,
    /// What is left to follow.
    pub rest: Rest,
}

/// Where files were left, and lines that were held back.
pub struct Rest {
    tails: Vec<Option<Tail>>,
    merge: Merge,
}

impl Sources {
    /// Those of a cluster, which has these names on the hosts that are this one, its own first. With an
    /// identity, those of an earlier cluster of this name.
    pub fn open(
        root: &Path,
        names: &[Name],
        identity: Option<&str>,
        reads_journal: bool,
    ) -> Result<Self, Failure> {
        let hosts = hosts(root, names, identity, reads_journal)?;
        Ok(Self { hosts, reads_journal, causes: BTreeMap::new() })
    }

    /// Hands out the lines of a query in the order of time, of each part of it the `last` newest. If they
    /// are `followed`, the newest moments are left to [`Sources::follow`].
    pub fn read(
        &mut self,
        query: &Query,
        last: usize,
        followed: bool,
        mut out: impl FnMut(Line) -> io::Result<()>,
    ) -> Result<Outcome, Failure> {
        let (parts, mut damaged) = self.parts(query, last)?;
        let mut recorded = VecDeque::from(self.recorders(query, true)?);
        recorded.make_contiguous().sort_by_key(|line| line.unix);
        let (mut merge, mut missing, mut is_empty) = (Merge::default(), BTreeSet::new(), true);
        let mut tails = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let (lines, unknown) = self.lines(part, last, &mut missing)?;
            merge.take(lines);
            let is_last = n + 1 == parts.len();
            if is_last && followed {
                tails = self.hosts.iter().map(Source::tail).collect::<Result<_, _>>()?;
            }
            if parts.len() == 1 {
                damaged += unknown;
            }
            let end = part.until.filter(|_| !is_last).unwrap_or(u64::MAX);
            let before = recorded.iter().take_while(|line| line.unix < end).count();
            merge.take(recorded.drain(..before).collect());
            let until = if is_last && followed { unix_now().saturating_sub(HOLD_BACK) } else { end };
            let ready = merge.ready(until);
            is_empty &= ready.is_empty();
            self.hand_out(&ready[ready.len().saturating_sub(last)..], &mut out)?;
        }
        Ok(Outcome { is_empty, damaged, is_complete: missing.is_empty(), rest: Rest { tails, merge } })
    }

    /// The parts in which a query is read, so that no more lines are in memory at once than
    /// [`LINES_AT_ONCE`], and how many damaged ones were found. One part, if the newest few are wanted,
    /// or if there are few.
    fn parts(&self, query: &Query, last: usize) -> Result<(Vec<Query>, u64), Failure> {
        let mut bytes = 0u64;
        for folder in self.hosts.iter().filter_map(|source| source.folder.as_ref()) {
            bytes = bytes.saturating_add(read::bytes(&folder.path).map_err(Failure::failed)?);
        }
        let from_journal = |source: &Source| self.reads_journal || source.writes_to_journal;
        let is_short = bytes <= BYTES_AT_ONCE && !self.hosts.iter().any(from_journal);
        if is_short || last <= LINES_AT_ONCE as usize {
            return Ok((vec![query.clone()], 0));
        }
        let (mut seconds, mut unknown) = (Seconds::default(), 0);
        for source in &self.hosts {
            if let Some(folder) = &source.folder {
                unknown += seconds.add_files(&folder.path, query).map_err(Failure::failed)?;
            }
            if from_journal(source) {
                journal(&source.identity, query, false)?.count(query, &mut seconds);
            }
        }
        let parts = seconds.parts(query, LINES_AT_ONCE);
        let is_one = parts.len() == 1;
        // Those of one part are counted when it is read.
        Ok((parts, if is_one { 0 } else { unknown }))
    }

    /// The newest lines of a part, and how many were none. `missing` has the reasons why lines are.
    fn lines(
        &self,
        part: &Query,
        last: usize,
        missing: &mut BTreeSet<String>,
    ) -> Result<(Vec<Line>, u64), Failure> {
        let (mut lines, mut unknown) = (Vec::new(), 0);
        for source in &self.hosts {
            // The last of all are among the last of each.
            let found = source.files(part, last)?;
            unknown += found.unknown;
            lines.extend(found.lines);
            if self.reads_journal || source.writes_to_journal {
                let found = journal(&source.identity, part, false)?.newest(part, last);
                let (found, trouble) = found.map_err(Failure::failed)?;
                if let Some(why) = trouble.filter(|why| missing.insert(why.clone())) {
                    output::remark(format_args!(
                        "obol: the journal cannot be read, and what it has is missing: {why} This user has to be in the \
                         group systemd-journal: usermod -aG systemd-journal USER"
                    ))?;
                }
                lines.extend(source.placed(found));
            }
        }
        Ok((lines, unknown))
    }

    /// The flight recorders of all processes, from where they were last read. Where all hosts are this
    /// one, each is read on its own, because another one knows its clock by an estimate only.
    fn recorders(&mut self, query: &Query, reports: bool) -> Result<Vec<Line>, Failure> {
        let are_several = self.hosts.len() > 1;
        let mut seen: Vec<(Option<u8>, ObservedEvent)> = Vec::new();
        for Source { live, host, .. } in &mut self.hosts {
            let Some((_, observer)) = live else { continue };
            let events = if are_several { observer.events_here() } else { observer.events() };
            seen.extend(events.into_iter().map(|event| (*host, event)));
            if reports && !are_several {
                report_unread(observer)?;
            }
        }
        let first = self.hosts.iter_mut().find_map(|source| source.live.as_mut());
        let Some((site, observer)) = first.filter(|_| !seen.is_empty()) else { return Ok(Vec::new()) };
        let events: Vec<ObservedEvent> = seen.iter().map(|(_, event)| event.clone()).collect();
        let Known { names, causes } = names::known(site, observer, &events);
        self.causes.extend(causes);
        let snapshot = observer.snapshot();
        let clocks = TwoClocks::read();
        let line = |(host, seen): &(Option<u8>, ObservedEvent)| {
            let unix = clocks.unix(seen.event.at);
            let mut line = event_line(seen.process, &seen.event, unix, None, &names);
            explain(&mut line, &self.causes);
            if seen.clock_error == Nanos::ZERO {
                return placed(line, *host);
            }
            // It may have gone, and nothing says then where it was.
            let there = snapshot.remote.iter().find(|process| process.name == seen.process);
            placed(line.with(CLOCK_ERROR, seen.clock_error.0), there.map(|process| process.host))
        };
        Ok(seen.iter().map(line).filter(|line| query.takes(line)).collect())
    }
}

/// Names the members of other hosts whose events are missing.
fn report_unread(observer: &Observer) -> Result<(), Failure> {
    for unread in observer.unread() {
        output::remark(format_args!("obol: {unread}"))?;
    }
    Ok(())
}

/// Says in the line of a decision what the view changed.
fn explain(line: &mut Line, causes: &BTreeMap<ViewId, String>) {
    if let Some(causes) = decided(line).and_then(|view| causes.get(&view)) {
        events::explain(line, causes);
    }
}

/// A line with its host.
fn placed(line: Line, host: Option<u8>) -> Line {
    match host {
        Some(host) => line.with(HOST, host),
        None => line,
    }
}

/// The hosts of which logs are read: files of the cluster that runs or, if none does, of the last
/// one.
fn hosts(
    root: &Path,
    names: &[Name],
    identity: Option<&str>,
    reads_journal: bool,
) -> Result<Vec<Source>, Failure> {
    let base = place::base();
    let mut sources = Vec::new();
    for &name in names {
        let site = Site::open(root, name);
        let folders = base.as_ref().map(|base| Place::new(base, root, name).folders()).transpose();
        let mut folders = folders.map_err(Failure::failed)?.unwrap_or_default();
        let running = site.as_ref().ok().map(|site| print_id(site.cluster.nonce()));
        let wanted = identity.map(str::to_owned).or_else(|| running.clone());
        let is_elsewhere = identity.is_some() && running.as_deref() != identity && !reads_journal;
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
        let network = live.as_ref().and_then(|site| site.deployment.network.as_ref());
        let host = network.map(|network| network.host);
        let live = match live {
            Some(site) => Some((site, Observer::open(root, name).map_err(Failure::refused)?)),
            None => None,
        };
        sources.push(Source { folder, identity, live, writes_to_journal, host });
    }
    if let ([], [cluster, ..]) = (&sources[..], names) {
        let why = Site::open(root, *cluster).err().map_or(String::new(), |error| format!(": {error}"));
        return Err(Failure::Refused(format!("there are no logs of cluster {cluster}{why}")));
    }
    Ok(sources)
}

/// Whether a process of the cluster says that it writes to the journal.
fn writes_to_journal(dir: &Path) -> bool {
    control::states(dir).any(|(_, state)| state.to == Destination::Journal.name())
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
    fn files(&self, query: &Query, last: usize) -> Result<Found, Failure> {
        let Some(folder) = &self.folder else { return Ok(Found::default()) };
        let found = read::files(&folder.path, query, last).map_err(Failure::failed)?;
        Ok(Found { lines: self.placed(found.lines), ..found })
    }

    /// These lines, which its processes wrote, with the host.
    fn placed(&self, lines: Vec<Line>) -> Vec<Line> {
        lines.into_iter().map(|line| placed(line, self.host)).collect()
    }

    fn tail(&self) -> Result<Option<Tail>, Failure> {
        let tail = |folder: &Folder| Tail::new(&folder.path).map_err(Failure::failed);
        self.folder.as_ref().map(tail).transpose()
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
    order: VecDeque<(Name, String)>,
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

impl Sources {
    /// Refuses the name of a process that is not known; of another one it says that nothing was found.
    pub fn require_known(&mut self, name: Name, query: &Query) -> Result<(), Failure> {
        let mut names = BTreeSet::new();
        for source in &mut self.hosts {
            let of_files = source.folder.as_ref().map(|folder| read::processes(&folder.path)).transpose();
            let of_files = of_files.map_err(Failure::failed)?.unwrap_or_default();
            names.extend(of_files.into_iter().map(|name| name.to_string()));
            if let Some((site, observer)) = &mut source.live {
                names.extend(site.deployment.names());
                names.extend(observer.snapshot().all_processes().map(|process| process.name.to_string()));
            }
        }
        if names.contains(name.as_str()) || names.is_empty() {
            let span = if query.since.is_some() || query.until.is_some() { " in that time" } else { "" };
            return Ok(output::remark(format_args!(
                "obol: no line of or about {name}{span}, of this level"
            ))?);
        }
        let near = nearest(name.as_str(), names.iter().map(String::as_str));
        let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
        let names: Vec<String> = names.into_iter().collect();
        Err(Failure::Refused(format!("no process {name} has logs; there are: {}{near}", names.join(", "))))
    }

    fn hand_out(&self, lines: &[Line], out: &mut impl FnMut(Line) -> io::Result<()>) -> io::Result<()> {
        lines.iter().try_for_each(|line| {
            let mut line = line.clone();
            // A process may have written it when it did not know all causes.
            explain(&mut line, &self.causes);
            out(line)
        })
    }

    /// Hands out lines as they come, until the cluster ends. `rest` is what [`Sources::read`] has left.
    pub fn follow(
        &mut self,
        Rest { mut tails, mut merge }: Rest,
        query: &Query,
        mut out: impl FnMut(Line) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let now = unix_now();
        let later = Query { since: Some(query.since.map_or(now, |since| since.max(now))), ..query.clone() };
        let reads_journal = self.reads_journal;
        let wants_journal = |source: &&Source| reads_journal || source.writes_to_journal;
        let journals = self.hosts.iter().filter(wants_journal);
        let journals = journals.map(|source| Ok((source.host, journal(&source.identity, &later, true)?)));
        let journals: Vec<(Option<u8>, JournalReader)> = journals.collect::<Result<_, Failure>>()?;
        let lives = self.hosts.iter().filter_map(|source| source.live.as_ref());
        let dirs: Vec<PathBuf> = lives.map(|(site, _)| site.cluster.dir().to_owned()).collect();
        loop {
            // Looked at before the last lines are.
            let has_ended = dirs.iter().all(|dir| !dir.exists());
            for (source, tail) in self.hosts.iter().zip(&mut tails) {
                let Some(tail) = tail else { continue };
                merge.take(source.placed(tail.news(query).map_err(Failure::failed)?.lines));
            }
            for (host, journal) in &journals {
                merge.take(journal.news(query).into_iter().map(|line| placed(line, *host)).collect());
            }
            if !has_ended {
                merge.take(self.recorders(query, false)?);
            }
            let until = if has_ended { u64::MAX } else { unix_now().saturating_sub(HOLD_BACK) };
            self.hand_out(&merge.ready(until), &mut out)?;
            if has_ended {
                return Ok(());
            }
            output::check_read()?;
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
