//! The floor of a failover: nine bare processes that do the least it needs. A victim dies; two
//! coordinators see the words of its robust list; one of them swaps three acceptors' words twice
//! and wakes two caches; each cache wakes two of four apps.
//!
//! The roles are forked from one process, so they cost what a small program costs, share anonymous
//! memory and touch nothing else. `tests/floor.c` is the same in C, and a test holds the two against
//! each other.
#![allow(unsafe_code)]

use crate::host::futex::{OWNER_DIED, WAITERS};
use crate::host::sched::Slice;
use crate::host::{clock, futex, process, program, sched};
use crate::types::{Instant, Nanos};
use core::num::NonZeroUsize;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::prctl::{set_pdeathsig, set_timerslack};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, gettid, pause};
use std::io;
use std::os::unix::process::parent_id;
use std::time::Duration;

/// The priority of the process that kills and measures, so that it is not what is measured.
const PRIORITY: u32 = 50;
/// How long a role yields before it blocks.
const YIELD_FOR: Nanos = Nanos::from_micros(30);
/// A failover that takes longer has lost a process.
const TIMEOUT: Nanos = Nanos::from_secs(10);
/// How often each role does once, before the death, what it has to do after it.
const WARM_UPS: u32 = 3;
const COORDINATORS: usize = 2;
const CACHES: usize = 2;
const APPS: usize = 4;

/// What one failover took, each from the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// The coordinator that decides sees the death.
    pub detected: Nanos,
    /// The last of the four apps knows of it.
    pub last: Nanos,
}

#[derive(Clone, Copy)]
enum Role {
    Victim,
    Coordinator(usize),
    Cache(usize),
    App(usize),
}

const ROLES: [Role; 1 + COORDINATORS + CACHES + APPS] = [
    Role::Victim,
    Role::Coordinator(0),
    Role::Coordinator(1),
    Role::Cache(0),
    Role::Cache(1),
    Role::App(0),
    Role::App(1),
    Role::App(2),
    Role::App(3),
];

/// A word on a cache line of its own.
#[repr(C, align(64))]
struct Line<T>(T);

impl<T> Deref for Line<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// An entry of the victim's robust list, with the word that the kernel marks.
#[repr(C, align(64))]
struct Node {
    next: AtomicUsize,
    word: AtomicU32,
}

/// The kernel's `struct robust_list_head`.
#[repr(C)]
struct Head {
    first: usize,
    futex_offset: usize,
    pending: usize,
}

/// The memory that all roles share. Zero is valid for each of its fields.
#[repr(C)]
struct Shared {
    nodes: [Node; COORDINATORS],
    acceptors: [Line<AtomicU64>; 3],
    view: Line<AtomicU32>,
    served: [Line<AtomicU32>; CACHES],
    ready: Line<AtomicU32>,
    victim_is_ready: Line<AtomicU32>,
    done: Line<AtomicU32>,
    unused: Line<AtomicU32>,
    detected: [Line<AtomicU64>; COORDINATORS],
    active: [Line<AtomicU64>; APPS],
}

/// Runs the floor `count` times. `true` if this process could run at real-time priority: without
/// it, the figures are larger than the floor. `slice` is that of the survivors: beside threads that
/// use all processor time they get, a short one is several times faster.
///
/// # Errors
///
/// More than one thread (a fork has only the caller), memory or processes that the kernel refuses,
/// and a role that did not do its part in time.
pub fn failovers(count: u32, slice: Slice) -> io::Result<(Vec<Failover>, bool)> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the floor forks, and this process has more than one thread"));
    }
    // What the roles do not need would count for the kernel's work at their ends.
    program::release();
    let real_time = sched::run_fifo_alone(PRIORITY).is_ok();
    let times = (0..count).map(|number| failover(number, slice)).collect::<io::Result<_>>()?;
    Ok((times, real_time))
}

fn failover(number: u32, slice: Slice) -> io::Result<Failover> {
    let memory = Memory::map()?;
    let shared = memory.shared();
    let parent = std::process::id();
    let mut roles = Roles(Vec::with_capacity(ROLES.len()));
    for role in ROLES {
        match process::fork()? {
            None => shared.play(role, slice, parent),
            Some(child) => roles.0.extend(process::pid(child)),
        }
    }
    until(&shared.ready, ROLES.len() as u32, Duration::from_micros(100))?;
    // The length varies, so that the kernel's tick does not always fall at the same place.
    std::thread::sleep(Duration::from_micros(3000 + u64::from(number).wrapping_mul(7919) % 1000 * 3));
    let killed = clock::now();
    kill(roles.0[0], Signal::SIGKILL)?;
    until(&shared.done, ROLES.len() as u32 - 1, Duration::from_micros(300))?;
    let since = |time: &AtomicU64| Instant(time.load(Ordering::Acquire)).since(killed);
    let last = shared.active.iter().map(|time| since(time)).max().unwrap_or_default();
    Ok(Failover { detected: since(&shared.detected[0]), last })
}

/// Sleeps until a count is reached.
fn until(count: &AtomicU32, wanted: u32, interval: Duration) -> io::Result<()> {
    let end = clock::now() + TIMEOUT;
    while count.load(Ordering::Acquire) < wanted {
        if clock::now() > end {
            return Err(io::Error::other(format!("a process of the floor did not answer within {TIMEOUT}")));
        }
        std::thread::sleep(interval);
    }
    Ok(())
}

/// The processes of one failover, killed and reaped at its end.
struct Roles(Vec<Pid>);

