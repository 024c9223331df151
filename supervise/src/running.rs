//! Clusters that a command makes for itself, to measure them, and what ends each of them whatever
//! becomes of the command.
//!
//! A reaper is a child of the command that reads from a pipe which the command holds and never
//! closes. However the command ends (by itself, by Ctrl-C, by a closed terminal, by SIGKILL), the
//! kernel closes the pipe; the reaper then ends the cluster and removes its files. No signal
//! handler has a part in it, and nothing else lies in the file system.

use obol_fabric::Name;
use obol_fabric::host::this_program;
use obol_fabric::host::{Cluster, HostError};
use obol_node::Site;
use obol_observe::{Health, Observer};
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::ffi::OsStr;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a cluster may take to come up.
pub const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Which cluster to start.
pub struct Shape<'a> {
    /// What it is called, before this process's id.
    pub name: &'a str,
    /// Every constant of it.
    pub profile: &'a Profile,
    /// Nodes, with an app each.
    pub apps: u16,
    /// Lease caches.
    pub caches: u16,
    /// Hosts that reach each other over IP, if it is not one.
    pub hosts: Option<u8>,
    /// It must be healthy within this time.
    pub patience: Duration,
    /// Its processes write logs, of every level.
    pub logs: bool,
}

impl<'a> Shape<'a> {
    /// Nodes with an app each, on one host, without lease caches and logs.
    pub const fn new(name: &'a str, profile: &'a Profile, apps: u16) -> Self {
        Self { name, profile, apps, caches: 0, hosts: None, patience: START_TIMEOUT, logs: false }
    }
}

/// How long a reaper may take to end on request; then it is killed, and its files are removed here.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// Poll interval while it ends.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What ends the profile that is sent to a reaper: no TOML has it.
const END_OF_PROFILE: u8 = 0;
/// A profile is no longer than this.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// A child of this process that ends when this process does, and clears up a cluster.
pub struct Reaper {
    child: Child,
    /// Open for as long as this process lives.
    pipe: Option<ChildStdin>,
    /// The clusters' directory.
    pub root: PathBuf,
    /// The cluster that it clears up.
    pub cluster: Name,
}

impl Reaper {
    /// Removes a cluster that this process makes in its own memory, without supervised processes:
    /// the cluster's directory, and a folder of files beside it, however this process ends. Called
    /// before the cluster is made.
    pub fn of_own_cluster(root: &Path, cluster: Name, folder: Option<&Path>) -> Result<Self, Failure> {
        let mut command = this_program::command().map_err(Failure::failed)?;
        command.arg("cleanup");
        command.args(folder.map(|folder| [OsStr::new("--folder"), folder.as_os_str()]).into_iter().flatten());
        Self::start(&mut command, root, cluster, &[])
    }

    /// Starts a command of this program for a cluster, and sends it `input`.
    fn start(command: &mut Command, root: &Path, cluster: Name, input: &[u8]) -> Result<Self, Failure> {
        let mut child = command
            .args(["--cluster", cluster.as_str(), "--root"])
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // What a terminal sends to this process's group must not end those who clear up after
            // it.
            .process_group(0)
            .spawn()
            .map_err(Failure::failed)?;
        let mut pipe = child.stdin.take();
        let sent = pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(input).and_then(|()| pipe.flush()));
        let reaper = Self { child, pipe, root: root.to_owned(), cluster };
        sent.map_err(|error| {
            Failure::Failed(format!("the process that is to remove the cluster cannot be reached: {error}"))
        })?;
        Ok(reaper)
    }

    /// Ends it; whether it had to be killed.
    fn end(&mut self) -> bool {
        self.pipe = None;
        let end = Instant::now() + END_TIMEOUT;
        while Instant::now() < end {
            // An error means that it is not a child any more.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        // It may have ended at last.
        let _ = self.child.kill();
        let _ = self.child.wait();
        true
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if self.end() {
            remove(&self.root, self.cluster);
        }
    }
}

/// Removes what is left of a cluster, and reports it if that fails.
fn remove(root: &Path, cluster: Name) {
    match Cluster::remove(root, cluster) {
        // Mostly its maker has removed it.
        Ok(()) | Err(HostError::NotFound { .. }) => {}
        Err(error) => {
            // There is no one left to report to if this fails, too.
            let _ = output::remark(format_args!("obol: {error}"));
        }
    }
}

