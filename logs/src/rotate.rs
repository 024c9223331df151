//! Files with a bounded size. A process has at most [`FILES_MAX`] files of [`FILE_BYTES_MAX`] bytes:
//! `NAME.log`, which is written, and `NAME.log.1` to `NAME.log.3`, from the newest to the oldest.
//!
//! Rotation by time, as `tracing-appender` has it, bounds how many files there are and not how large
//! they grow. Its own thread would also be a second one in each process, whose end the proof of a
//! death waits for.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The largest size of a file.
pub const FILE_BYTES_MAX: u64 = 4 << 20;
/// Files of a process, the one that is written included.
pub const FILES_MAX: u32 = 4;
/// Processes of one name that write at the same time: a restarted one beside its frozen
/// predecessor, or drills.
const WRITERS_MAX: u32 = 16;

/// A log file that is written.
#[derive(Debug)]
pub(crate) struct Rotating {
    path: PathBuf,
    /// Locked for as long as it is open.
    file: File,
    bytes: u64,
    bytes_max: u64,
    /// Lines since the last write to the file.
    buffer: Vec<u8>,
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{number}"));
    name.into()
}

fn open(path: &Path) -> io::Result<Option<File>> {
    let file = File::options().append(true).create(true).mode(0o600).open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl Rotating {
    /// Opens the log of a process. If another process of its name writes it, the log is
    /// `NAME~2.log` instead, and so on.
    pub(crate) fn open(folder: &Path, name: &str) -> io::Result<Self> {
        Self::open_bounded(folder, name, FILE_BYTES_MAX)
    }

    fn open_bounded(folder: &Path, name: &str, bytes_max: u64) -> io::Result<Self> {
        for number in 1..=WRITERS_MAX {
            let file_name = if number == 1 { format!("{name}.log") } else { format!("{name}~{number}.log") };
            let path = folder.join(file_name);
            if let Some(file) = open(&path)? {
                let bytes = file.metadata()?.len();
                return Ok(Self { path, file, bytes, bytes_max, buffer: Vec::new() });
            }
        }
        Err(io::Error::new(
            ErrorKind::ResourceBusy,
            format!("{WRITERS_MAX} processes named {name} write logs"),
        ))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a line. It is in the file after [`Rotating::flush`].
    pub(crate) fn line(&mut self, line: &str) -> io::Result<()> {
        let bytes = line.len() as u64 + 1;
        if self.bytes > 0 && self.bytes + bytes > self.bytes_max {
            self.flush()?;
            self.rotate()?;
        }
        self.bytes += bytes;
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        Ok(())
    }

    /// Writes what was added.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        // What a full disk has no room for is lost: a later line counts more.
        self.buffer.clear();
        written
    }

    fn rotate(&mut self) -> io::Result<()> {
        for number in (1..FILES_MAX - 1).rev() {
            match fs::rename(numbered(&self.path, number), numbered(&self.path, number + 1)) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, numbered(&self.path, 1))?;
        // The name is free now; only another process that starts right now could take it.
        let taken = || io::Error::new(ErrorKind::ResourceBusy, "another process took the log file");
        self.file = open(&self.path)?.ok_or_else(taken)?;
        self.bytes = self.file.metadata()?.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(folder: &Path) -> (usize, u64) {
        let files: Vec<_> = fs::read_dir(folder).expect("listed").map(|entry| entry.expect("read")).collect();
        (files.len(), files.iter().map(|file| file.metadata().expect("read").len()).sum())
    }

    #[test]
    fn files_have_a_bounded_size_and_keep_the_newest_lines() {
        let folder = tempfile::tempdir().expect("made");
        let folder = folder.path();
        let mut log = Rotating::open_bounded(folder, "node-1", 100).expect("opened");
        for n in 0..1000 {
            log.line(&format!("line {n:04}")).expect("written");
            log.flush().expect("written");
            let (files, bytes) = total(folder);
            assert!(files <= FILES_MAX as usize && bytes <= 400, "{files} files, {bytes} bytes");
        }
        let kept = ["node-1.log.3", "node-1.log.2", "node-1.log.1", "node-1.log"];
        let text: String = kept.map(|name| fs::read_to_string(folder.join(name)).expect("there")).concat();
        let first: usize = text[5..9].parse().expect("a number");
        let wanted: String = (first..1000).map(|n| format!("line {n:04}\n")).collect();
        assert_eq!(text, wanted, "the newest lines are there without a gap");
        assert!(1000 - first > 30);
    }

    #[test]
    fn a_log_is_continued_and_two_writers_have_two_files() {
        let folder = tempfile::tempdir().expect("made");
        let folder = folder.path();
        let mut first = Rotating::open(folder, "drill").expect("opened");
        first.line("one").and_then(|()| first.flush()).expect("written");
        let mut second = Rotating::open(folder, "drill").expect("opened");
        assert!(second.path().ends_with("drill~2.log"));
        second.line("two").and_then(|()| second.flush()).expect("written");
        drop(first);
        let mut again = Rotating::open(folder, "drill").expect("opened");
        again.line("three").and_then(|()| again.flush()).expect("written");
        assert_eq!(fs::read_to_string(folder.join("drill.log")).expect("read"), "one\nthree\n");
    }
}
