//! Output to the terminal: text and JSON on standard output, errors on standard error, exit codes.
//! All commands use it, so control sequences in names or files are escaped here.

use crate::{file, plain};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of an attempt without a result: of [`Failure::Void`], and of the verdicts that say so.
pub const VOID: u8 = 6;
/// The exit code of an attempt that a signal ended: of [`Failure::Interrupted`], and of the verdicts that say
/// so.
pub const INTERRUPTED: u8 = 5;

/// The exit code of a command whose output could not be written: none that a verdict or a health has.
pub const UNWRITTEN: u8 = 7;

/// Why a command failed. The text says what, where, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An impossible request: exit code 2.
    #[error("{0}")]
    Refused(String),
    /// An attempt that failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// No result, because the attempt could not be made: exit code [`VOID`].
    #[error("{0}")]
    Void(String),
    /// No result, because a signal ended the attempt before: exit code [`INTERRUPTED`].
    #[error("{0}")]
    Interrupted(String),
    /// The output could not be written: exit code [`UNWRITTEN`].
    #[error("could not write the output: {0}")]
    Output(#[from] io::Error),
}

impl Failure {
    /// A rejection, with its reason.
    pub fn refused(error: impl fmt::Display) -> Self {
        Self::Refused(error.to_string())
    }

    /// A failed attempt, with its reason.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// A rejection because of a file or folder.
    pub fn refused_at(path: &Path) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |error| Self::Refused(format!("{}: {error}", path.display()))
    }

    /// A failed attempt at a file or folder.
    pub fn failed_at(path: &Path) -> impl Fn(io::Error) -> Self + Copy + '_ {
        move |error| Self::Failed(format!("{}: {error}", path.display()))
    }

    /// The exit code of the command.
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
            Self::Void(_) => ExitCode::from(VOID),
            Self::Interrupted(_) => ExitCode::from(INTERRUPTED),
            Self::Output(_) => ExitCode::from(UNWRITTEN),
        }
    }
}

/// Whether the command goes on when the reader of its output has gone.
static GOES_ON_UNREAD: AtomicBool = AtomicBool::new(false);

/// From now on, output that nobody reads any more is dropped, and the command goes on: for commands
/// whose exit code is a verdict, which `| head` must not change.
pub fn go_on_unread() {
    GOES_ON_UNREAD.store(true, Ordering::Relaxed);
}

/// What Linux reports of a terminal that was closed.
const EIO: i32 = 5;

/// Whether an error of writing to `out` means that nobody reads: the pipe, or the terminal, is gone. From a
/// file it is of its disk.
fn is_unread(error: &io::Error, out: impl AsFd) -> bool {
    error.kind() == ErrorKind::BrokenPipe || error.raw_os_error() == Some(EIO) && is_character_device(out)
}

fn is_character_device(out: impl AsFd) -> bool {
    let file = out.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|found| found.file_type().is_char_device())
}

fn unread(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if is_unread(&error, io::stdout()) && GOES_ON_UNREAD.load(Ordering::Relaxed) => Ok(()),
        written => written,
    }
}

/// Prints a line.
pub fn line(text: impl fmt::Display) -> io::Result<()> {
    unread(writeln!(io::stdout().lock(), "{}", plain::lines(&text.to_string())))
}

/// Prints a whole text.
pub fn text(text: &str) -> io::Result<()> {
    bytes(plain::lines(text).as_bytes())
}

/// Prints this program's own bytes, unescaped.
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // A line without an end would be written when the process ends, and an error lost.
    unread(out.write_all(bytes).and_then(|()| out.flush()))
}

/// Fails as a write would if nobody reads the output any more: for commands that wait for what they print.
pub fn check_read() -> io::Result<()> {
    unread(has_reader(io::stdout()))
}

