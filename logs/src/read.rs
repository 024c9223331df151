//! Reading logs: files, as a whole and as they grow, and the journal.

use crate::journal;
use crate::levels::Severity;
use crate::line::Line;
use obol_fabric::Name;
use obol_observe::figures::total;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime};

pub use crate::events::STAMP;

/// Longer lines were not written by obol.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Bytes that are read of a growing file at a time.
const READ_MAX: u64 = 8 << 20;

/// In nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// In a file a line may be before another one that is earlier by less than this: the log's thread
/// writes events after they happen.
const DISORDER_MAX: u64 = 10 * SECOND;

/// Entries of the journal that wait to be taken; `journalctl` waits when there are more.
const ENTRIES_MAX: usize = 4096;

/// Which lines are wanted.
#[derive(Clone, Debug)]
pub struct Query {
    /// From this moment on, in nanoseconds since 1970.
    pub since: Option<u64>,
    /// Up to this one.
    pub until: Option<u64>,
    /// The least severity.
    pub severity: Severity,
    /// Lines of this process, and those that name it.
    pub about: Option<String>,
}

impl Query {
    /// Whether a line is wanted.
    pub fn takes(&self, line: &Line) -> bool {
        line.severity <= self.severity
            && self.since.is_none_or(|since| line.unix >= since)
            && self.until.is_none_or(|until| line.unix < until)
            && self.about.as_ref().is_none_or(|name| line.is_about(name))
    }
}

/// A file of a log.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Log {
    /// The name of the file that is written.
    of: String,
    /// The oldest first; the one that is written has 0.
    age: Reverse<u32>,
    path: PathBuf,
}

impl Log {
    /// `None` for another file.
    fn of(path: PathBuf) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (of, age) = match name.rsplit_once('.') {
            Some((stem, number)) if stem.ends_with(".log") => (stem, number.parse().ok()?),
            _ if name.ends_with(".log") => (name, 0),
            _ => return None,
        };
        Some(Self { of: of.to_owned(), age: Reverse(age), path })
    }
}

/// The log files in a folder, those of one process from the oldest to the one that is written.
fn logs(folder: &Path) -> io::Result<Vec<Log>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| at(folder, &error))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let mut logs: Vec<Log> = paths.into_iter().filter_map(Log::of).collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Lines, and how many were none.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that are wanted, in the order of the files.
    pub lines: Vec<Line>,
    /// Text that obol did not write as a line: damaged, or of another version.
    pub unknown: u64,
}

/// The newest lines of many, so that a few of them take little memory.
#[derive(Debug)]
pub struct Newest {
    most: usize,
    /// By time, and among those of one moment in the order in which they came.
    lines: BTreeMap<(u64, u64), Line>,
    taken: u64,
}

impl Newest {
    /// Keeps this many.
    pub fn new(most: usize) -> Self {
        Self { most, lines: BTreeMap::new(), taken: 0 }
    }

    /// Adds a line, and drops the oldest one if there are too many.
    pub fn take(&mut self, line: Line) {
        self.taken += 1;
        self.lines.insert((line.unix, self.taken), line);
        if self.lines.len() > self.most {
            self.lines.pop_first();
        }
    }

    /// All that are left, oldest first.
    pub fn into_lines(self) -> Vec<Line> {
        self.lines.into_values().collect()
    }
}

/// Calls `each` with every line of the files in a folder, and with `None` for other text. Files without
/// a line in this span may be left out.
fn each_line(
    folder: &Path,
    since: Option<u64>,
    until: Option<u64>,
    mut each: impl FnMut(Option<Line>),
) -> io::Result<()> {
    let until = until.map(|until| until.saturating_add(DISORDER_MAX));
    let since = since.map(|unix| SystemTime::UNIX_EPOCH + Duration::from_nanos(unix));
    for Log { path, .. } in logs(folder)? {
        let file = match File::open(&path) {
            // It was rotated meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file.map_err(|error| at(&path, &error))?,
        };
        // Nothing in it is newer than its last change.
        if since
            .is_some_and(|since| file.metadata().and_then(|meta| meta.modified()).is_ok_and(|at| at < since))
        {
            continue;
        }
        let mut reader = BufReader::new(file);
        let mut bytes = Vec::new();
        while (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes)? > 0 {
            let line = parse(&bytes);
            // All that follow are later.
            if line.as_ref().zip(until).is_some_and(|(line, until)| line.unix >= until) {
                break;
            }
            each(line);
            bytes.clear();
        }
    }
    Ok(())
}

