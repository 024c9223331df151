//! The cores of a process are kept from all ordinary threads. The kernel itself does not stall: a
//! real-time thread of the fault agent computes on each core without a pause, so interrupts are
//! served, and a target that is not pinned may be moved to another core.

use super::Allowed;
use super::fault::{Armed, Arming, Effect, Fault, Planning, Scope, Simulated};
use super::order::Injection;
use obol_config::{Problems, Section};
use obol_fabric::host::{clock, sched};
use obol_fabric::{Instant, Nanos};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, Thread};

/// The name of its orders.
const ORDER: &str = "kernel-stall";
/// The longest stall. Beyond 950 ms of each second the kernel runs others after all: by
/// `kernel.sched_rt_runtime_us`, and since Linux 6.12 by the server of the fair class.
const STALL_MAX: Nanos = Nanos::from_millis(900);
/// Above all that obol runs.
const PRIORITY: u32 = 99;
/// Values of the word that the threads wait for: none yet, and an end that is over.
const WAIT: u64 = 0;
const OVER: u64 = 1;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelStall;

impl Fault for KernelStall {
    fn name(&self) -> &'static str {
        ORDER
    }

    fn describe(&self) -> String {
        format!("{ORDER} by real-time threads on the cores of its targets")
    }

    fn scope(&self) -> Scope {
        Scope::Process
    }

    fn effect(&self) -> Effect {
        Effect::Degraded
    }

    fn parse(&self, _section: &mut Section<'_, '_>, _problems: &mut Problems) -> Arc<dyn Fault> {
        Arc::new(*self)
    }

    fn refusal(&self, planning: Planning<'_>) -> Option<&'static str> {
        if planning.lasts.is_some_and(|lasts| lasts > STALL_MAX) {
            return Some(
                "a stall lasts 900 ms at most: of each second the kernel keeps 50 ms for ordinary threads",
            );
        }
        if planning.simulated || planning.allowed.kernel_stall {
            return None;
        }
        Some(
            "all programs lose the cores; on a host reserved for tests, set allow_kernel_stall = true in [guards]",
        )
    }

    /// As if it were pinned.
    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated::Freeze)
    }

    fn orders(&self) -> &'static [&'static str] {
        &[ORDER]
    }

    fn order(&self, _island: u8) -> Injection {
        Injection::new(ORDER)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        let lasts = Nanos(order.lasts.ok_or("a stall has no end")?);
        let Allowed { kernel_stall: true, .. } = arming.allowed else {
            return Err("cores are stalled with allow_kernel_stall only".to_owned());
        };
        if lasts > STALL_MAX {
            return Err(format!("a stall lasts {STALL_MAX} at most"));
        }
        let cores = order.process().ok_or("a stall names no process")?.cores();
        let all = thread::available_parallelism().map_or(0, usize::from);
        leave_one(arming.stalled, &cores, all).map_err(|stalled| {
            let name = order.victim();
            format!(
                "with {name}, the threads of the targets last ran on {stalled} of {all} cores, and one has to be left; pin them (rdma.core of the profile)"
            )
        })?;
        ArmedStall::on(&cores, lasts).map(|armed| Box::new(armed) as Box<dyn Armed>)
    }
}

/// Adds cores to those that faults of a cue stall; fails with the number of all if none of this host's would be
/// left, or there are none to stall.
fn leave_one(stalled: &mut BTreeSet<u32>, cores: &BTreeSet<u32>, all: usize) -> Result<(), usize> {
    stalled.extend(cores);
    if cores.is_empty() || stalled.len() >= all { Err(stalled.len()) } else { Ok(()) }
}

/// Threads of this process on cores, which wait for a stall. They end with this.
struct ArmedStall {
    /// [`WAIT`], or the time at which the stall ends.
    until: Arc<AtomicU64>,
    threads: Vec<Thread>,
    lasts: Nanos,
}

