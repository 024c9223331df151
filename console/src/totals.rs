//! Compares all counters and histogram buckets in all outputs with what the owners of the regions
//! wrote: live, frozen, recorded and replayed. Nothing may be lost or counted twice.

use crate::logged::logged;
use crate::samples::{self, Recording, name};
use crate::state::Event;
use crate::view::tests::{console, press};
use obol_fabric::Endpoint;
use obol_fabric::host::{Cluster, Region};
use obol_fabric::metrics::{self, HISTOGRAM_WORDS};
use obol_fabric::{Owner, Wait};
use obol_membership::Kind;
use obol_membership::metrics::{Counter, Histogram};
use obol_node::{Deployment, Site};
use obol_observe::Observer;
use obol_observe::figures::total;
use obol_observe::histograms::Counts;
use obol_observe::sampling::Update;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::live::read;
use obol_observe::sampling::record::{Header, Recorder};
use obol_observe::sampling::sample::Sample;
use obol_observe::sampling::windows::Set;
use obol_profiles::Profile;
use obol_report::Report;
use obol_report::options::ReportFormat;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

/// Polls: more than two rounds of those that read all buckets.
const POLLS: usize = 40;

/// The owner of a region, on a thread of its own because a thread owns at most one.
struct Held {
    name: &'static str,
    region: Region,
    release: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    counted: Set,
    counters: Vec<u64>,
}

impl Held {
    fn new(cluster: &Cluster, kind: Kind, called: &'static str, number: Option<u32>) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let (tx, rx) = mpsc::channel();
        let cluster = cluster.clone();
        let thread = std::thread::spawn(move || {
            let owner = Owner { kind: kind as u32, name: name(called), region: number, groups: 0 };
            let endpoint = Endpoint::open(&cluster, owner, Wait::Block).expect("opened");
            tx.send(endpoint.region().clone()).expect("awaited");
            // It closes at the end.
            let _ = released.recv();
        });
        let region = rx.recv().expect("opened");
        let (release, thread) = (Some(release), Some(thread));
        let counters = vec![0; Counter::ALL.len()];
        Self { name: called, region, release, thread, counted: Set::default(), counters }
    }

    fn word(&self, offset: u32, at: usize) -> &std::sync::atomic::AtomicU64 {
        &self.region[offset as usize / 8 + at]
    }

    /// Counts like a process, each counter and histogram by a different amount.
    fn count(&mut self, draw: &mut impl FnMut(u64) -> u64, all: &mut Set) {
        let layout = *self.region.layout();
        for which in Counter::ALL {
            let by = draw(50) + 1;
            metrics::add(self.word(layout.counters(0), *which as usize), by);
            self.counters[*which as usize] += by;
        }
        for which in Histogram::ALL {
            for _ in 0..20 {
                // Mostly in the middle, like durations; sometimes anywhere.
                let bucket = if draw(40) == 0 {
                    draw(HISTOGRAM_WORDS as u64)
                } else {
                    160 + draw(12) + 8 * self.name.len() as u64
                };
                let n = draw(9) + 1;
                metrics::add(self.word(layout.histogram((*which).into()), bucket as usize), n);
                let part = Counts::from_pairs([(u16::try_from(bucket).expect("small"), n)]);
                self.counted[*which as usize].add(&part);
                all[*which as usize].add(&part);
            }
        }
    }

    fn end(&mut self) {
        self.release = None;
        self.thread.take().map(JoinHandle::join).transpose().expect("no panic");
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.end();
    }
}

/// Compares the outputs that are made from samples.
fn compare(samples: Vec<Arc<Sample>>, wanted: &Set, counters: &BTreeMap<&str, Vec<u64>>, what: &str) {
    let mut data = Data::default();
    for sample in &samples {
        data.take(Arc::clone(sample));
    }
    assert_eq!(data.windows.last(), *wanted, "{what}: the window of screen 7");
    let report = Report::new(name("totals"), samples).expect("there are samples");
    let text = |format| report.text(format).expect("written");
    let json: serde_json::Value = serde_json::from_str(&text(ReportFormat::Json)).expect("JSON");
    let log = logged(&text(ReportFormat::Hdr));
    let metrics = text(ReportFormat::Openmetrics);
    let number = |line: &str| -> u64 {
        let found = metrics.lines().find_map(|known| known.strip_prefix(line));
        found.unwrap_or_else(|| panic!("{what}: {line}")).trim().parse().expect("a number")
    };
    for (at, which) in Histogram::ALL.iter().enumerate() {
        let (of, n) = (which.name(), wanted[at].len());
        assert_eq!(json["latencies"][at]["of"], of);
        assert_eq!(json["latencies"][at]["n"], n, "{what}: {of} in JSON");
        assert_eq!(log[of], n, "{what}: {of} in the log");
        assert_eq!(
            number(&format!("obol_span_seconds_count{{cluster=\"totals\",of=\"{of}\"}}")),
            n,
            "{what}"
        );
        for text in [text(ReportFormat::Md), text(ReportFormat::Html)] {
            assert!(text.contains(&n.to_string()), "{what}: {of} in text");
        }
    }
    for (process, counted) in counters {
        let kind = if process.starts_with("coord") { "coordinator" } else { "agent" };
        for (counter, n) in Counter::ALL.iter().zip(counted) {
            let labels = format!("{{cluster=\"totals\",process=\"{process}\",kind=\"{kind}\"}}");
            assert_eq!(number(&format!("obol_{}_total{labels}", counter.name())), *n, "{what}: {process}");
        }
    }
}

