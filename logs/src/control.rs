//! Levels at run time, by two small files in the cluster's directory: `log-NAME.want`, which an
//! operator writes, and `log-NAME.now`, in which the process says what holds. The log's thread looks
//! at the first one as often as at the flight recorder, so nothing else of the process takes part.
//!
//! The wanted levels stay for as long as the cluster: a process that is started again has them, too.

use crate::levels::{Change, Levels};
use obol_fabric::Name;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The largest such file.
const BYTES_MAX: u64 = 4096;
/// What this many processes say of their logs is kept. When there is more, what ended ones have said goes
/// first, unless lines of theirs are missing.
const STATES_MAX: usize = 512;
/// How often the answer is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

fn path(dir: &Path, process: &str, end: &str) -> PathBuf {
    dir.join(format!("log-{process}.{end}"))
}

/// What an operator wants.
#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    /// Distinguishes requests.
    request: u64,
    levels: String,
}

/// What a process says of its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub pid: u32,
    pub levels: String,
    /// Where lines go: a file, `journal`, or `stderr`.
    pub to: String,
    /// Lines that the queue had no room for.
    pub dropped: u64,
    /// Lines that could not be written.
    pub unwritten: u64,
    /// Why the last of them could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The last request that was carried out.
    #[serde(default)]
    pub request: u64,
}

impl State {
    /// Lines that are nowhere.
    pub const fn lost(&self) -> u64 {
        self.dropped.saturating_add(self.unwritten)
    }
}

/// Why levels cannot be changed or shown.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The process has no log.
    #[error("{process} has no log in {dir}; {hint}")]
    NoLog {
        process: String,
        /// The cluster's directory.
        dir: PathBuf,
        /// Which processes have one.
        hint: String,
    },
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// How a change was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Levelled {
    /// The process has these levels now.
    Now(State),
    /// It has not answered: it is frozen, or starts. It has them when it runs.
    Later(Levels),
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, ControlError> {
    let read = || {
        let meta = fs::metadata(path)?;
        if meta.len() > BYTES_MAX {
            return Err(io::Error::other(format!("larger than {BYTES_MAX} bytes")));
        }
        fs::read(path)
    };
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ControlError::Io(path.to_owned(), error)),
        Ok(bytes) => {
            let wrong = |error| ControlError::Io(path.to_owned(), io::Error::other(error));
            serde_json::from_slice(&bytes).map(Some).map_err(wrong)
        }
    }
}

/// Replaces a file as a whole.
fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut fresh = path.to_owned().into_os_string();
    fresh.push(format!(".{}", std::process::id()));
    fs::write(&fresh, serde_json::to_vec(value)?)?;
    fs::rename(&fresh, path)
}

/// What a process says of its log; `None` if it has none.
pub fn state(dir: &Path, process: &str) -> Result<Option<State>, ControlError> {
    read(&path(dir, process, "now"))
}

/// What all processes of a cluster say of their logs. What cannot be read is left out.
pub fn states(dir: &Path) -> impl Iterator<Item = (String, State)> + '_ {
    known(dir).into_iter().filter_map(|name| Some((name.clone(), state(dir, &name).ok().flatten()?)))
}

/// The processes that have logs, or had.
fn known(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let name = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("log-")?.strip_suffix(".now")?.to_owned())
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort_unstable();
    names
}

/// Removes what ended processes have said, if there is too much: every job of `obol run` has a name of its
/// own, and each takes a page of memory.
fn retire(dir: &Path) {
    let names = known(dir);
    if names.len() < STATES_MAX {
        return;
    }
    for name in names {
        let Ok(Some(state)) = state(dir, &name) else { continue };
        if state.lost() == 0 && !Path::new("/proc").join(state.pid.to_string()).exists() {
            // Another process may have removed it.
            let _ = fs::remove_file(path(dir, &name, "now"));
        }
    }
}

