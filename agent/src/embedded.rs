//! A program with a core of its own: the machine runs on a thread, the program reads the lease page
//! of its own region.

use crate::handle::MembershipHandle;
use crate::lost::Lost;
use derive_more::Deref;
use obol_fabric::host::{HostError, Region, Waker, clock, sched};
use obol_fabric::{Endpoint, Fabric, Instant, Name, Nanos};
use obol_membership::{Kind, Member};
use obol_node::Site;
use obol_node::endpoint::{self, EndpointError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// A member that is its own agent. Dropping it leaves the cluster gracefully and ends the core;
/// without a majority of coordinators that takes
/// [`LEAVE_TIMEOUT`](obol_node::endpoint::LEAVE_TIMEOUT).
#[derive(Deref)]
pub struct Embedded {
    #[deref]
    handle: MembershipHandle,
    waker: Waker,
    stop: Arc<AtomicBool>,
    promise: Arc<Promise>,
    name_taken: Arc<AtomicBool>,
    core: Option<JoinHandle<()>>,
}

/// What the program promised, and its progress.
#[derive(Debug, Default)]
struct Promise {
    /// In nanoseconds; 0 for no promise.
    within: AtomicU64,
    progress: AtomicU64,
}

/// The core's check of its own program.
struct Watch {
    promise: Arc<Promise>,
    seen: u64,
    since: Instant,
    name_taken: Arc<AtomicBool>,
}

impl Watch {
    fn check<F: Fabric>(&mut self, machine: &mut Member, fabric: &mut F) {
        let now = clock::now();
        self.name_taken.store(machine.is_name_taken(), Ordering::Relaxed);
        let within = Nanos(self.promise.within.load(Ordering::Relaxed));
        let progress = self.promise.progress.load(Ordering::Relaxed);
        if progress != self.seen || within == Nanos::ZERO {
            (self.seen, self.since) = (progress, now);
            machine.resume(now);
        } else if now.since(self.since) >= within {
            machine.stall(now, fabric);
        }
    }
}

/// Runs the core: sends its region to the starting thread, then runs until it is stopped.
struct Core {
    machine: Member,
    watch: Watch,
    stopped: Arc<AtomicBool>,
    tx: mpsc::Sender<Result<(Region, Waker), EndpointError>>,
}

impl Core {
    /// Returns the machine, which has yet to leave.
    fn run(mut self, endpoint: &mut Endpoint) -> Member {
        if self.tx.send(Ok((endpoint.region().clone(), endpoint.waker()))).is_ok() {
            endpoint.run(&mut self.machine, &self.stopped, |machine, endpoint| {
                self.watch.check(machine, endpoint);
            });
        }
        self.machine
    }
}

impl Embedded {
    /// Starts the core; it joins by itself.
    pub fn start(site: Arc<Site>, name: Name) -> Result<Self, EndpointError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let promise = Arc::new(Promise::default());
        let name_taken = Arc::new(AtomicBool::new(false));
        let watch = Watch {
            promise: Arc::clone(&promise),
            seen: 0,
            since: Instant::ZERO,
            name_taken: Arc::clone(&name_taken),
        };
        let (tx, rx) = mpsc::channel();
        let run = move || match crate::member(&site, Kind::App, name, crate::seed()) {
            Ok((mut endpoint, machine)) => {
                if let Some(priority) = site.deployment.profile.scheduling.priority() {
                    // A watcher of this thread may be scheduled with that priority. The program
                    // works without the right to it.
                    let _ = sched::run_fifo_alone(priority);
                }
                let mut machine = Core { machine, watch, stopped, tx }.run(&mut endpoint);
                endpoint::serve(&mut endpoint, &mut machine, &AtomicBool::new(true));
            }
            Err(error) => {
                // The starting thread waits for exactly one message.
                let _ = tx.send(Err(error));
            }
        };
        let spawned = std::thread::Builder::new().name("obol-core".to_owned()).spawn(run);
        let kernel = |error| HostError::Kernel { doing: "start a thread", error };
        let core = spawned.map_err(kernel)?;
        let ended = || kernel(std::io::Error::other("it ended at once"));
        let (region, waker) = rx.recv().map_err(|_| ended())??;
        let handle = MembershipHandle::of_owner(region);
        Ok(Self { handle, waker, stop, promise, name_taken, core: Some(core) })
    }

    /// Promises progress at least every `within` from now on; zero cancels the promise. A program
    /// that does not call [`Embedded::progress`] in time is removed, although its core lives, and
    /// rejoins when it does. (Mu, section 5.1, fate sharing.)
    pub fn promise_progress(&self, within: Nanos) {
        self.progress();
        self.promise.within.store(within.0, Ordering::Relaxed);
    }

    /// Whether this program waits for its name: another member has it, on another host or not yet known
    /// to be dead.
    #[must_use]
    pub fn is_name_taken(&self) -> bool {
        self.name_taken.load(Ordering::Relaxed)
    }

    /// Reports that the program makes progress.
    pub fn progress(&self) {
        self.promise.progress.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if self.handle.lost() == Some(Lost::Forked) {
            // A copy in a forked child, which does not have the core's thread.
            std::mem::forget(self.core.take());
            return;
        }
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(core) = self.core.take() {
            // A panic of the core was already printed.
            let _ = core.join();
        }
    }
}