impl ArmedStall {
    fn on(cores: &BTreeSet<u32>, lasts: Nanos) -> Result<Self, String> {
        let mut armed = Self { until: Arc::new(AtomicU64::new(WAIT)), threads: Vec::new(), lasts };
        for core in cores.iter().copied() {
            let until = Arc::clone(&armed.until);
            let (ready, is_ready) = mpsc::channel();
            let run = move || {
                let may = sched::pin_to_core(core).and_then(|()| sched::run_fifo_alone(PRIORITY));
                let may_run = may.is_ok();
                // The one who waits for it has just started this thread.
                let _ = ready.send(may);
                if may_run {
                    wait_and_stall(&until);
                }
            };
            let refused = |error: io::Error| {
                format!("core {core} cannot be stalled: {error}; real-time threads need CAP_SYS_NICE (root)")
            };
            let started = thread::Builder::new().name("stall".to_owned()).spawn(run).map_err(refused)?;
            armed.threads.push(started.thread().clone());
            is_ready.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into())).map_err(refused)?;
        }
        Ok(armed)
    }

    fn tell(&self, word: u64) {
        self.until.store(word, Ordering::Release);
        self.threads.iter().for_each(Thread::unpark);
    }
}

fn wait_and_stall(until: &AtomicU64) {
    while until.load(Ordering::Acquire) == WAIT {
        thread::park();
    }
    while clock::now() < Instant(until.load(Ordering::Acquire)) {
        std::hint::spin_loop();
    }
}

impl Armed for ArmedStall {
    fn inject(&mut self) -> io::Result<()> {
        self.tell((clock::now() + self.lasts).0);
        Ok(())
    }

    fn undo(&mut self) -> Result<(), String> {
        self.tell(OVER);
        Ok(())
    }
}

impl Drop for ArmedStall {
    fn drop(&mut self) {
        self.tell(OVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_of_a_stall_end_by_themselves_or_when_it_is_undone() {
        let cores: BTreeSet<u32> = sched::core().into_iter().collect();
        let armed = |lasts| ArmedStall::on(&cores, lasts);
        if !sched::may_run_fifo(PRIORITY) {
            let refused = armed(STALL_MAX).map(drop).expect_err("no privilege");
            assert!(refused.contains("CAP_SYS_NICE"), "{refused}");
            return;
        }
        let ended = |until: &Arc<AtomicU64>, others: usize| {
            while Arc::strong_count(until) > 1 + others {
                thread::yield_now();
            }
        };
        let mut stall = armed(Nanos::from_millis(5)).expect("it is armed");
        let until = Arc::clone(&stall.until);
        assert_eq!(Arc::strong_count(&until), 3, "a thread waits");
        stall.inject().expect("it stalls");
        ended(&until, 1);
        assert!(clock::now() >= Instant(until.load(Ordering::Acquire)));
        for undone in [true, false] {
            let mut stall = armed(Nanos::MAX).expect("it is armed");
            let until = Arc::clone(&stall.until);
            if undone {
                stall.undo().expect("it ends");
            }
            drop(stall);
            ended(&until, 0);
        }
    }

    #[test]
    fn the_stalls_of_a_cue_leave_a_core_together() {
        let mut stalled = BTreeSet::new();
        let mut add = |cores: &[u32]| leave_one(&mut stalled, &cores.iter().copied().collect(), 4);
        assert_eq!([add(&[0, 1]), add(&[1, 2]), add(&[2])], [Ok(()); 3]);
        assert_eq!(add(&[3]), Err(4));
        assert_eq!(leave_one(&mut BTreeSet::new(), &BTreeSet::new(), 4), Err(0));
    }

    #[test]
    fn a_stall_is_short_and_needs_its_guard() {
        let allowed = Allowed { kernel_stall: true, ..Allowed::default() };
        let dead_man = Nanos::from_secs(3);
        let deployment =
            obol_node::Deployment::new(3, 1, 0, obol_profiles::Profile::default()).expect("it fits");
        let refusal = |allowed, lasts, simulated| {
            let (deployment, targets) = (&deployment, &[][..]);
            let lasts = Some(lasts);
            KernelStall.refusal(Planning { allowed, dead_man, lasts, simulated, deployment, targets })
        };
        let too_long = STALL_MAX.saturating_add(Nanos(1));
        assert_eq!(refusal(&allowed, STALL_MAX, false), None);
        assert!(refusal(&allowed, too_long, false).is_some_and(|why| why.contains("900 ms")));
        let without = Allowed::default();
        assert!(refusal(&without, STALL_MAX, false).is_some_and(|why| why.contains("allow_kernel_stall")));
        assert_eq!(refusal(&without, STALL_MAX, true), None);
    }
}
