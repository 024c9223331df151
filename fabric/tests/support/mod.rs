//! Shared by the tests with real processes: the roles of children, and how a parent drives an
//! endpoint.

pub(crate) mod root;

pub(crate) use root::{LIMITS, Root, name};

use obol_fabric::host::{Attachment, Cluster};
use obol_fabric::{
    Address, Completion, Endpoint, Event, Evidence, Fabric, Group, Instant, Layout, LinkError, Machine,
    Nanos, Owner, Remote, Token, Wait,
};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// A hang, not a slow machine.
pub(crate) const HANG: std::time::Duration = std::time::Duration::from_secs(60);

pub(crate) fn process(text: &str) -> Owner {
    Owner { kind: 1, name: name(text), region: None, groups: Group::Everyone.bit() }
}

pub(crate) fn coordinator(text: &str, region: u32) -> Owner {
    let groups = Group::Everyone.bit() | Group::Coordinators.bit();
    Owner { kind: 2, name: name(text), region: Some(region), groups }
}

/// A process that is killed when the test ends, also by a panic. It ends by itself if this process
/// is killed.
pub(crate) struct Child(pub(crate) std::process::Child);

impl Child {
    pub(crate) fn start(root: &Path, role: &str, name: &str, region: Option<u32>) -> Self {
        Self::start_with("child", root, role, name, region, &[])
    }

    /// As [`Child::start`], with the starting test, and an additional environment.
    pub(crate) fn start_with(
        entry: &str,
        root: &Path,
        role: &str,
        name: &str,
        region: Option<u32>,
        more: &[(&str, String)],
    ) -> Self {
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args([entry, "--exact", "--nocapture"])
            .env("OBOL_TEST_ROLE", role)
            .env("OBOL_TEST_ROOT", root)
            .env("OBOL_TEST_NAME", name)
            .env("OBOL_TEST_REGION", region.map(|r| r.to_string()).unwrap_or_default())
            .envs(more.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("started"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal and waits until the process is in the resulting state.
pub(crate) fn kill(child: &Child, signal: &str) {
    let pid = child.0.id().to_string();
    let sent =
        Command::new("/bin/kill").args([&format!("-{signal}"), &pid]).status().expect("/bin/kill runs");
    assert!(sent.success());
    let stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a child that lives");
        stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'))
    };
    wait_for(|| stopped() == (signal == "STOP"));
}

/// CPU time of all threads of a child.
pub(crate) fn cpu_time(child: &Child) -> Nanos {
    let threads = std::fs::read_dir(format!("/proc/{}/task", child.0.id())).expect("a child that lives");
    let spent = threads.filter_map(Result::ok).filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Nanos(spent.sum())
}

pub(crate) fn wait_for(mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < HANG, "this hangs");
        std::thread::yield_now();
    }
}

/// The address of the process of this name, once it is alive.
pub(crate) fn live(cluster: &Cluster, name: &str) -> Address {
    let mut found = None;
    wait_for(|| {
        found = cluster.regions().into_iter().find(|r| r.alive && r.name.as_str() == name);
        found.is_some()
    });
    let region = found.expect("found");
    Address { generation: region.generation, ..Address::region(region.number) }
}

/// Turns the loop until something holds.
pub(crate) fn until<M: Machine>(endpoint: &mut Endpoint, machine: &mut M, mut done: impl FnMut(&M) -> bool) {
    wait_for(|| {
        endpoint.poll_once(machine);
        done(machine)
    });
}

/// Records all events.
#[derive(Default)]
pub(crate) struct Probe {
    pub(crate) completions: Vec<(Token, Result<Seen, LinkError>)>,
    pub(crate) datagrams: Vec<(Address, Vec<u8>)>,
    pub(crate) deaths: Vec<(Address, Evidence)>,
    pub(crate) seats: u32,
    /// Where the own region is read when a change of permissions is in force, and what is found.
    pub(crate) watched: u32,
    pub(crate) at_permit: Option<[u64; FLOOD_WORDS]>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Read(Vec<u8>),
    Written,
    Swapped(u64),
    Permitted,
}

impl Probe {
    pub(crate) fn failures(&self) -> Vec<LinkError> {
        self.completions.iter().filter_map(|(_, r)| r.clone().err()).collect()
    }

