//! A cluster that a command starts for itself, to measure it.

use crate::output::Failure;
use obol_chaos::control::{self, Request};
use obol_chaos::observe::{Health, Observer};
use obol_fabric::Name;
use obol_profiles::{Profile, Site};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A cluster that should come up has so long.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Which cluster to start.
pub(crate) struct Shape<'a> {
    /// What it is called, before this process's id.
    pub(crate) name: &'a str,
    /// Every constant of it.
    pub(crate) profile: &'a Profile,
    /// Nodes, with an app each.
    pub(crate) apps: u16,
    /// Lease caches.
    pub(crate) caches: u16,
    /// It must be healthy within this time.
    pub(crate) patience: Duration,
}

/// A cluster that a child process supervises. It ends with this.
pub(crate) struct Running {
    child: Child,
    /// A profile that does not ship has to be read from a file.
    profile: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) cluster: Name,
}

impl Running {
    /// Starts a cluster and waits until it is healthy.
    pub(crate) fn start(root: &Path, shape: &Shape<'_>) -> Result<Self, Failure> {
        let cluster =
            Name::new(&format!("{}-{}", shape.name, std::process::id())).map_err(Failure::failed)?;
        let profile = std::env::temp_dir().join(format!("obol-{cluster}.toml"));
        std::fs::write(&profile, shape.profile.to_toml())
            .map_err(|error| Failure::Failed(format!("{}: {error}", profile.display())))?;
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let child = Command::new(program)
            .args(["up", "--headless", "--cluster", cluster.as_str()])
            .args(["--apps", &shape.apps.to_string(), "--caches", &shape.caches.to_string()])
            .arg("--profile")
            .arg(&profile)
            .arg("--root")
            .arg(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(if shape.patience < START_TIMEOUT { Stdio::null() } else { Stdio::inherit() })
            // Ctrl-C is for this process, which then ends the cluster; otherwise everybody would seem to fail.
            .process_group(0)
            .spawn()
            .map_err(Failure::failed)?;
        let mut running = Self { child, profile, root: root.to_owned(), cluster };
        let end = Instant::now() + shape.patience;
        loop {
            if let Ok(Some(status)) = running.child.try_wait() {
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

    pub(crate) fn observer(&self) -> Result<Observer, Failure> {
        Observer::open(&self.root, self.cluster).map_err(Failure::failed)
    }

    pub(crate) fn site(&self) -> Result<Site, Failure> {
        Site::open(&self.root, self.cluster).map_err(Failure::failed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The supervisor ends its processes and removes the directory when it is asked to stop.
        let dir = self.root.join(self.cluster.as_str());
        if control::ask(&dir, &Request::Stop).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        // At worst a small file is left among the temporary ones.
        let _ = std::fs::remove_file(&self.profile);
    }
}
