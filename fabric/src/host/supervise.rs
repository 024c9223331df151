//! Supervision: starting programs, ending all their descendants, and proving that they ended.
#![allow(unsafe_code)]

use crate::host::process::{self, pid};
use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, setpgid};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt, parent_id};
use std::path::Path;
use std::process::{Command, ExitStatus};

/// Forks this process; the parent gets the pid of the child, the child gets `None`. Fails if there
/// is a second thread: the child would have copies of locks that are never released.
pub fn fork() -> io::Result<Option<u32>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with several threads cannot be split"));
    }
    // This is the only thread, so the child may go on as any program.
    process::fork()
}

/// Puts this process into its own process group, which receives no signals from terminals.
pub fn leave_group() -> io::Result<()> {
    let own = Pid::from_raw(0);
    Ok(setpgid(own, own)?)
}

/// The state of the children of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// This one has ended with this status, and is reaped.
    Ended(u32, ExitStatus),
    /// There are children, and none to reap.
    Running,
    /// There is none. If the process adopts orphans ([`super::sched::adopt_orphans`]), this proves
    /// that it has no descendants: an orphan becomes its child before its parent can be reaped.
    None,
}

/// Reaps any one child.
pub fn reap_any() -> io::Result<Reaped> {
    match wait_for(-1) {
        Ok(None) => Ok(Reaped::Running),
        Ok(Some((pid, status))) => Ok(Reaped::Ended(pid, status)),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(Reaped::None),
        Err(error) => Err(error),
    }
}

/// Reaps a child that has ended; returns whether it had. Only for adopted children: another waiter
/// for this child would lose its status.
pub fn reap(child: u32) -> bool {
    // The kernel takes 0 and negative numbers for groups.
    pid(child).is_some_and(|pid| matches!(wait_for(pid.as_raw()), Ok(Some(_))))
}

/// The children of this process that have not been reaped, including adopted ones
/// ([`super::sched::adopt_orphans`]).
pub fn children() -> io::Result<Vec<u32>> {
    children_of(std::process::id())
}

/// Reaps a child that has ended; `None` if it has not. nix's waitpid loses the status of a process that
/// a real-time signal has ended.
fn wait_for(child: libc::pid_t) -> io::Result<Option<(u32, ExitStatus)>> {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some((pid.cast_unsigned(), ExitStatus::from_raw(status)))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The descendants of a process. One that starts or ends meanwhile may be missed.
pub fn descendants(of: u32) -> Vec<u32> {
    let children_of = |pid| children_of(pid).unwrap_or_default();
    let mut found = children_of(of);
    let mut next = 0;
    while let Some(&pid) = found.get(next) {
        next += 1;
        // A process that was reparented meanwhile is listed once.
        let more: Vec<u32> = children_of(pid).into_iter().filter(|pid| !found.contains(pid)).collect();
        found.extend(more);
    }
    found
}

fn children_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // If a thread ends in between, its children move to another thread.
        let Ok(text) = std::fs::read_to_string(task?.path().join("children")) else { continue };
        found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Makes a command die with the thread that starts it, as long as it does not change its user, and
/// start in the control group of this `cgroup.procs`. Failures are errors of `spawn`.
pub fn tie(command: &mut Command, group: Option<File>) {
    let parent = std::process::id();
    let begin = move || {
        set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the request took effect.
        if parent_id() != parent {
            return Err(Errno::ESRCH.into());
        }
        let Some(group) = &group else { return Ok(()) };
        // It denotes the writing process.
        nix::unistd::write(group, b"0")?;
        Ok(())
    };
    // SAFETY: it allocates nothing and takes no lock, as a child of a process with threads must
    // not.
    unsafe { command.pre_exec(begin) };
}

/// Whether this control group is delegated to its user.
pub fn is_delegated(group: &Path) -> bool {
    let Ok(group) = CString::new(group.as_os_str().as_bytes()) else { return false };
    [c"user.delegate", c"trusted.delegate"].into_iter().any(|name| {
        let mut value = [0_u8; 4];
        // SAFETY: both texts end with a zero, and `value` is valid for writes of the given length.
        let bytes =
            unsafe { libc::getxattr(group.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        bytes == 1 && value[0] == b'1'
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_split() {
        // The test program has threads of its own.
        assert!(fork().is_err());
    }

    #[test]
    fn a_program_that_can_not_be_executed_is_the_error_of_its_start() {
        let mut command = Command::new("/no/such/program");
        tie(&mut command, None);
        assert_eq!(command.spawn().expect_err("it is not there").kind(), io::ErrorKind::NotFound);
        let mut command = Command::new("/bin/true");
        tie(&mut command, None);
        assert!(command.status().expect("it runs").success());
    }

    #[test]
    fn grandchildren_are_descendants() {
        let mut child = Command::new("/bin/sh").args(["-c", "sleep 1000 & wait"]).spawn().expect("it runs");
        let found = loop {
            let found = descendants(std::process::id());
            // The shell first, then its child.
            if children_of(child.id()).is_ok_and(|ours| ours.iter().any(|pid| found.contains(pid)))
                && found.contains(&child.id())
            {
                break found;
            }
            std::thread::yield_now();
        };
        // Looked up before the first is killed: an orphan is no longer a descendant.
        let ours = children_of(child.id()).expect("it lives");
        for pid in found.iter().filter(|pid| **pid == child.id() || ours.contains(pid)) {
            let held = crate::host::Process::of(*pid).and_then(crate::host::Process::hold);
            held.expect("it lives").kill().expect("it is ours");
        }
        child.wait().expect("a child");
    }
}
