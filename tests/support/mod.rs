//! What the tests with real processes share: a root directory of their own, the program, and
//! waiting for conditions.
//!
//! Few tests at a time have a root ([`share`]). None relies on nobody being suspected wrongly: a
//! process that gets no core for 0.3 s is excluded and comes back, rightly.

pub(crate) mod bridges;
pub(crate) mod journals;
#[path = "../../fabric-ip/tests/support/network.rs"]
pub(crate) mod network;
pub(crate) mod programs;
pub(crate) mod share;
pub(crate) mod small;

use network::Network;
use obol_profiles::Profile;
use parking_lot::Mutex;
use serde_json::Value;
use share::{Alone, Share};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A hang, not a slow machine.
pub(crate) const HANG: Duration = Duration::from_secs(120);

/// Waits until something holds. `describe` says what it was if it never does.
pub(crate) fn until_or<T>(
    what: &str,
    mut found: impl FnMut() -> Option<T>,
    describe: impl FnOnce() -> String,
) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(start.elapsed() < HANG, "this hangs: {what}\n{}", describe());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_or(what, || holds().then_some(()), String::new);
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Runs a command without a terminal to its end, which must come.
    pub(crate) fn of(command: &mut Command) -> Self {
        Self::writing_to(command, Stdio::piped())
    }

    /// The same with its output in a file, which can be read meanwhile.
    pub(crate) fn into_file(command: &mut Command, path: &Path) -> Self {
        let ran = Self::writing_to(command, File::create(path).expect("a file").into());
        Self { out: std::fs::read_to_string(path).expect("text"), ..ran }
    }

    fn writing_to(command: &mut Command, out: Stdio) -> Self {
        let shown = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let out = child.stdout.take().map(drain);
        let err = drain(child.stderr.take().expect("piped"));
        let status = end_of(&mut child, &shown);
        let out = out.map_or_else(String::new, |out| out.join().expect("read"));
        let err = err.join().expect("read");
        assert!(!err.contains("panicked"), "{shown} panicked:\n{err}");
        Self { code: status.code(), out, err }
    }

    /// The one JSON value on standard output.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON value ({error}): {self:?}"))
    }

    /// Holds that it ended with this code.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Holds that it was refused, and said so in these words.
    #[track_caller]
    pub(crate) fn refused(self, words: &[&str]) {
        let said = self.ends(2).err;
        for word in words {
            assert!(said.contains(word), "{word:?} is not in:\n{said}");
        }
    }
}

fn drain(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        from.read_to_end(&mut text).expect("a pipe");
        String::from_utf8(text).expect("text")
    })
}

fn end_of(child: &mut Child, what: &str) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status;
        }
        if start.elapsed() > HANG {
            // The assertion reports it; the child must not outlive it.
            let _ = child.kill();
            panic!("this hangs: {what}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The program, in no cluster of the environment.
pub(crate) fn obol() -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_obol")))
}

pub(crate) fn alone(mut command: Command) -> Command {
    for name in [
        "OBOL_CLUSTER",
        "OBOL_ROOT",
        "NO_COLOR",
        "OBOL_LOG",
        "OBOL_LOG_FORMAT",
        "OBOL_LOG_TO",
        "OBOL_LOG_DIR",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs a command under a resource limit of the shell's `ulimit`.
pub(crate) fn under_limit(limit: &str, command: &Command) -> Ran {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")])
        .arg(command.get_program())
        .args(command.get_args());
    Ran::of(shell.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?)))))
}

/// The same command, which heeds the signals that end it: the program that runs the tests may ignore one, as
/// `nohup` does, which programs inherit.
pub(crate) fn heeding(command: &Command) -> Command {
    let mut heeding = Command::new("env");
    heeding.arg("--default-signal=HUP,INT,TERM").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => heeding.env(name, value),
            None => heeding.env_remove(name),
        };
    }
    heeding
}

/// Sends a signal to processes; a negative id is a process group.
pub(crate) fn signal(name: &str, pids: &[i64]) {
    let pids: Vec<String> = pids.iter().map(i64::to_string).collect();
    let sent = Command::new("sh").args(["-c", &format!("kill -s {name} -- {}", pids.join(" "))]).status();
    assert!(sent.expect("sh runs").success(), "kill -{name} {pids:?}");
}

