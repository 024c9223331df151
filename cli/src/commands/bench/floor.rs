//! The floor: nine processes that do the least a failover needs, with nothing around it. A victim
//! dies, two coordinators see its robust futex, one of them swaps three words twice, wakes two
//! relays, and they wake four apps.

use crate::running::Keeper;
use clap::Args;
use obol_console::output::Failure;
use obol_fabric::host::{Cluster, Region, clock, futex, sched};
use obol_fabric::shm::Endpoint;
use obol_fabric::{Drive, Instant, Limits, Name, Nanos, Owner, Wait, memory};
use obol_observe::stats::Distribution;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// One process of the floor benchmark (started by `bench`)
#[derive(Debug, Args)]
pub(crate) struct FloorRole {
    /// What it plays
    #[arg(long)]
    role: u32,
}

const VICTIM: u32 = 0;
const DECIDER: u32 = 1;
const BYSTANDER: u32 = 2;
const RELAYS: [u32; 2] = [3, 4];
const APPS: [u32; 4] = [5, 6, 7, 8];
const ROLES: u32 = 9;

/// How long coordinators and relays yield before they block, as in the profile `laptop`.
const YIELD_FOR: Nanos = Nanos::from_micros(30);
/// A repetition that does not end by then has lost a process.
const TIMEOUT: Nanos = Nanos::from_secs(10);

const LIMITS: Limits = Limits { value_bytes: 4096, ..Limits::LEAST };

/// Words of the shared scratch memory, each on a cache line of its own.
#[derive(Clone, Copy)]
enum Place {
    Ready,
    Victim,
    Done,
    View,
    Relay0,
    Relay1,
    Acceptor0,
    Acceptor1,
    Acceptor2,
    Stamp0,
    Stamp1,
    Stamp2,
    Stamp3,
}

const RELAY: [Place; 2] = [Place::Relay0, Place::Relay1];
const ACCEPTOR: [Place; 3] = [Place::Acceptor0, Place::Acceptor1, Place::Acceptor2];
const STAMP: [Place; 4] = [Place::Stamp0, Place::Stamp1, Place::Stamp2, Place::Stamp3];

/// The memory that all roles share: the otherwise unused value area of a region.
struct Scratch(Region);

impl Scratch {
    fn word(&self, place: Place) -> &AtomicU64 {
        let first = self.0.layout().value(0, 1) as usize / 8;
        &self.0[first + place as usize * 8]
    }

    fn futex(&self, place: Place) -> &AtomicU32 {
        memory::low_half(self.word(place))
    }

    /// Sets a futex word and wakes all waiters.
    fn publish(&self, place: Place) {
        self.futex(place).store(1, Ordering::Release);
        futex::wake(self.futex(place), u32::MAX >> 1);
    }
}

/// Yields for a while, then blocks, until `done`.
fn wait(word: &AtomicU32, yield_for: Nanos, done: impl Fn(u32) -> bool) {
    let began = clock::now();
    loop {
        let value = word.load(Ordering::Acquire);
        if done(value) {
            return;
        }
        if clock::now().since(began) < yield_for {
            std::thread::yield_now();
        } else {
            futex::wait(word, value, None);
        }
    }
}

fn owner(region: u32) -> Owner {
    let name = Name::new(&format!("floor-{region}")).unwrap_or_default();
    Owner { kind: 1, name, region: Some(region), groups: 0 }
}

