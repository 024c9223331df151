//! Commands that `run` starts for itself, hooks for example: none of them outlives it. How programs end, in words and codes.

use crate::output::{self, Failure};
use obol_fabric::Nanos;
use obol_fabric::shm::{Process, children, reap, sched};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a shell's exit codes say: it can not be executed, it is not there, it died of a signal.
pub(super) const NOT_EXECUTABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;
const SIGNALLED: i32 = 128;

/// The shell of people who asked for one.
const SHELL: &str = "/bin/sh";
/// How often the end of what a program left behind is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long what it left behind has to end after SIGKILL.
const ORPHANS_TIMEOUT: Duration = Duration::from_secs(5);

/// What everything that `run` starts finds in its environment.
pub(super) type Environment = [(&'static str, String)];

/// A command that runs these words as a program which dies with this thread. By way of this very program, because what is
/// to happen between `fork` and `exec` needs no code of its own then.
pub(super) fn tied(words: &[OsString], environment: &Environment) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["run-tied", "--parent", &std::process::id().to_string(), "--"]).args(words);
    command.envs(environment.iter().map(|(key, value)| (key, value)));
    Ok(command)
}

/// The other end of [`tied`]: becomes the program.
pub(crate) fn become_program(parent: u32, words: &[OsString]) -> Result<ExitCode, Failure> {
    sched::die_with_parent().map_err(Failure::failed)?;
    if parent_id() != parent {
        return Err(Failure::Failed("the process that started this one is gone".to_owned()));
    }
    let [program, arguments @ ..] = words else {
        return Err(Failure::Refused("no program is named".to_owned()));
    };
    let error = Command::new(program).args(arguments).exec();
    output::remark(format_args!("obol run: {}: {error}", program.display()))?;
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }))
}

/// The exit code that tells how a program ended, as shells do.
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

/// Runs a command to its end; `None` if it took too long and was killed.
pub(super) fn execute(
    command: &mut Command,
    kept: &Kept,
    timeout: Duration,
) -> io::Result<Option<ExitStatus>> {
    let mut child = kept.spawn(command)?;
    // It is not reaped yet, so the number is its own.
    let in_time = match Process::of(child.id()).and_then(Process::hold) {
        Ok(held) => held.wait_ended(Nanos::from_std(timeout)),
        // It has ended already.
        Err(_) => true,
    };
    if !in_time {
        child.kill()?;
    }
    let status = child.wait()?;
    kept.forget(&child);
    Ok(in_time.then_some(status))
}

/// A child that stays until it is ended.
pub(super) struct Stayed(Child);

impl Stayed {
    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits for its end, and kills it if that takes longer than this.
    pub(super) fn end(mut self, kept: &Kept, timeout: Duration) {
        if !self.has_ended()
            && let Ok(held) = Process::of(self.0.id()).and_then(Process::hold)
            && !held.wait_ended(Nanos::from_std(timeout))
        {
            // One that has ended meanwhile is reaped all the same.
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
        kept.forget(&self.0);
    }
}

/// The children that somebody waits for. Every other child of this process is an orphan that it adopted.
#[derive(Default)]
pub(super) struct Kept(Mutex<BTreeSet<u32>>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a child that the caller waits for, and then forgets.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Locked while it starts, so that it is never taken for an orphan.
        let mut kept = self.lock();
        let child = command.spawn()?;
        kept.insert(child.id());
        Ok(child)
    }

    /// Starts a child that stays.
    pub(super) fn stay(&self, command: &mut Command) -> io::Result<Stayed> {
        self.spawn(command).map(Stayed)
    }

    pub(super) fn forget(&self, child: &Child) {
        self.lock().remove(&child.id());
    }

    /// A child that was started otherwise is no orphan.
    pub(super) fn keep(&self, child: u32) {
        self.lock().insert(child);
    }

    /// It has ended, and may be reaped as an orphan.
    pub(super) fn drop_keeper(&self, child: u32) {
        self.lock().remove(&child);
    }

    /// Reaps orphans that have ended.
    pub(super) fn reap_orphans(&self) -> io::Result<()> {
        let kept = self.lock();
        for pid in children()?.into_iter().filter(|pid| !kept.contains(pid)) {
            reap(pid);
        }
        Ok(())
    }

    /// Kills and reaps the orphans that a program left behind.
    pub(super) fn end_orphans(&self) -> io::Result<()> {
        let end = Instant::now() + ORPHANS_TIMEOUT;
        let mut looks_in_vain = 0;
        loop {
            let kept = self.lock();
            let orphans: Vec<u32> = children()?.into_iter().filter(|pid| !kept.contains(pid)).collect();
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
            drop(kept);
            if Instant::now() > end {
                let text = format!("processes that it left behind do not end: {orphans:?}");
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
            std::thread::sleep(LOOK_EVERY);
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
