//! The cluster that is measured.

use crate::output::Failure;
use obol_chaos::control::{self, Request};
use obol_chaos::observe::{Health, Observer};
use obol_fabric::Name;
use obol_profiles::Site;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The profile that is measured.
pub(super) const PROFILE: &str = "laptop";
/// The cluster must be up by then.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A cluster that a child process supervises.
pub(super) struct Running {
    child: Child,
    pub(super) root: PathBuf,
    pub(super) cluster: Name,
}

impl Running {
    pub(super) fn start() -> Result<Self, Failure> {
        let root = obol_fabric::shm::default_root();
        let cluster = Name::new(&format!("bench-{}", std::process::id())).map_err(Failure::failed)?;
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let child = Command::new(program)
            .args(["up", "--headless", "--profile", PROFILE, "--cluster", cluster.as_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(Failure::failed)?;
        let running = Self { child, root, cluster };
        let end = Instant::now() + START_TIMEOUT;
        loop {
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

    pub(super) fn observer(&self) -> Result<Observer, Failure> {
        Observer::open(&self.root, self.cluster).map_err(Failure::failed)
    }

    pub(super) fn site(&self) -> Result<Site, Failure> {
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
    }
}
