//! A cluster that is only looked at: regions as coordinators, agents and apps publish them, whose
//! counters advance. One process holds them all, and no protocol runs, so it takes little of the
//! machine that the console is measured on.

use obol_fabric::Endpoint;
use obol_fabric::host::{Cluster, Process, Region, clock};
use obol_fabric::layout::{Header, Seat, ViewHead};
use obol_fabric::{Address, Limits, Name, Nanos, Owner, Page, ViewId, Wait, metrics, page};
use obol_membership::metrics::{Counter, Histogram};
use obol_membership::view::{Edit, Newcomer};
use obol_membership::{ActiveMutant, Kind, View};
use obol_node::{Deployment, Site};
use obol_profiles::Profile;
use obol_supervise::running::Reaper;
use obol_term::output::Failure;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Coordinators, as in most clusters.
const COORDINATORS: u16 = 3;
/// Between two steps of everything; each stands for as many renewals as a laptop's agent makes in
/// that time.
const STEP: Duration = Duration::from_millis(50);
const RENEWALS: u64 = 8;
/// Previous counts of all processes: more than in an hour.
const LIVED: u64 = 1 << 27;
/// What advances in an agent's region, by seat.
const ADVANCED: [(u16, Counter); 4] = [
    (0, Counter::Loops),
    (0, Counter::DatagramsReceived),
    (0, Counter::RenewalsOnTime),
    (1, Counter::Served),
];
/// A thread that only holds a region needs no more.
const STACK_BYTES: usize = 64 << 10;

/// Threads that each hold a region; it ends with this.
pub(crate) struct Synthetic {
    pub(crate) root: PathBuf,
    pub(crate) cluster: Name,
    /// Their drop ends the threads.
    release: Vec<Sender<()>>,
    holders: Vec<JoinHandle<()>>,
    /// Its drop ends the advance.
    stop: Option<Sender<()>>,
    advance: Option<JoinHandle<()>>,
    _cleanup: Reaper,
}

fn name(text: &str) -> Result<Name, Failure> {
    Name::new(text).map_err(Failure::failed)
}

/// The name of this process's cluster of this many nodes.
fn called(nodes: u16) -> Result<Name, Failure> {
    name(&format!("console-{}-{nodes}", std::process::id()))
}

/// The profile `laptop`, with room for a view of this number of nodes and little for what is unused here.
fn profile(value_bytes: u32) -> Result<Profile, Failure> {
    let mut profile = Profile::builtin("laptop").map_err(Failure::failed)?;
    let proposers = u32::from(COORDINATORS);
    let of_laptop = profile.limits;
    profile.limits = Limits {
        slots: 4,
        proposers,
        value_bytes,
        lanes: 4,
        lane_slots: 2,
        datagram_bytes: 512,
        ..of_laptop
    };
    Ok(profile)
}

/// The view of the coordinators and this many nodes, each with an app.
fn view(genesis: &View, nodes: u16) -> Result<View, Failure> {
    let mut edit = Edit::default();
    for n in 1..=nodes {
        let region = u32::from(COORDINATORS + n) + 100;
        for (kind, called, seat) in [(Kind::Agent, "node", 0), (Kind::App, "app", 1)] {
            let address = Address { seat, generation: 1, ..Address::region(region) };
            edit.admit.push(Newcomer::new(kind, name(&format!("{called}-{n}"))?, address, u64::from(n)));
        }
    }
    Ok(genesis.successor(&edit, genesis.cleared, ActiveMutant::NONE))
}

/// One region.
struct Part {
    region: Region,
    kind: Kind,
    /// The seat of its app, if it has one.
    app: bool,
}