    pub(crate) fn read(&self, token: Token) -> Option<Vec<u8>> {
        match &self.completions.iter().find(|(t, _)| *t == token)?.1 {
            Ok(Seen::Read(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }

    pub(crate) fn swapped(&self, token: Token) -> Option<u64> {
        match self.completions.iter().find(|(t, _)| *t == token)?.1 {
            Ok(Seen::Swapped(found)) => Some(found),
            _ => None,
        }
    }
}

impl Machine for Probe {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } => {
                if result == Ok(Completion::Permitted) {
                    let words = fabric.own(self.watched, FLOOD_WORDS * 8).expect("words of the own region");
                    self.at_permit.get_or_insert(std::array::from_fn(|n| words[n].load(Ordering::Relaxed)));
                }
                let seen = result.map(|c| match c {
                    Completion::Read(bytes) => Seen::Read(bytes.to_vec()),
                    Completion::Written => Seen::Written,
                    Completion::Swapped(found) => Seen::Swapped(found),
                    Completion::Permitted => Seen::Permitted,
                });
                self.completions.push((token, seen));
            }
            Event::Datagram { from, bytes } => self.datagrams.push((from, bytes.to_vec())),
            Event::Death { who, evidence } => self.deaths.push((who, evidence)),
            Event::Seat { .. } => self.seats += 1,
            Event::Confirm { .. } => {}
        }
    }
}

/// The slot whose word, once it is not 0, makes a peer rewrite its value area repeatedly, with
/// words of equal bytes.
pub(crate) const SCRIBBLE: u64 = 7;

/// The beginning of a datagram that makes a peer WRITE to an offset of its sender's region, again
/// and again until that fails: each time one number in all of [`FLOOD_WORDS`] words.
pub(crate) const FLOOD: &[u8] = b"flood";
pub(crate) const FLOOD_WORDS: usize = 8;

/// Returns datagrams; on a tick it greets region 1, or checks [`SCRIBBLE`].
pub(crate) struct Actor {
    greet: bool,
    scribble: Option<Layout>,
    scribbled: u8,
    flooding: Option<Remote>,
    flooded: u64,
    tick_every: Nanos,
    due: Instant,
}

impl Actor {
    fn new(tick_every: Nanos) -> Self {
        let due = Instant::ZERO;
        Self { greet: false, scribble: None, scribbled: 0, flooding: None, flooded: 0, tick_every, due }
    }

    /// The interval of checks for [`SCRIBBLE`] in its region.
    pub(crate) fn scribbler(layout: Layout, tick_every: Nanos) -> Self {
        Self { scribble: Some(layout), ..Self::new(tick_every) }
    }

    fn flood(&mut self, fabric: &mut impl Fabric) {
        if let Some(to) = self.flooding {
            self.flooded += 1;
            let bytes = self.flooded.to_le_bytes().repeat(FLOOD_WORDS);
            fabric.write(to, &bytes, Token(0));
        }
    }

    fn scribble(&mut self, layout: &Layout, fabric: &impl Fabric) {
        let word = fabric.own(layout.slot(SCRIBBLE), 8).expect("a word of the own region");
        if word[0].load(Ordering::Relaxed) == 0 {
            return;
        }
        self.scribbled = self.scribbled.wrapping_add(1);
        let area = fabric.own(layout.value(SCRIBBLE, 1), 64).expect("an area of the own region");
        for word in area {
            word.store(u64::from_ne_bytes([self.scribbled; 8]), Ordering::Relaxed);
        }
    }
}

impl Machine for Actor {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Datagram { from, bytes } => {
                fabric.send(from, bytes);
                let offset = bytes.strip_prefix(FLOOD).and_then(|rest| rest.try_into().ok());
                if let (Some(offset), None) = (offset, self.flooding) {
                    self.flooding = Some(Remote { at: from, offset: u32::from_le_bytes(offset) });
                    self.flood(fabric);
                }
            }
            Event::Completion { result: Ok(_), .. } => self.flood(fabric),
            Event::Completion { result: Err(_), .. } => self.flooding = None,
            Event::Death { .. } | Event::Seat { .. } | Event::Confirm { .. } => {}
        }
    }
    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.greet {
            fabric.send(Address::region(1), b"hello");
        }
        if let Some(layout) = self.scribble {
            self.scribble(&layout, fabric);
        }
        self.due = now + self.tick_every;
    }
    fn deadline(&self) -> Instant {
        self.due
    }
}

/// The parent holds the other end of standard input.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
}

/// Plays the role that the environment gives, if it gives one, over shared memory, until the parent
/// ends.
pub(crate) fn play() {
    play_over(|cluster, owner, wait| Endpoint::open(cluster, owner, wait).expect("opened"));
}

/// As [`play`], over an endpoint that is opened so.
pub(crate) fn play_over(open: impl FnOnce(&Cluster, Owner, Wait) -> Endpoint) {
    let Ok(role) = std::env::var("OBOL_TEST_ROLE") else { return };
    let var = |key: &str| std::env::var(key).expect("set by the parent");
    end_with_parent();
    let root = PathBuf::from(var("OBOL_TEST_ROOT"));
    let cluster = Cluster::open(&root, name("c")).expect("the parent made it");
    let name = var("OBOL_TEST_NAME");
    if role == "program" {
        let agent = cluster.regions().first().map(|r| r.number).expect("an agent");
        let program = Attachment::open(&cluster, agent, self::name(&name), Nanos::from_millis(1));
        let program = program.expect("seated");
        program.join(1);
        loop {
            std::thread::park();
        }
    }
    let owner = match var("OBOL_TEST_REGION").parse() {
        Ok(region) => coordinator(&name, region),
        Err(_) => process(&name),
    };
    let (wait, tick_every) = match &role[..] {
        "scribble" => (Wait::Block, Nanos::from_millis(1)),
        "tick" => (Wait::Hybrid { yield_for: Nanos::from_micros(30) }, Nanos::from_millis(1)),
        _ => (Wait::Block, Nanos::MAX),
    };
    act(open(&cluster, owner, wait), &cluster, &role, tick_every);
}

/// Plays a role to the end of the process.
pub(crate) fn act(mut endpoint: Endpoint, cluster: &Cluster, role: &str, tick_every: Nanos) {
    let mut actor = match role {
        "scribble" => Actor::scribbler(*cluster.layout(), tick_every),
        _ => Actor { greet: role == "greet", ..Actor::new(tick_every) },
    };
    endpoint.run(&mut actor, &AtomicBool::new(false), |_, _| {});
}
