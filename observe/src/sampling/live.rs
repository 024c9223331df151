//! The live source: polls a running cluster at a steady rate, and reopens it after a restart.

use crate::advice;
use crate::annotations::Marks;
use crate::calendar::unix_now;
use crate::names_file::NamesFile;
use crate::replicas::Replicas;
use crate::sampling::sample::{Cost, MarkRow, PathRow, Sample};
use crate::sampling::{Sink, Update};
use crate::{Health, Observer, Source};
use obol_fabric::host::clock;
use obol_fabric::{Instant, Nanos};
use obol_node::ClusterLocation;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{self, Duration};

/// Default interval of samples.
pub const POLL_EVERY: Duration = Duration::from_millis(250);
/// The shortest and the longest interval that a user may request.
pub const POLL_BOUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(10));
/// Retry interval for a missing cluster, which doubles up to the second value.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Interval of reading the histograms, and while no screen shows them. They only grow, so nothing
/// is lost, and they are large.
const SPANS_EVERY: [Nanos; 2] = [Nanos::from_secs(1), Nanos::from_secs(10)];

/// The interval of samples, which the console may change while the source runs.
#[derive(Clone, Debug)]
pub struct Rate(Arc<AtomicU64>);

impl Rate {
    /// An interval, clamped to the bounds.
    pub fn new(every: Duration) -> Self {
        let rate = Self(Arc::default());
        rate.set(every);
        rate
    }

    /// Changes it, clamped to the bounds.
    pub fn set(&self, every: Duration) {
        let every = every.clamp(POLL_BOUNDS.0, POLL_BOUNDS.1);
        self.0.store(Nanos::from_std(every).0, Ordering::Relaxed);
    }

    /// The current interval.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Polls a cluster.
pub struct Live {
    source: Source,
    /// When the histograms are due.
    spans_due: Instant,
    /// The annotations of the cluster that is open, and the names of its members.
    notes: Option<(Marks, NamesFile)>,
    /// When polling ends by itself.
    until: Option<time::Instant>,
    /// Whether every histogram bucket is read each time.
    all_buckets: bool,
}

impl Live {
    pub fn new(location: ClusterLocation) -> Self {
        let set_up = |observer: Observer| observer.low_memory().read_replicas();
        let source = Source::new(location.root, location.cluster, set_up);
        Self { source, spans_due: Instant::ZERO, notes: None, until: None, all_buckets: false }
    }

    /// Reads every histogram bucket each time: for recordings and reports, which end at some poll.
    /// Screens show a rare bucket a few seconds late instead.
    pub fn with_all_buckets(self) -> Self {
        Self { all_buckets: true, ..self }
    }

    /// Limits the time of polling.
    pub fn for_time(self, time: Duration) -> Self {
        Self { until: time::Instant::now().checked_add(time), ..self }
    }

    /// Reads the cluster once, histograms less often if `slow`. Reopens a cluster that was
    /// recreated under the same name.
    pub fn poll(&mut self, slow: bool) -> Update {
        let cluster = self.source.cluster();
        let (observer, is_new) = match self.source.observer() {
            Ok(found) => found,
            Err(why) => return Update::Lost { why },
        };
        if is_new {
            self.spans_due = Instant::ZERO;
            self.notes = None;
            if self.all_buckets {
                observer.read_all_buckets();
            }
        }
        let due = clock::now() >= self.spans_due;
        let mut sample = read(observer, due);
        sample.thresholds = Some(observer.deployment().profile.alert);
        let dir = observer.cluster().dir();
        let (marks, names) = self.notes.get_or_insert_with(|| (Marks::new(dir), NamesFile::new(dir)));
        // Annotations that cannot be read now are read by the next poll.
        sample.marks = marks.news().unwrap_or_default().into_iter().map(MarkRow::from).collect();
        if !sample.events.is_empty() {
            // What cannot be read of it is shown by number.
            let _ = names.refresh();
            sample.take_names(|who| names.get(who));
        }
        sample.neutralise();
        if due {
            self.spans_due = sample.at + SPANS_EVERY[usize::from(slow)];
        }
        if sample.health == Health::Unreachable && sample.processes.is_empty() {
            return Update::Lost { why: format!("no process of cluster {cluster} has come up yet") };
        }
        Update::Sample(Box::new(sample))
    }

    /// The last poll, which includes the histograms.
    fn last_poll(&mut self) -> Update {
        self.spans_due = Instant::ZERO;
        self.poll(false)
    }

    /// Polls the cluster until the sink stops it, the time is over, or `quit` has a message or is
    /// closed. Except in the first case, ends with a last poll.
    pub fn run(mut self, rate: &Rate, quit: &Receiver<()>, sink: &mut impl Sink) {
        let mut retry = RETRY.0;
        loop {
            let began = time::Instant::now();
            let update = self.poll(rate.get() > POLL_EVERY);
            let lost = matches!(update, Update::Lost { .. }).then_some(retry);
            retry = if lost.is_some() { (retry * 2).min(RETRY.1) } else { RETRY.0 };
            if !sink.take(update) {
                return;
            }
            // A shorter interval takes effect at once.
            loop {
                let left = lost.unwrap_or(rate.get()).saturating_sub(began.elapsed());
                let rest = self.until.map(|until| until.saturating_duration_since(time::Instant::now()));
                let wait = rest.map_or(left, |rest| left.min(rest)).min(POLL_EVERY);
                let is_over = rest == Some(Duration::ZERO);
                if is_over || quit.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    // The sink needs no further sample.
                    sink.take(self.last_poll());
                    return;
                }
                if left.is_zero() {
                    break;
                }
            }
        }
    }
}

/// One sample, with histogram counts if requested.
pub fn read(observer: &mut Observer, spans: bool) -> Sample {
    let began = clock::now();
    let before = observer.load();
    let (snapshot, events, spans) = observer.poll(spans);
    let replicas = Replicas::read(observer, &snapshot).filter(|replicas| !replicas.replicas.is_empty());
    let load = observer.load() - before;
    let took = clock::now().since(began);
    let cost = Cost { took, reads: load.reads, bytes: load.bytes, torn: load.torn };
    // Two clocks at one moment: events and histograms were read after the snapshot.
    let unix = unix_now().saturating_sub(clock::now().since(snapshot.at).0);
    let advice = advice::of(observer, &snapshot, &events);
    let mut sample = Sample::new(snapshot, &events, unix, cost);
    sample.advice = advice;
    sample.cluster_id = Some(observer.cluster().nonce());
    sample.take_spans(&spans);
    sample.renewals = Some(observer.renewals());
    sample.replicas = replicas.map(Box::new);
    sample.paths = observer.pulses().map(PathRow::all).unwrap_or_default();
    sample
}
