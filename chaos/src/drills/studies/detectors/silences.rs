//! When gateways suspect a host by its pulses. A gateway counts that and stamps nothing, so its counter
//! is read often.

use obol_fabric::Instant;
use obol_fabric::host::{Cluster, clock};
use obol_fabric_ip::{self as ip, GatewayCounter};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Silences that are kept.
const SILENCES_MAX: usize = 1 << 20;
/// Between two looks: the error of each time.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// A gateway suspects a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The host whose gateway suspects.
    pub by: u8,
    /// When it was seen to.
    pub at: Instant,
}

/// Reads the counters of gateways until it is ended.
#[derive(Debug)]
pub struct Silences {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Silence>>,
}

fn counted(cluster: &Cluster) -> Option<u64> {
    let at = GatewayCounter::ALL.iter().position(|each| *each == GatewayCounter::PulseSilences)?;
    ip::counted(cluster)?.get(at).copied()
}

impl Silences {
    /// Watches the gateways of these hosts, which are this machine.
    pub fn watch(hosts: Vec<(u8, Cluster)>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&stop);
        let look = move || {
            let mut known: Vec<Option<u64>> = hosts.iter().map(|(_, cluster)| counted(cluster)).collect();
            let mut seen = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                thread::sleep(POLL_INTERVAL);
                for ((host, cluster), known) in hosts.iter().zip(&mut known) {
                    let now = counted(cluster);
                    // A gateway that started again counts from zero.
                    let more = now.zip(*known).map_or(0, |(now, before)| now.saturating_sub(before));
                    // The word may be any number.
                    let more = usize::try_from(more).unwrap_or(usize::MAX).min(SILENCES_MAX - seen.len());
                    seen.extend((0..more).map(|_| Silence { by: *host, at: clock::now() }));
                    *known = now.or(*known);
                }
            }
            seen
        };
        let thread = thread::Builder::new().name("silences".to_owned()).spawn(look)?;
        Ok(Self { stop, thread })
    }

    /// What was seen.
    pub fn end(self) -> Vec<Silence> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
