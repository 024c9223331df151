//! Reading logs: files, as a whole and as they grow, and the journal.

use crate::journal;
use crate::levels::Severity;
use crate::line::Line;
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

/// Whether a file is a log, and whether it is still written.
fn kind(path: &Path) -> Option<bool> {
    let name = path.file_name()?.to_str()?;
    let is_rotated = || {
        let (stem, number) = name.rsplit_once('.')?;
        (stem.ends_with(".log") && number.parse::<u32>().is_ok()).then_some(false)
    };
    if name.ends_with(".log") { Some(true) } else { is_rotated() }
}

/// The log files in a folder.
fn logs(folder: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter_map(|path| kind(&path).map(|grows| (path, grows))).collect())
}

/// Lines, and how many were none.
#[derive(Debug, Default)]
pub struct Found {
    /// Those that are wanted, in the order of the files.
    pub lines: Vec<Line>,
    /// Text that obol did not write as a line: damaged, or of another version.
    pub unknown: u64,
}

/// Everything that is wanted of the files in a folder.
pub fn files(folder: &Path, query: &Query) -> io::Result<Found> {
    let since = query.since.map(|unix| SystemTime::UNIX_EPOCH + Duration::from_nanos(unix));
    let mut found = Found::default();
    for (path, _) in logs(folder)? {
        let file = match File::open(&path) {
            // It was rotated meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file?,
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
            found.take(&bytes, query);
            bytes.clear();
        }
    }
    Ok(found)
}

impl Found {
    fn take(&mut self, bytes: &[u8], query: &Query) {
        match Line::parse(String::from_utf8_lossy(bytes).trim_end()) {
            Some(line) if query.takes(&line) => self.lines.push(line),
            Some(_) => {}
            None => self.unknown += 1,
        }
    }
}

/// A file that grows.
#[derive(Debug)]
struct Growing {
    path: PathBuf,
    inode: u64,
    file: File,
    read: u64,
}

/// Follows the files of a folder as they grow, are rotated, and are joined by others.
#[derive(Debug)]
pub struct Tail {
    folder: PathBuf,
    files: Vec<Growing>,
}

impl Tail {
    /// Of a folder, from the end of what is there now.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let mut tail = Self { folder: folder.to_owned(), files: Vec::new() };
        tail.refresh(true)?;
        Ok(tail)
    }

    fn refresh(&mut self, from_end: bool) -> io::Result<()> {
        for (path, grows) in logs(&self.folder)? {
            let Ok(meta) = fs::metadata(&path) else { continue };
            if !grows || self.files.iter().any(|file| file.path == path && file.inode == meta.ino()) {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            let read = if from_end { meta.len() } else { 0 };
            self.files.push(Growing { path, inode: meta.ino(), file, read });
        }
        Ok(())
    }

    /// The lines that were added since the last call.
    pub fn news(&mut self, query: &Query) -> io::Result<Found> {
        let mut found = Found::default();
        // What was rotated is read to its end first.
        self.read(query, &mut found)?;
        self.refresh(false)?;
        self.read(query, &mut found)?;
        let is_current = |file: &Growing| fs::metadata(&file.path).is_ok_and(|meta| meta.ino() == file.inode);
        self.files.retain(is_current);
        Ok(found)
    }

    fn read(&mut self, query: &Query, found: &mut Found) -> io::Result<()> {
        for growing in &mut self.files {
            growing.file.seek(SeekFrom::Start(growing.read))?;
            let mut bytes = Vec::new();
            (&growing.file).take(READ_MAX).read_to_end(&mut bytes)?;
            // A line that is being written is read when it is whole.
            let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            growing.read += whole as u64;
            let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            lines.for_each(|line| found.take(line, query));
        }
        Ok(())
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
        let (tx, lines) = mpsc::channel();
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if journal::parse(&line).is_some_and(|line| tx.send(line).is_err()) {
                    return;
                }
            }
        })?;
        Ok(Self { child, lines })
    }

    /// All entries, of one that does not follow, and what `journalctl` says about those that are
    /// missing: users who are not in a certain group may not read them.
    pub fn all(mut self, query: &Query) -> io::Result<(Vec<Line>, Option<String>)> {
        let lines = self.lines.iter().filter(|line| query.takes(line)).collect();
        // No more than some lines, which have room in the pipe.
        let said = self.child.stderr.take().map(io::read_to_string).transpose()?.unwrap_or_default();
        let status = self.child.wait()?;
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let trouble = match said.is_empty() {
            true if status.success() => None,
            true => Some(format!("journalctl ended with {status}")),
            false => Some(said),
        };
        Ok((lines, trouble))
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
        let mut found = files(folder.path(), &ALL).expect("read");
        found.lines.sort_by(|a, b| a.text.cmp(&b.text));
        assert_eq!((texts(&found), found.unknown), (vec!["one", "two"], 1));
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