/// Stops a process, and sees that it has stopped.
pub(crate) fn freeze(pid: i64) {
    signal("STOP", &[pid]);
    until("the process stops", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    });
}

/// Whether no thread of a process runs any more: its first one may end before the others. (A dying
/// process loses its command line before that.)
pub(crate) fn has_ended(pid: i64) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.into_iter().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['Z', 'X']))
    })
}

/// A root directory of its own. Whatever happens, nothing of it is left at the end: no process and
/// no file.
pub(crate) struct Root {
    path: PathBuf,
    /// Where its commands run, if it is a network of its own.
    network: Option<Network>,
    _share: Share,
}

impl Root {
    pub(crate) fn new() -> Self {
        Self::with(None)
    }

    /// One of a test that has the host to itself.
    pub(crate) fn alone(why: Alone) -> Self {
        Self::with(Some(why))
    }

    fn with(alone: Option<Alone>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let share = Share::wait(alone);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/dev/shm/obol-test-{}-{n}-processes", std::process::id()));
        Self { path, network: None, _share: share }
    }

    /// The same whose commands run in a network of their own.
    pub(crate) fn within(mut self, network: Network) -> Self {
        self.network = Some(network);
        self
    }

    pub(crate) fn network(&self) -> &Network {
        self.network.as_ref().expect("it has one")
    }

