//! Annotations of a cluster: an operator's note ("deploy 1.4 began here"), or the begin or end of a
//! drill. Every console and recorder of the cluster shows them.
//!
//! An annotation is one line of JSON in the file `marks` of the cluster's directory, and is removed
//! with the cluster. Each line is one write, so annotations of several programs do not mix. A line that
//! ran into what a failed write has left is written once more.
//! When the file is full, it becomes `marks.old` in place of the one before, and another one begins:
//! annotations are always possible, and readers find the rest of the old one under its inode.

use crate::lines;
use obol_fabric::{Instant, Name};
use obol_node::{FileLock, Site};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file in a cluster's directory.
const FILE: &str = "marks";
/// Longest annotation, in characters.
pub const CHARS_MAX: usize = 120;
/// Most lines of one kind in the mark of a rollout of another host.
const LINES_MAX: usize = 16;
/// Most members in one annotation.
pub const NAMES_MAX: usize = 64;
/// The one before it.
const OLD_FILE: &str = "marks.old";
/// Its lock is held while another file is put in the place of a full one.
const LOCK_FILE: &str = "marks.lock";
/// A file with this many bytes is full. There are two.
const FILE_BYTES_MAX: u64 = 2 << 20;
/// Annotations of other hosts fill a file at most this often.
const RECEIVED_FULL_EVERY: Duration = Duration::from_secs(600);
/// Read at most this much of the file; older annotations are skipped.
const READ_MAX: u64 = 1 << 20;

/// An annotation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When, on the host's monotonic clock, in nanoseconds.
    pub at: u64,
    pub text: String,
    /// The drill that wrote it; `None` for an operator's annotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillMark>,
    /// The rollout that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutMark>,
    /// Members that an operator expects back no more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forgotten: Vec<Name>,
    /// The incident that an operator acknowledges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

/// That an operator knows of an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    pub incident: String,
    /// The operator's name.
    pub by: String,
    /// Whom it is about, because consoles may give it another id. Empty if its id alone says which.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub names: BTreeSet<Name>,
}

/// The begin or end of a drill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillMark {
    /// The drill.
    pub name: String,
    /// Its verdict; `None` when it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
}

/// A rollout that the gate watches, as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutMark {
    /// What is rolled out.
    pub name: String,
    /// What happens now, such as `settling`; at the end the verdict.
    pub phase: String,
    /// Each limit with both sides, such as `failover p99 512us (before 480us, limit 576us)`.
    pub compared: Vec<String>,
    /// Why it fails, or cannot hold any more; empty while all is well.
    pub wrong: Vec<String>,
    /// What kind of mark it is.
    pub step: RolloutStep,
}

/// Which moment of a rollout a mark is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutStep {
    /// Its command begins: from here on, figures are compared with those before.
    Begins,
    /// Something of it has changed, or some time has passed.
    Goes,
    Over,
}

/// Why an annotation is rejected or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// It is empty or too long.
    #[error("a note is one line of 1 to {CHARS_MAX} characters without control characters; this has {chars}")]
    Text {
        /// Its length.
        chars: usize,
    },
    /// The file cannot be written.
    #[error("could not write {path}: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// Whether an annotation has reached the other hosts of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarded {
    All,
    /// Not all: why.
    Not(String),
}

impl Mark {
    /// An operator's annotation.
    pub fn note(at: Instant, text: &str) -> Result<Self, MarkError> {
        let text = text.trim();
        let chars = text.chars().count();
        if !(1..=CHARS_MAX).contains(&chars) || text.chars().any(char::is_control) {
            return Err(MarkError::Text { chars });
        }
        Ok(Self {
            at: at.0,
            text: text.to_owned(),
            drill: None,
            rollout: None,
            forgotten: Vec::new(),
            acknowledged: None,
        })
    }

