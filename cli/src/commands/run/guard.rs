//! The process between `run` and a hook or health command: the command's parent. It adopts what the
//! command leaves behind and stays as long as any of that runs. When `run` dies, or says that the
//! command takes too long, it kills all of it.

use super::program::{Environment, NOT_EXECUTABLE, NOT_FOUND, code, kill_descendants};
use clap::Args;
use obol_console::output::{self, Failure};
use obol_fabric::host::supervise::{self, Reaped};
use obol_fabric::host::{Held, Process, sched};
use obol_fabric::{Name, Nanos};
use signal_hook::consts::{SIGCHLD, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

/// Runs a command of `run`'s, and ends all that it started with `run`
#[derive(Debug, Args)]
pub(crate) struct RunGuarded {
    /// The process that nothing of it must outlive
    #[arg(long)]
    parent: u32,
    /// The standard input is the command's, not for reporting how it ended
    #[arg(long)]
    feeds: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Between two attempts to kill what is left.
const KILL_EVERY: Duration = Duration::from_millis(2);
/// One wait for the end of `run`; another one follows.
const WAIT: Nanos = Nanos::from_secs(3600);

/// Whose the guard's standard input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The guard's channel, on which it reports how the command ended; descendants may live on.
    Guard,
    /// The command's. When it ends, what it left behind is ended as well.
    Command,
}

/// How a command under guard is given to this program.
pub(super) fn guarded(words: &[OsString], environment: &Environment, input: Input) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run-guarded", "--parent", &std::process::id().to_string()]);
    if input == Input::Command {
        command.arg("--feeds");
    }
    command.arg("--").args(words).envs(environment.iter().map(|(key, value)| (key, value)));
    // Ctrl-C in a terminal is for `run`, whose hooks have something to do then.
    command.process_group(0);
    Ok(command)
}

/// A guard's report of its command's end, and its parser.
pub(super) type Word = [u8; 4];

enum Event {
    Child,
    /// All is to end.
    End,
}

/// The guard's life.
pub(crate) fn guard(_: &Path, _: Name, args: &RunGuarded) -> Result<ExitCode, Failure> {
    let RunGuarded { parent, feeds, ref words } = *args;
    let input = if feeds { Input::Command } else { Input::Guard };
    sched::adopt_orphans().map_err(Failure::failed)?;
    let run = Process::of(parent).and_then(Process::hold).map_err(Failure::failed)?;
    if parent_id() != parent {
        return Err(Failure::Failed("the process that started this one is gone".to_owned()));
    }
    let (tx, rx) = mpsc::channel();
    listen(run, tx).map_err(Failure::failed)?;
    let [program, arguments @ ..] = words.as_slice() else {
        return Err(Failure::Refused("no program is named".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if input == Input::Guard {
        command.stdin(Stdio::null());
    }
    supervise::tie(&mut command, None);
    let child = match command.spawn() {
        Ok(child) => child.id(),
        Err(error) => {
            output::remark(format_args!("obol run: {}: {error}", program.display()))?;
            let is_missing = error.kind() == ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE }));
        }
    };
    let status = wait(child, input, &rx).map_err(Failure::failed)?;
    Ok(ExitCode::from(status.map_or(NOT_EXECUTABLE, code)))
}

/// Starts threads that report events.
fn listen(run: Held, tx: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGCHLD, SIGTERM])?;
    let signals_tx = tx.clone();
    let forward = move || {
        for signal in signals.forever() {
            if signals_tx.send(if signal == SIGTERM { Event::End } else { Event::Child }).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("obol-signals".to_owned()).spawn(forward)?;
    let wait = move || {
        while !run.wait_ended(WAIT) {}
        // The receiver may be gone.
        let _ = tx.send(Event::End);
    };
    std::thread::Builder::new().name("obol-parent".to_owned()).spawn(wait).map(drop)
}

/// Waits until no process of the command is left; returns how the command itself ended.
fn wait(child: u32, input: Input, rx: &Receiver<Event>) -> io::Result<Option<ExitStatus>> {
    let (mut status, mut ends) = (None, false);
    loop {
        match supervise::reap_any()? {
            Reaped::Ended(pid, how) if pid == child && status.is_none() => {
                status = Some(how);
                match input {
                    Input::Guard => report(how),
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