impl Drop for Roles {
    fn drop(&mut self) {
        for role in &self.0 {
            // One that has ended is still to be reaped, and its number is still its own.
            let _ = kill(*role, Signal::SIGKILL);
        }
        for role in &self.0 {
            let _ = waitpid(*role, None);
        }
    }
}

/// Anonymous memory that forked children share.
struct Memory(NonNull<core::ffi::c_void>);

impl Memory {
    fn map() -> io::Result<Self> {
        const BYTES: NonZeroUsize = NonZeroUsize::new(size_of::<Shared>()).expect("it has fields");
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: the kernel chooses the address, so no other memory is affected.
        Ok(Self(unsafe { mmap_anonymous(None, BYTES, rights, flags) }?))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the mapping is as long as `Shared`, aligned to a page, and zero, which is valid
        // for its atomics; it is unmapped by `Drop` alone.
        unsafe { self.0.cast::<Shared>().as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and the borrows of `shared` have ended.
        let _ = unsafe { munmap(self.0, size_of::<Shared>()) };
    }
}

impl Shared {
    /// One role, in its own process, until that is killed.
    fn play(&self, role: Role, slice: Slice, parent: u32) -> ! {
        // Without its parent, a role would wait for ever.
        let ends_with_parent = set_pdeathsig(Signal::SIGKILL).is_ok();
        if !ends_with_parent || parent_id() != parent {
            std::process::abort();
        }
        self.warm_up();
        if !matches!(role, Role::App(_)) {
            // Only a hint.
            let _ = set_timerslack(1);
        }
        if !matches!(role, Role::Victim) {
            // Where the kernel has no slices, it is the floor without.
            let _ = sched::set_slice(None, slice);
        }
        match role {
            Role::Victim => self.await_death(),
            Role::Coordinator(own) => self.coordinate(own),
            Role::Cache(own) => {
                self.ready.fetch_add(1, Ordering::AcqRel);
                wait(&self.view, |value| value != 0);
                publish(&self.served[own]);
            }
            Role::App(own) => {
                self.ready.fetch_add(1, Ordering::AcqRel);
                wait(&self.served[own % CACHES], |value| value != 0);
                self.active[own].store(clock::now().0, Ordering::Release);
            }
        }
        self.done.fetch_add(1, Ordering::AcqRel);
        sleep_for_ever();
    }

    /// Touches all shared memory, and the code that the role needs.
    fn warm_up(&self) {
        for _ in 0..WARM_UPS {
            self.detected
                .iter()
                .chain(&self.active)
                .for_each(|time| time.store(clock::now().0, Ordering::Release));
            for word in &self.acceptors {
                let _ = word.compare_exchange(u64::MAX, 0, Ordering::AcqRel, Ordering::Acquire);
            }
            futex::wake(&self.unused, 1);
            futex::wait(&self.unused, 0, Some(Nanos::from_micros(1)));
            std::thread::sleep(Duration::from_micros(1));
            std::thread::yield_now();
        }
    }

    fn await_death(&self) -> ! {
        let thread = gettid().as_raw().cast_unsigned();
        let head = Head { first: 0, futex_offset: core::mem::offset_of!(Node, word), pending: 0 };
        let head = Box::leak(Box::new(head));
        let mut next = core::ptr::from_ref(&*head) as usize;
        for node in self.nodes.iter().rev() {
            node.word.store(thread, Ordering::Release);
            node.next.store(next, Ordering::Release);
            next = core::ptr::from_ref(node) as usize;
        }
        head.first = next;
        // SAFETY: the head is leaked and the nodes are mapped until this process ends, which is
        // what the kernel reads the list for. It is not changed any more.
        let done = unsafe {
            libc::syscall(libc::SYS_set_robust_list, core::ptr::from_ref(&*head), size_of::<Head>())
        };
        if done != 0 {
            std::process::abort();
        }
        self.victim_is_ready.store(1, Ordering::Release);
        self.ready.fetch_add(1, Ordering::AcqRel);
        sleep_for_ever();
    }

    fn coordinate(&self, own: usize) {
        while self.victim_is_ready.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_micros(20));
        }
        self.ready.fetch_add(1, Ordering::AcqRel);
        let word = &self.nodes[own].word;
        word.fetch_or(WAITERS, Ordering::AcqRel);
        wait(word, |value| value & OWNER_DIED != 0);
        self.detected[own].store(clock::now().0, Ordering::Release);
        if own == 0 {
            self.decide();
            publish(&self.view);
        }
    }

    /// Prepare and accept at three words.
    fn decide(&self) {
        let seen = self.acceptors.each_ref().map(|word| word.load(Ordering::Acquire));
        for step in [0, 1000] {
            for (word, seen) in self.acceptors.iter().zip(seen) {
                let expected = seen + step;
                let _ = word.compare_exchange(expected, expected + 1000, Ordering::AcqRel, Ordering::Acquire);
            }
        }
    }
}

/// Sets a word and wakes all that wait for it.
fn publish(word: &AtomicU32) {
    word.store(1, Ordering::Release);
    futex::wake(word, u32::MAX);
}

/// Yields for a while, then blocks, until `done`.
fn wait(word: &AtomicU32, done: impl Fn(u32) -> bool) {
    let began = clock::now();
    loop {
        let value = word.load(Ordering::Acquire);
        if done(value) {
            return;
        }
        if clock::now().since(began) < YIELD_FOR {
            std::thread::yield_now();
        } else {
            futex::wait(word, value, None);
        }
    }
}

fn sleep_for_ever() -> ! {
    loop {
        // Unlike `park`, this allocates nothing: the last app still has to run.
        pause();
    }
}
