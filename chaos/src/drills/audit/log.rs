//! The audit log: who ran which drill on whom, and how it ended; also refusals, halts and
//! approvals. One JSON object per line in one append-only file, which outlives the clusters. Each
//! line has the hash of the line before it, so that a change, a removal or an insertion in the
//! middle shows.

use nix::unistd::getuid;
use obol_node::user::state_home;
use obol_observe::calendar;
use ring::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use strum::IntoStaticStr;

/// Names the audit log, in place of the one in the user's folder for state.
const AUDIT: &str = "OBOL_AUDIT";
/// The schema of a line.
const SCHEMA: u32 = 1;
/// What the first line has as the hash of the line before it.
const FIRST: &str = "0000000000000000000000000000000000000000000000000000000000000000";
/// The longest line in bytes; longer lists of victims are cut.
const LINE_BYTES_MAX: u64 = 64 * 1024;
/// Victims of a line.
const VICTIMS_MAX: usize = 256;
/// The kernel's login uid of processes that belong to no login.
const NO_LOGIN: u32 = u32::MAX;

/// Who runs this program, and from where, as far as the kernel and the environment say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Who {
    /// The real user id.
    pub uid: u32,
    /// Its name, if the host's user database has it.
    pub user: Option<String>,
    /// The user id of the login, which `sudo` and `su` keep; null where the kernel has none.
    pub login_uid: Option<u32>,
    /// Its name.
    pub login: Option<String>,
    /// The terminal.
    pub tty: Option<String>,
    /// The address from which ssh was used, as ssh says in the environment.
    pub ssh: Option<String>,
    /// The host.
    pub host: String,
}

impl Who {
    /// The user of this process.
    pub fn this() -> Self {
        let login_uid = fs::read_to_string("/proc/self/loginuid").ok();
        let login_uid = login_uid.and_then(|text| text.trim().parse().ok()).filter(|uid| *uid != NO_LOGIN);
        let terminal = |fd: u32| fs::read_link(format!("/proc/self/fd/{fd}")).ok();
        let ttys = (0..3).filter_map(terminal).map(|path| path.to_string_lossy().into_owned());
        let is_tty = |path: &String| path.starts_with("/dev/pts/") || path.starts_with("/dev/tty");
        let ssh = std::env::var("SSH_CONNECTION").ok();
        let uid = getuid().as_raw();
        Self {
            uid,
            user: user(uid),
            login_uid,
            login: login_uid.and_then(user),
            tty: ttys.into_iter().find(is_tty),
            ssh: ssh.and_then(|ssh| ssh.split_whitespace().next().map(str::to_owned)),
            host: obol_observe::names::hostname(),
        }
    }

    /// The user ids of the person: of the process, and of the login.
    pub fn uids(&self) -> impl Iterator<Item = u32> {
        std::iter::once(self.uid).chain(self.login_uid)
    }

    /// A short form for people: `alice (uid 1000) as root (uid 0) on node-7`.
    pub fn name(&self) -> String {
        let one = |uid: u32, user: &Option<String>| match user {
            Some(user) => format!("{user} (uid {uid})"),
            None => format!("uid {uid}"),
        };
        let me = one(self.uid, &self.user);
        let who = match self.login_uid {
            Some(login) if login != self.uid => format!("{} as {me}", one(login, &self.login)),
            _ => me,
        };
        format!("{who} on {}", self.host)
    }
}

/// The name of a user in this host's own user database.
fn user(uid: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let found = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found = found.into_iter().find(|fields| fields.get(2).is_some_and(|id| *id == uid.to_string()))?;
    found.first().map(|&name| name.to_owned())
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Event {
    /// A drill passed its guards, and is about to inject.
    Began,
    /// A drill that had begun has ended.
    Ended,
    /// A drill was refused before it touched anything.
    Refused,
    /// All drills of a cluster were halted.
    Halted,
    /// A halt was ended.
    Resumed,
    /// A drill file was approved.
    Approved,
    /// What drills left behind was undone.
    Recovered,
}

impl Event {
    /// Its name in the log.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The version of this schema.
    pub schema: u32,
    /// When, in UTC.
    pub at: String,
    /// What happened.
    pub event: Event,
    /// Who did it.
    pub who: Who,
    /// The cluster, and the directory of clusters that it is in.
    pub cluster: String,
    /// That directory.
    pub root: String,
    /// The drill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<String>,
    /// Its file, as it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The hash of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Who approved the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// The victims: at the begin those of the first repetition, at the end all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// The verdict, or another outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// SHA-256 of the line before this one, without its newline.
    pub before: String,
}

impl Entry {
    /// An entry of this moment and user.
    pub fn new(event: Event, root: &Path, cluster: &str) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            schema: SCHEMA,
            at: calendar::utc(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX), "%FT%T.%6fZ"),
            event,
            who: Who::this(),
            cluster: cluster.to_owned(),
            root: root.display().to_string(),
            drill: None,
            file: None,
            sha256: None,
            approved_by: None,
            victims: Vec::new(),
            outcome: None,
            reason: None,
            before: String::new(),
        }
    }
}

