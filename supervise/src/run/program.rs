//! Commands that `run` starts for itself, hooks for example: none of them outlives it. How programs
//! end, in words and codes.

use obol_fabric::Nanos;
use obol_fabric::host::{Held, Process, children, reap, sched, supervise, this_program};
use obol_term::output::{self, Failure};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A program, and the process that it must not outlive.
#[derive(Clone, Debug)]
pub struct Tied {
    /// The process that it must not outlive.
    pub parent: u32,
    /// The program and its arguments.
    pub words: Vec<OsString>,
}

impl Tied {
    /// The program as a command, if the process is still the parent of this one.
    pub(super) fn command(&self) -> Result<Command, Failure> {
        if parent_id() != self.parent {
            return Err(Failure::Failed("the process that started this one is gone".to_owned()));
        }
        let [program, arguments @ ..] = self.words.as_slice() else {
            return Err(Failure::Refused("no program is named".to_owned()));
        };
        let mut command = Command::new(program);
        command.args(arguments);
        Ok(command)
    }
}

/// Reports why a program cannot be executed; the exit code says so, too.
pub(super) fn not_executed(command: &Command, error: &io::Error) -> Result<ExitCode, Failure> {
    output::remark(format_args!("obol run: {}: {error}", command.get_program().display()))?;
    let is_missing = error.kind() == ErrorKind::NotFound;
    Ok(ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE }))
}

/// What a shell's exit codes say: it cannot be executed, it is not there, it died of a signal.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