fn has_reader(out: impl AsFd) -> io::Result<()> {
    let mut polled = [PollFd::new(out.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::ZERO) {
        // The next check comes soon.
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_gone = |found: PollFlags| found.intersects(PollFlags::POLLERR | PollFlags::POLLHUP);
    if polled[0].revents().is_some_and(is_gone) { Err(ErrorKind::BrokenPipe.into()) } else { Ok(()) }
}

/// Prints a value that a user has stored, and ends the line: on a terminal as text with escapes, elsewhere
/// as its bytes are.
pub fn value(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let is_terminal = out.is_terminal();
    unread(put_value(bytes, is_terminal, &mut out))
}

fn put_value(bytes: &[u8], is_terminal: bool, out: &mut impl Write) -> io::Result<()> {
    if is_terminal {
        return writeln!(out, "{}", plain::lines(&String::from_utf8_lossy(bytes)));
    }
    out.write_all(bytes)?;
    out.write_all(b"\n")
}

/// Prints one JSON value on one line.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    line(plain::json(&serde_json::to_string(value)?))
}

/// Prints a value as JSON, or else as `text` does.
pub fn json_or<T: Serialize>(
    as_json: bool,
    value: &T,
    text: impl FnOnce(&T) -> io::Result<()>,
) -> io::Result<()> {
    if as_json { json(value) } else { text(value) }
}

/// Prints a text in TOML as JSON, or else as it is. Keys and values are the same in both.
pub fn toml_or_json(as_json: bool, text: &str) -> Result<(), Failure> {
    if !as_json {
        return Ok(self::text(text)?);
    }
    let value: serde_json::Value = toml::from_str(text).map_err(Failure::failed)?;
    Ok(json(&value)?)
}

/// Writes a file that a user has named, whole or not at all (see [`file::replace`]).
pub fn file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), Failure> {
    if file::is_standard_output(path) {
        return Ok(bytes(content.as_ref())?);
    }
    file::replace(path, content.as_ref()).map_err(unwritable(path))
}

/// Fails if a file cannot be written there, before the work that its content takes.
pub fn may_write(path: &Path) -> Result<(), Failure> {
    file::may_replace(path).map_err(unwritable(path))
}

fn unwritable(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::Failed(format!("cannot write {}: {error}", path.display()))
}

/// Makes the directory of a report, which must not exist yet: what an earlier run found is evidence, too.
pub fn new_directory(dir: &Path) -> Result<&Path, Failure> {
    fs::create_dir(dir).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::Refused(format!("{} exists; nothing is overwritten", dir.display()))
        }
        _ => Failure::refused_at(dir)(error),
    })?;
    Ok(dir)
}

/// Says where something is that was written beside a result, or why it could not be written. Whether it
/// was changes no verdict.
pub fn kept(what: &str, at: &Path, written: Result<(), impl fmt::Display>) {
    let at = at.display();
    // Nobody may read this.
    let _ = match written {
        Ok(()) => remark(format_args!("the {what} is in {at}")),
        Err(why) => remark(format_args!("obol: the {what} could not be written to {at}: {why}")),
    };
}

/// The exit code of a verdict: it stands also where the output could not be written, which standard error
/// says.
pub fn verdict(code: impl Into<ExitCode>, said: io::Result<()>) -> ExitCode {
    if let Err(error) = said {
        // Nobody may read this.
        let _ = complain(&Failure::Output(error));
    }
    code.into()
}

/// Prints a remark on standard error, separate from output for scripts.
pub fn remark(text: impl fmt::Display) -> io::Result<()> {
    writeln!(io::stderr().lock(), "{}", plain::lines(&text.to_string()))
}

/// Prints why a command failed.
pub fn complain(failure: &Failure) -> io::Result<()> {
    remark(format_args!("obol: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_was_not_written_has_an_exit_code_of_its_own() {
        let code = |failure: Failure| format!("{:?}", failure.code());
        let unwritten = code(Failure::Output(ErrorKind::StorageFull.into()));
        assert_eq!(unwritten, format!("{:?}", ExitCode::from(UNWRITTEN)));
        let others = [Failure::failed(""), Failure::refused(""), Failure::Void(String::new())];
        assert!(others.into_iter().all(|other| code(other) != unwritten));
    }

    #[test]
    fn a_pipe_whose_reader_has_gone_is_noticed_without_a_write() {
        let (reader, writer) = io::pipe().expect("a pipe");
        has_reader(&writer).expect("it is read");
        drop(reader);
        assert_eq!(has_reader(&writer).expect_err("nobody reads").kind(), ErrorKind::BrokenPipe);
        has_reader(tempfile::tempfile().expect("made")).expect("a file needs no reader");
    }

    #[test]
    fn an_input_output_error_means_a_closed_terminal_only_where_a_terminal_can_be() {
        let error = io::Error::from_raw_os_error(EIO);
        assert!(is_unread(&error, File::open("/dev/null").expect("a character device")));
        assert!(!is_unread(&error, tempfile::tempfile().expect("made")));
        let (_reader, writer) = io::pipe().expect("a pipe");
        assert!(!is_unread(&error, &writer) && is_unread(&ErrorKind::BrokenPipe.into(), &writer));
    }

    #[test]
    fn a_stored_value_is_escaped_on_a_terminal_and_printed_as_it_is_elsewhere() {
        let stored = b"\x1b[2J\xff\nx";
        let put = |is_terminal| {
            let mut out = Vec::new();
            put_value(stored, is_terminal, &mut out).expect("memory");
            out
        };
        assert_eq!(put(false), b"\x1b[2J\xff\nx\n");
        assert_eq!(String::from_utf8(put(true)).expect("text"), "\\u{1b}[2J\u{fffd}\nx\n");
    }
}