/// SHA-256 in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Why the log cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {path}: {error}; {AUDIT} names another file")]
pub struct AuditError {
    path: PathBuf,
    error: io::Error,
}

/// A log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    path: PathBuf,
}

/// The log as it was read.
#[derive(Debug, Default)]
pub struct Found {
    /// Its entries, oldest first.
    pub entries: Vec<Entry>,
    /// Lines, from 1, that are damaged, or do not have the hash of the line before.
    pub broken: Vec<usize>,
    /// The hash of the last line, to compare with a copy elsewhere.
    pub last: String,
}

impl Found {
    /// The entries, by their places, of runs that began and have no end: one that runs still, or whose
    /// runner was killed. A cluster has one run at a time.
    pub fn without_end(&self) -> BTreeSet<usize> {
        let mut open = BTreeMap::new();
        let mut without = BTreeSet::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let place = (&entry.who.host, &entry.root, &entry.cluster);
            match entry.event {
                Event::Began => without.extend(open.insert(place, at)),
                Event::Ended => {
                    open.remove(&place);
                }
                _ => {}
            }
        }
        without.extend(open.into_values());
        without
    }
}

/// There is no place for the audit log.
#[derive(Debug, thiserror::Error)]
#[error("drills must be logged, and the log has no path: set {AUDIT} to a file, or HOME")]
pub struct NoPlace;

impl Log {
    /// The log of this user.
    pub fn of_user() -> Result<Self, NoPlace> {
        let named = std::env::var_os(AUDIT).filter(|path| !path.is_empty()).map(PathBuf::from);
        let own = || Some(state_home()?.join("obol/drill-audit.jsonl"));
        Ok(Self::new(named.or_else(own).ok_or(NoPlace)?))
    }

    /// The log in this file.
    pub const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, error: io::Error) -> AuditError {
        AuditError { path: self.path.clone(), error }
    }

    /// Appends an entry. When it returns, the entry is on disk.
    pub fn append(&self, entry: Entry) -> Result<(), AuditError> {
        self.try_append(entry).map_err(|error| self.failed(error))
    }

    fn try_append(&self, mut entry: Entry) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let is_new = !self.path.exists();
        let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(&self.path)?;
        // Two writers would both continue the same line. The lock is released with the file.
        file.lock()?;
        let (last, is_whole) = last_line(&mut file)?;
        entry.before = last.map_or(FIRST.to_owned(), |line| sha256(&line));
        entry.victims.truncate(VICTIMS_MAX);
        let mut line = if is_whole { Vec::new() } else { vec![b'\n'] };
        line.extend(serde_json::to_vec(&entry)?);
        line.push(b'\n');
        let length = file.metadata()?.len();
        // A line truncated by a full disk must not look altered: cut it off.
        file.write_all(&line).inspect_err(|_| drop(file.set_len(length)))?;
        file.sync_all()?;
        if is_new && let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// Reads all of it. A log that does not exist is empty.
    pub fn read(&self) -> Result<Found, AuditError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Found { last: FIRST.to_owned(), ..Found::default() });
            }
            opened => opened.map_err(|error| self.failed(error))?,
        };
        let mut found = Found { last: FIRST.to_owned(), ..Found::default() };
        for (at, line) in BufReader::new(file).split(b'\n').enumerate() {
            let line = line.map_err(|error| self.failed(error))?;
            match serde_json::from_slice::<Entry>(&line) {
                Ok(entry) => {
                    if entry.before != found.last {
                        found.broken.push(at + 1);
                    }
                    found.entries.push(entry);
                }
                Err(_) => found.broken.push(at + 1),
            }
            found.last = sha256(&line);
        }
        Ok(found)
    }
}

