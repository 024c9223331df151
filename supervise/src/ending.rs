//! Processes of a cluster that a command ends by a signal: it waits until they have ended.

use obol_fabric::host::{Held, Process};
use obol_term::output::Failure;
use std::time::{Duration, Instant};

/// How long `stop` waits for a process to leave and end: longer than `obol run` gives its program by
/// default.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Why a killed process may not end.
const KILL_HINT: &str =
    "the signal was sent, and it has not ended; one in a frozen control group ends when that is thawed";
/// Poll interval while a process ends.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Kills a process, and waits until it has ended.
pub fn kill(name: &str, process: Process) -> Result<(), Failure> {
    end_by(name, process, Held::kill, "kill", || KILL_HINT.to_owned())
}

/// Asks a process to leave and end, and waits until it has.
pub fn stop(name: &str, process: Process) -> Result<(), Failure> {
    // The signal cannot be taken back.
    let hint = || match process.is_stopped() {
        true => format!(
            "it is frozen; it ends as soon as it continues (`kill -CONT {}`), or now by `obol kill {name}`",
            process.pid
        ),
        false => format!("it was asked to and still runs; it may end later, or now by `obol kill {name}`"),
    };
    end_by(name, process, Held::terminate, "stop", hint)
}

fn end_by(
    name: &str,
    process: Process,
    signal: impl Fn(&Held) -> std::io::Result<()>,
    how: &str,
    hint: impl Fn() -> String,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("could not {how} {name}: {error}"));
    let held = process.hold().map_err(failed)?;
    signal(&held).map_err(failed)?;
    let end = Instant::now() + STOP_TIMEOUT;
    while !held.has_ended() {
        if Instant::now() > end {
            return Err(failed(std::io::Error::other(hint())));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
