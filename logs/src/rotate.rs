//! Files with a bounded size. A process has at most [`FILES_MAX`] files of [`FILE_BYTES_MAX`] bytes:
//! `NAME.log`, which is written, and `NAME.log.1` to `NAME.log.3`, from the newest to the oldest.
//!
//! Rotation by time, as `tracing-appender` has it, bounds how many files there are and not how large
//! they grow. Its own thread would also be a second one in each process, whose end the proof of a
//! death waits for.

use obol_node::FileLock;
use obol_observe::lines;
use std::fs::{self, File};
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

/// Logs in a folder at most, each with its older files: jobs that have names of their own would fill it.
const LOGS_MAX: usize = 1024;

/// A log file that is written.
#[derive(Debug)]
pub(crate) struct Rotating {
    path: PathBuf,
    file: FileLock,
    /// Bytes in it, which are whole lines but for what `after_half` says.
    bytes: u64,
    /// It ends with a part of a line, which a process that was killed has left: the next line begins after
    /// that, and not within it.
    after_half: bool,
    bytes_max: u64,
    /// Lines since the last write to the file.
    buffer: Vec<u8>,
    buffered: u64,
}

/// Lines that could not be written.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) lines: u64,
    pub(crate) why: io::Error,
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{number}"));
    name.into()
}

/// The file that becomes `NAME.log` when that is full.
fn fresh(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".new");
    name.into()
}

/// Removes the logs that were written longest ago, if there are more than `most`, but none that a
/// process writes.
fn retire(folder: &Path, most: usize) -> io::Result<()> {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).filter(is_log).collect();
    let beyond = paths.len().saturating_sub(most);
    if beyond == 0 {
        return Ok(());
    }
    // One that has gone meanwhile is not in the way.
    let written = |path: PathBuf| Some((fs::metadata(&path).and_then(|meta| meta.modified()).ok()?, path));
    let mut logs: Vec<_> = paths.into_iter().filter_map(written).collect();
    logs.sort_unstable();
    for (_, path) in logs.into_iter().take(beyond) {
        let Some(lock) = FileLock::try_new(File::open(&path)?)? else { continue };
        let older = (1..FILES_MAX).map(|number| numbered(&path, number)).filter(|older| older.exists());
        older.chain([path.clone()]).try_for_each(fs::remove_file)?;
        drop(lock);
    }
    Ok(())
}

/// Opens a file unless another process writes it.
fn open(path: &Path) -> io::Result<Option<FileLock>> {
    FileLock::try_new(File::options().read(true).append(true).create(true).mode(0o600).open(path)?)
}

impl Rotating {
    /// Opens the log of a process. If another process of its name writes it, the log is
    /// `NAME~2.log` instead, and so on.
    pub(crate) fn open(folder: &Path, name: &str) -> io::Result<Self> {
        Self::open_bounded(folder, name, FILE_BYTES_MAX)
    }

