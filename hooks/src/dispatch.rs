//! Queues and threads of hooks.

use crate::config::{Config, Hook};
use crate::dead::{self, Letter};
use crate::deliver::{Delivered, Failed, Receiver};
use crate::event::{Event, Kind};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Events that may wait for a hook; further ones become dead letters.
pub const QUEUE_MAX: usize = 256;
/// The span of a rate.
const MINUTE: Duration = Duration::from_secs(60);

/// Says when to end.
#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits; whether it is to end.
    fn wait(&self, span: Duration) -> bool {
        let guard = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(guard, span, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn set(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

struct Queue {
    name: String,
    on: Vec<Kind>,
    tx: SyncSender<Event>,
}

/// Calls hooks.
pub struct Dispatcher {
    queues: Vec<Queue>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<Stop>,
    dead_letters: PathBuf,
}

impl Dispatcher {
    /// Starts a thread for each hook.
    pub fn start(config: &Config) -> io::Result<Self> {
        let stop = Arc::<Stop>::default();
        let mut dispatcher = Self {
            queues: Vec::new(),
            threads: Vec::new(),
            stop: Arc::clone(&stop),
            dead_letters: config.dead_letters.clone(),
        };
        for hook in &config.hooks {
            let receiver = Receiver::new(hook, config.ca_file.as_deref())?;
            let (tx, rx) = mpsc::sync_channel::<Event>(QUEUE_MAX);
            let worker = Worker {
                receiver,
                rate: Rate::new(hook.rate),
                suppressed: 0,
                stop: Arc::clone(&stop),
                dead_letters: config.dead_letters.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("hook-{}", hook.name));
            dispatcher.threads.push(thread.spawn(move || worker.run(&rx))?);
            dispatcher.queues.push(Queue { name: hook.name.clone(), on: hook.on.clone(), tx });
        }
        Ok(dispatcher)
    }

    /// Queues an event for the hooks that want it. Does not wait.
    pub fn offer(&self, event: &Event) {
        for queue in self.queues.iter().filter(|queue| queue.on.contains(&event.kind)) {
            if let Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) =
                queue.tx.try_send(event.clone())
            {
                let why = format!("{QUEUE_MAX} events wait for this hook");
                bury(&self.dead_letters, &queue.name, event, 0, why);
            }
        }
    }

    /// Ends. What waits is tried once more; what fails then becomes dead letters.
    pub fn finish(self) {
        let Self { queues, threads, stop, .. } = self;
        stop.set();
        drop(queues);
        for thread in threads {
            // A panic has been printed already.
            let _ = thread.join();
        }
    }
}

fn bury(path: &Path, hook: &str, event: Event, attempts: u32, why: String) {
    tracing::error!(target: "hooks", hook, event = event.id.as_str(), attempts, "given up: {} ({why})", event.title);
    let letter = Letter { hook: hook.to_owned(), event, attempts, why };
    if let Err(error) = dead::add(path, &letter) {
        tracing::error!(target: "hooks", hook, event = letter.event.id.as_str(), "lost, {}: {error}", path.display());
    }
}

/// Deliveries of the last minute.
struct Rate {
    most: usize,
    times: std::collections::VecDeque<Instant>,
}

impl Rate {
    fn new(most: u32) -> Self {
        Self { most: most as usize, times: std::collections::VecDeque::new() }
    }

    /// Whether another one may be made now.
    fn takes(&mut self, now: Instant) -> bool {
        while self.times.front().is_some_and(|then| now.duration_since(*then) >= MINUTE) {
            self.times.pop_front();
        }
        let takes = self.times.len() < self.most;
        if takes {
            self.times.push_back(now);
        }
        takes
    }
}

/// The pause before an attempt after this many have failed.
fn pause(hook: &Hook, failed: u32) -> Duration {
    let doubled = hook.backoff.saturating_mul(1 << failed.saturating_sub(1).min(20));
    doubled.min(hook.backoff_max)
}

struct Worker {
    receiver: Receiver,
    rate: Rate,
    /// Events that the rate did not allow since the last delivery.
    suppressed: u64,
    stop: Arc<Stop>,
    dead_letters: PathBuf,
}

impl Worker {
    fn run(mut self, rx: &mpsc::Receiver<Event>) {
        while let Ok(event) = rx.recv() {
            if !self.rate.takes(Instant::now()) {
                self.suppressed += 1;
                let hook = self.receiver.hook();
                tracing::warn!(target: "hooks", hook = hook.name.as_str(), "suppressed: more than {} in a minute", hook.rate);
                continue;
            }
            let delivered = self.deliver(&event);
            let name = self.receiver.hook().name.as_str();
            match delivered {
                Ok(Delivered { attempts }) => {
                    tracing::info!(target: "hooks", hook = name, event = event.id.as_str(), attempts, "delivered: {}", event.title);
                    self.suppressed = 0;
                }
                Err((attempts, why)) => bury(&self.dead_letters, name, event, attempts, why),
            }
        }
    }

    /// Tries until it is delivered or given up. The error says after how many attempts, and why.
    fn deliver(&self, event: &Event) -> Result<Delivered, (u32, String)> {
        let hook = self.receiver.hook();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (why, after) = match self.receiver.deliver(event, self.suppressed) {
                Ok(()) => return Ok(Delivered { attempts }),
                Err(failed @ Failed::Never { .. }) => return Err((attempts, failed.to_string())),
                Err(Failed::Later { why, after }) => (why, after),
            };
            if attempts >= hook.attempts {
                return Err((attempts, why));
            }
            let pause = pause(hook, attempts).max(after.unwrap_or_default());
            tracing::warn!(target: "hooks", hook = hook.name.as_str(), event = event.id.as_str(), attempts, "failed, again in {pause:?}: {why}");
            if self.stop.wait(pause) {
                return Err((attempts, format!("{why}; `obol hooks run` ended before the next attempt")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_its_bound() {
        let text = "schema = 1\ndead_letters = \"/d\"\n[[hook]]\nname = \"a\"\non = [\"view\"]\nexec = [\"x\"]\n\
            backoff = \"1s\"\nbackoff_max = \"10s\"\n";
        let config = Config::parse(text, "hooks.toml").expect("valid");
        let pauses: Vec<u64> = (1..=6).map(|failed| pause(&config.hooks[0], failed).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 10, 10]);
        assert_eq!(pause(&config.hooks[0], u32::MAX).as_secs(), 10);
    }

    #[test]
    fn a_rate_counts_the_last_minute() {
        let mut rate = Rate::new(2);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let taken = [0, 1, 2, 59, 60, 60, 61].map(|seconds| rate.takes(at(seconds)));
        assert_eq!(taken, [true, true, false, false, true, false, true]);
    }
}