impl Synthetic {
    /// Creates a cluster of this many nodes.
    pub(crate) fn start(root: &Path, nodes: u16) -> Result<Self, Failure> {
        let deployment =
            |bytes| Deployment::new(COORDINATORS, 0, 0, profile(bytes)?).map_err(Failure::failed);
        let cluster = called(nodes)?;
        let frame = view(&deployment(1 << 20)?.genesis(), nodes)?.to_frame().len() as u32;
        let made = deployment(frame.next_multiple_of(64).max(4096))?;
        let view = view(&made.genesis(), nodes)?;
        let lease = made.profile.timing.lease;
        let cleanup = Reaper::of_own_cluster(root, cluster, Some(&super::pty::folder()))?;
        let site = Site::create(root, cluster, made).map_err(Failure::refused)?;
        let mut this = Self {
            root: root.to_owned(),
            cluster,
            release: Vec::new(),
            holders: Vec::new(),
            stop: None,
            advance: None,
            _cleanup: cleanup,
        };
        let frame = view.to_frame();
        let mut parts = Vec::new();
        for number in 1..=COORDINATORS {
            let called = obol_membership::view::coordinator_name(number);
            let region = this.hold(&site.cluster, Kind::Coordinator, called, Some(u32::from(number)))?;
            parts.push(Part { region, kind: Kind::Coordinator, app: false });
            occupy(&parts, &view, called, None, &frame)?;
        }
        for n in 1..=nodes {
            let called = name(&format!("node-{n}"))?;
            let region = this.hold(&site.cluster, Kind::Agent, called, None)?;
            parts.push(Part { region, kind: Kind::Agent, app: true });
            occupy(&parts, &view, called, Some(name(&format!("app-{n}"))?), &frame)?;
        }
        let (stop, stopped) = mpsc::channel();
        this.stop = Some(stop);
        let id = view.id;
        let advance = move || advance(&parts, id, lease, &stopped);
        let advance = thread::Builder::new().name("advance".to_owned()).spawn(advance);
        this.advance = Some(advance.map_err(Failure::failed)?);
        Ok(this)
    }

    /// Takes a region on a thread of its own: a thread owns one at most.
    fn hold(
        &mut self,
        cluster: &Cluster,
        kind: Kind,
        called: Name,
        number: Option<u32>,
    ) -> Result<Region, Failure> {
        let (release, released) = mpsc::channel::<()>();
        let (tx, rx) = mpsc::channel();
        let cluster = cluster.clone();
        let body = move || {
            let owner = Owner { kind: kind as u32, name: called, region: number, groups: 0 };
            match Endpoint::open(&cluster, owner, Wait::Block) {
                Ok(endpoint) => {
                    // If the receiver is gone, `released` has ended, too.
                    let _ = tx.send(Ok(endpoint.region().clone()));
                    let _ = released.recv();
                }
                Err(error) => drop(tx.send(Err(error.to_string()))),
            }
        };
        let thread = thread::Builder::new().stack_size(STACK_BYTES).spawn(body).map_err(Failure::failed)?;
        self.release.push(release);
        self.holders.push(thread);
        let region = rx.recv().map_err(Failure::failed)?;
        region.map_err(Failure::Failed)
    }
}

impl Drop for Synthetic {
    fn drop(&mut self) {
        self.stop = None;
        self.release.clear();
        for thread in self.advance.take().into_iter().chain(self.holders.drain(..)) {
            // One that panicked has said so.
            let _ = thread.join();
        }
        // Files in memory that cannot be removed now go with the next start of this host.
        let _ = Cluster::remove(&self.root, self.cluster);
    }
}

fn word(region: &Region, offset: u32, more: usize) -> &AtomicU64 {
    &region[(offset as usize + more) / 8]
}

fn set(region: &Region, offset: u32, more: usize, value: u64) {
    word(region, offset, more).store(value, Ordering::Relaxed);
}

