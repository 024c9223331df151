//! Processes of a command: servers that it starts, hears of by the JSON lines that they print, and ends.

use obol_fabric::Name;
use obol_fabric::host::sched;
use obol_fabric::host::this_program;
use obol_observe::{Observer, Process as Seen};
use obol_term::output::Failure;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How long servers have to serve at first, and to be redundant again.
pub const SERVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Poll interval for what servers say.
pub const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A server of this program that runs, and where it says that it stands. It is killed when this is
/// dropped.
pub(crate) struct Process<S> {
    pub(crate) child: Child,
    standing: Arc<Mutex<S>>,
}

impl<S> Drop for Process<S> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl<S: Send + 'static> Process<S> {
    /// Starts this program with these arguments. `hear` takes each line that it prints into where it
    /// stands, at first `standing`.
    pub(crate) fn start(
        root: &Path,
        cluster: Name,
        arguments: &[&str],
        standing: S,
        hear: impl Fn(&Value, &mut S) + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut command = this_program::command().map_err(Failure::failed)?;
        sched::pass_parent_id(&mut command)
            .arg("--root")
            .arg(root)
            .args(["--cluster", cluster.as_str()])
            .args(arguments);
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(Failure::failed)?;
        let out = child.stdout.take();
        let process = Self { child, standing: Arc::new(Mutex::new(standing)) };
        let Some(out) = out else { return Err(Failure::Failed("no pipe".to_owned())) };
        let known = Arc::clone(&process.standing);
        let read = move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line) {
                    hear(&line, &mut known.lock());
                }
            }
        };
        std::thread::Builder::new().name("obol-reports".to_owned()).spawn(read).map_err(Failure::failed)?;
        Ok(process)
    }

    /// Where it says that it stands.
    pub(crate) fn standing(&self) -> MutexGuard<'_, S> {
        self.standing.lock()
    }
}

/// The processes of a cluster that live and whose names begin so.
pub(crate) fn living(root: &Path, cluster: Name, prefix: &str) -> Result<Vec<Name>, Failure> {
    let seen = Observer::open(root, cluster).map_err(Failure::refused)?.snapshot();
    let lives = |p: &&Seen| p.alive && p.name.as_str().starts_with(prefix);
    Ok(seen.all_processes().filter(lives).map(|p| p.name).collect())
}
