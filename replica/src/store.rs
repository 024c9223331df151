//! A program's own replica, and calls of the replicated service from any of its threads.

use crate::client::{ClientMember, Work};
use crate::server::{LogState, Observer, Settings, serve};
use crate::{ReplicaError, area, named};
use obol_fabric::host::{Waker, clock};
use obol_fabric::{Endpoint, Name, Nanos};
use obol_node::Site;
use obol_node::endpoint::EndpointError;
use obol_smr::{
    BeginError, CLIENT_PREFIX, Client, Detector, Guard, Operation, PAYLOAD_BYTES_MAX, REPLICA_PREFIX,
    ReplicaState, Service,
};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the client sleeps at most while calls are on the way.
const POLL_INTERVAL: Nanos = Nanos::from_micros(100);
/// Pause before another client is started after one that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It is too long.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// A command may still take effect, once.
    #[error(
        "no answer within {0}; a command may still take effect. `obol smr status` shows whether a majority of the replicas runs"
    )]
    Timeout(Nanos),
    /// The client's session ended while the call was on the way.
    #[error("{0}; whether a command took effect is unknown")]
    Unknown(String),
    /// The replica has ended, or its program's client has no place in the cluster.
    #[error("{0}")]
    Ended(String),
    /// This is a forked child of the process that has the replica.
    #[error("the replica belongs to the parent of this forked process")]
    Forked,
    /// It is made from a function of the service, and would wait for itself.
    #[error("a function of the service cannot call the service: no call is answered before it returns")]
    Nested,
}

/// A call on its way to the client's thread.
struct Call {
    operation: Operation,
    /// The caller no longer waits.
    until: Instant,
    reply: SyncSender<Result<Box<[u8]>, CallError>>,
}

impl Call {
    fn answer(self, result: Result<Box<[u8]>, CallError>) {
        // The caller may have given up.
        let _ = self.reply.send(result);
    }
}

/// What the threads of a store share.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Ends a wait of the client's thread.
    client: Mutex<Option<Waker>>,
    /// Ends a wait of the replica's thread.
    replica: Mutex<Option<Waker>>,
    /// Of a leader: voters that have all of the log in memory.
    redundancy: AtomicUsize,
    /// Why the replica has ended.
    ended: OnceLock<String>,
}

impl Shared {
    fn wake(of: &Mutex<Option<Waker>>) {
        if let Some(waker) = &*of.lock() {
            waker.wake();
        }
    }
}

/// A replica of a service, and a client of it, as members of a cluster. Dropping it leaves the
/// cluster gracefully; in a function of the service, when that has returned.
pub struct Store {
    shared: Arc<Shared>,
    calls: Sender<Call>,
    threads: Vec<JoinHandle<()>>,
    pid: u32,
}

impl Store {
    /// Starts a replica of the service that `empty` makes in its initial state. It takes part as soon
    /// as it is a member. `empty` is called again if the replica has to begin anew. Where all replicas
    /// have died, calls have no answer until a majority returns, or until one is opened with
    /// [`Settings::force_empty`].
    pub fn open<S: Service, E: Detector, G: Guard>(
        site: Arc<Site>,
        settings: Settings,
        mut empty: impl FnMut() -> Result<S, ReplicaError> + Send + 'static,
    ) -> Result<Self, ReplicaError> {
        area(&site)?;
        let rest = settings.name.as_str().strip_prefix(REPLICA_PREFIX).unwrap_or_default();
        let client = named(&format!("{CLIENT_PREFIX}{rest}"), CLIENT_PREFIX).map_err(ReplicaError::Name)?;
        let shared = Arc::new(Shared::default());
        let (calls, queue) = mpsc::channel();
        let (started, outcome) = mpsc::channel();
        let mut store =
            Self { shared: Arc::clone(&shared), calls, threads: Vec::new(), pid: std::process::id() };
        let of_replica = (Arc::clone(&site), Arc::clone(&shared));
        store.spawn("obol-replica", move || {
            let (site, shared) = of_replica;
            let mut observer = Progress { shared: &shared, started: &started };
            let ended = serve::<S, E, G>(&site, &settings, &mut empty, &shared.stop, &mut observer);
            if let Err(error) = ended {
                // The first is set once, and the last to wait for it may have gone.
                let _ = shared.ended.set(error.to_string());
                let _ = started.send(Err(error));
            }
        })?;
        outcome.recv().unwrap_or_else(|_| Err(ReplicaError::Thread(std::io::ErrorKind::Other.into())))?;
        store.spawn("obol-replica-calls", move || {
            let mut queue =
                Queue { calls: queue, waiting: VecDeque::new(), sent: HashMap::new(), shared: &shared };
            queue.run(&site, client);
        })?;
        Ok(store)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), ReplicaError> {
        let thread =
            std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(ReplicaError::Thread)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Executes a command on the replicated service, and returns the reply of its
    /// [`Service::apply`]. It takes effect once, whichever leaders die meanwhile.
    pub fn propose(&self, command: &[u8], timeout: Nanos) -> Result<Box<[u8]>, CallError> {
        self.call(Operation::Propose, command, timeout)
    }

    /// Queries the replicated service at its leader, and returns the reply of its
    /// [`Service::read`], which sees all that was answered before this call.
    pub fn read(&self, query: &[u8], timeout: Nanos) -> Result<Box<[u8]>, CallError> {
        self.call(Operation::Query, query, timeout)
    }

    /// How many voters had all that was answered when it was last looked; 0 if this replica does not
    /// lead, and in a forked child.
    pub fn redundancy(&self) -> usize {
        if std::process::id() != self.pid {
            // The parent's, and from before the fork.
            return 0;
        }
        self.shared.redundancy.load(Ordering::Relaxed)
    }

    /// Whether a function of the service is running that called this.
    fn is_own_thread(&self) -> bool {
        let me = std::thread::current().id();
        self.threads.iter().any(|thread| thread.thread().id() == me)
    }

    fn call(
        &self,
        operation: fn(Box<[u8]>) -> Operation,
        payload: &[u8],
        timeout: Nanos,
    ) -> Result<Box<[u8]>, CallError> {
        if std::process::id() != self.pid {
            return Err(CallError::Forked);
        }
        if self.is_own_thread() {
            return Err(CallError::Nested);
        }
        if let Some(error) = self.shared.ended.get() {
            return Err(CallError::Ended(error.clone()));
        }
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(BeginError::TooLong(payload.len()).into());
        }
        let operation = operation(payload.into());
        let (reply, answer) = mpsc::sync_channel(1);
        let span = Duration::from_nanos(timeout.0);
        let until = Instant::now().checked_add(span).unwrap_or_else(|| Instant::now() + FAR_AWAY);
        let ended = || CallError::Ended("the replica has ended".to_owned());
        self.calls.send(Call { operation, until, reply }).map_err(|_| ended())?;
        Shared::wake(&self.shared.client);
        answer.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_else(|error| {
            Err(match error {
                RecvTimeoutError::Timeout => CallError::Timeout(timeout),
                RecvTimeoutError::Disconnected => ended(),
            })
        })
    }
}

