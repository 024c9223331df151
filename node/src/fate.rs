//! Records how the processes that a supervisor has started ended, as files in the cluster's directory,
//! for status displays: a process that was killed cannot say so itself.

use obol_fabric::Name;
use obol_fabric::host::remove_if_present;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The prefix of the process's name.
const PREFIX: &str = "fate-";
/// The maximum length of a record.
const RECORD_BYTES_MAX: u64 = 256;

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Its pid: a later process of the same name is another one.
    pub pid: u32,
    /// How it ended, in words, such as `killed by SIGKILL`.
    pub how: String,
}

fn path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}"))
}

/// Records how the process of this name ended.
pub fn note(dir: &Path, name: Name, pid: u32, how: &str) -> io::Result<()> {
    fs::write(path(dir, name.as_str()), format!("{pid} {how}"))
}

/// Removes the record: a process of this name runs again.
pub fn forget(dir: &Path, name: Name) -> io::Result<()> {
    remove_if_present(&path(dir, name.as_str()))
}

/// How the last process of this name ended, if its supervisor has recorded it.
pub fn of(dir: &Path, name: &str) -> Option<Fate> {
    let file = fs::File::open(path(dir, name)).ok()?;
    let mut text = String::new();
    file.take(RECORD_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (pid, how) = text.split_once(' ')?;
    let how: String = how.chars().filter(|c| !c.is_control()).collect();
    Some(Fate { pid: pid.parse().ok()?, how })
}

/// When the record of the last process of this name was made, in nanoseconds since 1970.
pub fn noted_at(dir: &Path, name: &str) -> Option<u64> {
    let made = fs::metadata(path(dir, name)).ok()?.modified().ok()?;
    u64::try_from(made.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fate_is_what_was_noted_last_and_nothing_that_could_steer_a_terminal() {
        let dir = tempfile::tempdir().expect("made");
        let (dir, name) = (dir.path(), Name::new("app-1").expect("a name"));
        assert_eq!((of(dir, "app-1"), noted_at(dir, "app-1")), (None, None));
        note(dir, name, 7, "exit status 3").expect("written");
        note(dir, name, 8, "killed by \u{1b}SIGKILL").expect("written");
        assert_eq!(of(dir, "app-1"), Some(Fate { pid: 8, how: "killed by SIGKILL".to_owned() }));
        assert!(noted_at(dir, "app-1").is_some());
        fs::write(path(dir, "app-1"), "no pid").expect("written");
        assert_eq!(of(dir, "app-1"), None);
        forget(dir, name).expect("removed");
        forget(dir, name).expect("it is gone already");
        assert_eq!(of(dir, "app-1"), None);
    }
}