/// `obol cleanup`, the other end of [`Reaper::of_own_cluster`]: removes a cluster, and a folder that
/// goes with it, when the command that made it has ended.
pub fn clean_up(root: &Path, cluster: Name, folder: Option<&Path>) -> Result<(), Failure> {
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map_err(Failure::failed)?;
    remove(root, cluster);
    match folder.map(std::fs::remove_dir_all) {
        Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => Err(Failure::failed(error)),
        _ => Ok(()),
    }
}

/// The profile that a command sent to the `up` that keeps its cluster.
pub fn profile_sent() -> Result<Profile, Failure> {
    let mut text = Vec::new();
    let mut from = BufReader::with_capacity(1, io::stdin().lock()).take(PROFILE_BYTES_MAX);
    from.read_until(END_OF_PROFILE, &mut text).map_err(Failure::failed)?;
    if text.pop() != Some(END_OF_PROFILE) {
        return Err(Failure::Refused("--temporary is for commands that send a profile".to_owned()));
    }
    let text = String::from_utf8(text).map_err(Failure::refused)?;
    Profile::parse(&text, "standard input").map_err(Failure::refused)
}

/// Sets the flag when the command that started this one has ended.
pub fn stop_with_sender(stop: Arc<AtomicBool>) -> Result<(), Failure> {
    let wait = move || {
        // An error is an end as well.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("sender".to_owned()).spawn(wait).map_err(Failure::failed)?;
    Ok(())
}

/// A command that runs a program which dies with this thread, pinned to a core if one is given.
pub fn dies_with_parent(program: &str, core: Option<u32>) -> io::Result<Command> {
    let mut command = this_program::command()?;
    command.args(["exec-with-parent", "--parent", &std::process::id().to_string()]);
    if let Some(core) = core {
        command.args(["--core", &core.to_string()]);
    }
    command.args(["--", program]);
    Ok(command)
}

/// A cluster that a child process supervises. It ends with this.
pub struct Running {
    /// What ends it.
    pub reaper: Reaper,
}

impl Running {
    /// Starts a cluster and waits until it is healthy.
    pub fn start(root: &Path, shape: &Shape<'_>) -> Result<Self, Failure> {
        let cluster =
            Name::new(&format!("{}-{}", shape.name, std::process::id())).map_err(Failure::failed)?;
        let mut profile = shape.profile.to_toml().into_bytes();
        profile.push(END_OF_PROFILE);
        let mut command = this_program::command().map_err(Failure::failed)?;
        command
            .args(["up", "--headless", "--temporary"])
            .args(["--apps", &shape.apps.to_string(), "--caches", &shape.caches.to_string()])
            .args(shape.hosts.map(|hosts| format!("--hosts={hosts}")))
            .args(if shape.logs {
                ["--log-to=files", "--log-level=trace"]
            } else {
                ["--log-to=off", "--log-level=off"]
            })
            .stderr(if shape.patience < START_TIMEOUT { Stdio::null() } else { Stdio::inherit() });
        let mut running = Self { reaper: Reaper::start(&mut command, root, cluster, &profile)? };
        let end = Instant::now() + shape.patience;
        loop {
            if let Ok(Some(status)) = running.reaper.child.try_wait() {
                return Err(Failure::Failed(format!(
                    "the cluster did not come up: `obol up` ended with {status}"
                )));
            }
            let snapshot = running.observer().map(|mut observer| observer.snapshot());
            match snapshot {
                Ok(snapshot) if snapshot.health == Health::Healthy => return Ok(running),
                Ok(snapshot) if Instant::now() > end => {
                    return Err(Failure::Failed(format!(
                        "the cluster did not come up: {}",
                        snapshot.reasons.join("; ")
                    )));
                }
                Err(error) if Instant::now() > end => return Err(error),
                Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Opens an observer of it.
    pub fn observer(&self) -> Result<Observer, Failure> {
        Observer::open(&self.reaper.root, self.reaper.cluster).map_err(Failure::failed)
    }

    /// Opens its directory on this host.
    pub fn site(&self) -> Result<Site, Failure> {
        Site::open(&self.reaper.root, self.reaper.cluster).map_err(Failure::failed)
    }
}