#[test]
fn every_output_has_all_counts_exactly_once() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("made");
    let root = folder.path().join("root");
    let profile = Profile::builtin("laptop").expect("built in");
    let deployment = Deployment::new(1, 0, 0, profile).expect("in bounds");
    let site = Site::create(&root, name("totals"), deployment).expect("made");
    let mut held = vec![
        Held::new(&site.cluster, Kind::Coordinator, "coord-1", Some(1)),
        Held::new(&site.cluster, Kind::Agent, "node-1", None),
        Held::new(&site.cluster, Kind::Agent, "node-with-a-name", None),
    ];
    let mut random = 1u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut wanted = Set::default();
    held.iter_mut().for_each(|one| one.count(&mut draw, &mut wanted));
    let mut observer = Observer::open(&root, name("totals")).expect("opened").low_memory();
    let mut model = console(120, 40);
    let mut bytes = Vec::new();
    let header = Header::new(name("totals"));
    let mut recorder = Recorder::begin(&mut bytes, Path::new("memory"), &header).expect("written");
    let mut all = Vec::new();
    for look in 0..POLLS {
        let sample = read(&mut observer, true);
        if look == 0 {
            // Counts before the first poll are not an increase.
            assert!(sample.spans.is_empty());
            wanted = Set::default();
        }
        recorder.sample(&sample).expect("written");
        all.push(Arc::new(sample.clone()));
        model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
        if look == POLLS / 2 {
            // A later process, whose counts begin at zero.
            held.push(Held::new(&site.cluster, Kind::Agent, "node-3", None));
        }
        if look == POLLS / 4 {
            // A dead process keeps its region until another reuses it.
            held[2].end();
        }
        // The last polls read all buckets.
        if look + 10 < POLLS {
            let lives = held.iter_mut().filter(|one| one.thread.is_some());
            lives.for_each(|one| one.count(&mut draw, &mut wanted));
        }
    }
    drop(recorder);
    let counters: BTreeMap<&str, Vec<u64>> =
        held.iter().map(|one| (one.name, one.counters.clone())).collect();
    compare(all, &wanted, &counters, "live");
    let kept: Vec<_> = model.store.between(None, obol_fabric::Instant(u64::MAX)).collect();
    compare(kept, &wanted, &counters, "kept by the console");
    assert_eq!(model.live.windows.last(), wanted, "the console");
    press(&mut model, " [[]");
    let last = model.store.times().next_back().expect("there are samples");
    press(&mut model, &"]".repeat(POLLS));
    assert_eq!(model.frozen.as_ref().map(|frozen| frozen.at), Some(last));
    assert_eq!(model.data().windows.last(), wanted, "frozen");
    let recording = Recording::read(bytes.as_slice(), Path::new("memory")).expect("read");
    let recorded = recording.samples.clone().into_iter().map(Arc::new).collect();
    compare(recorded, &wanted, &counters, "recorded");
    let mut replayed = console(120, 40);
    replayed.replay(samples::tape(&recording.samples));
    press(&mut replayed, &"]".repeat(POLLS));
    assert_eq!(replayed.data().windows.last(), wanted, "replayed");
}

#[test]
fn what_a_life_has_counted_until_its_end_is_counted_though_its_memory_has_another_owner() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("made");
    let root = folder.path().join("root");
    let profile = Profile::builtin("laptop").expect("built in");
    let deployment = Deployment::new(1, 0, 0, profile).expect("in bounds");
    let site = Site::create(&root, name("totals"), deployment).expect("made");
    let mut n = 0;
    let mut draw = move |below: u64| {
        n += 7;
        n % below
    };
    let sum = |lives: &[Vec<u64>], of: Counter| total(lives.iter().map(|counters| counters[of as usize]));
    let region = Some(9);
    let mut lives: Vec<Vec<u64>> = Vec::new();
    let mut wanted = Set::default();
    let mut observer = Observer::open(&root, name("totals")).expect("opened").low_memory();
    let mut samples = Vec::new();
    for round in 0..500 {
        let mut held = Held::new(&site.cluster, Kind::Agent, "node-1", region);
        held.count(&mut draw, &mut wanted);
        if round == 0 {
            held.count(&mut draw, &mut wanted);
        }
        samples.push(Arc::new(read(&mut observer, true)));
        if round == 0 {
            // A recording does not have what was counted before its first sample.
            wanted = Set::default();
        }
        // It goes on until it is killed, and its successor comes before the next look.
        held.count(&mut draw, &mut wanted);
        lives.push(held.counters.clone());
        held.end();
    }
    samples.push(Arc::new(read(&mut observer, true)));
    let renewals = observer.renewals();
    let all =
        [Counter::RenewalsOnTime, Counter::RenewalsLate, Counter::RenewalsFailed].map(|of| sum(&lives, of));
    assert_eq!([renewals.on_time, renewals.late, renewals.failed], all, "every life, the whole of it");
    let first = samples[0].renewals.expect("polled");
    let report = Report::new(name("totals"), samples).expect("samples");
    let json: serde_json::Value =
        serde_json::from_str(&report.text(ReportFormat::Json).expect("written")).expect("JSON");
    assert_eq!(json["renewals"]["on_time"], renewals.on_time - first.on_time, "the recording says the same");
    for (at, which) in Histogram::ALL.iter().enumerate() {
        assert_eq!(json["latencies"][at]["n"], wanted[at].len(), "{}", which.name());
    }
}
