//! Queues and threads of hooks.

use crate::config::{Config, Hook};
use crate::dead::{self, Letter};
use crate::deliver::{Delivered, Receiver};
use crate::failed::Failed;
use crate::lane::{Lane, QUEUE_MAX};
use obol_observe::incidents::event::{Event, Kind};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end waits for receivers, at most; systemd waits longer.
pub const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it waits for threads beyond that, which kill their programs then.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
const END_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The span of a rate.
const MINUTE: Duration = Duration::from_secs(60);

/// Says when to end.
#[derive(Debug, Default)]
struct Stop {
    since: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Stop {
    /// Waits; whether it is to end.
    fn wait(&self, span: Duration) -> bool {
        let mut since = self.since.lock();
        self.changed.wait_while_for(&mut since, |since| since.is_none(), span);
        since.is_some()
    }

    fn set(&self) {
        *self.since.lock() = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Whether no delivery is waited for any more.
    fn is_over(&self) -> bool {
        self.since.lock().is_some_and(|since| since.elapsed() >= END_TIMEOUT)
    }
}

struct Queue {
    name: String,
    on: Vec<Kind>,
    lane: Arc<Lane>,
    thread: JoinHandle<()>,
}

/// Calls hooks.
pub struct Dispatcher {
    queues: Vec<Queue>,
    stop: Arc<Stop>,
    dead_letters: PathBuf,
}

impl Dispatcher {
    /// Starts a thread for each hook.
    pub fn start(config: &Config) -> io::Result<Self> {
        let stop = Arc::<Stop>::default();
        let mut queues = Vec::new();
        for hook in &config.hooks {
            let receiver = Receiver::new(hook, config.ca_file.as_deref())?;
            let lane = Arc::<Lane>::default();
            let worker = Worker {
                receiver,
                rate: Rate::new(hook.rate),
                suppressed: 0,
                stop: Arc::clone(&stop),
                lane: Arc::clone(&lane),
                dead_letters: config.dead_letters.clone(),
            };
            let thread = std::thread::Builder::new().name(format!("hook-{}", hook.name));
            let thread = thread.spawn(move || worker.run())?;
            queues.push(Queue { name: hook.name.clone(), on: hook.on.clone(), lane, thread });
        }
        Ok(Self { queues, stop, dead_letters: config.dead_letters.clone() })
    }

    /// Queues an event for the hooks that want it. Does not wait.
    pub fn offer(&self, event: &Event) {
        for queue in self.queues.iter().filter(|queue| queue.on.contains(&event.kind)) {
            if !queue.lane.offer(event) {
                let why = format!("{QUEUE_MAX} events wait for this hook");
                bury(&self.dead_letters, &queue.name, event.clone(), 0, why);
            }
        }
    }

    /// Ends. What waits is tried once more, for [`END_TIMEOUT`]; what fails then, and what is left, become
    /// dead letters.
    pub fn finish(self) {
        let Self { queues, stop, dead_letters } = self;
        stop.set();
        queues.iter().for_each(|queue| queue.lane.close());
        let end = Instant::now() + END_TIMEOUT + KILL_TIMEOUT;
        while queues.iter().any(|queue| !queue.thread.is_finished()) && Instant::now() < end {
            std::thread::sleep(END_POLL_INTERVAL);
        }
        for Queue { name, lane, thread, .. } in queues {
            for (event, attempts) in lane.abandon() {
                let why =
                    format!("`obol hooks run` ended, and the receiver had not answered for {END_TIMEOUT:?}");
                bury(&dead_letters, &name, event, attempts, why);
            }
            if thread.is_finished() {
                // A panic has been printed already.
                let _ = thread.join();
            }
        }
    }
}

fn bury(path: &Path, hook: &str, event: Event, attempts: u32, why: String) {
    tracing::error!(target: "hooks", hook, event = event.id.as_str(), attempts, "{hook}: given up: {} ({why})", event.title);
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
    lane: Arc<Lane>,
    dead_letters: PathBuf,
}

impl Worker {
    fn run(mut self) {
        while let Some(event) = self.lane.next() {
            if !self.rate.takes(Instant::now()) {
                self.lane.finish();
                self.suppressed += 1;
                let hook = self.receiver.hook();
                tracing::warn!(target: "hooks", hook = hook.name.as_str(), "{}: suppressed: more than {} in a minute", hook.name, hook.rate);
                continue;
            }
            let delivered = self.deliver(&event);
            // What was abandoned meanwhile is a dead letter already.
            let is_open = self.lane.finish();
            let name = self.receiver.hook().name.as_str();
            match delivered {
                Ok(Delivered { attempts }) => {
                    tracing::info!(target: "hooks", hook = name, event = event.id.as_str(), attempts, "{name}: delivered: {}", event.title);
                    self.suppressed = 0;
                }
                Err((attempts, why)) if is_open => bury(&self.dead_letters, name, event, attempts, why),
                Err(_) => {}
            }
        }
    }

    /// Tries until it is delivered or given up. The error says after how many attempts, and why.
    fn deliver(&self, event: &Event) -> Result<Delivered, (u32, String)> {
        let hook = self.receiver.hook();
        let mut attempts = 0;
        loop {
            if self.stop.is_over() {
                return Err((attempts, "`obol hooks run` ended before it was tried again".to_owned()));
            }
            attempts += 1;
            let tried = self.receiver.deliver_unless(event, self.suppressed, &|| self.stop.is_over());
            let (why, after) = match tried {
                Ok(()) => return Ok(Delivered { attempts }),
                Err(failed @ Failed::Never { .. }) => return Err((attempts, failed.to_string())),
                Err(Failed::Later { why, after }) => (why, after),
            };
            self.lane.failed();
            if attempts >= hook.attempts {
                return Err((attempts, why));
            }
            let pause = pause(hook, attempts).max(after.unwrap_or_default());
            tracing::warn!(target: "hooks", hook = hook.name.as_str(), event = event.id.as_str(), attempts, "{}: failed, again in {pause:?}: {why}", hook.name);
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