/// One process of the floor.
pub(crate) fn role(root: &Path, cluster: Name, args: &FloorRole) -> Result<ExitCode, Failure> {
    let role = args.role;
    sched::die_with_parent().map_err(Failure::failed)?;
    let cluster = Cluster::open(root, cluster).map_err(Failure::failed)?;
    let scratch = Scratch(Region::open(&cluster, 2).map_err(Failure::failed)?);
    let ready = || scratch.word(Place::Ready).fetch_add(1, Ordering::AcqRel);
    let done = || scratch.word(Place::Done).fetch_add(1, Ordering::AcqRel);
    match role {
        VICTIM => {
            let _endpoint = Endpoint::open(&cluster, owner(1), Wait::Block).map_err(Failure::failed)?;
            scratch.word(Place::Victim).store(1, Ordering::Release);
            ready();
            park();
        }
        DECIDER | BYSTANDER => {
            while scratch.word(Place::Victim).load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            let victim = Region::open(&cluster, 1).map_err(Failure::failed)?;
            let word = victim.death_word(0, role as usize);
            word.fetch_or(futex::WAITERS, Ordering::AcqRel);
            ready();
            wait(word, YIELD_FOR, |value| value & futex::OWNER_DIED != 0);
            if role == DECIDER {
                decide(&scratch);
                scratch.publish(Place::View);
            }
        }
        relay if RELAYS.contains(&relay) => {
            ready();
            wait(scratch.futex(Place::View), YIELD_FOR, |value| value != 0);
            scratch.publish(RELAY[(relay - RELAYS[0]) as usize]);
        }
        app if APPS.contains(&app) => {
            ready();
            wait(scratch.futex(RELAY[app as usize & 1]), Nanos::ZERO, |value| value != 0);
            let stamp = STAMP[(app - APPS[0]) as usize];
            scratch.word(stamp).store(clock::now().0, Ordering::Release);
        }
        other => return Err(Failure::Refused(format!("the floor has no role {other}"))),
    }
    done();
    park();
}

/// Prepare and accept at three words.
fn decide(scratch: &Scratch) {
    let words = ACCEPTOR.map(|place| scratch.word(place));
    let seen = words.map(|word| word.load(Ordering::Acquire));
    for step in [0, 1] {
        for (word, seen) in words.into_iter().zip(seen) {
            let _ = word.compare_exchange(seen + step, seen + step + 1, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

/// Sleeps until it is killed.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// The processes of one repetition, killed and reaped at its end.
struct Roles(Vec<Child>);

impl Drop for Roles {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Who has ended already cannot be killed.
            let _ = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Kill to the last of four apps, `count` times, added to `times`.
pub(crate) fn run(root: &Path, count: u32, times: &mut Distribution) -> Result<(), Failure> {
    let name = Name::new(&format!("floor-{}", std::process::id())).map_err(Failure::failed)?;
    let _cleanup = Keeper::of_own_cluster(root, name, None)?;
    for _ in 0..count {
        let cluster = Cluster::create(root, name, LIMITS).map_err(Failure::failed)?;
        let measured = once(&cluster, root);
        Cluster::remove(root, name).map_err(Failure::failed)?;
        times.add(measured?);
    }
    Ok(())
}

fn once(cluster: &Cluster, root: &Path) -> Result<Nanos, Failure> {
    let home = Endpoint::open(cluster, owner(2), Wait::Block).map_err(Failure::failed)?;
    let scratch = Scratch(home.region().clone());
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let mut roles = Roles(Vec::new());
    for role in 0..ROLES {
        let child = sched::pass_parent_id(&mut Command::new(&program))
            .args(["--cluster", cluster.name().as_str(), "--root"])
            .arg(root)
            .args(["floor-role", "--role", &role.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .map_err(Failure::failed)?;
        roles.0.push(child);
    }
    wait_for(&scratch, Place::Ready, u64::from(ROLES))?;
    // As in a drill, all processes have been asleep for a while when the victim dies.
    std::thread::sleep(Duration::from_millis(20));
    let killed = clock::now();
    roles.0[VICTIM as usize].kill().map_err(Failure::failed)?;
    wait_for(&scratch, Place::Done, u64::from(ROLES) - 1)?;
    let last = STAMP.map(|place| scratch.word(place).load(Ordering::Acquire)).into_iter().max();
    Ok(Instant(last.unwrap_or(0)).since(killed))
}

fn wait_for(scratch: &Scratch, place: Place, count: u64) -> Result<(), Failure> {
    let end = clock::now() + TIMEOUT;
    while scratch.word(place).load(Ordering::Acquire) < count {
        if clock::now() > end {
            return Err(Failure::Failed(format!("a process of the floor was lost within {TIMEOUT}")));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