    /// The begin of a drill, or its end with this verdict.
    pub fn drill(at: Instant, name: &str, verdict: Option<&str>) -> Self {
        let text =
            verdict.map_or(format!("drill {name} begins"), |verdict| format!("drill {name}: {verdict}"));
        let drill = DrillMark { name: name.to_owned(), verdict: verdict.map(str::to_owned) };
        Self { at: at.0, text, drill: Some(drill), rollout: None, forgotten: Vec::new(), acknowledged: None }
    }

    /// A moment of a rollout.
    pub fn rollout(at: Instant, rollout: RolloutMark) -> Self {
        let text = match rollout.step {
            RolloutStep::Begins => format!("rollout {}", rollout.name),
            RolloutStep::Goes | RolloutStep::Over => format!("rollout {}: {}", rollout.name, rollout.phase),
        };
        Self {
            at: at.0,
            text,
            drill: None,
            rollout: Some(rollout),
            forgotten: Vec::new(),
            acknowledged: None,
        }
    }

    /// An operator expects these members back no more.
    pub fn forgotten(at: Instant, names: &[Name]) -> Self {
        let all = names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        let text: String = format!("not expected back: {all}").chars().take(CHARS_MAX).collect();
        Self { at: at.0, text, drill: None, rollout: None, forgotten: names.to_vec(), acknowledged: None }
    }

    /// An operator acknowledges an incident with this fact.
    pub fn acknowledged(at: Instant, acknowledged: Acknowledgement, fact: &str) -> Self {
        let whole = format!("acknowledged by {}: {fact}", acknowledged.by);
        let text = whole.chars().filter(|letter| !letter.is_control()).take(CHARS_MAX).collect();
        let acknowledged = Some(acknowledged);
        Self { at: at.0, text, drill: None, rollout: None, forgotten: Vec::new(), acknowledged }
    }

    /// Appends it to the file in the cluster's directory.
    pub fn write(&self, dir: &Path) -> Result<(), MarkError> {
        self.append(dir, false)
    }

    /// Appends one of another host. These fill a file once in ten minutes, so that they cannot
    /// push out this host's as fast as they come.
    pub fn write_received(&self, dir: &Path) -> Result<(), MarkError> {
        self.append(dir, true)
    }

    fn append(&self, dir: &Path, received: bool) -> Result<(), MarkError> {
        let path = dir.join(FILE);
        let written = || {
            let mut line = serde_json::to_vec(self)?;
            line.push(b'\n');
            let mut file = File::options().read(true).append(true).create(true).open(&path)?;
            if received && file.metadata()?.len() + line.len() as u64 >= FILE_BYTES_MAX && was_just_full(dir)
            {
                return Err(io::Error::other(format!(
                    "{FILE_BYTES_MAX} bytes of annotations came within {} s",
                    RECEIVED_FULL_EVERY.as_secs()
                )));
            }
            file.write_all(&line)?;
            let at = file.stream_position()?.saturating_sub(line.len() as u64);
            // This is asked after the write, because another program's may fail just before it.
            if !lines::begins(&file, at)? {
                line.insert(0, b'\n');
                file.write_all(&line)?;
            }
            if file.metadata()?.len() >= FILE_BYTES_MAX { put_aside(dir, &path) } else { Ok(()) }
        };
        written().map_err(|error| MarkError::Io { path: path.clone(), error })
    }

    /// Sends it to the other hosts of the cluster, whose gateways write it there. Blocks until each has
    /// answered or is given up.
    pub fn forward(&self, site: &Site) -> Forwarded {
        let Some(mut gateways) = site.deployment.gateways(&site.cluster) else { return Forwarded::All };
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let mut missed = Vec::new();
        for host in gateways.others() {
            if let Err(why) = gateways.note(host, &bytes) {
                missed.push(format!("host {host}: {why}"));
            }
        }
        if missed.is_empty() { Forwarded::All } else { Forwarded::Not(missed.join("; ")) }
    }