/// Instead of times that the clock does not reach.
const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 3600);

impl Drop for Store {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // A copy in a forked child, which does not have the threads.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        [&self.shared.client, &self.shared.replica].into_iter().for_each(Shared::wake);
        let me = std::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() == me {
                // Dropped in a function of the service: it ends when that returns.
                continue;
            }
            thread.thread().unpark();
            // A panic was already printed.
            let _ = thread.join();
        }
    }
}

/// Tells the opener that the replica has a place.
struct Progress<'a> {
    shared: &'a Shared,
    started: &'a Sender<Result<(), ReplicaError>>,
}

impl Observer for Progress<'_> {
    fn joined(&mut self, waker: Waker) {
        *self.shared.replica.lock() = Some(waker);
        // The opener waits for the first time only.
        let _ = self.started.send(Ok(()));
    }

    fn changed(&mut self, state: ReplicaState, _: LogState) {
        let redundancy = match state {
            ReplicaState::Leading { ready: true, redundancy } => redundancy,
            _ => 0,
        };
        self.shared.redundancy.store(redundancy, Ordering::Relaxed);
    }
}

/// The calls, on the client's thread.
struct Queue<'a> {
    calls: Receiver<Call>,
    /// Those that the client has no room for yet.
    waiting: VecDeque<Call>,
    /// Those on the way, by their numbers.
    sent: HashMap<u64, Call>,
    shared: &'a Shared,
}

impl Queue<'_> {
    fn run(&mut self, site: &Site, name: Name) {
        let shared = self.shared;
        while !shared.stop.load(Ordering::Relaxed) {
            let ended = ClientMember::join_to_sleep(site, name, POLL_INTERVAL)
                .and_then(|mut client| client.run(self, &shared.stop));
            *self.shared.client.lock() = None;
            if let Err(error) = ended {
                // What was not sent waits for the next client, if there may be one.
                if !matches!(error, ReplicaError::Client(_)) {
                    self.waiting.extend(self.calls.try_iter());
                    let refused = || Err(CallError::Ended(error.to_string()));
                    self.waiting.drain(..).for_each(|call| call.answer(refused()));
                }
                self.sent
                    .drain()
                    .for_each(|(_, call)| call.answer(Err(CallError::Unknown(error.to_string()))));
                if matches!(error, ReplicaError::Endpoint(EndpointError::Release { .. })) {
                    // No later client of this program is admitted either.
                    let _ = shared.ended.set(error.to_string());
                    return;
                }
                std::thread::park_timeout(PAUSE);
            }
        }
    }
}

impl Work for Queue<'_> {
    fn turn(&mut self, client: &mut Client, endpoint: &mut Endpoint) -> bool {
        let mut waker = self.shared.client.lock();
        if waker.is_none() {
            *waker = Some(endpoint.waker());
        }
        drop(waker);
        while let Some(done) = client.take() {
            if let Some(call) = self.sent.remove(&done.number) {
                call.answer(Ok(done.reply));
            }
        }
        self.waiting.extend(self.calls.try_iter());
        while !client.is_busy()
            && let Some(call) = self.waiting.pop_front()
        {
            if Instant::now() >= call.until {
                continue;
            }
            match client.begin(clock::now(), call.operation.clone(), endpoint) {
                Ok(number) => drop(self.sent.insert(number, call)),
                Err(error) => call.answer(Err(error.into())),
            }
        }
        client.flush(endpoint);
        if let Some(error) = self.shared.ended.get() {
            let all = self.waiting.drain(..).chain(self.sent.drain().map(|(_, call)| call));
            all.for_each(|call| call.answer(Err(CallError::Ended(error.clone()))));
        }
        false
    }
}