    /// The same with a cluster that is healthy; see [`Root::up`].
    pub(crate) fn with_cluster(arguments: &[&str]) -> (Self, Up) {
        let root = Self::new();
        let up = root.up(arguments);
        (root, up)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file of the test's beside it, which is removed with it.
    pub(crate) fn note(&self, name: impl std::fmt::Display) -> PathBuf {
        self.path.with_extension(name.to_string())
    }

    /// The directory of the cluster `default`.
    pub(crate) fn cluster(&self) -> PathBuf {
        self.path.join("default")
    }

    /// The user's folder for what outlives a boot.
    pub(crate) fn state(&self) -> PathBuf {
        self.note("state")
    }

    /// The file in which a coordinator of the cluster `default` keeps the newest view.
    pub(crate) fn saved(&self, number: u16) -> PathBuf {
        let root = self.path.to_str().expect("text").replace('/', "%");
        self.state().join("obol/views").join(root).join(format!("default/coord-{number}.view"))
    }

    /// The program with this root.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let within = self.network.as_ref();
        let mut command = within.map_or_else(obol, |n| alone(n.command(env!("CARGO_BIN_EXE_obol"))));
        command.args(arguments).arg("--root").arg(&self.path).env("XDG_STATE_HOME", self.state());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(arguments))
    }

    /// Starts a cluster and waits until it is healthy, and `up` has seen that it is.
    pub(crate) fn up(&self, arguments: &[&str]) -> Up {
        let up = self.begin(arguments);
        up.until_up();
        let named = arguments.iter().position(|a| *a == "--cluster");
        let place: Vec<&str> = named.map_or(Vec::new(), |at| arguments[at..at + 2].to_vec());
        self.healthy_in(&place);
        up
    }

    /// The same with another profile than the laptop's.
    pub(crate) fn up_with(&self, arguments: &[&str], change: impl FnOnce(&mut Profile)) -> Up {
        let mut profile = Profile::builtin("laptop").expect("it is built in");
        change(&mut profile);
        let path = self.note("profile.toml");
        std::fs::write(&path, profile.to_toml()).expect("written");
        self.up(&[arguments, &["--profile", path.to_str().expect("text")]].concat())
    }

    /// Starts a cluster.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Up {
        self.begin_by(self.command(&[]), arguments)
    }

    /// Starts a cluster from a copy of the program, which a test can replace.
    pub(crate) fn begin_copy(&self, program: &Path, arguments: &[&str]) -> Up {
        programs::copy(Path::new(env!("CARGO_BIN_EXE_obol")), program);
        let mut command = alone(Command::new(program));
        command.arg("--root").arg(&self.path).env("XDG_STATE_HOME", self.state());
        self.begin_by(command, arguments)
    }

    fn begin_by(&self, mut command: Command, arguments: &[&str]) -> Up {
        command.args(["up", "--headless", "--json"]);
        let mut command = heeding(&command);
        // Where another fabric than shared memory is tried.
        command.args(std::env::var("OBOL_TEST_UP").unwrap_or_default().split_whitespace());
        // A group of its own, as a shell gives it, so that a test can press Ctrl-C.
        command
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (kept, out) = (Arc::clone(&lines), child.stdout.take().expect("piped"));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                kept.lock().push(line.expect("text"));
            }
        });
        let err = drain(child.stderr.take().expect("piped"));
        Up { child, lines, reader: Some(reader), err: Some(err) }
    }

    /// How the cluster is.
    pub(crate) fn status(&self) -> Status {
        self.status_in(&[])
    }

    /// How a cluster is.
    pub(crate) fn status_in(&self, place: &[&str]) -> Status {
        let ran = self.run(&[&["status", "--json"], place].concat());
        Status { code: ran.code, json: ran.json() }
    }

    /// Waits until the cluster is healthy; returns its status.
    pub(crate) fn healthy(&self) -> Status {
        self.healthy_in(&[])
    }

    fn healthy_in(&self, place: &[&str]) -> Status {
        self.until_in(place, "the cluster is healthy", |status| status.code == Some(0))
    }

    /// Waits until the cluster is as wanted; returns its status.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        self.until_in(&[], what, holds)
    }

    fn until_in(&self, place: &[&str], what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        let found = || Some(self.status_in(place)).filter(&holds);
        until_or(what, found, || format!("{:#?}\n{}", self.status_in(place), self.run(&["events"]).out))
    }

    /// The flight recorders of the cluster, oldest event first.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = self.run(&["events", "--last", "100000", "--json"]).ends(0).out;
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    /// The processes that were started for this root, by pid.
    pub(crate) fn processes(&self) -> BTreeMap<i64, String> {
        let mine = self.path.to_str().expect("text");
        let proc = std::fs::read_dir("/proc").expect("/proc is mounted").filter_map(Result::ok);
        proc.filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8(command).ok()?.replace('\0', " ");
            // What this process has started carries the root as a whole word.
            command.split(' ').any(|word| word == mine).then_some((pid, command))
        })
        .collect()
    }

    /// Kills everything at once, as a crash does; the files stay.
    pub(crate) fn crash(&self) {
        let all: Vec<i64> = self.processes().into_keys().collect();
        signal("KILL", &all);
        until("all processes are gone", || all.iter().all(|pid| has_ended(*pid)));
    }

    /// Holds that nothing of this root is left, but for the saved views of an earlier cluster that
    /// was not ended: those are kept.
    #[track_caller]
    pub(crate) fn is_gone(&self) {
        assert_eq!(self.processes(), BTreeMap::new(), "processes are left");
        assert!(!self.path.exists(), "files are left: {:?}", files(&self.path));
        let mut views = files(&self.state().join("obol/views"));
        views.retain(|view| view.extension().is_none_or(|end| end != "old"));
        assert!(views.is_empty(), "saved views are left: {views:?}");
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let start = Instant::now();
        while start.elapsed() < HANG {
            let left: Vec<String> = self.processes().keys().map(i64::to_string).collect();
            if left.is_empty() {
                break;
            }
            // Some may be gone by now.
            let _ = Command::new("sh")
                .args(["-c", &format!("kill -KILL {}", left.join(" "))])
                .stderr(Stdio::null())
                .status();
            std::thread::sleep(Duration::from_millis(5));
        }
        // Mostly it is gone already.
        let _ = std::fs::remove_dir_all(&self.path);
        let mine = format!("{}.", self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default());
        let beside = self.path.parent().and_then(|parent| std::fs::read_dir(parent).ok());
        for note in beside.into_iter().flatten().filter_map(Result::ok) {
            if note.file_name().to_str().is_some_and(|name| name.starts_with(&mine)) {
                // Whichever it is.
                let _ = std::fs::remove_file(note.path());
                let _ = std::fs::remove_dir_all(note.path());
            }
        }
    }
}

/// The files in a folder and below.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok);
    entries.flat_map(|e| if e.path().is_dir() { files(&e.path()) } else { vec![e.path()] }).collect()
}

/// A directory as `up` makes it: what a crash leaves behind.
pub(crate) fn private(path: &Path) {
    DirBuilder::new().recursive(true).mode(0o1700).create(path).expect("made");
}

