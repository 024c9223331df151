//! Scheduling of a process, and its termination with its supervisor.
#![allow(unsafe_code)]

use crate::types::Nanos;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::prctl::{set_child_subreaper, set_pdeathsig};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use std::io;
use std::os::unix::process::parent_id;
use std::process::Command;

/// The variable in which a parent passes its pid to a child, for [`die_with_parent`].
const PARENT: &str = "OBOL_PARENT";

/// The calling thread, for calls that take the id of one.
const CALLER: Pid = Pid::from_raw(0);

/// Passes the pid of this process to a child, so that [`die_with_parent`] notices a parent that was
/// killed before the call.
pub fn pass_parent_id(command: &mut Command) -> &mut Command {
    command.env(PARENT, std::process::id().to_string())
}

/// Has the kernel kill this process when the thread that started it ends. If the parent is already
/// gone, this is an error: always after [`pass_parent_id`], otherwise only if it ends during the
/// call.
pub fn die_with_parent() -> io::Result<()> {
    let passed = std::env::var(PARENT).ok().and_then(|pid| pid.parse().ok());
    let parent = passed.unwrap_or_else(parent_id);
    set_pdeathsig(Signal::SIGKILL)?;
    // The parent may have died before the request took effect.
    if parent_id() != parent {
        return Err(io::Error::other("the process that started this one is gone"));
    }
    Ok(())
}

/// Makes this process the reaper of orphans among its descendants, so that it can end and reap
/// them.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(true)?)
}

/// Puts this thread under SCHED_FIFO. Needs CAP_SYS_NICE or an RLIMIT_RTPRIO.
pub fn run_fifo(priority: u32) -> io::Result<()> {
    schedule(libc::SCHED_FIFO, priority)
}

/// The same for this thread alone: threads and processes that it starts have ordinary scheduling.
pub fn run_fifo_alone(priority: u32) -> io::Result<()> {
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, priority)
}

/// Whether a thread of this process may use SCHED_FIFO with this priority. Determined by trying.
pub fn may_run_fifo(priority: u32) -> bool {
    std::thread::spawn(move || run_fifo_alone(priority).is_ok()).join().unwrap_or(false)
}

fn schedule(policy: libc::c_int, priority: u32) -> io::Result<()> {
    let priority = libc::c_int::try_from(priority).map_err(io::Error::other)?;
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: `param` is a valid structure that the kernel only reads.
    let done = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel prefer others to the calling thread, if it has ordinary scheduling.
pub fn be_nice(by: i32) {
    // SAFETY: it takes a number. Only a smaller niceness can be refused.
    unsafe { libc::nice(by) };
}

/// How long an ordinary thread runs at a time if others want its core. The scheduler lets a woken
/// thread with a shorter slice interrupt one with a longer slice (EEVDF, Linux 6.12; older kernels
/// ignore it). Needs no privilege.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// The kernel's default, some milliseconds.
    Default,
    /// For threads that have to run soon after they were woken, and run briefly.
    Short,
}

/// Above the tens of microseconds that a coordinator needs for a failover.
const SHORT_SLICE: Nanos = Nanos::from_micros(100);

/// Sets the slice of this thread and those that it starts, or of another thread of this user.
/// Leaves threads with real-time scheduling alone.
pub fn set_slice(thread: Option<u32>, slice: Slice) -> io::Result<()> {
    let thread = thread.unwrap_or(0);
    let mut attributes = attributes(thread)?;
    if attributes.sched_policy != libc::SCHED_OTHER.cast_unsigned() {
        return Ok(());
    }
    attributes.sched_runtime = match slice {
        Slice::Default => 0,
        Slice::Short => SHORT_SLICE.0,
    };
    // SAFETY: the kernel reads as many bytes as the first field says, which `attributes` has.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn attributes(thread: u32) -> io::Result<libc::sched_attr> {
    // SAFETY: every field is a number, for which zero is valid.
    let mut attributes: libc::sched_attr = unsafe { core::mem::zeroed() };
    let bytes = size_of::<libc::sched_attr>();
    // SAFETY: `attributes` is valid for writes of as many bytes as the call names.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, bytes, 0) } {
        0 => Ok(attributes),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a thread has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadUsage {
    /// Time on a core, in user mode and in the kernel.
    pub busy: Nanos,
    /// How often it has waited.
    pub waits: u64,
}

/// What the calling thread has used so far.
pub fn thread_usage() -> ThreadUsage {
    // It cannot fail with this argument.
    let Ok(usage) = getrusage(UsageWho::RUSAGE_THREAD) else { return ThreadUsage::default() };
    let micros = |time: TimeVal| time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs();
    let busy = Nanos::from_micros(micros(usage.user_time()) + micros(usage.system_time()));
    ThreadUsage { busy, waits: usage.voluntary_context_switches().unsigned_abs() }
}

/// Pins the calling thread to one core.
pub fn pin_to_core(core: u32) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core as usize)?;
    Ok(sched_setaffinity(CALLER, &set)?)
}

/// The core that the calling thread runs on.
pub fn core() -> Option<u32> {
    sched_getcpu().ok().and_then(|core| u32::try_from(core).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_thread_is_its_own() {
        let usage = || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            let began = std::time::Instant::now();
            while thread_usage().busy < Nanos::from_millis(20) {
                assert!(began.elapsed().as_secs() < 60, "it gets no core");
            }
            thread_usage()
        };
        let of = std::thread::spawn(usage).join().expect("no panic");
        assert!(of.busy >= Nanos::from_millis(20) && of.waits >= 1, "{of:?}");
        let other = std::thread::spawn(thread_usage).join().expect("no panic");
        assert!(other.busy < of.busy, "{other:?}");
    }

    #[test]
    fn a_short_slice_is_set_and_taken_back() {
        std::thread::spawn(|| {
            let slice = || attributes(0).expect("this thread's").sched_runtime;
            let before = slice();
            be_nice(3);
            let niceness = || attributes(0).expect("this thread's").sched_nice;
            let nice = niceness();
            set_slice(None, Slice::Short).expect("it needs no privilege");
            // Older kernels report no slice.
            assert!(before == 0 || slice() == SHORT_SLICE.0, "{before}, then {}", slice());
            let own = nix::unistd::gettid().as_raw().cast_unsigned();
            set_slice(Some(own), Slice::Default).expect("a thread of this user");
            assert_eq!((slice(), niceness()), (before, nice), "and nothing else is changed");
            assert!(set_slice(Some(u32::MAX), Slice::Short).is_err(), "no such thread");
        })
        .join()
        .expect("it ran");
    }

    #[test]
    fn a_thread_is_kept_on_a_core_that_is_there() {
        std::thread::spawn(|| {
            let here = core().expect("a core");
            pin_to_core(here).expect("the core that it ran on");
            assert_eq!(core(), Some(here));
            assert!(pin_to_core(u32::MAX).is_err());
        })
        .join()
        .expect("it ran");
    }
}
