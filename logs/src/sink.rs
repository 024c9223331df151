//! Where lines are written. Only the log's thread does so.

use crate::journal::{self, Journal};
use crate::line::{Format, Line};
use crate::place::{self, Place};
use crate::rotate::{Lost, Rotating};
use crate::settings::{Destination, LogOwner, Settings};
use obol_node::network::print_id;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// A file in the directory of a cluster whose processes write no logs of themselves.
const OFF_FILE: &str = "log-off";

/// Processes of the cluster in this directory write no logs, unless one is asked to.
pub fn switch_off(dir: &Path) -> io::Result<()> {
    File::create(dir.join(OFF_FILE)).map(drop)
}

/// The way out.
#[derive(Debug)]
enum Out {
    File(Rotating),
    Journal(Journal),
    Stderr,
}

/// Writes lines and counts those that could not be written.
#[derive(Debug)]
pub(crate) struct Sink {
    out: Out,
    format: Format,
    pub(crate) unwritten: u64,
    /// Why the last of them was not.
    pub(crate) trouble: Option<String>,
    /// Whether lines were written since.
    pub(crate) writes: bool,
}

impl Sink {
    /// Opens the destination; `None` if nothing is to be written.
    pub(crate) fn open(settings: &Settings, owner: &LogOwner) -> io::Result<Option<Self>> {
        let to_journal = || {
            let identity = print_id(owner.cluster.nonce());
            Journal::open(Path::new(journal::SOCKET), owner.cluster.name(), identity).map(Out::Journal)
        };
        let to_file = || {
            let no_home = || io::Error::other("neither XDG_STATE_HOME nor HOME is set; set OBOL_LOG_DIR");
            let base = place::base().ok_or_else(no_home)?;
            let place = Place::new(&base, &owner.root, owner.cluster.name());
            let folder = place.of(&owner.cluster);
            let at =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
            place.make(&owner.cluster).map_err(at)?;
            Rotating::open(&folder, owner.process.as_str()).map(Out::File).map_err(at)
        };
        let out = match settings.destination {
            Destination::Off => return Ok(None),
            Destination::Stderr => Out::Stderr,
            Destination::Journal => to_journal()?,
            Destination::Files => to_file()?,
            Destination::Auto if owner.cluster.dir().join(OFF_FILE).exists() => return Ok(None),
            Destination::Auto if journal::is_stderr() => to_journal().unwrap_or(Out::Stderr),
            Destination::Auto => to_file()?,
        };
        Ok(Some(Self { out, format: settings.format, unwritten: 0, trouble: None, writes: true }))
    }

    pub(crate) fn is_journal(&self) -> bool {
        matches!(self.out, Out::Journal(_))
    }

    /// Where lines go, for operators.
    pub(crate) fn to(&self) -> String {
        match &self.out {
            Out::File(file) => file.path().display().to_string(),
            Out::Journal(_) => Destination::Journal.name().to_owned(),
            Out::Stderr => Destination::Stderr.name().to_owned(),
        }
    }

    /// Takes how many lines were written, or not.
    fn note(&mut self, written: Result<u64, Lost>) {
        match written {
            Ok(0) => {}
            Ok(_) => self.writes = true,
            Err(Lost { lines, why }) => {
                self.unwritten += lines;
                self.trouble = Some(why.to_string());
                self.writes = false;
            }
        }
    }

    pub(crate) fn line(&mut self, line: &Line) {
        let one = |written: io::Result<()>| written.map(|()| 1).map_err(|why| Lost { lines: 1, why });
        let written = match &mut self.out {
            // It is written by `flush`.
            Out::File(file) => file.line(&line.write(self.format)).map(|()| 0),
            Out::Journal(journal) => one(journal.line(line)),
            Out::Stderr => {
                // Under systemd without the journal's socket, it reads the priority from the line.
                let priority = if journal::is_stderr() {
                    format!("<{}>", line.severity.priority())
                } else {
                    String::new()
                };
                one(writeln!(io::stderr().lock(), "{priority}{}", line.write(self.format)))
            }
        };
        self.note(written);
    }

    pub(crate) fn flush(&mut self) {
        if let Out::File(file) = &mut self.out {
            let flushed = file.flush();
            self.note(flushed);
        }
    }
}