/// The last line of a file, if any, and whether it is complete.
fn last_line(file: &mut File) -> io::Result<(Option<Vec<u8>>, bool)> {
    let length = file.metadata()?.len();
    if length == 0 {
        return Ok((None, true));
    }
    file.seek(SeekFrom::Start(length.saturating_sub(LINE_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let is_whole = bytes.last() == Some(&b'\n');
    if is_whole {
        bytes.pop();
    }
    let start = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    Ok((Some(bytes.split_off(start)), is_whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, Log) {
        let dir = tempfile::tempdir().expect("made");
        let log = Log::new(dir.path().join("below/audit.jsonl"));
        (dir, log)
    }

    fn entry(n: usize) -> Entry {
        Entry { reason: Some(format!("{n}\n\"x\"")), ..Entry::new(Event::Refused, Path::new("/r"), "c") }
    }

    fn change(log: &Log, change: impl FnOnce(Vec<String>) -> Vec<String>) -> Vec<usize> {
        let text = fs::read_to_string(log.path()).expect("read");
        let lines = change(text.lines().map(str::to_owned).collect());
        fs::write(log.path(), lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .expect("written");
        log.read().expect("read").broken
    }

    #[test]
    fn entries_are_chained_and_a_change_in_the_middle_shows() {
        let (_dir, log) = log();
        assert_eq!(log.read().expect("none yet").entries, []);
        for n in 0..5 {
            log.append(entry(n)).expect("written");
        }
        let found = log.read().expect("read");
        assert_eq!((found.entries.len(), &found.broken[..]), (5, &[][..]));
        assert_eq!(found.entries[0].before, FIRST);
        assert_eq!(found.entries[3].reason.as_deref(), Some("3\n\"x\""));
        assert_eq!(found.entries[3].who.uid, getuid().as_raw());
        let edited = change(&log, |mut lines| {
            lines[1] = lines[1].replace("refused", "approved");
            lines
        });
        assert_eq!(edited, [3], "the line after the edited one");
        let removed = change(&log, |mut lines| {
            lines.remove(3);
            lines
        });
        assert_eq!(removed, [3, 4]);
    }

    #[test]
    fn writers_at_the_same_time_do_not_break_the_chain() {
        let (_dir, log) = log();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let log = &log;
                scope.spawn(move || (0..8).for_each(|n| log.append(entry(writer * 8 + n)).expect("written")));
            }
        });
        let found = log.read().expect("read");
        assert_eq!((found.entries.len(), &found.broken[..]), (32, &[][..]));
    }

    #[test]
    fn a_line_that_was_cut_off_is_reported_and_the_log_goes_on() {
        let (_dir, log) = log();
        log.append(entry(0)).expect("written");
        let cut = fs::OpenOptions::new().append(true).open(log.path());
        cut.and_then(|mut file| file.write_all(b"{\"schema\":1,")).expect("written");
        log.append(entry(1)).expect("written");
        let found = log.read().expect("read");
        assert_eq!((found.entries.len(), &found.broken[..]), (2, &[2][..]));
    }

    #[test]
    fn a_run_whose_runner_was_killed_has_no_end() {
        use Event::{Began, Ended, Refused};
        let of = |(event, cluster)| Entry::new(event, Path::new("/r"), cluster);
        let began = [
            (Began, "a"),
            (Began, "b"),
            (Refused, "a"),
            (Ended, "b"),
            (Began, "a"),
            (Ended, "a"),
            (Began, "b"),
        ];
        let found = Found { entries: began.map(of).into(), ..Found::default() };
        assert_eq!(found.without_end(), BTreeSet::from([0, 6]));
        assert_eq!(Found::default().without_end(), BTreeSet::new());
    }

    #[test]
    fn a_person_behind_sudo_is_named() {
        let me = Who {
            uid: 0,
            user: Some("root".to_owned()),
            login_uid: Some(1000),
            login: Some("alice".to_owned()),
            tty: None,
            ssh: None,
            host: "h".to_owned(),
        };
        assert_eq!(me.name(), "alice (uid 1000) as root (uid 0) on h");
        assert_eq!(me.uids().collect::<Vec<_>>(), [0, 1000]);
        assert_eq!(Who { login_uid: None, ..me }.name(), "root (uid 0) on h");
    }
}