/// A running `up`, killed at the end.
pub(crate) struct Up {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    err: Option<JoinHandle<String>>,
}

/// How an `up` ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) lines: Vec<Value>,
    pub(crate) err: String,
}

impl Up {
    pub(crate) fn pid(&self) -> i64 {
        i64::from(self.child.id())
    }

    /// Whether it still runs.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// What it has printed until now.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.lines.lock();
        lines.iter().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// Waits until the newest view that it has printed is as wanted.
    pub(crate) fn until_view(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let newest = || self.lines().into_iter().rfind(|line| line["event"] == "view");
        until_or(what, || newest().filter(&holds), || format!("{:#?}", newest()))
    }

    /// Waits until it takes its cluster for up: before, a failure ends the cluster.
    pub(crate) fn until_up(&self) {
        until_or(
            "up",
            || self.lines().iter().any(|line| line["event"] == "up").then_some(()),
            || format!("{:#?}", self.lines()),
        );
    }

    /// Waits until it has ended, and all that it started has, too.
    pub(crate) fn end(mut self) -> Ended {
        let status = end_of(&mut self.child, "up");
        self.reader.take().expect("once").join().expect("read");
        let err = self.err.take().expect("once").join().expect("read");
        assert!(!err.contains("panicked"), "up panicked:\n{err}");
        Ended { status, lines: self.lines(), err }
    }
}

impl Ended {
    /// Holds that it ended by itself and without a complaint.
    #[track_caller]
    pub(crate) fn well(self) -> Self {
        assert!(self.status.success(), "{self:?}");
        self
    }

    /// Holds that it was refused, and said so in these words.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) {
        assert_eq!((self.status.code(), self.status.signal()), (Some(2), None), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is not in:\n{}", self.err);
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let ended = self.child.try_wait();
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(err) = self.err.take().filter(|_| std::thread::panicking()) {
            eprintln!("up, with status {ended:?}, said: {}", err.join().unwrap_or_default());
        }
    }
}

/// What `status --json` says.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) code: Option<i32>,
    pub(crate) json: Value,
}

impl Status {
    /// The processes by name.
    pub(crate) fn processes(&self) -> BTreeMap<&str, &Value> {
        let all = self.json["processes"].as_array().expect("an array");
        all.iter().map(|p| (p["name"].as_str().expect("a name"), p)).collect()
    }

    #[track_caller]
    pub(crate) fn process(&self, name: &str) -> &Value {
        self.processes().get(name).copied().unwrap_or_else(|| panic!("no {name}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn pid(&self, name: &str) -> i64 {
        self.process(name)["pid"].as_i64().expect("a pid")
    }

    pub(crate) fn pids(&self) -> BTreeMap<String, i64> {
        self.processes().into_keys().map(|name| (name.to_owned(), self.pid(name))).collect()
    }

    /// The incarnation of a member; 0 if it is none.
    pub(crate) fn incarnation(&self, name: &str) -> u64 {
        self.processes().get(name).and_then(|p| p["incarnation"].as_u64()).unwrap_or(0)
    }

    pub(crate) fn view(&self) -> u64 {
        self.json["view"].as_u64().unwrap_or(0)
    }

    /// Whether a process may act in a view now.
    pub(crate) fn is_active(&self, name: &str) -> bool {
        self.processes().get(name).is_some_and(|p| p["lease"]["active"] == true)
    }

    /// The processes that may act in a view now.
    pub(crate) fn active(&self) -> Vec<&str> {
        self.processes().into_keys().filter(|name| self.is_active(name)).collect()
    }

    /// What is said beside the reason that begins so.
    #[track_caller]
    pub(crate) fn advice(&self, reason: &str) -> &Value {
        let all = self.json["advice"].as_array().expect("an array");
        let is = |one: &&Value| one["reason"].as_str().is_some_and(|text| text.starts_with(reason));
        all.iter().find(is).unwrap_or_else(|| panic!("no reason {reason}: {self:?}"))
    }

    pub(crate) fn reasons(&self) -> String {
        let reasons = self.json["reasons"].as_array().expect("an array");
        reasons.iter().map(|r| r.as_str().expect("text")).collect::<Vec<_>>().join("\n")
    }
}