/// The newest `last` lines that are wanted of the files in a folder.
pub fn files(folder: &Path, query: &Query, last: usize) -> io::Result<Found> {
    let (mut newest, mut unknown) = (Newest::new(last), 0);
    each_line(folder, query.since, query.until, |line| match line {
        Some(line) if query.takes(&line) => newest.take(line),
        Some(_) => {}
        None => unknown += 1,
    })?;
    Ok(Found { lines: newest.into_lines(), unknown })
}

/// Bytes of all files in a folder.
pub fn bytes(folder: &Path) -> io::Result<u64> {
    let size = |log: Log| Ok(there(fs::metadata(&log.path), &log.path)?.map_or(0, |meta| meta.len()));
    logs(folder)?.into_iter().map(size).collect::<io::Result<Vec<u64>>>().map(total)
}

/// How many lines there are of each second.
#[derive(Debug, Default)]
pub struct Seconds(BTreeMap<u64, u64>);

impl Seconds {
    /// Adds the lines that are wanted of the files in a folder. Returns how many were none.
    pub fn add_files(&mut self, folder: &Path, query: &Query) -> io::Result<u64> {
        let mut unknown = 0;
        each_line(folder, query.since, query.until, |line| match line {
            Some(line) if query.takes(&line) => self.add(&line),
            Some(_) => {}
            None => unknown += 1,
        })?;
        Ok(unknown)
    }

    pub fn add(&mut self, line: &Line) {
        *self.0.entry(line.unix / SECOND).or_default() += 1;
    }

    /// Divides a query, so that each part takes `most` of these lines, or those of one second.
    pub fn parts(&self, query: &Query, most: u64) -> Vec<Query> {
        let mut parts = Vec::new();
        let (mut since, mut lines) = (query.since, 0u64);
        for (second, n) in &self.0 {
            if lines > 0 && lines.saturating_add(*n) > most {
                let end = Some(second.saturating_mul(SECOND));
                parts.push(Query { since, until: end, ..query.clone() });
                (since, lines) = (end, 0);
            }
            lines = lines.saturating_add(*n);
        }
        parts.push(Query { since, ..query.clone() });
        parts
    }
}

/// The names of all processes with lines in the files in a folder.
pub fn processes(folder: &Path) -> io::Result<BTreeSet<Name>> {
    let mut names = BTreeSet::new();
    each_line(folder, None, None, |line| names.extend(line.map(|line| line.process)))?;
    Ok(names)
}

fn parse(bytes: &[u8]) -> Option<Line> {
    Line::parse(String::from_utf8_lossy(bytes).trim_end())
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Follows the files of a folder as they grow, are rotated, and are joined by others. It keeps no file
/// open: there may be more of them than a process may open.
#[derive(Debug)]
pub struct Tail {
    folder: PathBuf,
    /// How far each file was read, by its inode, which it keeps when it is rotated.
    read: BTreeMap<u64, u64>,
    /// The same before the last look: one that is rotated during a look may be missed in it.
    before: BTreeMap<u64, u64>,
}

impl Tail {
    /// Of a folder, from the end of what is there now.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let mut read = BTreeMap::new();
        for Log { path, .. } in logs(folder)? {
            let Some(meta) = there(fs::metadata(&path), &path)? else { continue };
            read.insert(meta.ino(), meta.len());
        }
        Ok(Self { folder: folder.to_owned(), read, before: BTreeMap::new() })
    }

    fn known(&self, inode: u64) -> u64 {
        self.read.get(&inode).or_else(|| self.before.get(&inode)).copied().unwrap_or_default()
    }

    /// The lines that were added since the last call.
    pub fn news(&mut self, query: &Query) -> io::Result<Found> {
        let mut found = Found::default();
        let mut read = BTreeMap::new();
        for Log { path, .. } in logs(&self.folder)? {
            let Some(meta) = there(fs::metadata(&path), &path)? else { continue };
            let known = self.known(meta.ino());
            if known == meta.len() {
                read.insert(meta.ino(), known);
                continue;
            }
            let Some(mut file) = there(File::open(&path), &path)? else { continue };
            // Rotated meanwhile, another one may have its name.
            let meta = file.metadata()?;
            let known = self.known(meta.ino());
            // Another one may have the inode of one that was removed.
            let from = if known > meta.len() { 0 } else { known };
            file.seek(SeekFrom::Start(from))?;
            let mut bytes = Vec::new();
            file.take(READ_MAX).read_to_end(&mut bytes).map_err(|error| at(&path, &error))?;
            // A line that is being written is read when it is whole.
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            for line in lines {
                match parse(line) {
                    Some(line) if query.takes(&line) => found.lines.push(line),
                    Some(_) => {}
                    None => found.unknown += 1,
                }
            }
            read.insert(meta.ino(), from + whole as u64);
        }
        self.before = std::mem::replace(&mut self.read, read);
        Ok(found)
    }
}

