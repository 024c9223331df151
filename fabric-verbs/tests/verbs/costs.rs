//! The costs of posting and polling: no allocation, and no system call of our own.
#![allow(unsafe_code)]

use crate::cluster::Plan;
use crate::devices::{Duo, HANG, arena, nic, register};
use crate::support::{Root, coordinator};
use obol_fabric::{Event, Fabric, Machine, Remote, Token};
use obol_fabric_verbs::pair::{Kind, QueuePair};
use obol_fabric_verbs::queue::{CompletionQueue, Status};
use obol_fabric_verbs::registration::Rights;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::path::Path;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: as the system's, which it calls.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The first version of the kernel's `struct perf_event_attr`.
#[repr(C)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    bp_addr: u64,
}

const PERF_TYPE_TRACEPOINT: u32 = 2;

/// Counts the system calls of this thread, by the tracepoint at the entry of each.
struct SystemCalls(std::fs::File);

impl SystemCalls {
    /// `None`, with a message, if this process may not count; a required device requires counting
    /// as well.
    fn new() -> Option<Self> {
        let id = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
            .iter()
            .find_map(|root| std::fs::read_to_string(format!("{root}/events/raw_syscalls/sys_enter/id")).ok())
            .and_then(|text| text.trim().parse().ok());
        let opened = id.ok_or_else(|| "the kernel shows no tracepoints".to_owned()).and_then(Self::open);
        let required = std::env::var_os("OBOL_VERBS").is_some_and(|value| value == "require");
        match opened {
            Ok(calls) => Some(calls),
            Err(reason) if required => panic!("system calls cannot be counted: {reason}"),
            Err(reason) => {
                eprintln!("system calls are not counted: {reason}");
                None
            }
        }
    }

    fn open(id: u64) -> Result<Self, String> {
        let attr = PerfEventAttr {
            kind: PERF_TYPE_TRACEPOINT,
            size: size_of::<PerfEventAttr>() as u32,
            config: id,
            sample_period: 0,
            sample_type: 0,
            read_format: 0,
            flags: 0,
            wakeup_events: 0,
            bp_type: 0,
            bp_addr: 0,
        };
        // SAFETY: the kernel only reads `attr`, which says how long it is; this thread, any CPU, no
        // group.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, 0, -1, -1, 0) };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0);
        // SAFETY: the descriptor is new and nobody else's.
        fd.map(|fd| Self(unsafe { std::fs::File::from_raw_fd(fd) }))
            .ok_or_else(|| format!("perf_event_open: {}", std::io::Error::last_os_error()))
    }

    fn read(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes).expect("a counter can be read");
        u64::from_ne_bytes(bytes)
    }
}

/// Allocations and system calls of `work`; the latter `None` if they cannot be counted.
fn cost(calls: &mut Option<SystemCalls>, work: impl FnOnce()) -> (u64, Option<u64>) {
    // The cost of reading the counter itself.
    let own = calls.as_mut().map(|calls| {
        let first = calls.read();
        calls.read() - first
    });
    let before = calls.as_mut().map(SystemCalls::read);
    let allocations = ALLOCATIONS.get();
    work();
    let allocations = ALLOCATIONS.get() - allocations;
    let after = calls.as_mut().map(SystemCalls::read);
    let made = after.zip(before).zip(own).map(|((after, before), own)| after - before - own);
    (allocations, made)
}

/// Rounds of each measurement; lazy initialisation in the first few is not counted.
const ROUNDS: u64 = 100;

/// System calls of a device's provider per post: a software device is notified by one, hardware by
/// a store.
fn calls_per_post(device: &str) -> u64 {
    u64::from(!Path::new("/sys/class/infiniband").join(device).join("device").exists())
}

#[test]
fn posting_and_polling_allocate_nothing_and_make_no_system_call() {
    let Some(nic) = nic() else { return };
    let (here, there) =
        (register(&nic, &arena(4096), Rights::NONE), register(&nic, &arena(4096), Rights::ALL));
    let duo = Duo::new(&nic, Rights::ALL);
    let mut calls = SystemCalls::new();
    let doorbell = calls_per_post(&nic.choice().device);

    // Checks that the counters count.
    assert_eq!(cost(&mut calls, || drop(std::hint::black_box(Box::new(1)))).0, 1);
    // SAFETY: takes nothing.
    let (_, one) = cost(&mut calls, || assert!(unsafe { libc::syscall(libc::SYS_getpid) } > 0));
    assert!(one.is_none_or(|calls| calls == 1), "{one:?}");

    for round in 0..ROUNDS {
        let (allocations, made) = cost(&mut calls, || {
            duo.initiator.read(1, here.local(0, 64), there.target(0), false).expect("posted");
            duo.initiator.write(2, here.local(64, 64), there.target(64), false).expect("posted");
            duo.initiator.write_inline(3, &[7; 16], there.target(128), false).expect("posted");
            duo.initiator
                .cas(4, here.local(128, 8), there.target(192), round, round + 1, true)
                .expect("posted");
        });
        assert_eq!(allocations, 0, "of four posts in round {round}");
        assert!(made.is_none_or(|calls| calls == 4 * doorbell), "{made:?} system calls of four posts");
        duo.expect(4, Status::SUCCESS);
        let (allocations, made) = cost(&mut calls, || {
            for _ in 0..16 {
                assert_eq!(duo.done.poll(&mut [Default::default(); 4]), Ok(0));
            }
        });
        assert_eq!((allocations, made.unwrap_or(0)), (0, 0), "of polls of an empty queue");
    }
}