    fn open_bounded(folder: &Path, name: &str, bytes_max: u64) -> io::Result<Self> {
        // A folder that cannot be tidied up can still be written to.
        let _ = retire(folder, LOGS_MAX - 1);
        for number in 1..=WRITERS_MAX {
            let file_name = if number == 1 { format!("{name}.log") } else { format!("{name}~{number}.log") };
            let path = folder.join(file_name);
            if let Some(file) = open(&path)? {
                let bytes = file.metadata()?.len();
                let after_half = !lines::begins(&file, bytes)?;
                return Ok(Self {
                    path,
                    file,
                    bytes,
                    after_half,
                    bytes_max,
                    buffer: Vec::new(),
                    buffered: 0,
                });
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

    /// Bytes of the file before the next line.
    fn taken(&self) -> u64 {
        self.bytes + u64::from(self.after_half)
    }

    /// Adds a line. It is in the file after [`Rotating::flush`].
    pub(crate) fn line(&mut self, line: &str) -> Result<(), Lost> {
        let bytes = line.len() as u64 + 1;
        let mut flushed = Ok(());
        let held = self.taken() + self.buffer.len() as u64;
        if held > 0 && held + bytes > self.bytes_max {
            flushed = self.flush().map(drop);
            if self.bytes > 0 && self.taken() + bytes > self.bytes_max {
                let before = flushed.as_ref().err().map_or(0, |lost: &Lost| lost.lines);
                self.rotate().map_err(|why| Lost { lines: before + 1, why })?;
            }
        }
        self.buffer.extend_from_slice(line.as_bytes());
        self.buffer.push(b'\n');
        self.buffered += 1;
        flushed
    }

    /// Writes what was added. Returns how many lines that were.
    pub(crate) fn flush(&mut self) -> Result<u64, Lost> {
        let lines = std::mem::take(&mut self.buffered);
        if self.after_half && !self.buffer.is_empty() {
            self.buffer.insert(0, b'\n');
        }
        let written = (&*self.file).write_all(&self.buffer);
        let bytes = self.buffer.len() as u64;
        self.buffer.clear();
        match written {
            Ok(()) => {
                self.bytes += bytes;
                self.after_half &= bytes == 0;
            }
            Err(why) => {
                // What a full disk has no room for is lost. A part of a line would run into the next one.
                let _ = self.cut();
                return Err(Lost { lines, why });
            }
        }
        Ok(lines)
    }

    /// Removes what was written of a line.
    fn cut(&self) -> io::Result<()> {
        if self.file.metadata()?.len() > self.bytes { self.file.set_len(self.bytes) } else { Ok(()) }
    }

    /// Begins another file. The earlier ones stay as they are if there is no room for it.
    fn rotate(&mut self) -> io::Result<()> {
        let taken = || io::Error::new(ErrorKind::ResourceBusy, "another process took the log file");
        let fresh = fresh(&self.path);
        let file = open(&fresh)?.ok_or_else(taken)?;
        for number in (1..FILES_MAX - 1).rev() {
            shift(&numbered(&self.path, number), &numbered(&self.path, number + 1))?;
        }
        shift(&self.path, &numbered(&self.path, 1))?;
        // The name is free now; only another process that starts right now could take it.
        if self.path.exists() {
            return Err(taken());
        }
        fs::rename(&fresh, &self.path)?;
        (self.file, self.bytes, self.after_half) = (file, 0, false);
        Ok(())
    }
}

/// Renames a file, if it is there: an operator may have removed it.
fn shift(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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
    fn of_many_names_the_newest_logs_are_kept_and_none_that_is_written() {
        let folder = tempfile::tempdir().expect("made");
        let folder = folder.path();
        let written = Rotating::open(folder, "job-0").expect("opened");
        for n in 1..20u64 {
            let path = folder.join(format!("job-{n}.log"));
            fs::write(&path, "a line\n").expect("written");
            let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + n);
            File::options().append(true).open(&path).and_then(|file| file.set_modified(at)).expect("set");
        }
        fs::write(folder.join("job-1.log.1"), "older\n").expect("written");
        fs::write(folder.join("notes.txt"), "no log\n").expect("written");
        retire(folder, 5).expect("retired");
        let names: std::collections::BTreeSet<String> = fs::read_dir(folder)
            .expect("listed")
            .map(|entry| entry.expect("read").file_name().into_string().expect("text"))
            .collect();
        let wanted = ["job-0.log", "job-16.log", "job-17.log", "job-18.log", "job-19.log", "notes.txt"];
        assert_eq!(names, wanted.map(str::to_owned).into());
        // Whatever its age.
        File::options()
            .append(true)
            .open(written.path())
            .and_then(|file| file.set_modified(std::time::SystemTime::UNIX_EPOCH))
            .expect("set");
        retire(folder, 2).expect("retired");
        assert!(written.path().exists() && folder.join("job-19.log").exists());
        assert!(!folder.join("job-16.log").exists());
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
        let write = |log: &mut Rotating, line: &str| {
            log.line(line).expect("added");
            assert_eq!(log.flush().expect("written"), 1);
        };
        write(&mut first, "one");
        let mut second = Rotating::open(folder, "drill").expect("opened");
        assert!(second.path().ends_with("drill~2.log"));
        write(&mut second, "two");
        drop(first);
        let mut again = Rotating::open(folder, "drill").expect("opened");
        write(&mut again, "three");
        assert_eq!(fs::read_to_string(folder.join("drill.log")).expect("read"), "one\nthree\n");
    }

    #[test]
    fn the_first_line_after_half_of_one_is_a_line_of_its_own() {
        let folder = tempfile::tempdir().expect("made");
        let folder = folder.path();
        let path = folder.join("node-1.log");
        fs::write(&path, "one\nhal").expect("written");
        let mut log = Rotating::open(folder, "node-1").expect("opened");
        assert_eq!(log.flush().expect("nothing to write"), 0);
        // Also if the first attempt fails.
        log.file.unlock().expect("unlocked");
        let read_only = File::open(&path).and_then(FileLock::wait).expect("locked");
        let writable = std::mem::replace(&mut log.file, read_only);
        log.line("lost").expect("added");
        assert_eq!(log.flush().expect_err("it is read only").lines, 1);
        log.file = writable;
        for line in ["two", "three"] {
            log.line(line).expect("added");
            assert_eq!(log.flush().expect("written"), 1);
        }
        let text = "one\nhal\ntwo\nthree\n";
        assert_eq!(fs::read_to_string(&path).expect("read"), text);
        assert_eq!(log.bytes, text.len() as u64);
        // Another life adds nothing to whole lines.
        drop(log);
        let mut log = Rotating::open(folder, "node-1").expect("opened");
        log.line("four").expect("added");
        assert_eq!(log.flush().expect("written"), 1);
        assert_eq!(fs::read_to_string(&path).expect("read"), format!("{text}four\n"));
        // A file that is full goes on as another one, which begins with a line.
        drop(log);
        fs::write(&path, "half of a line").expect("written");
        let mut log = Rotating::open_bounded(folder, "node-1", 20).expect("opened");
        log.line("12345").expect("added");
        assert_eq!(log.flush().expect("written"), 1);
        assert_eq!(fs::read_to_string(&path).expect("read"), "12345\n");
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted_and_the_lines_of_before_and_after_are_whole() {
        let folder = tempfile::tempdir().expect("made");
        let folder = folder.path();
        let mut log = Rotating::open_bounded(folder, "node-1", 100).expect("opened");
        let flush = |log: &mut Rotating, lines: &[&str]| {
            lines.iter().for_each(|line| log.line(line).expect("added"));
            log.flush()
        };
        assert_eq!(flush(&mut log, &["one", "two"]).expect("written"), 2);
        let path = folder.join("node-1.log");
        log.file.unlock().expect("unlocked");
        let read_only = File::open(&path).and_then(FileLock::wait).expect("locked");
        let writable = std::mem::replace(&mut log.file, read_only);
        assert_eq!(flush(&mut log, &["three", "four"]).expect_err("it is read only").lines, 2);
        // More than a file holds: nothing was written, so there is no reason for another file.
        for _ in 0..20 {
            let lost = log.line("a long line: few fit in a file").err().map_or(0, |lost| lost.lines);
            assert!(lost <= 3, "{lost}");
        }
        drop(log.flush());
        assert!(!folder.join("node-1.log.1").exists());
        log.file = writable;
        // What a full disk has taken of a line.
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"fi"))
            .expect("written");
        log.cut().expect("cut");
        assert_eq!(flush(&mut log, &["six"]).expect("written"), 1);
        assert_eq!(fs::read_to_string(&path).expect("read"), "one\ntwo\nsix\n");
    }

    #[test]
    fn a_log_goes_on_after_its_files_were_removed_and_without_room_for_another_the_old_ones_stay() {
        let folder = tempfile::tempdir().expect("made");
        let folder = folder.path();
        let mut log = Rotating::open_bounded(folder, "node-1", 10).expect("opened");
        let mut write = |line: &str| log.line(line).and_then(|()| log.flush());
        for line in ["1234567", "2345678"] {
            write(line).expect("written");
        }
        fs::remove_file(folder.join("node-1.log")).expect("removed");
        write("3456789").expect("written to another file");
        assert_eq!(fs::read_to_string(folder.join("node-1.log")).expect("read"), "3456789\n");
        assert_eq!(fs::read_to_string(folder.join("node-1.log.2")).expect("read"), "1234567\n");
        // Its place is taken, as by a folder that is not writable.
        let fresh = fresh(&folder.join("node-1.log"));
        fs::create_dir(&fresh).expect("made");
        for _ in 0..5 {
            assert_eq!(write("4567890").expect_err("no room").lines, 1);
        }
        assert_eq!(fs::read_to_string(folder.join("node-1.log.2")).expect("read"), "1234567\n");
        fs::remove_dir(&fresh).expect("removed");
        write("5678901").expect("written");
        assert_eq!(fs::read_to_string(folder.join("node-1.log")).expect("read"), "5678901\n");
    }
}
