//! A fresh cluster, idle and beside programs that take every core: whatever alerts, hooks and the health say has a
//! cause that the processes themselves have counted. `OBOL_IDLE_SECONDS=3600` makes it an hour.

use crate::support::{Root, signal};
use obol_fabric::Name;
use obol_fabric::host::{Cluster, Observed};
use obol_fabric::metrics::bucket_floor;
use obol_membership::metrics::{Counter, Histogram};
use obol_observe::calendar::unix_now;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long, unless the environment says otherwise: half of it idle, half beside the programs.
const SECONDS: u64 = 16;
/// Between two looks.
const EVERY: Duration = Duration::from_millis(250);
/// How long an alert that counts over a minute may refer to what was, and a member may take to come back.
const MINUTE: u64 = 70;
/// The share of its lease below which a margin is thin, and the shortest lease: the profile `laptop`.
const THIN_BELOW_NS: u64 = 20_000_000 / 10;

/// Programs that take every core.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> Self {
        let hog = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("it starts");
        let cores = thread::available_parallelism().expect("known").get();
        Self((0..cores).map(|_| hog()).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            // It may have ended.
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// What all processes have counted until a moment, over all lives.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    unix: u64,
    /// Renewals that were late or failed.
    late: u64,
    /// Renewals with next to nothing left of their lease.
    thin: u64,
    /// Suspicions, and links that were found to be down.
    suspected: u64,
    false_suspicions: u64,
}

/// Each life of a process or seat, with its counters, and its margins.
#[derive(Default)]
struct Lives {
    counters: BTreeMap<(u32, u32, u16, Name), Vec<u64>>,
    thin: BTreeMap<(u32, u32), u64>,
}

impl Lives {
    fn look(&mut self, cluster: &Cluster) -> Counted {
        let seats = cluster.layout().limits().seats as u16;
        for region in cluster.regions() {
            let Ok(observed) = Observed::open(cluster, region.number) else { continue };
            let (reader, life) = (observed.reader(), (region.number, region.generation));
            self.counters.insert((life.0, life.1, 0, region.name), reader.counters(0));
            for seat in (1..seats).filter_map(|seat| reader.seat(seat)) {
                self.counters.insert((life.0, life.1, seat.seat, seat.name), reader.counters(seat.seat));
            }
            let margins = reader.buckets(Histogram::Margin.into());
            let thin = margins.filter(|(bucket, _)| bucket_floor((*bucket).into()) < THIN_BELOW_NS);
            self.thin.insert(life, thin.map(|(_, n)| n).sum());
        }
        let sum = |which: &[Counter]| {
            let of = |counters: &Vec<u64>| which.iter().map(|one| counters[*one as usize]).sum::<u64>();
            self.counters.values().map(of).sum()
        };
        use Counter::{
            FalseSuspicions, HeartbeatSuspicions, LinksLost, NoticesSent, RenewalsFailed, RenewalsLate,
        };
        Counted {
            unix: unix_now(),
            late: sum(&[RenewalsLate, RenewalsFailed]),
            thin: self.thin.values().sum(),
            suspected: sum(&[HeartbeatSuspicions, LinksLost, NoticesSent]),
            false_suspicions: sum(&[FalseSuspicions]),
        }
    }
}

/// How much was counted within some seconds before a moment. What happened right before it may be counted later: a
/// process that gets no core counts when it gets one.
fn within(looks: &[Counted], unix: u64, seconds: u64) -> Counted {
    const LATER: u64 = 2_000_000_000;
    let from = looks
        .iter()
        .rfind(|look| look.unix.saturating_add(seconds.saturating_mul(1_000_000_000)) < unix)
        .copied()
        .unwrap_or_default();
    let to = looks.iter().find(|look| look.unix > unix + LATER).or(looks.last()).copied().unwrap_or_default();
    Counted {
        unix,
        late: to.late - from.late,
        thin: to.thin - from.thin,
        suspected: to.suspected - from.suspected,
        false_suspicions: to.false_suspicions - from.false_suspicions,
    }
}

