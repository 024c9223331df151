//! Notes of operators beside a cluster's memory: "deploy 1.4 began here", or a drill that began or
//! ended. Every console and recorder of the cluster reads them, so what was noted in one terminal
//! divides before from after in all.
//!
//! A note is one line of JSON in the file `marks` of the cluster's directory, which goes with the
//! cluster. Each line is written at once, so notes of several programs do not mix.

use obol_fabric::Instant;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// The file in a cluster's directory.
const FILE: &str = "marks";
/// A note is at most so many characters.
pub const CHARS_MAX: usize = 120;
/// What is read of the file at most; older notes are left out.
const READ_MAX: u64 = 1 << 20;

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When, on the host's monotonic clock, in nanoseconds.
    pub at: u64,
    /// What was noted.
    pub text: String,
    /// The drill that it tells of, if it was no person who noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<DrillMark>,
}

/// The beginning of a drill, or its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrillMark {
    /// The drill.
    pub name: String,
    /// How it ended; none where it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
}

/// Why something can not be noted.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// There is nothing in it, or it is too long.
    #[error("a note is one line of 1 to {CHARS_MAX} characters without control characters; this has {chars}")]
    Text {
        /// Its length.
        chars: usize,
    },
    /// The file can not be written.
    #[error("could not write {path}: {error}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Mark {
    /// A person's note.
    pub fn note(at: Instant, text: &str) -> Result<Self, MarkError> {
        let text = text.trim();
        let chars = text.chars().count();
        if !(1..=CHARS_MAX).contains(&chars) || text.chars().any(char::is_control) {
            return Err(MarkError::Text { chars });
        }
        Ok(Self { at: at.0, text: text.to_owned(), drill: None })
    }

    /// A drill that begins, or that ended with this verdict.
    #[must_use]
    pub fn drill(at: Instant, name: &str, verdict: Option<&str>) -> Self {
        let text =
            verdict.map_or(format!("drill {name} begins"), |verdict| format!("drill {name}: {verdict}"));
        let drill = DrillMark { name: name.to_owned(), verdict: verdict.map(str::to_owned) };
        Self { at: at.0, text, drill: Some(drill) }
    }

    /// Writes it beside the memory of the cluster in this directory.
    pub fn write(&self, dir: &Path) -> Result<(), MarkError> {
        let path = dir.join(FILE);
        let written = || {
            let mut line = serde_json::to_vec(self)?;
            line.push(b'\n');
            File::options().append(true).create(true).open(&path)?.write_all(&line)
        };
        written().map_err(|error| MarkError::Io { path: path.clone(), error })
    }
}

/// Reads notes as they come.
#[derive(Debug)]
pub struct Marks {
    path: PathBuf,
    read: u64,
}

impl Marks {
    /// The notes of the cluster in this directory, from the first on.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        Self { path: dir.join(FILE), read: 0 }
    }

    /// Those that came since the last call. What is no note is left out, and so is a line that is
    /// not whole yet.
    pub fn news(&mut self) -> io::Result<Vec<Mark>> {
        let len = match std::fs::metadata(&self.path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if len <= self.read {
            return Ok(Vec::new());
        }
        let mut file = File::open(&self.path)?;
        let from = self.read.max(len.saturating_sub(READ_MAX));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.read = from + whole as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_once_and_in_order() {
        let dir = std::env::temp_dir().join(format!("obol-marks-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let mut marks = Marks::new(&dir);
        assert_eq!(marks.news().expect("there is no file yet"), []);
        let note = |n: u64| Mark::note(Instant(n), &format!(" note {n} ")).expect("a note");
        note(1).write(&dir).expect("written");
        let drill = Mark::drill(Instant(2), "freeze", Some("void"));
        drill.write(&dir).expect("written");
        assert_eq!(marks.news().expect("read"), [note(1), drill]);
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.join(FILE))
            .and_then(|mut file| file.write_all(b"nonsense\n{\"at\":3,"))
            .expect("written");
        assert_eq!(marks.news().expect("read"), []);
        note(4).write(&dir).expect("written");
        assert_eq!(marks.news().expect("read"), [], "it was written into a line of nonsense");
        note(5).write(&dir).expect("written");
        assert_eq!(marks.news().expect("read"), [note(5)]);
        std::fs::remove_dir_all(&dir).expect("removed");
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