    /// An annotation that another host has sent, as of now on this host's clock; `None` if it is none.
    pub fn received(bytes: &[u8], now: Instant) -> Option<Self> {
        let Self { text, drill, rollout, mut forgotten, acknowledged, .. } =
            serde_json::from_slice(bytes).ok()?;
        forgotten.truncate(NAMES_MAX);
        let Self { at, text, .. } = Self::note(now, &text).ok()?;
        let is_short = |text: &str| text.chars().count() <= CHARS_MAX && !text.chars().any(char::is_control);
        let fits = |drill: &DrillMark| is_short(&drill.name) && drill.verdict.as_deref().is_none_or(is_short);
        let are_few = |lines: &[String]| lines.len() <= LINES_MAX && lines.iter().all(|line| is_short(line));
        let shows = |rollout: &RolloutMark| {
            is_short(&rollout.name)
                && is_short(&rollout.phase)
                && are_few(&rollout.compared)
                && are_few(&rollout.wrong)
        };
        let is_known = |known: &Acknowledgement| {
            is_short(&known.incident) && is_short(&known.by) && known.names.len() <= NAMES_MAX
        };
        let acknowledged = acknowledged.filter(is_known);
        Some(Self {
            at,
            text,
            drill: drill.filter(fits),
            rollout: rollout.filter(shows),
            forgotten,
            acknowledged,
        })
    }
}

/// Whether a file became full within [`RECEIVED_FULL_EVERY`].
fn was_just_full(dir: &Path) -> bool {
    let filled = std::fs::metadata(dir.join(OLD_FILE)).and_then(|meta| meta.modified());
    filled.is_ok_and(|at| at.elapsed().is_ok_and(|passed| passed < RECEIVED_FULL_EVERY))
}

/// Puts another file in the place of a full one.
fn put_aside(dir: &Path, path: &Path) -> io::Result<()> {
    let lock = File::options().append(true).create(true).open(dir.join(LOCK_FILE))?;
    // Another program that does so is not waited for.
    let Some(_one) = FileLock::try_new(lock)? else { return Ok(()) };
    // It may just have done so.
    if std::fs::metadata(path).is_ok_and(|meta| meta.len() >= FILE_BYTES_MAX) {
        std::fs::rename(path, dir.join(OLD_FILE))?;
    }
    Ok(())
}

/// Reads annotations as they are added.
#[derive(Debug)]
pub struct Marks {
    /// The older file, and the one that is written.
    paths: [PathBuf; 2],
    /// How far files were read, by their inodes, at the last look; and at the one before, because one
    /// may be moved during a look.
    read: [BTreeMap<u64, u64>; 2],
}

impl Marks {
    /// Reads the annotations of the cluster in this directory, from the first that are kept.
    pub fn new(dir: &Path) -> Self {
        Self { paths: [OLD_FILE, FILE].map(|name| dir.join(name)), read: Default::default() }
    }

    /// Annotations that were added since the last call. Invalid and incomplete lines are skipped.
    pub fn news(&mut self) -> io::Result<Vec<Mark>> {
        let mut marks = Vec::new();
        let mut read = BTreeMap::new();
        for path in self.paths.clone() {
            let file = match File::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                file => file?,
            };
            let meta = file.metadata()?;
            let from = self.read.iter().find_map(|read| read.get(&meta.ino()).copied()).unwrap_or_default();
            // Another file that has got its inode.
            let from = if from > meta.len() { 0 } else { from };
            let at = take(file, from, meta.len(), &mut marks)?;
            read.insert(meta.ino(), at);
        }
        let [now, before] = &mut self.read;
        *before = std::mem::replace(now, read);
        Ok(marks)
    }
}

