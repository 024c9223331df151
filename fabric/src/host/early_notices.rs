//! Tests of early notices by eBPF: programs that are loaded for one test, in a mount namespace of
//! its own, watchers that sleep, and processes whose exit is held.
#![allow(unsafe_code)]

use crate::Endpoint;
use crate::contract::{Evidence, Fabric};
use crate::endpoint::{Owner, Wait};
use crate::host::fork::tests::forked;
use crate::host::test::{made, name};
use crate::host::{Cluster, Process, Region, clock};
use crate::types::Address;
use core::sync::atomic::Ordering;
use core::time::Duration;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use obol_deaths::deadbeat::Deadbeat;
use obol_deaths::ebpf::{self, DIRECTORY, Loaded, Programs};
use obol_deaths::{Detection, Stage};
use std::ffi::CStr;
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::AsFd;
use std::path::Path;

/// Loads the programs for `test` alone, in a thread of its own, or skips it.
fn with_programs(test: impl FnOnce(Loaded) + Send + 'static) {
    let thread = std::thread::spawn(|| match load() {
        Ok(loaded) => {
            test(loaded);
            ebpf::unload().expect("unloaded");
        }
        Err(why) => obol_checks::skipped("ebpf-here", why),
    });
    thread.join().expect("the test has passed");
}

fn load() -> Result<Loaded, String> {
    if Deadbeat::open().is_ok() {
        return Err("the module is loaded and is used instead".to_owned());
    }
    let refused = |error: nix::Error| error.to_string();
    unshare(CloneFlags::CLONE_NEWNS).map_err(refused)?;
    let (private, none) = (MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&CStr>);
    mount(none, "/", none, private, none).map_err(refused)?;
    let parent = Path::new(DIRECTORY).parent().expect("absolute");
    mount(Some(c"tmpfs"), parent, Some(c"tmpfs"), MsFlags::empty(), none).map_err(refused)?;
    let loaded = ebpf::load(None).map_err(|error| error.to_string())?;
    if loaded.wakes { Ok(loaded) } else { Err("this kernel has no user ring buffers".to_owned()) }
}

/// Waits for what must happen; bounds a hang, nothing else.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..30_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("in vain: {what}");
}

fn endpoint(cluster: &Cluster, who: &str) -> Endpoint {
    let owner = Owner { kind: 1, name: name(who), region: None, groups: 2 };
    Endpoint::open(cluster, owner, Wait::Block).expect("opened")
}

/// Has it look for the programs, and for what is urgent, as its loop does four times a second.
fn maintain(endpoint: &mut Endpoint) {
    std::thread::sleep(Duration::from_millis(251));
    endpoint.kernel_notifier.maintain(clock::now(), |_| None);
}

/// How often this endpoint was woken.
fn rings(endpoint: &Endpoint) -> u32 {
    endpoint.region.doorbell().load(Ordering::SeqCst)
}

/// What a turn of the endpoint sees of deaths, and how many reports of the kernel it counts.
fn seen(endpoint: &mut Endpoint) -> (Vec<Evidence>, u64) {
    endpoint.watches.check(endpoint.transport.regions(), clock::now());
    let events = std::iter::from_fn(|| endpoint.watches.next()).map(|(_, evidence)| evidence).collect();
    (events, endpoint.watches.take_counts().0)
}

/// A child that waits to be killed. The calling thread traces it, so that it stays where its exit
/// begins until it is released.
struct Victim {
    pid: Pid,
}

