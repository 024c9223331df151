//! Reads files named by operators, with a size limit, and only files that cannot block the reader
//! for ever.

use nix::fcntl::OFlag;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Whether a pipe is accepted, as from `<(command)` or `
///
/// obol .. /dev/stdin`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipes {
    /// For text, which may have any source.
    Allowed,
    /// For binary formats, which are read from regular files only.
    Refused,
}

/// Opens a file named by an operator. Rejects files without an end, or that may block for ever:
/// devices and named pipes.
pub fn open(path: &Path, pipes: Pipes) -> io::Result<File> {
    // Otherwise the open itself waits for a writer of a pipe.
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() {
        return Ok(file);
    }
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    if meta.file_type().is_fifo() && pipes == Pipes::Allowed {
        // An unnamed pipe was created with its writer, which may be slow: block on it.
        if fs::read_link(&itself)?.to_string_lossy().starts_with("pipe:") {
            return File::open(&itself);
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, format!("is {}, not a regular file", kind(&meta))))
}

fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a device"
    }
}

/// The contents of such a file, if they do not exceed the limit. `what` describes the file in
/// errors.
pub fn read(path: &Path, pipes: Pipes, bytes_max: u64, what: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, pipes)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("is longer than {bytes_max} bytes, the limit of this kind of file ({what})");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// The text in such a file, or in a pipe.
pub fn text(path: &Path, bytes_max: u64, what: &str) -> io::Result<String> {
    String::from_utf8(read(path, Pipes::Allowed, bytes_max, what)?)
        .map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("is not text: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::Command;

    fn said(path: impl AsRef<Path>) -> String {
        let read = text(path.as_ref(), 8, "word");
        read.map_or_else(|error| format!("refused: {error}"), |text| format!("read: {text}"))
    }

    #[test]
    fn a_file_is_read_up_to_its_bound_and_what_has_no_end_is_refused() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let (file, fifo) = (dir.join("file"), dir.join("fifo"));
        fs::write(&file, "12345678").expect("written");
        assert_eq!(said(&file), "read: 12345678");
        fs::write(&file, "123456789").expect("written");
        assert_eq!(said(&file), "refused: is longer than 8 bytes, the limit of this kind of file (word)");
        fs::write(&file, [0xff]).expect("written");
        assert!(said(&file).starts_with("refused: is not text"), "{}", said(&file));
        let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo runs");
        assert!(made.success());
        assert_eq!(said(&fifo), "refused: is a pipe, not a regular file", "nobody writes to it");
        assert_eq!(said("/dev/zero"), "refused: is a device, not a regular file");
        assert_eq!(said(dir), "refused: is a directory, not a regular file");
        let missing = text(&dir.join("missing"), 8, "word").map_err(|error| error.kind());
        assert_eq!(missing, Err(ErrorKind::NotFound));
    }

    #[test]
    fn a_pipe_without_a_name_is_read_where_text_is_wanted() {
        let (from, mut to) = io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", from.as_raw_fd());
        let refused = open(Path::new(&path), Pipes::Refused).map_err(|error| error.to_string());
        assert_eq!(refused.map(drop), Err("is a pipe, not a regular file".to_owned()));
        // The text comes late, and in parts.
        let writer = std::thread::spawn(move || {
            for part in ["1234", "567"] {
                to.write_all(part.as_bytes()).expect("written");
            }
        });
        assert_eq!(said(&path), "read: 1234567");
        writer.join().expect("it wrote");
    }
}