/// Reads a file from there to its end, its newest part if it is long; returns how far.
fn take(mut file: File, from: u64, len: u64, marks: &mut Vec<Mark>) -> io::Result<u64> {
    let start = from.max(len.saturating_sub(READ_MAX));
    if start >= len {
        return Ok(from);
    }
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(READ_MAX).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = bytes[..whole].split(|byte| *byte == b'\n');
    marks.extend(lines.filter_map(|line| serde_json::from_slice::<Mark>(line).ok()));
    Ok(start + whole as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_once_and_in_order() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let mut marks = Marks::new(dir);
        assert_eq!(marks.news().expect("there is no file yet"), []);
        let note = |n: u64| Mark::note(Instant(n), &format!(" note {n} ")).expect("a note");
        note(1).write(dir).expect("written");
        let drill = Mark::drill(Instant(2), "freeze", Some("void"));
        drill.write(dir).expect("written");
        assert_eq!(marks.news().expect("read"), [note(1), drill]);
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.join(FILE))
            .and_then(|mut file| file.write_all(b"nonsense\n{\"at\":3,"))
            .expect("written");
        assert_eq!(marks.news().expect("read"), []);
        note(4).write(dir).expect("written");
        assert_eq!(marks.news().expect("read"), [note(4)], "the line before it was cut off");
        note(5).write(dir).expect("written");
        assert_eq!(marks.news().expect("read"), [note(5)]);
    }

    #[test]
    fn annotations_are_always_possible_in_a_bounded_space_and_each_is_read_once() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let mut marks = Marks::new(dir);
        let text = "x".repeat(CHARS_MAX);
        let mut read = 0u64;
        // Three times what fits.
        let wanted = 6 * FILE_BYTES_MAX / text.len() as u64;
        for n in 1..=wanted {
            Mark::note(Instant(n), &text).expect("a note").write(dir).expect("written");
            if n % 997 == 0 || n == wanted {
                for mark in marks.news().expect("read") {
                    read += 1;
                    assert_eq!(mark.at, read, "each once, in order");
                }
            }
        }
        assert_eq!(read, wanted);
        let bytes = |name| std::fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
        let line = 2 * text.len() as u64;
        assert!(bytes(OLD_FILE) >= FILE_BYTES_MAX && bytes(OLD_FILE) < FILE_BYTES_MAX + line);
        assert!(bytes(FILE) < FILE_BYTES_MAX + line);
        // A reader that comes later has the newest.
        let last = Marks::new(dir).news().expect("read").last().map(|mark| mark.at);
        assert_eq!(last, Some(wanted));
    }

    #[test]
    fn what_another_host_sends_is_checked_and_has_the_time_of_this_one() {
        let sent = |mark: &Mark| Mark::received(&serde_json::to_vec(mark).expect("JSON"), Instant(9));
        let note = Mark::note(Instant(1), "deploy").expect("a note");
        assert_eq!(sent(&note), Some(Mark { at: 9, ..note.clone() }));
        let drill = Mark::drill(Instant(1), "freeze", Some("passed"));
        assert_eq!(sent(&drill), Some(Mark { at: 9, ..drill }));
        let names: BTreeSet<Name> = Name::new("node-2").into_iter().collect();
        let known = |by: &str| Acknowledgement {
            incident: "node-2".to_owned(),
            by: by.to_owned(),
            names: names.clone(),
        };
        let acknowledged = Mark::acknowledged(Instant(1), known("alice"), &"x".repeat(CHARS_MAX));
        assert_eq!(sent(&acknowledged), Some(Mark { at: 9, ..acknowledged }));
        let hostile = Mark { acknowledged: Some(known("a\nb")), ..note.clone() };
        assert_eq!(sent(&hostile).map(|mark| mark.acknowledged), Some(None));
        for text in ["a\nb".to_owned(), "x".repeat(CHARS_MAX + 1)] {
            assert_eq!(sent(&Mark { text, ..note.clone() }), None);
        }
        let name = "x".repeat(CHARS_MAX + 1);
        let hostile = Mark { drill: Some(DrillMark { name, verdict: None }), ..note };
        assert_eq!(sent(&hostile).and_then(|mark| mark.drill), None);
        assert_eq!(Mark::received(b"{}", Instant(9)), None);
    }

    #[test]
    fn a_note_is_one_line() {
        for text in ["", "  ", "a\nb", &"x".repeat(CHARS_MAX + 1)] {
            assert!(Mark::note(Instant(1), text).is_err(), "{text:?}");
        }
        assert_eq!(
            Mark::note(Instant(1), "deploy 1.4").map(|mark| mark.text).ok().as_deref(),
            Some("deploy 1.4")
        );
    }
}
