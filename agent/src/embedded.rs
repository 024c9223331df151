//! A program with a core of its own: the machine runs on a thread, the program reads the lease page of its own region.

use crate::sight::{OwnView, Sight};
use crate::streams::{Failures, Views};
use obol_fabric::shm::{Region, ShmError, Waker, clock};
use obol_fabric::{Drive, Fabric, Incarnation, Instant, Name, Nanos, Page};
use obol_membership::{Kind, Member};
use obol_profiles::Site;
use obol_profiles::endpoint::{Act, EndpointError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A member that is its own agent. Dropping it ends the core; the cluster then notices its death.
pub struct Embedded {
    sight: Sight,
    waker: Waker,
    stop: Arc<AtomicBool>,
    promise: Arc<Promise>,
    core: Option<JoinHandle<()>>,
}

/// What the program promised, and how far it is.
#[derive(Debug, Default)]
struct Promise {
    /// In nanoseconds; 0 if it promised nothing.
    within: AtomicU64,
    progress: AtomicU64,
}

/// The core's look at the program that it belongs to.
struct Watch {
    promise: Arc<Promise>,
    seen: u64,
    since: Instant,
}

impl Watch {
    fn look<F: Fabric>(&mut self, machine: &mut Member, fabric: &mut F) {
        let now = clock::now();
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

/// The core at work: tells where its region is, then runs until it is stopped.
struct Core {
    machine: Member,
    watch: Watch,
    stopped: Arc<AtomicBool>,
    tell: mpsc::Sender<Result<(Region, Waker), EndpointError>>,
}

impl Act for Core {
    type Output = ();

    fn on<D: Drive>(mut self, endpoint: &mut D) {
        if self.tell.send(Ok((endpoint.region().clone(), endpoint.waker()))).is_ok() {
            endpoint.run(&mut self.machine, &self.stopped, |machine, endpoint| {
                self.watch.look(machine, endpoint);
            });
        }
    }
}

impl Embedded {
    /// Starts the core; it joins by itself.
    pub fn start(site: Arc<Site>, name: Name) -> Result<Self, EndpointError> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let promise = Arc::new(Promise::default());
        let watch = Watch { promise: Arc::clone(&promise), seen: 0, since: Instant::ZERO };
        let (tell, told) = mpsc::channel();
        let run = move || match crate::member(&site, Kind::App, name, crate::seed()) {
            Ok((mut endpoint, machine)) => endpoint.each(Core { machine, watch, stopped, tell }),
            Err(error) => {
                // Whoever started this thread waits for exactly one message.
                let _ = tell.send(Err(error));
            }
        };
        let spawned = std::thread::Builder::new().name("obol-core".to_owned()).spawn(run);
        let kernel = |error| ShmError::Kernel { doing: "start a thread", error };
        let core = spawned.map_err(kernel)?;
        let ended = || kernel(std::io::Error::other("it ended at once"));
        let (region, waker) = told.recv().map_err(|_| ended())??;
        let sight = Sight::of_owner(region);
        Ok(Self { sight, waker, stop, promise, core: Some(core) })
    }

    /// Promises progress at least every `within` from now on; zero takes the promise back. A program that does not call
    /// [`Embedded::progress`] in time is removed, however well its core lives, and comes back when it does. (Mu,
    /// section 5.1, fate sharing.)
    pub fn promise_progress(&self, within: Nanos) {
        self.progress();
        self.promise.within.store(within.0, Ordering::Relaxed);
    }

    /// Tells that the program makes progress.
    pub fn progress(&self) {
        self.promise.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// The own incarnation; [`Incarnation::NONE`] while this program is no member.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.sight.incarnation()
    }

    /// The newest view that the core knows to be decided; `None` before there is one.
    #[must_use]
    pub fn view(&self) -> Option<OwnView> {
        self.sight.view()
    }

    /// The views as they come, beginning with the newest.
    #[must_use]
    pub fn views(&self) -> Views {
        Views::new(self.sight.clone())
    }

    /// The failures of other members from now on.
    #[must_use]
    pub fn failures(&self) -> Failures {
        Failures::new(self.sight.clone())
    }

    /// Whether `view` is active for this program now: it is a member of it, and no later view that excludes an
    /// application has been active anywhere.
    ///
    /// One seqlock read, one fence read, one clock read; no system call, no allocation, from any thread. (uKharon,
    /// Algorithm 2, with the fence.)
    #[inline]
    #[must_use]
    pub fn active(&self, view: &OwnView) -> bool {
        self.sight.active(view)
    }

    /// Runs `work` if `view` is active before it, and gives its result if `view` still is active after it.
    ///
    /// The effect of `work` must not count before this returns `Some`. (uKharon, section 6.1.)
    #[inline]
    pub fn guard<T>(&self, view: &OwnView, work: impl FnOnce(&OwnView) -> T) -> Option<T> {
        self.sight.guard(view, work)
    }

    /// The lease that `active` reads; `None` if its holder stopped in the middle of changing it.
    #[must_use]
    pub fn lease(&self) -> Option<Page> {
        self.sight.lease()
    }

    /// Counts changes of view and lease start; for `wait_changed`.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.sight.changes()
    }

    /// Sleeps until view or lease start have changed since `seen`, or for so long; tells the count.
    pub fn wait_changed(&self, seen: u32, timeout: Nanos) -> u32 {
        self.sight.wait_changed(seen, timeout)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(core) = self.core.take() {
            // A core that panicked has told so already.
            let _ = core.join();
        }
    }
}