impl Victim {
    /// Forks a child that does this first.
    fn start(run: impl FnOnce()) -> Self {
        let child = crate::host::fork().expect("forked");
        let Some(pid) = child else {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run();
                std::thread::sleep(Duration::MAX);
            }));
            // SAFETY: it takes an integer and does not return.
            unsafe { libc::_exit(1) };
        };
        Self { pid: Pid::from_raw(pid.cast_signed()) }
    }

    /// A member of the cluster, which is registered.
    fn member(cluster: &Cluster) -> (Self, Address, Region) {
        let root = cluster.dir().parent().expect("a root").to_owned();
        let victim = Self::start(move || {
            let anew = Cluster::open(&root, name("c")).expect("opened");
            core::mem::forget(endpoint(&anew, &format!("victim-{}", std::process::id())));
        });
        let process = Process::of(victim.pid.as_raw().cast_unsigned()).expect("a child");
        let mut found = None;
        until("a member", || {
            found = cluster.regions_of(process).into_iter().find(|info| info.alive);
            found.is_some()
        });
        let info = found.expect("a member");
        let region = Region::open(cluster, info.number).expect("mapped");
        until("its registration", || {
            let seat = region.reader().seat(0);
            seat.is_some_and(|seat| seat.detection == Detection::Ebpf)
        });
        (victim, Address { generation: info.generation, ..Address::region(info.number) }, region)
    }

    /// Sends SIGKILL; returns when the victim is held at the beginning of its exit.
    fn kill_and_hold(&self) {
        let options = ptrace::Options::PTRACE_O_TRACEEXIT | ptrace::Options::PTRACE_O_EXITKILL;
        ptrace::seize(self.pid, options).expect("traced");
        self.kill();
        let status = self.wait();
        let held = matches!(status, WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_EXIT));
        assert!(held, "it is not held: {status:?}");
    }

    fn kill(&self) {
        kill(self.pid, Signal::SIGKILL).expect("a child that is not reaped");
    }

    fn wait(&self) -> WaitStatus {
        waitpid(self.pid, Some(WaitPidFlag::__WALL)).expect("a child")
    }

    fn release(&self) {
        ptrace::cont(self.pid, None).expect("traced");
    }

    fn reap(&self) {
        let status = self.wait();
        assert!(matches!(status, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{status:?}");
    }
}

#[test]
fn a_sleeping_watcher_is_woken_when_the_signal_is_sent() {
    with_programs(|loaded| {
        let (_root, cluster) = made();
        let mut watcher = endpoint(&cluster, "watcher");
        assert_eq!(watcher.detection(), Detection::Ebpf);
        let (victim, who, region) = Victim::member(&cluster);
        watcher.watch(who);
        maintain(&mut watcher);
        assert_eq!(seen(&mut watcher), (vec![], 0));

        let before = rings(&watcher);
        victim.kill_and_hold();
        until("a wake at the signal", || rings(&watcher) != before);
        assert!(!region.is_dead(0), "its word wakes nobody: it has not left its memory");
        assert_eq!(seen(&mut watcher), (vec![Evidence::Suspicion], 1));
        assert_eq!(seen(&mut watcher), (vec![], 0));

        victim.release();
        victim.reap();
        assert_eq!(seen(&mut watcher), (vec![Evidence::Proof], 1), "early: {}", loaded.early);
    });
}

#[test]
fn a_death_that_is_watched_lazily_wakes_nobody() {
    with_programs(|_| {
        let (_root, cluster) = made();
        let mut watcher = endpoint(&cluster, "watcher");
        let (lazy, urgent) = (Victim::member(&cluster), Victim::member(&cluster));
        watcher.watch_lazily(lazy.1);
        watcher.watch(urgent.1);
        maintain(&mut watcher);
        let before = rings(&watcher);
        lazy.0.kill();
        lazy.0.reap();
        urgent.0.kill_and_hold();
        until("a wake", || rings(&watcher) != before);
        assert_eq!(rings(&watcher), before.wrapping_add(1), "for the urgent one alone");
        assert_eq!((seen(&mut watcher).0.len(), seen(&mut watcher)), (3, (vec![], 0)));
        urgent.0.release();
        urgent.0.reap();
    });
}

fn ready(epoll: &Epoll, patience: Duration) -> usize {
    let patience = EpollTimeout::try_from(patience).expect("short");
    epoll.wait(&mut [EpollEvent::empty(); 2], patience).expect("waited")
}

#[test]
fn each_first_signal_ends_one_wait_of_each_who_waits_and_nobody_can_fill_what_wakes() {
    with_programs(|_| {
        let programs = Programs::open().expect("opened");
        let wakes = programs.wakes().expect("they wake");
        let watchers = [0, 1, 2].map(|_| {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("made");
            wakes.wait_with(&epoll, 0).expect("added");
            assert_eq!((ready(&epoll, Duration::ZERO), ready(&epoll, Duration::ZERO)), (1, 0));
            epoll
        });
        // The third never looks. Far more reports than a buffer of this length could hold.
        for turn in 0..200u64 {
            let (mut registered, done) = io::pipe().expect("a pipe");
            let victim = register_in_child(&programs, turn, &mut registered, done);
            victim.1.kill_and_hold();
            let is = |stage| programs.deaths().token(victim.0, stage);
            assert_eq!((is(Stage::Dying), is(Stage::Dead) == 1_000_001 + turn), (1 + turn, false));
            for epoll in &watchers[..2] {
                assert_eq!((ready(epoll, Duration::from_secs(30)), ready(epoll, Duration::ZERO)), (1, 0));
            }
            // It is dying already.
            victim.1.kill();
            victim.1.release();
            victim.1.reap();
            assert_eq!(is(Stage::Dead), 1_000_001 + turn);
            for epoll in &watchers[..2] {
                assert_eq!(ready(epoll, Duration::ZERO), 0, "neither a second signal nor the death wakes");
            }
        }
        let filled = ebpf::map_wakes_for_writing().map_err(|error| error.kind());
        assert_eq!(filled, Err(io::ErrorKind::PermissionDenied), "even for root");
    });
}

/// A child that registers with tokens of its own, and its slot.
fn register_in_child(
    programs: &Programs,
    turn: u64,
    registered: &mut PipeReader,
    mut done: PipeWriter,
) -> (u32, Victim) {
    let programs = programs.clone();
    let victim = Victim::start(|| {
        let tokens = programs.register(1 + turn, 1_000_001 + turn).expect("registered");
        done.write_all(&tokens.slot.to_ne_bytes()).expect("written");
    });
    poll(&mut [PollFd::new(registered.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).expect("waited");
    let mut slot = [0; 4];
    registered.read_exact(&mut slot).expect("read");
    (u32::from_ne_bytes(slot), victim)
}

#[test]
fn programs_of_an_earlier_release_report_without_a_wake() {
    with_programs(|_| {
        fs::remove_file(Path::new(DIRECTORY).join("wakes")).expect("removed");
        let (_root, cluster) = made();
        let mut watcher = endpoint(&cluster, "watcher");
        assert_eq!((watcher.detection(), watcher.kernel_refusal().is_some()), (Detection::Ebpf, false));
        let (victim, who, _) = Victim::member(&cluster);
        watcher.watch(who);
        maintain(&mut watcher);
        victim.kill_and_hold();
        assert_eq!(seen(&mut watcher), (vec![Evidence::Suspicion], 1), "it is seen by who is awake");
        victim.release();
        victim.reap();
        assert_eq!(seen(&mut watcher), (vec![Evidence::Proof], 1));
    });
}

/// Descriptors of this process, each with whether it is closed by `exec`.
fn descriptors() -> Vec<(String, bool)> {
    let all = fs::read_dir("/proc/self/fd").expect("there is one");
    let mut all: Vec<_> = all
        .filter_map(|entry| {
            let number = entry.ok()?.file_name().into_string().ok()?;
            let flags = fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
            let flags = flags.lines().find_map(|line| line.strip_prefix("flags:"))?;
            let flags = libc::c_int::from_str_radix(flags.trim(), 8).ok()?;
            Some((number, flags & libc::O_CLOEXEC != 0))
        })
        .collect();
    all.sort_unstable();
    all
}

/// Waits until the process has `count` threads: one that was joined is listed a while longer.
fn threads(count: usize) {
    until("threads", || fs::read_dir("/proc/self/task").expect("there is one").count() == count);
}

#[test]
fn a_listener_comes_and_goes_with_the_programs_and_leaves_no_descriptor() {
    with_programs(|_| {
        let (_root, cluster) = made();
        let root = cluster.dir().parent().expect("a root").to_owned();
        // Alone in a process, so that no other test opens anything meanwhile.
        assert!(forked(|| {
            let cluster = Cluster::open(&root, name("c")).expect("opened");
            drop(endpoint(&cluster, "before"));
            let before = descriptors();
            let mut watcher = endpoint(&cluster, "watcher");
            let (victim, who, _) = Victim::member(&cluster);
            threads(1);
            watcher.watch_lazily(who);
            maintain(&mut watcher);
            threads(1);
            watcher.watch(who);
            maintain(&mut watcher);
            threads(2);
            let with = descriptors().len();
            let inherited = descriptors().into_iter().filter(|fd| !fd.1).count();
            assert_eq!(inherited, before.iter().filter(|fd| !fd.1).count());
            for _ in 0..3 {
                ebpf::unload().expect("unloaded");
                maintain(&mut watcher);
                assert_eq!(watcher.detection(), Detection::FutexPidfd);
                threads(1);
                assert!(descriptors().len() < with);
                ebpf::load(None).expect("loaded");
                maintain(&mut watcher);
                assert_eq!((watcher.detection(), descriptors().len()), (Detection::Ebpf, with));
                threads(2);
            }
            watcher.unwatch(who);
            maintain(&mut watcher);
            threads(1);
            victim.kill();
            victim.reap();
            drop(watcher);
            threads(1);
            descriptors() == before
        }));
    });
}