/// Changes the levels of a process, and waits for `patience` until it has them.
pub fn request(
    dir: &Path,
    process: Name,
    changes: &[Change],
    patience: Duration,
) -> Result<Levelled, ControlError> {
    let name = process.as_str();
    let Some(now) = state(dir, name)? else {
        let names = known(dir);
        let hint = match &names[..] {
            [] => "no process of the cluster has one".to_owned(),
            names => format!("there are: {}", names.join(", ")),
        };
        return Err(ControlError::NoLog { process: name.to_owned(), dir: dir.to_owned(), hint });
    };
    // An earlier request that was not carried out yet is continued.
    let want = path(dir, name, "want");
    let pending = read::<Wanted>(&want)?.filter(|wanted| wanted.request != now.request);
    let text = pending.map_or(now.levels, |wanted| wanted.levels);
    let mut levels: Levels = text.parse().unwrap_or_default();
    levels.set_all(&mut changes.to_vec());
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let number = since.as_nanos() as u64;
    let wanted = Wanted { request: number, levels: levels.to_string() };
    write(&want, &wanted).map_err(|error| ControlError::Io(want.clone(), error))?;
    let end = Instant::now() + patience;
    loop {
        match state(dir, name)? {
            Some(now) if now.request == number => return Ok(Levelled::Now(now)),
            _ if Instant::now() >= end => return Ok(Levelled::Later(levels)),
            _ => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// The process's end of the two files.
#[derive(Debug)]
pub(crate) struct Control {
    want: PathBuf,
    now: PathBuf,
    /// The inode of the last request: each is a new file.
    seen: Option<u64>,
    request: u64,
    shown: Option<State>,
}

impl Control {
    pub(crate) fn new(dir: &Path, process: Name) -> Self {
        retire(dir);
        let [want, now] = ["want", "now"].map(|end| path(dir, process.as_str(), end));
        Self { want, now, seen: None, request: 0, shown: None }
    }

    /// Levels that are wanted since the last call.
    pub(crate) fn wanted(&mut self) -> Option<Levels> {
        use std::os::unix::fs::MetadataExt;
        let inode = fs::metadata(&self.want).ok().map(|meta| meta.ino());
        if inode.is_none() || inode == self.seen {
            return None;
        }
        self.seen = inode;
        // A file that cannot be read as a request is ignored; it was written by hand.
        let wanted = read::<Wanted>(&self.want).ok().flatten()?;
        self.request = wanted.request;
        wanted.levels.parse().ok()
    }

    /// Says what holds, if it has changed. The cluster's directory may be gone.
    pub(crate) fn show(&mut self, state: State) {
        let state = State { request: self.request, ..state };
        if self.shown.as_ref() != Some(&state) && write(&self.now, &state).is_ok() {
            self.shown = Some(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state_of(levels: &Levels) -> State {
        State {
            pid: 1,
            levels: levels.to_string(),
            to: "stderr".to_owned(),
            dropped: 0,
            unwritten: 0,
            trouble: None,
            request: 0,
        }
    }

    #[test]
    fn what_ended_processes_say_of_their_logs_is_bounded() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let name = |n: usize| Name::new(&format!("job-{n}")).expect("a name");
        // No process has this id: it is above the kernel's limit.
        let ended = State { pid: u32::MAX, ..state_of(&Levels::default()) };
        let lacks = State { dropped: u64::MAX, unwritten: 1, ..ended.clone() };
        let lives = State { pid: std::process::id(), ..ended.clone() };
        for n in 0..3 * STATES_MAX {
            let state = match n {
                0 => &lacks,
                1 => &lives,
                _ => &ended,
            };
            Control::new(dir, name(n)).show(state.clone());
            assert!(known(dir).len() <= STATES_MAX);
        }
        let kept = known(dir);
        assert!(kept.contains(&"job-0".to_owned()), "that lines are missing is still said");
        assert!(kept.contains(&"job-1".to_owned()), "a process that lives is kept");
    }

    #[test]
    fn a_request_is_carried_out_once_and_survives_a_restart() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let name = Name::new("node-2").expect("a name");
        let change = |text: &str| text.parse::<Change>().expect("a change");
        let ask = |text: &str| request(dir, name, &[change(text)], Duration::ZERO);
        let refused = ask("debug").expect_err("no log").to_string();
        assert!(refused.contains("no process of the cluster has one"), "{refused}");
        let mut control = Control::new(dir, name);
        control.show(state_of(&Levels::default()));
        assert_eq!(control.wanted(), None);
        let wanted: Levels = "info,membership=debug".parse().expect("levels");
        assert_eq!(ask("membership=debug").expect("asked"), Levelled::Later(wanted.clone()));
        // Before the process has seen the first one.
        let both: Levels = "info,fabric=off,membership=debug".parse().expect("levels");
        assert_eq!(ask("fabric=off").expect("asked"), Levelled::Later(both.clone()));
        assert_eq!(control.wanted(), Some(both.clone()));
        assert_eq!(control.wanted(), None);
        control.show(state_of(&both));
        let now = state(dir, "node-2").expect("read").expect("there");
        assert!(now.request != 0 && now.levels == both.to_string());
        assert_eq!(Control::new(dir, name).wanted(), Some(both));
        let other = Name::new("node-3").expect("a name");
        let refused = request(dir, other, &[], Duration::ZERO).expect_err("no log").to_string();
        assert!(refused.ends_with("there are: node-2"), "{refused}");
    }
}
