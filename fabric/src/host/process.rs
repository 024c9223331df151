//! Processes by pid and start time, so that a reused pid is never taken for its predecessor; pidfds
//! as proof of death.
#![allow(unsafe_code)]

use crate::types::Nanos;
use nix::sys::signal::Signal;
use nix::unistd::{ForkResult, Pid};
use obol_deaths::pidfd::{self, ended, ended_within};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One process of this host since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot: field 22 of `/proc/PID/stat`, its low 40 bits.
    pub started: u64,
}

/// The field of `/proc/PID/stat` with the scheduling policy.
const POLICY_FIELD: usize = 41;
/// Bits of a start time that are kept: at 100 ticks per second they last for 348 years.
pub(crate) const STARTED_BITS: u32 = 40;
/// Bits of a pid: the kernel's own limit, `PID_MAX_LIMIT`.
pub(crate) const PID_BITS: u32 = 22;

/// The known state of a process.
#[derive(Debug)]
pub(crate) enum Life {
    /// It runs; the pidfd becomes readable when all of its threads have ended.
    Alive(OwnedFd),
    /// No thread of it runs any more.
    Dead,
    /// Unknown, for instance for lack of a file descriptor.
    Unknown,
}

impl Process {
    /// The calling process.
    pub fn current() -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self { pid, started: start_time("self")? })
    }

    /// The current process with this pid.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, started: start_time(&pid.to_string())? })
    }

    /// Whether it runs, and a pidfd if so.
    pub(crate) fn life(self) -> Life {
        let fd = match pidfd::open(self.pid) {
            Ok(fd) => fd,
            // EINVAL: the pid is now the id of another process's thread, or no process has it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL | libc::ENOENT)) => {
                return Life::Dead;
            }
            Err(_) => return Life::Unknown,
        };
        // If the start time matches now, the pidfd opened before refers to the same process.
        match start_time(&self.pid.to_string()) {
            Ok(started) if started != self.started => Life::Dead,
            Ok(_) if ended(&fd) => Life::Dead,
            Ok(_) => Life::Alive(fd),
            Err(error) if is_gone(&error) => Life::Dead,
            Err(_) => Life::Unknown,
        }
    }

    /// Whether it is stopped: by a signal, by a debugger, or with its control group; false if that
    /// cannot be determined.
    pub fn is_stopped(self) -> bool {
        let state = stat(&self.pid.to_string()).ok().and_then(|stat| field(&stat, 3).map(str::to_owned));
        match state.as_deref() {
            Some("T" | "t") => true,
            Some("S" | "D") => self.is_group_frozen(),
            _ => false,
        }
    }

    /// Whether its control group is frozen, where the groups are mounted as usual.
    fn is_group_frozen(self) -> bool {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        // Lines such as `6:freezer:/batch` of version 1, and `0::/user.slice` of version 2.
        read(&format!("/proc/{}/cgroup", self.pid)).lines().any(|line| match line.split_once(':') {
            Some(("0", group)) => {
                let group = group.trim_start_matches(':');
                read(&format!("/sys/fs/cgroup{group}/cgroup.events")).lines().any(|line| line == "frozen 1")
            }
            Some((_, group)) => group.strip_prefix("freezer:").is_some_and(|group| {
                read(&format!("/sys/fs/cgroup/freezer{group}/freezer.state")).trim() == "FROZEN"
            }),
            None => false,
        })
    }

    /// The cores that its threads last ran on; unreadable threads are left out.
    pub fn cores(self) -> BTreeSet<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid));
        let threads = tasks.into_iter().flatten().flatten();
        let core = |task: std::fs::DirEntry| {
            let stat = std::fs::read(task.path().join("stat")).ok()?;
            field(&stat, 39)?.parse().ok()
        };
        threads.filter_map(core).collect()
    }

    /// Whether a thread of it has real-time scheduling; `None` if none can be read.
    pub fn is_real_time(self) -> Option<bool> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let policies = tasks.flatten().filter_map(|task| {
            let stat = std::fs::read(task.path().join("stat")).ok()?;
            field(&stat, POLICY_FIELD)?.parse::<i32>().ok()
        });
        policies
            .map(|policy| matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR))
            .reduce(|one, other| one || other)
    }

    /// Whether any thread of it may still run.
    pub fn is_alive(self) -> bool {
        !self.is_dead()
    }

    /// Opens a pidfd, so that a signal cannot hit a later process with the same pid.
    pub fn hold(self) -> io::Result<Held> {
        match self.life() {
            Life::Alive(pidfd) => Ok(Held(pidfd)),
            Life::Dead => Err(io::Error::new(io::ErrorKind::NotFound, "it is dead already")),
            Life::Unknown => Err(io::Error::other("the kernel gives no descriptor for it")),
        }
    }

    /// Whether no thread of it runs any more; false if unknown.
    pub(crate) fn is_dead(self) -> bool {
        matches!(self.life(), Life::Dead)
    }
}

/// A process held by its pidfd.
#[derive(Debug)]
pub struct Held(OwnedFd);

impl Held {
    /// Sends it SIGKILL.
    pub fn kill(&self) -> io::Result<()> {
        self.send(Signal::SIGKILL)
    }

    /// Sends it SIGTERM.
    pub fn terminate(&self) -> io::Result<()> {
        self.send(Signal::SIGTERM)
    }