/// What was looked for, unless it was rotated or removed meanwhile.
fn there<T>(result: io::Result<T>, path: &Path) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some).map_err(|error| at(path, &error)),
    }
}

/// The entries of a cluster in the journal, by `journalctl`.
#[derive(Debug)]
pub struct JournalReader {
    child: Child,
    lines: Receiver<Line>,
}

impl JournalReader {
    /// Starts `journalctl`. `identity` is that of the cluster. `follow` continues with later entries.
    pub fn start(identity: &str, query: &Query, follow: bool) -> io::Result<Self> {
        let mut command = Command::new("journalctl");
        command.args(["--output=json", "--no-pager", &format!("OBOL_IDENTITY={identity}")]);
        // An entry is received after the moment that its line has; an event up to a second later.
        let seconds = |unix: u64| unix / 1_000_000_000;
        command.args(query.since.map(|since| format!("--since=@{}", seconds(since))));
        command.args(query.until.map(|until| format!("--until=@{}", seconds(until) + 2)));
        if follow {
            command.args(["--follow", "--no-tail"]);
        }
        // What it has to say, it says in a reading that ends.
        command.stderr(if follow { Stdio::null() } else { Stdio::piped() });
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().ok_or_else(|| io::Error::other("journalctl has no output"))?;
        let (tx, lines) = mpsc::sync_channel(ENTRIES_MAX);
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if journal::parse(&line).is_some_and(|line| tx.send(line).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self { child, lines })
    }

    /// The newest `last` entries that are wanted, of one that does not follow, and what `journalctl` says about those that are
    /// missing: users who are not in a certain group may not read them.
    pub fn newest(mut self, query: &Query, last: usize) -> io::Result<(Vec<Line>, Option<String>)> {
        let mut newest = Newest::new(last);
        self.lines.iter().filter(|line| query.takes(line)).for_each(|line| newest.take(line));
        // No more than some lines, which have room in the pipe.
        let said = self.child.stderr.take().map(io::read_to_string).transpose()?.unwrap_or_default();
        let status = self.child.wait()?;
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let trouble = match said.is_empty() {
            true if status.success() => None,
            true => Some(format!("journalctl ended with {status}")),
            false => Some(said),
        };
        Ok((newest.into_lines(), trouble))
    }

    /// Counts the entries that are wanted, of one that does not follow.
    pub fn count(self, query: &Query, seconds: &mut Seconds) {
        self.lines.iter().filter(|line| query.takes(line)).for_each(|line| seconds.add(&line));
    }

    /// The entries since the last call.
    pub fn news(&self, query: &Query) -> Vec<Line> {
        self.lines.try_iter().filter(|line| query.takes(line)).collect()
    }
}

impl Drop for JournalReader {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Format;
    use crate::line::tests::line;
    use std::io::Write as _;

    const ALL: Query = Query { since: None, until: None, severity: Severity::Trace, about: None };

    fn texts(found: &Found) -> Vec<&str> {
        found.lines.iter().map(|line| line.text.as_str()).collect()
    }

