//! The kill switch: a file in a cluster's directory. While it is there, every fault agent of the
//! cluster on this host undoes its faults and ends, runners end their drills on all hosts, and
//! neither begins anything new. `switch.rs` writes it on all hosts.

use super::undo_record::records;
use crate::drills::audit::log::Who;
use obol_observe::calendar;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

/// The file in a cluster's directory.
const FILE: &str = "drill-halt";
/// How often fault agents and runners look for it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The longest reason, in characters.
pub const REASON_CHARS_MAX: usize = 200;

/// A halt of all drills of a cluster on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    pub reason: String,
    /// Who halted them.
    pub by: Who,
    /// Nanoseconds since 1970.
    pub at: u64,
}

impl Halt {
    /// Whether a text can be a reason: one line, and not too long.
    pub fn is_reason(text: &str) -> bool {
        is_line(text) && !text.is_empty() && text.chars().count() <= REASON_CHARS_MAX
    }

    /// Whether one that another host has sent can be shown as it is.
    pub(super) fn is_presentable(&self) -> bool {
        let Who { user, login, tty, ssh, host, .. } = &self.by;
        let texts = [user, login, tty, ssh].into_iter().flatten().chain([host]);
        Self::is_reason(&self.reason) && texts.into_iter().all(|text| is_line(text))
    }

    /// The halt in force; `None` if drills may run.
    pub fn of(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    /// Puts it in force, in place of an earlier one. Where there is no room for the reason, drills are
    /// halted without one: returns why it could not be written.
    pub fn write(&self, dir: &Path) -> io::Result<Option<io::Error>> {
        let draft = dir.join(format!("{FILE}-{}.draft", std::process::id()));
        let written = fs::write(&draft, serde_json::to_vec(self)?);
        let Err(error) = written.and_then(|()| fs::rename(&draft, dir.join(FILE))) else { return Ok(None) };
        // What was written of it is of no use.
        let _ = fs::remove_file(&draft);
        // An earlier halt keeps its reason.
        match fs::File::options().create(true).append(true).open(dir.join(FILE)) {
            Ok(_) => Ok(Some(error)),
            Err(_) => Err(error),
        }
    }

    /// Ends whatever halt is in force; false if there is none.
    pub fn end(dir: &Path) -> io::Result<bool> {
        match fs::remove_file(dir.join(FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }
}

fn is_line(text: &str) -> bool {
    !text.contains(char::is_control)
}

/// Waits until no fault agent of this host has anything left to undo; false if that takes longer
/// than `timeout`.
pub fn await_undone(dir: &Path, timeout: Duration) -> io::Result<bool> {
    let end = Instant::now() + timeout;
    while !records(dir)?.is_empty() {
        if Instant::now() >= end {
            return Ok(false);
        }
        thread::sleep(POLL_INTERVAL / 10);
    }
    Ok(true)
}

/// Why drills are halted, if they are. A file that cannot be read halts them, too.
pub fn in_force(dir: &Path) -> Option<String> {
    let halt = match Halt::of(dir) {
        Ok(halt) => halt?,
        Err(_) if fs::metadata(dir.join(FILE)).is_ok_and(|meta| meta.len() == 0) => {
            let why = "drills are halted; no reason could be written; `obol drill resume` allows them again";
            return Some(why.to_owned());
        }
        Err(error) => {
            return Some(format!(
                "drills are halted, but {} cannot be read ({error}); `obol drill resume` removes it",
                dir.join(FILE).display()
            ));
        }
    };
    let at = calendar::utc(halt.at, "%F %T UTC");
    Some(format!(
        "drills are halted since {at} by {}: {}; `obol drill resume` allows them again",
        halt.by.name(),
        halt.reason
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_halt_is_in_force_until_it_is_ended_and_a_damaged_one_too() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        assert_eq!(in_force(dir), None);
        assert!(!Halt::end(dir).expect("nothing to remove"));
        let halt = Halt { reason: "the shop is on sale".to_owned(), by: Who::this(), at: 0 };
        assert!(halt.write(dir).expect("written").is_none());
        let why = in_force(dir).expect("halted");
        assert!(why.contains("the shop is on sale") && why.contains("1970-01-01 00:00:00 UTC"), "{why}");
        assert_eq!(Halt::of(dir).expect("read"), Some(halt));
        fs::write(dir.join(FILE), "{").expect("written");
        assert!(in_force(dir).expect("halted").contains("cannot be read"));
        assert!(Halt::end(dir).expect("removed"));
        assert_eq!(in_force(dir), None);
    }

    #[test]
    fn drills_are_halted_also_where_there_is_no_room_for_the_reason() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        // A folder in its place: no file can be written there.
        fs::create_dir(dir.join(format!("{FILE}-{}.draft", std::process::id()))).expect("made");
        let halt = Halt { reason: "the disk is full".to_owned(), by: Who::this(), at: 0 };
        assert!(halt.write(dir).expect("in force").is_some(), "why is said");
        let why = in_force(dir).expect("halted");
        assert!(why.starts_with("drills are halted; no reason could be written; "), "{why}");
        // A reason that was written before stays.
        let earlier = Halt { reason: "the sale".to_owned(), ..halt.clone() };
        fs::write(dir.join(FILE), serde_json::to_vec(&earlier).expect("JSON")).expect("written");
        assert!(halt.write(dir).expect("in force").is_some());
        assert_eq!(Halt::of(dir).expect("read"), Some(earlier));
        assert!(Halt::end(dir).expect("removed"));
    }
}