    /// Sends it SIGSTOP.
    pub fn freeze(&self) -> io::Result<()> {
        self.send(Signal::SIGSTOP)
    }

    /// Sends it SIGCONT; no effect if it is not stopped.
    pub fn thaw(&self) -> io::Result<()> {
        self.send(Signal::SIGCONT)
    }

    pub fn has_ended(&self) -> bool {
        ended(&self.0)
    }

    /// Waits until it has ended, for at most `timeout`; returns whether it has. A signal may end
    /// the wait early.
    #[must_use]
    pub fn wait_ended(&self, timeout: Nanos) -> bool {
        ended_within(&self.0, timeout.to_std())
    }

    /// Sends it a signal by its number.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.send(Signal::try_from(signal)?)
    }

    fn send(&self, signal: Signal) -> io::Result<()> {
        pidfd::send(&self.0, signal as i32)
    }
}

/// Repeatedly checked processes. Each live one is held by a pidfd, so that a check costs one system
/// call instead of reading `/proc`.
#[derive(Debug, Default)]
pub struct Lives(HashMap<Process, OwnedFd>);

/// The maximum number of pidfds, well below the usual limit of descriptors; other processes are
/// looked up each time.
const HELD_MAX: usize = 400;

impl Lives {
    /// Whether no thread of it runs any more; false if unknown.
    pub fn is_dead(&mut self, process: Process) -> bool {
        if let Some(held) = self.0.get(&process) {
            let dead = ended(held);
            if dead {
                self.0.remove(&process);
            }
            return dead;
        }
        match process.life() {
            Life::Alive(held) => {
                if self.0.len() < HELD_MAX {
                    self.0.insert(process, held);
                }
                false
            }
            Life::Dead => true,
            Life::Unknown => false,
        }
    }

    /// Drops all others.
    pub fn keep(&mut self, wanted: impl Fn(Process) -> bool) {
        self.0.retain(|process, _| wanted(*process));
    }
}

impl AsFd for Held {
    /// The pidfd.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether a process is gone, a zombie, or has a fatal signal pending.
pub fn is_dying(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let is_pending = |name: &str| {
        let mask = field(name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.is_some_and(|mask| mask >> (libc::SIGKILL - 1) & 1 == 1)
    };
    let is_gone = field("State:").is_none_or(|state| state.starts_with(['Z', 'X']));
    is_gone || is_pending("SigPnd:") || is_pending("ShdPnd:")
}

pub(super) fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().filter(|number| *number > 0).map(Pid::from_raw)
}

/// Forks this process: returns the child's pid, or `None` in the child. The child has the calling
/// thread alone, and may deadlock on a lock held by another thread. Only for tests of forked
/// children and the benchmark's bare processes; to start a program, use `std::process`.
#[doc(hidden)]
pub fn fork() -> io::Result<Option<u32>> {
    // SAFETY: the call takes nothing. What a child must not rely on is said above; memory it has
    // all.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => Ok(None),
        ForkResult::Parent { child } => Ok(Some(child.as_raw().cast_unsigned())),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn stat(pid: &str) -> io::Result<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/stat"))
}

/// Field `number` of a process's `stat`, from 3 on.
fn field(stat: &[u8], number: usize) -> Option<&str> {
    // Field 2 is the command in parentheses, which may itself contain blanks and parentheses; field
    // 3 follows the last one.
    let fields = stat.iter().rposition(|&b| b == b')').and_then(|at| stat.get(at + 1..)).unwrap_or_default();
    let mut fields = fields.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
    fields.nth(number.checked_sub(3)?).and_then(|f| core::str::from_utf8(f).ok())
}

fn start_time(pid: &str) -> io::Result<u64> {
    let stat = stat(pid)?;
    let started = field(&stat, 22).and_then(|f| f.parse::<u64>().ok());
    started.map(|s| s & ((1 << STARTED_BITS) - 1)).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat has no field 22"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_another_of_the_same_pid_is_dead() {
        let me = Process::current().expect("/proc is mounted");
        assert!(matches!(me.life(), Life::Alive(_)));
        assert!(Process { started: me.started + 1, ..me }.is_dead());
        assert!(Process { pid: 0, started: 1 }.is_dead());
    }

    #[test]
    fn a_child_that_ended_is_dead_before_and_after_it_is_reaped() {
        let mut child = std::process::Command::new("/bin/true").spawn().expect("/bin/true runs");
        let process = Process::of(child.id()).expect("a child");
        while !process.is_dead() {
            std::thread::yield_now();
        }
        child.wait().expect("reaped");
        assert!(process.is_dead());
    }

    #[test]
    fn one_that_is_held_is_seen_to_end() {
        let mut child = std::process::Command::new("/bin/cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("/bin/cat runs");
        let process = Process::of(child.id()).expect("a child");
        let mut lives = Lives::default();
        assert!(!lives.is_dead(process) && !lives.is_dead(process));
        assert!(
            lives.is_dead(Process { started: process.started + 1, ..process }),
            "another life of the number"
        );
        drop(child.stdin.take());
        child.wait().expect("reaped");
        assert!(lives.is_dead(process) && lives.is_dead(process));
        assert!(lives.0.is_empty());
    }
}