#[test]
fn receives_and_taking_a_completion_cost_nothing_either() {
    let Some(nic) = nic() else { return };
    let inbox = register(&nic, &arena(4096), Rights::NONE);
    let queue = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
    let pair =
        QueuePair::new(nic.domain(), Kind::Datagram, &queue, &queue, crate::devices::SIZE).expect("a pair");
    pair.open(nic.choice().port, 1).expect("RTS");
    let mut calls = SystemCalls::new();
    let (allocations, made) = cost(&mut calls, || {
        for at in 0..16 {
            pair.receive(at, inbox.local(at as usize * 256, 256)).expect("posted");
        }
    });
    assert_eq!((allocations, made.unwrap_or(0)), (0, 0), "of 16 receives");
    // All of them complete, so that the queue has entries.
    pair.stop().expect("stopped");
    assert_eq!(crate::devices::next(&queue).status(), Status::FLUSHED);
    let mut taken = 1;
    while taken < 16 {
        let mut out = [Default::default(); 4];
        let mut got = 0;
        let (allocations, made) = cost(&mut calls, || got = queue.poll(&mut out).expect("it can be polled"));
        assert_eq!((allocations, made.unwrap_or(0)), (0, 0), "of taking {got} completions");
        taken += got;
        std::thread::yield_now();
    }
}

/// Counts completions.
#[derive(Default)]
struct Ended {
    well: u64,
    badly: u64,
}

impl Machine for Ended {
    fn handle<F: Fabric>(&mut self, _: obol_fabric::Instant, event: Event<'_>, _: &mut F) {
        if let Event::Completion { result, .. } = event {
            *(if result.is_ok() { &mut self.well } else { &mut self.badly }) += 1;
        }
    }
}

/// Rounds after which an endpoint's queues have their final size.
const WARM: u64 = 20;

#[test]
fn an_endpoint_posts_and_turns_without_an_allocation_or_a_system_call() {
    let Some(plan) = Plan::new() else { return };
    let root = Root::new();
    let cluster = plan.host(&root, 1);
    let mut me = plan.open(&cluster, coordinator("me", 1));
    let at = |offset| Remote { at: obol_fabric::Address::region(1), offset };
    let layout = *cluster.layout();
    let mut ended = Ended::default();
    let start = std::time::Instant::now();
    while ended.well == 0 {
        me.read(at(0), 8, Token(0));
        me.poll_once(&mut ended);
        assert!(start.elapsed() < HANG, "the own region is not reached");
        std::thread::yield_now();
    }
    let mut calls = SystemCalls::new();
    let doorbell = nic().map_or(0, |nic| calls_per_post(&nic.choice().device));
    let payload = [7; 512];
    let (mut turns, mut calling, mut allocating) = (0, 0, 0);
    for round in 0..WARM + ROUNDS {
        let before = ended.well + ended.badly;
        let (allocations, made) = cost(&mut calls, || {
            me.read(at(layout.view()), 64, Token(1));
            me.write(at(layout.value(1, 1)), &payload[..16], Token(2));
            me.write(at(layout.value(2, 1)), &payload, Token(3));
            me.cas(at(layout.slot(1)), round, round + 1, Token(4));
            me.flush();
        });
        if round >= WARM {
            assert_eq!(allocations, 0, "of four posts in round {round}");
            // The last WRITE and the CAS behind it ring once.
            assert!(made.is_none_or(|calls| calls <= 3 * doorbell), "{made:?} system calls of four posts");
        }
        while ended.well + ended.badly < before + 4 {
            let (allocations, made) = cost(&mut calls, || {
                me.poll_once(&mut ended);
            });
            turns += 1;
            calling += u64::from(made.is_some_and(|calls| calls > 0));
            allocating += u64::from(round >= WARM && allocations > 0);
            assert!(start.elapsed() < HANG, "round {round} does not end");
            std::thread::yield_now();
        }
    }
    // Four times a second a turn checks for the kernel module; that takes calls, and records the
    // path.
    let looks = 2 + start.elapsed().as_millis() as u64 / 250;
    assert!(calling <= looks, "{calling} of {turns} turns make system calls");
    assert!(allocating <= looks, "{allocating} of {turns} turns allocate");
}