/// Whether what a hook was told follows from what was counted.
fn is_explained(event: &Value, looks: &[Counted]) -> bool {
    let unix = event["unix_ms"].as_u64().expect("a time") * 1_000_000;
    let counted = within(looks, unix, MINUTE);
    let is_late = counted.late > 0;
    match event["kind"].as_str().expect("a kind") {
        // It began.
        "alert" if event["state"] == "resolved" => true,
        "alert" => match event["subject"].as_str().expect("a name") {
            "late renewals" => counted.late >= 3,
            "lease margin" => counted.thin >= 3 || is_late,
            "false suspicions" => counted.false_suspicions >= 2,
            _ => false,
        },
        "health" => event["state"] == "resolved" || is_late || counted.suspected > 0,
        "failover" => counted.suspected > 0,
        // Leases that have grown shrink when they are not late any more.
        "view" => {
            let causes = event["details"]["causes"].as_array().expect("a list");
            let is_lease = |cause: &Value| cause.as_str().is_some_and(|cause| cause.starts_with("lease of "));
            if causes.iter().all(is_lease) {
                within(looks, unix, u64::MAX).late >= 2
            } else {
                counted.suspected > 0
            }
        }
        _ => false,
    }
}

#[test]
fn of_a_fresh_cluster_nothing_is_reported_that_its_processes_have_not_counted() {
    let seconds = std::env::var("OBOL_IDLE_SECONDS").map_or(SECONDS, |text| text.parse().expect("seconds"));
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let [file, got, dead] = ["hooks.toml", "hooks.got", "hooks.dead"].map(|name| root.note(name));
    let script = format!("{{ cat; echo; }} >> {}", got.display());
    let text = format!(
        "schema = 1\ndead_letters = {dead:?}\n[[hook]]\nname = \"all\"\n\
         on = [\"alert\", \"health\", \"view\", \"failover\"]\nexec = [\"/bin/sh\", \"-c\", {script:?}]\nrate = 1000\n"
    );
    fs::write(&file, text).expect("written");
    let mut command = root.command(&["hooks", "run", file.to_str().expect("text")]);
    let mut hooks = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let cluster = Cluster::open(root.path(), Name::new("default").expect("a name")).expect("it runs");
    let (mut lives, mut looks, mut unhealthy, mut hogs) = (Lives::default(), Vec::new(), Vec::new(), None);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        if began.elapsed() > Duration::from_secs(seconds) / 2 {
            hogs.get_or_insert_with(Hogs::start);
        }
        looks.push(lives.look(&cluster));
        let status = root.status();
        if status.code != Some(0) {
            unhealthy.push((unix_now(), status.reasons()));
        }
        thread::sleep(EVERY);
    }
    drop(hogs);
    signal("TERM", &[i64::from(hooks.id())]);
    assert!(hooks.wait().expect("a child").success());
    looks.push(lives.look(&cluster));
    let text = fs::read_to_string(&got).unwrap_or_default();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    eprintln!(
        "{seconds} s: {} looks, {} not healthy; {} messages of hooks; {:?}",
        looks.len() - 1,
        unhealthy.len(),
        events.len(),
        looks.last()
    );
    let unexplained: Vec<&Value> = events.iter().filter(|event| !is_explained(event, &looks)).collect();
    assert!(unexplained.is_empty(), "{unexplained:#?}\n{looks:?}");
    unhealthy.retain(|(unix, _)| {
        let counted = within(&looks, *unix, MINUTE);
        counted.late == 0 && counted.suspected == 0
    });
    assert!(unhealthy.is_empty(), "{unhealthy:#?}\n{looks:?}");
}

#[test]
fn what_was_not_counted_or_long_ago_explains_nothing() {
    let counted = Counted { unix: 0, late: 3, thin: 3, suspected: 1, false_suspicions: 2 };
    let looks = [Counted::default(), counted, Counted { unix: 100_000_000_000, ..counted }];
    let said = |kind: &str, subject: &str, causes: &[&str], ms: u64| {
        let event = json!({"kind": kind, "subject": subject, "state": "firing", "unix_ms": ms, "details": {"causes": causes}});
        (is_explained(&event, &looks), is_explained(&event, &[Counted::default()]))
    };
    for (kind, subject, causes) in [
        ("alert", "late renewals", &[][..]),
        ("alert", "lease margin", &[]),
        ("alert", "false suspicions", &[]),
        ("health", "", &[]),
        ("failover", "", &[]),
        ("view", "", &["app-1 (5) failed: heartbeat"]),
    ] {
        assert_eq!(said(kind, subject, causes, 1000), (true, false), "{kind} {subject}");
        assert_eq!(said(kind, subject, causes, 90_000), (false, false), "{kind} {subject}");
    }
    assert_eq!(said("view", "", &["lease of 20.0ms"], 90_000), (true, false));
    assert_eq!(said("alert", "stale node", &[], 1000), (false, false));
}