/// The shell of `--shell`.
const SHELL: &str = "/bin/sh";
/// How often the end of what a program left behind is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How long what it left behind has to end after SIGKILL.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a command's shim has to end after it was asked to kill all; then it is killed itself,
/// and the rest with the other orphans.
const COMMAND_SHIM_TIMEOUT: Duration = Duration::from_secs(5);
/// The kernel takes a timeout of zero for none.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// What everything that `run` starts finds in its environment.
pub(super) type Environment = [(&'static str, String)];

/// Kills every descendant of this process. One that begins meanwhile may be missed.
pub(super) fn kill_descendants() {
    for pid in supervise::descendants(std::process::id()) {
        // One that has ended meanwhile is to be reaped only; one of another user is seen not to
        // end.
        if let Ok(held) = Process::of(pid).and_then(Process::hold) {
            let _ = held.kill();
        }
    }
}

/// The other end of [`crate::running::dies_with_parent`]: becomes the program, on a core
/// of its own if one is given.
pub fn exec_with_parent(core: Option<u32>, tied: &Tied) -> Result<ExitCode, Failure> {
    sched::die_with_parent().map_err(Failure::failed)?;
    let mut command = tied.command()?;
    if let Some(core) = core {
        sched::pin_to_core(core).map_err(Failure::failed)?;
    }
    let error = command.exec();
    not_executed(&command, &error)
}

/// The exit code for a program's end, as in shells.
pub(super) fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| SIGNALLED + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// How a program ended, in words.
pub(super) fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with exit code {code}"),
        (None, Some(signal)) => format!("it died of signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// The words of a command that an operator gave: a program, or a line for the shell.
pub(super) fn words(command: &OsStr, by_shell: bool) -> Vec<OsString> {
    if by_shell { vec![SHELL.into(), "-c".into(), command.into()] } else { vec![command.into()] }
}

/// Whose the shim's standard input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The shim's channel, on which it reports how the command ended; descendants may live on.
    Shim,
    /// The command's. When it ends, what it left behind is ended as well.
    Command,
}

/// A command of this program that runs these words under a shim.
pub(super) fn under_shim(words: &[OsString], environment: &Environment, input: Input) -> io::Result<Command> {
    let mut command = this_program::command()?;
    command.args(["command-shim", "--parent", &std::process::id().to_string()]);
    if input == Input::Command {
        command.arg("--feeds");
    }
    command.arg("--").args(words).envs(environment.iter().map(|(key, value)| (key, value)));
    // Ctrl-C in a terminal is for `run`, whose hooks have something to do then.
    command.process_group(0);
    Ok(command)
}

/// A shim's report of its command's end: the status of `wait`.
pub(super) type Word = [u8; 4];

/// Runs a command to its end; `None` if it took too long and was killed with all that it had
/// started. What it has left behind may run on, as an orphan.
pub(super) fn execute(
    words: &[OsString],
    environment: &Environment,
    children: &Children,
    timeout: Duration,
    out: Stdio,
) -> io::Result<Option<ExitStatus>> {
    let (mut own, its) = UnixStream::pair()?;
    own.set_read_timeout(Some(timeout.max(TIMEOUT_MIN)))?;
    let mut command = under_shim(words, environment, Input::Shim)?;
    let shim = children.spawn(command.stdin(Stdio::from(OwnedFd::from(its))).stdout(out))?;
    // With it this process's copy of the shim's end is closed, so that its end is seen.
    drop(command);
    let mut word = Word::default();
    match own.read_exact(&mut word) {
        Ok(()) => {
            children.forget(shim.id());
            children.reap_orphans()?;
            Ok(Some(ExitStatus::from_raw(i32::from_le_bytes(word))))
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            ShimHandle(shim).kill(children);
            Ok(None)
        }
        // The shim has ended, and says why.
        Err(_) => Ok(Some(ShimHandle(shim).reap(children)?)),
    }
}

/// The shim of a command that stays until it is ended.
pub(super) struct ShimHandle(Child);

impl ShimHandle {
    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits for its end, and kills it if that takes longer than this.
    pub(super) fn end(self, children: &Children, timeout: Duration) {
        if self.ends_within(timeout) {
            // It was a child, so there is something to reap.
            let _ = self.reap(children);
        } else {
            self.kill(children);
        }
    }

    /// Kills it with all that it has started.
    fn kill(mut self, children: &Children) {
        // The shim knows what is to be killed. One that has ended meanwhile is reaped all the
        // same.
        if let Ok(held) = self.hold() {
            let _ = held.terminate();
        }
        if !self.ends_within(COMMAND_SHIM_TIMEOUT) {
            let _ = self.0.kill();
        }
        let _ = self.reap(children);
    }

    /// Its number is its own until it is reaped.
    fn hold(&self) -> io::Result<Held> {
        Process::of(self.0.id()).and_then(Process::hold)
    }

    fn ends_within(&self, timeout: Duration) -> bool {
        self.hold().map_or(true, |held| held.wait_ended(Nanos::from_std(timeout)))
    }

    fn reap(mut self, children: &Children) -> io::Result<ExitStatus> {
        let status = self.0.wait();
        children.forget(self.0.id());
        status
    }
}

/// The children that a thread waits for. Every other child of this process is an orphan that it
/// adopted.
#[derive(Default)]
pub(super) struct Children(Mutex<BTreeSet<u32>>);

impl Children {
    /// Starts a child that the caller waits for, and then forgets.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Locked while it starts, so that it is never taken for an orphan.
        let mut own = self.0.lock();
        let child = command.spawn()?;
        own.insert(child.id());
        Ok(child)
    }

    /// Starts a child that stays.
    pub(super) fn stay(&self, command: &mut Command) -> io::Result<ShimHandle> {
        self.spawn(command).map(ShimHandle)
    }

    /// It has ended, and may be reaped as an orphan.
    pub(super) fn forget(&self, child: u32) {
        self.0.lock().remove(&child);
    }

    /// A child that was started otherwise is not an orphan.
    pub(super) fn add(&self, child: u32) {
        self.0.lock().insert(child);
    }

    /// Reaps orphans that have ended.
    pub(super) fn reap_orphans(&self) -> io::Result<()> {
        let own = self.0.lock();
        for pid in children()?.into_iter().filter(|pid| !own.contains(pid)) {
            reap(pid);
        }
        Ok(())
    }

    /// Kills and reaps the orphans that a program left behind.
    pub(super) fn end_orphans(&self) -> io::Result<()> {
        let end = Instant::now() + ORPHANS_TIMEOUT;
        let mut looks_in_vain = 0;
        loop {
            let own = self.0.lock();
            let orphans: Vec<u32> = children()?.into_iter().filter(|pid| !own.contains(pid)).collect();
            // One that comes while another ends may be missed by a look.
            looks_in_vain = if orphans.is_empty() { looks_in_vain + 1 } else { 0 };
            if looks_in_vain > 1 {
                return Ok(());
            }
            for &pid in &orphans {
                // One that has ended meanwhile is to be reaped all the same.
                if let Ok(held) = Process::of(pid).and_then(Process::hold) {
                    let _ = held.kill();
                }
                reap(pid);
            }
            drop(own);
            if Instant::now() > end {
                let text = format!("processes that it left behind do not end: {orphans:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ended_by_itself_did_not_die() {
        let wait_status = |code: i32, signal: i32| ExitStatus::from_raw(code << 8 | signal);
        assert_eq!(how(wait_status(0, 0)), "it ended with exit code 0");
        assert_eq!(how(wait_status(3, 0)), "it ended with exit code 3");
        assert_eq!(how(wait_status(0, 9)), "it died of signal 9");
    }
}
