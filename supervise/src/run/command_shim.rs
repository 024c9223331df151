//! The shim of a hook or health command: the process between `run` and the command, whose parent it
//! is. It adopts what the command leaves behind and stays as long as any of that runs. When `run`
//! dies, or says that the command takes too long, it kills all of it.

use super::listen;
use super::program::{Input, NOT_EXECUTABLE, Tied, Word, code, kill_descendants, not_executed};
use obol_fabric::Nanos;
use obol_fabric::host::supervise::{self, Reaped};
use obol_fabric::host::{Held, Process, sched};
use obol_term::output::Failure;
use signal_hook::consts::{SIGCHLD, SIGTERM};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Between two attempts to kill what is left.
const KILL_EVERY: Duration = Duration::from_millis(2);
/// One wait for the end of `run`; another one follows.
const WAIT: Nanos = Nanos::from_secs(3600);

enum Event {
    Child,
    End,
}

/// `obol command-shim`, which a `run` starts: runs a hook or health command, and ends all that it started
/// when `run` ends. If it `feeds` the command, the standard input is the command's, not for reporting how
/// it ended.
pub fn run(feeds: bool, tied: &Tied) -> Result<ExitCode, Failure> {
    let input = if feeds { Input::Command } else { Input::Shim };
    sched::adopt_orphans().map_err(Failure::failed)?;
    let run = Process::of(tied.parent).and_then(Process::hold).map_err(Failure::failed)?;
    let mut command = tied.command()?;
    let (tx, rx) = mpsc::channel();
    pass_events(run, tx).map_err(Failure::failed)?;
    if input == Input::Shim {
        command.stdin(Stdio::null());
    }
    supervise::tie(&mut command, None);
    let child = match command.spawn() {
        Ok(child) => child.id(),
        Err(error) => return not_executed(&command, &error),
    };
    let status = wait(child, input, &rx).map_err(Failure::failed)?;
    Ok(ExitCode::from(status.map_or(NOT_EXECUTABLE, code)))
}

/// Starts threads that report events.
fn pass_events(run: Held, tx: Sender<Event>) -> io::Result<()> {
    let signals_tx = tx.clone();
    listen::signals(&[SIGCHLD, SIGTERM], move |signal| {
        signals_tx.send(if signal == SIGTERM { Event::End } else { Event::Child }).is_ok()
    })?;
    listen::spawn("obol-parent", move || {
        while !run.wait_ended(WAIT) {}
        // The receiver may be gone.
        let _ = tx.send(Event::End);
    })
}

/// Waits until no process of the command is left; returns how the command itself ended.
fn wait(child: u32, input: Input, rx: &Receiver<Event>) -> io::Result<Option<ExitStatus>> {
    let (mut status, mut ends) = (None, false);
    loop {
        match supervise::reap_any()? {
            Reaped::Ended(pid, how) if pid == child && status.is_none() => {
                status = Some(how);
                match input {
                    Input::Shim => report(how),
                    Input::Command => ends = true,
                }
                continue;
            }
            Reaped::Ended(..) => continue,
            Reaped::None => return Ok(status),
            Reaped::Running => {}
        }
        let event = if ends {
            kill_descendants();
            rx.recv_timeout(KILL_EVERY).ok()
        } else {
            // The sender is gone, which means the end as well.
            Some(rx.recv().unwrap_or(Event::End))
        };
        ends |= matches!(event, Some(Event::End));
    }
}

/// Reports to `run`, which may have ended, how the command ended.
fn report(status: ExitStatus) {
    let word: Word = status.into_raw().to_le_bytes();
    let _ = io::stdin().as_fd().try_clone_to_owned().and_then(|own| UnixStream::from(own).write_all(&word));
}