/// Writes into the newest region who owns it, its app and the view.
fn occupy(parts: &[Part], view: &View, owner: Name, app: Option<Name>, frame: &[u8]) -> Result<(), Failure> {
    let Some(Part { region, .. }) = parts.last() else { return Ok(()) };
    let layout = *region.layout();
    let incarnation = |of: Name| {
        let found = view.members.iter().find(|m| m.name == of).map(|m| m.incarnation.0);
        found.ok_or_else(|| Failure::Failed(format!("{of} is not in the view")))
    };
    set(region, 0, offset_of!(Header, incarnation), incarnation(owner)?);
    set(region, layout.seat(0), offset_of!(Seat, incarnation), incarnation(owner)?);
    if let Some(app) = app {
        let me = Process::current().map_err(Failure::failed)?;
        let at = layout.seat(1);
        for (n, part) in app.to_words().into_iter().enumerate() {
            set(region, at, offset_of!(Seat, name) + 8 * n, part);
        }
        set(region, at, offset_of!(Seat, incarnation), incarnation(app)?);
        set(region, at, offset_of!(Seat, started), me.started);
        // A thread that lives.
        set(region, at, offset_of!(Seat, deaths), u64::from(me.pid));
        set(region, at, offset_of!(Seat, generation), 1 | u64::from(me.pid) << 32);
    }
    let at = layout.view();
    for (n, chunk) in frame.chunks(8).enumerate() {
        let mut raw = [0; 8];
        raw[..chunk.len()].copy_from_slice(chunk);
        set(region, at, size_of::<ViewHead>() + 8 * n, u64::from_le_bytes(raw));
    }
    set(region, at, offset_of!(ViewHead, len), frame.len() as u64);
    word(region, at, offset_of!(ViewHead, id_plus_one)).store(view.id.0 + 1, Ordering::Release);
    Ok(())
}

fn count(region: &Region, seat: u16, counter: Counter, by: u64) {
    metrics::add(word(region, region.layout().counters(seat), counter as usize * 8), by);
}

fn observe(region: &Region, which: Histogram, value: Nanos, times: u64) {
    let bucket = metrics::bucket(value.0);
    metrics::add(word(region, region.layout().histogram(which.into()), bucket * 8), times);
}

/// Does for all of them what they would do: leases are renewed, programs serve, hearts beat. Until
/// `stop` closes.
fn advance(parts: &[Part], view: ViewId, lease: Nanos, stop: &Receiver<()>) {
    // As uneven as durations are; the same in every run.
    let mut random = 1u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for Part { region, kind, app } in parts {
        let counters: &[(u16, Counter)] = match kind {
            Kind::Coordinator => &[(0, Counter::Loops), (0, Counter::DatagramsReceived)],
            _ => &ADVANCED,
        };
        counters.iter().for_each(|(seat, counter)| count(region, *seat, *counter, LIVED));
        for seat in 0..=u16::from(*app) {
            set(region, region.layout().seat(seat), offset_of!(Seat, heartbeat), LIVED);
        }
    }
    loop {
        let now = clock::now();
        for Part { region, kind, app } in parts {
            let beat = |seat| {
                metrics::add(word(region, region.layout().seat(seat), offset_of!(Seat, heartbeat)), 1);
            };
            beat(0);
            beat(0);
            count(region, 0, Counter::Loops, 40 + draw(20));
            count(region, 0, Counter::DatagramsReceived, 1);
            if *kind == Kind::Coordinator {
                continue;
            }
            let end = now + lease + Nanos(STEP.as_nanos() as u64) + Nanos(draw(400_000));
            let page = Page { view, base: view, start: now, end, confirmed: now, ..Page::default() };
            page::publish(region.page(), &page);
            count(region, 0, Counter::RenewalsOnTime, RENEWALS);
            for _ in 0..4 {
                observe(region, Histogram::Renewal, Nanos(8_000 + draw(4_000)), RENEWALS / 4);
                observe(region, Histogram::Margin, Nanos(12_000_000 + draw(2_000_000)), RENEWALS / 4);
            }
            if *app {
                beat(1);
                count(region, 1, Counter::Served, 500 + draw(100));
            }
        }
        if stop.recv_timeout(STEP) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
    }
}