    fn append(path: &Path, text: &str) {
        let opened = File::options().append(true).create(true).open(path);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).expect("written");
    }

    #[test]
    fn files_of_both_forms_are_read_and_damage_is_counted() {
        let folder = tempfile::tempdir().expect("made");
        let text = format!("{}\nhalf a li\n", line("one").write(Format::Text));
        append(&folder.path().join("node-1.log.1"), &text);
        append(&folder.path().join("node-2.log"), &format!("{}\n", line("two").write(Format::Json)));
        append(&folder.path().join("notes.txt"), "no log\n");
        let mut found = files(folder.path(), &ALL, usize::MAX).expect("read");
        found.lines.sort_by(|a, b| a.text.cmp(&b.text));
        assert_eq!((texts(&found), found.unknown), (vec!["one", "two"], 1));
    }

    #[test]
    fn the_newest_lines_of_all_files_are_those_that_are_kept() {
        let folder = tempfile::tempdir().expect("made");
        let at = |n: u64| Line { unix: n, ..line(&format!("{n}")) };
        let write = |name: &str, numbers: &[u64]| {
            numbers.iter().for_each(|n| {
                // Whole microseconds, which text keeps.
                append(&folder.path().join(name), &format!("{}\n", at(*n * 1_000_000).write(Format::Json)));
            });
        };
        write("node-1.log.1", &[1, 4, 7]);
        write("node-1.log", &[8, 10]);
        write("node-2.log", &[2, 3, 9]);
        let last = |last| -> Vec<u64> {
            let found = files(folder.path(), &ALL, last).expect("read");
            found.lines.iter().map(|line| line.unix / 1_000_000).collect()
        };
        assert_eq!(last(3), [8, 9, 10]);
        assert_eq!(last(usize::MAX), [1, 2, 3, 4, 7, 8, 9, 10]);
        let mut newest = Newest::new(2);
        for n in 0..1000 {
            newest.take(at(n));
            assert!(newest.lines.len() <= 2, "no more are kept than are wanted");
        }
        let names = processes(folder.path()).expect("read");
        assert_eq!(names.into_iter().collect::<Vec<_>>(), [line("x").process]);
    }

    #[test]
    fn a_long_span_is_read_in_parts_that_have_each_line_once() {
        let folder = tempfile::tempdir().expect("made");
        let at = |n: u64| Line { unix: n * SECOND / 4, ..line(&format!("{n}")) };
        // Two files that overlap, and a line that is out of order in its file.
        let mut texts = [String::new(), String::new()];
        for n in 1_000..2_000u64 {
            let n = if n == 1_500 { 1_497 } else { n };
            texts[usize::from(n % 3 == 0)] += &format!("{}\n", at(n).write(Format::Json));
        }
        append(&folder.path().join("node-1.log"), &texts[0]);
        append(&folder.path().join("node-2.log"), &(texts[1].clone() + "no line\n"));
        let mut seconds = Seconds::default();
        assert_eq!(seconds.add_files(folder.path(), &ALL).expect("read"), 1);
        let parts = seconds.parts(&ALL, 100);
        assert!(parts.len() >= 10 && parts[0].since.is_none() && parts[parts.len() - 1].until.is_none());
        let mut all = Vec::new();
        for part in &parts {
            let found = files(folder.path(), part, usize::MAX).expect("read");
            assert!(found.lines.len() <= 100, "{}", found.lines.len());
            all.extend(found.lines.iter().map(|line| line.unix));
        }
        assert_eq!(all.len(), 1_000);
        assert!(all.is_sorted(), "in the order of time");
        assert_eq!(Seconds::default().parts(&ALL, 100).len(), 1);
        assert!(bytes(folder.path()).expect("read") > 10_000);
    }

    #[test]
    fn more_logs_are_followed_than_a_process_may_open() {
        let folder = tempfile::tempdir().expect("made");
        let path = |n: u32| folder.path().join(format!("app-{n}.log"));
        (0..3000).for_each(|n| append(&path(n), "2026-11-25T02:1"));
        let open = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let before = open();
        let mut tail = Tail::new(folder.path()).expect("followed");
        append(&path(2999), &format!("\n{}\n", line("news").to_text()));
        assert_eq!(texts(&tail.news(&ALL).expect("read")), ["news"]);
        // Other tests have files open, too.
        assert!(open() < before + 1000, "none is kept open: {} after {before}", open());
    }

    #[test]
    fn a_query_takes_a_span_a_severity_and_a_process() {
        let at = line("x").unix;
        let takes = |query: Query| query.takes(&line("x"));
        assert!(takes(Query { since: Some(at), until: Some(at + 1), ..ALL }));
        assert!(!takes(Query { since: Some(at + 1), ..ALL }) && !takes(Query { until: Some(at), ..ALL }));
        assert!(
            takes(Query { severity: Severity::Warn, ..ALL })
                && !takes(Query { severity: Severity::Error, ..ALL })
        );
        assert!(takes(Query { about: Some("node-2".to_owned()), ..ALL }));
        assert!(!takes(Query { about: Some("node-3".to_owned()), ..ALL }));
    }

    #[test]
    fn a_growing_log_is_followed_over_its_rotation() {
        let folder = tempfile::tempdir().expect("made");
        let path = folder.path().join("node-1.log");
        let write = |text: &str| append(&path, &format!("{}\n", line(text).to_text()));
        write("before");
        let mut tail = Tail::new(folder.path()).expect("opened");
        write("one");
        append(&path, "2026-11-25T02:1");
        assert_eq!(texts(&tail.news(&ALL).expect("read")), ["one"], "half a line waits");
        append(&path, "4:07Z info node-1 process two\n");
        fs::rename(&path, folder.path().join("node-1.log.1")).expect("rotated");
        write("three");
        append(&folder.path().join("node-2.log"), &format!("{}\n", line("four").to_text()));
        let found = tail.news(&ALL).expect("read");
        assert_eq!(texts(&found), ["two", "three", "four"]);
        assert!(tail.news(&ALL).expect("read").lines.is_empty());
    }
}
