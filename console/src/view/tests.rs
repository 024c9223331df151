//! Whole screens as text, compared with the files in `snapshots/`; and every size, without panics.
//!
//! To accept intended changes: `OBOL_BLESS=1 cargo test --release -p obol-console --lib`, then
//! review the difference.

use crate::contexts::{Context, Summary};
use crate::samples::Recording;
use crate::screens::{self, members};
use crate::state::act::Verb;
use crate::state::chaos::{Choice, DrillUpdate, Preview};
use crate::state::mouse::Mouse;
use crate::state::{Effect, Event, Mode, Model, RowId, ScreenId};
use crate::theme::{ASCII, Theme, UNICODE};
use crate::view::{self, text};
use crate::{input, samples};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use obol_chaos::drills::engine::progress::{Followed, Progress, Stage};
use obol_fabric::{Instant, Nanos};
use obol_membership::Kind;
use obol_node::ClusterLocation;
use obol_observe::Health;
use obol_observe::Renewals;
use obol_observe::advice::Advice;
use obol_observe::sampling::Update;
use obol_observe::sampling::record::{Header, Recorder};
use obol_observe::sampling::sample::EventRow;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// The time of the first sample.
const START: Instant = Instant(3_600_000_000_000);

/// A console of this size without samples.
pub(crate) fn console(width: u16, height: u16) -> Model {
    let mut model = Model::new(samples::name("default"), screens::first(), Theme::Mono, UNICODE, false);
    model.reduce(Event::Resize(width, height), &mut Vec::new());
    model
}

/// Presses keys.
pub(crate) fn press(model: &mut Model, keys: &str) {
    press_for(model, keys, &mut Vec::new());
}

/// Presses keys, and collects the effects.
pub(crate) fn press_for(model: &mut Model, keys: &str, effects: &mut Vec<Effect>) {
    for letter in keys.chars() {
        let (code, modifiers) = match letter {
            '\n' => (KeyCode::Enter, KeyModifiers::NONE),
            '\t' => (KeyCode::Tab, KeyModifiers::NONE),
            '\x1b' => (KeyCode::Esc, KeyModifiers::NONE),
            '→' => (KeyCode::Right, KeyModifiers::NONE),
            letter @ '\x01'..='\x1a' => {
                (KeyCode::Char(char::from(letter as u8 + b'a' - 1)), KeyModifiers::CONTROL)
            }
            letter => (KeyCode::Char(letter), KeyModifiers::NONE),
        };
        let press = input::Press::of(KeyEvent::new(code, modifiers)).expect("pressed");
        model.reduce(Event::Key(press), effects);
    }
}

/// A healthy cluster for six seconds.
pub(crate) fn live(width: u16, height: u16) -> Model {
    let mut model = console(width, height);
    for quarter in 0..24 {
        let at = Instant(START.0 + quarter * 250_000_000);
        model.reduce(Event::Update(Update::Sample(Box::new(samples::healthy(at)))), &mut Vec::new());
    }
    model
}

/// The same after a failure and a freeze.
pub(crate) fn broken(width: u16, height: u16) -> Model {
    let mut model = live(width, height);
    for quarter in 24..32 {
        let at = Instant(START.0 + quarter * 250_000_000);
        let mut sample = samples::degraded(at);
        if quarter > 24 {
            sample.events.clear();
        }
        model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    }
    model
}

#[test]
fn a_long_name_in_the_newest_events_does_not_cover_what_happened() {
    let newest = |width| {
        let mut model = live(width, 40);
        let mut sample = samples::healthy(Instant(START.0 + 6_000_000_000));
        let process = samples::name("shop-7d9fbc6b5-c2z8d");
        sample.events = vec![EventRow { process, ..samples::event(sample.at, 1) }];
        model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
        let screen = text(&model);
        screen.lines().find(|line| line.contains("shop-7d9")).expect("the event").to_owned()
    };
    let event = samples::event(START, 1).event.name();
    assert!(newest(160).contains(&format!("shop-7d9fbc6b5-c2z8d {event}")), "{}", newest(160));
    let narrow = newest(90);
    assert!(narrow.contains(&format!(" {event}")) && !narrow.contains("c2z8d"), "{narrow}");
}

/// Two failovers, the second slower.
fn twice(width: u16, height: u16) -> Model {
    let mut model = broken(width, height);
    let mut sample = samples::degraded(Instant(START.0 + 9_000_000_000));
    for event in &mut sample.events {
        let slower = if matches!(event.event.name(), "notice" | "propose") { 0 } else { 40_000 };
        event.at.0 += slower;
        // The other app died, in the next view.
        event.a = if event.event.name() == "notice" { 9 } else { 8 };
    }
    model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    model
}

/// A failover of a cluster on two hosts, as recorded. The times of node-2 and its app have a clock
/// error of 20 us; by its clock node-2 received the view before the decision.
fn two_hosts(width: u16, height: u16) -> Model {
    use obol_membership::recorder::EventKind;
    let mut sample = samples::degraded(Instant(START.0 + 6_000_000_000));
    let began = sample.events[0].at;
    let elsewhere = |name: &str, event, us, kind| EventRow {
        process: samples::name(name),
        kind,
        event,
        at: Instant(began.0 + us * 1000),
        number: us,
        doubt: Nanos::from_micros(20),
        reason: None,
        ..samples::event(began, 0)
    };
    sample.events.extend([
        EventRow { a: 7, ..elsewhere("node-2", EventKind::ViewReceived, 10, Kind::Agent) },
        EventRow { a: 7, ..elsewhere("node-2", EventKind::Active, 140, Kind::Agent) },
        EventRow { a: 7, ..elsewhere("app-4", EventKind::Active, 30, Kind::App) },
    ]);
    sample.events.sort_by_key(|event| event.at);
    let mut bytes = Vec::new();
    let header = Header::new(samples::name("default"));
    let mut recorder = Recorder::begin(&mut bytes, Path::new("memory"), &header).expect("written");
    recorder.sample(&sample).expect("written");
    let recording = Recording::read(bytes.as_slice(), Path::new("memory")).expect("read");
    let mut model = console(width, height);
    for sample in recording.samples {
        model.reduce(crate::state::Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    }
    model
}

fn lost(width: u16, height: u16) -> Model {
    let mut model = broken(width, height);
    let why = "no cluster default in /dev/shm/obol; start it with `obol up`".to_owned();
    model.reduce(Event::Update(Update::Lost { why }), &mut Vec::new());
    model.reduce(Event::Tick(Instant(START.0 + 20_000_000_000)), &mut Vec::new());
    model
}

fn holds(name: &str, model: &Model) {
    let shown = text(model) + "\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/view/snapshots/{name}.txt"));
    if std::env::var_os("OBOL_BLESS").is_some() {
        std::fs::write(&path, &shown).expect("the folder is there");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == kept, "{name} is not as {} has it:\n{shown}", path.display());
}

fn with(mut model: Model, keys: &str) -> Model {
    press(&mut model, keys);
    model
}

#[test]
fn members_live() {
    holds("members-live", &live(120, 36));
    holds("members-broken", &broken(120, 36));
    holds("members-80x24", &broken(80, 24));
    holds("members-wide", &broken(200, 50));
    holds("members-20x5", &broken(20, 5));
}

#[test]
fn members_without_a_cluster() {
    holds("members-empty", &console(80, 24));
    holds("members-lost", &lost(100, 20));
}

#[test]
fn members_frozen_selected_sorted_and_filtered() {
    holds("members-frozen", &with(broken(100, 24), "[["));
    holds("members-sorted", &with(broken(100, 24), "jjjss"));
    holds("members-filtered", &with(broken(100, 24), "/!coord\n"));
    holds("members-filtering", &with(broken(80, 24), "/nothing"));
}

#[test]
fn events() {
    holds("events", &with(broken(100, 24), "8"));
    holds("events-of-one", &with(broken(100, 24), "jjjjj\n\n"));
    holds("events-empty", &with(console(80, 24), "8"));
}

#[test]
fn all_about_a_member() {
    holds("detail", &with(broken(120, 36), "jjjj\n"));
    holds("detail-80x24", &with(broken(80, 24), "\n"));
    let moved = with(broken(120, 36), "\nj");
    assert!(text(&moved).contains("node-3  frozen"), "{}", text(&moved));
    let closed = with(moved, "\x1b");
    assert_eq!((&closed.mode, closed.screen), (&Mode::Normal, members::ID));
}

#[test]
fn leases() {
    holds("leases", &with(broken(120, 36), "2"));
    holds("leases-80x24", &with(broken(80, 24), "2sss"));
    holds("leases-empty", &with(console(80, 24), "2"));
}

/// With two drills, if `may_arm` with one that may run.
fn chaotic(mut model: Model, may_arm: bool) -> Model {
    let choice = |name: &str, count| Choice {
        name: name.to_owned(),
        title: format!("{name} and see"),
        count,
        hits: vec![if name == "app" { Kind::App } else { Kind::Agent }],
    };
    model.chaos.drills = vec![choice("app", 300), choice("freeze", 20)];
    model.chaos.may_arm = may_arm;
    model
}

fn previewed(mut model: Model, drill: &str, allowed: bool) -> Model {
    let guard = if allowed { "allows: victims: 1, at most 1" } else { "REFUSES: victims: 2, at most 1" };
    let lines = vec![
        ("step one".to_owned(), false),
        ("  kill: app-2 (pid 107)".to_owned(), false),
        (format!("guard max_targets {guard}"), !allowed),
    ];
    let preview = Preview { drill: drill.to_owned(), allowed, lines, hits: "kill app-2".to_owned() };
    let news = DrillUpdate::Previewed { drill: drill.to_owned(), found: Ok(preview) };
    model.reduce(Event::Chaos(news), &mut Vec::new());
    model
}

const JOURNAL: &str = r#"{"schema": 2, "drill": "app", "title": "An app dies", "began": "2026-01-01T00:00:00Z", "took_s": 9,
    "verdict": "deviated", "count": 20, "extended": 0, "void": 1, "profile": "laptop", "environment": "local",
    "host": {"cores": 2, "kernel": "6.1"}, "ssh": null, "before": [], "after": [], "figures_us":
    {"failover.cue_to_active": {"n": 19, "min": 99.0, "p50": 156.0, "p90": null, "p99": null, "max": 214.0}},
    "judged": [{"metric": "failover.cue_to_active", "of": "p50", "bound": 100.0, "found": 156.0, "samples": 19,
    "holds": false}], "trials": [], "remarks": ["one was slow"]}"#;

fn reported(mut model: Model, journal: &str) -> Model {
    let found = serde_json::from_str(journal).map(Box::new).map_err(|error| error.to_string());
    model.reduce(Event::Chaos(DrillUpdate::Ended { found }), &mut Vec::new());
    model
}

fn ended(model: Model) -> Model {
    reported(model, JOURNAL)
}

#[test]
fn chaos() {
    holds("chaos-read-only", &with(chaotic(live(100, 30), false), "6A"));
    holds("chaos-refused", &with(previewed(with(chaotic(live(100, 30), true), "6j"), "freeze", false), "A"));
    let model = previewed(with(chaotic(live(100, 30), true), "6"), "app", true);
    holds("chaos-arming", &with(model.clone(), "Adef"));
    let armed = with(model, "Adefault\n");
    holds("chaos-armed", &armed);
    holds("members-armed", &with(armed.clone(), "1"));
    holds("members-armed-20x5", &with(chaotic(resized(armed.clone(), 20, 5), true), "1"));
    let running = with(armed, "\x12");
    holds("chaos-running", &running);
    let mut progress = running.clone();
    progress.reduce(Event::Chaos(DrillUpdate::Done { done: 3, of: 20 }), &mut Vec::new());
    let over = Followed::Over { failover_ns: 156_000, phases_ns: BTreeMap::new() };
    for stage in
        [Stage::Waits, Stage::Armed(vec!["app-2".to_owned()]), Stage::Injected, Stage::Followed(over)]
    {
        let reached = Progress { number: 4, step: "kill".to_owned(), stage };
        progress.reduce(Event::Chaos(DrillUpdate::Stage(reached)), &mut Vec::new());
    }
    let mut sample = samples::degraded(Instant(START.0 + 9_000_000_000));
    sample.events.retain(|event| event.event.name() != "service");
    progress.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    holds("chaos-progress", &progress);
    holds("chaos-ended", &ended(running));
}

#[test]
fn a_drill_may_run_and_a_bound_holds_only_if_it_was_found_so() {
    let may = |allowed| {
        let model = previewed(with(chaotic(live(100, 30), true), "6"), "app", allowed);
        text(&model).contains("ok it may run")
    };
    assert_eq!([may(true), may(false)], [true, false]);
    let holds = |holds: &str| {
        let model = previewed(with(chaotic(live(100, 30), true), "6"), "app", true);
        let model = with(with(model, "Adefault\n"), "\x12");
        let found = JOURNAL.replace("\"holds\": false", &format!("\"holds\": {holds}"));
        text(&reported(model, &found)).contains(": holds")
    };
    assert_eq!(["true", "false", "null"].map(holds), [true, false, false]);
}

/// A recording of a console, played to its end.
fn replayed(width: u16, height: u16) -> Model {
    let live = broken(width, height);
    let mut model = console(width, height);
    let samples: Vec<_> = live.store.iter().map(|sample| (*sample).clone()).collect();
    model.replay(samples::tape(&samples));
    while !model.replay.as_ref().expect("a replay").is_at_end() {
        press(&mut model, "]");
    }
    model
}

/// No sample for a while, for an unknown reason.
fn stale(width: u16, height: u16) -> Model {
    let mut model = broken(width, height);
    model.reduce(Event::Tick(Instant(START.0 + 12_000_000_000)), &mut Vec::new());
    model
}

/// A frozen screen while polling continues.
fn frozen(width: u16, height: u16) -> Model {
    let mut model = with(broken(width, height), " ");
    let at = Instant(START.0 + 11_000_000_000);
    model.reduce(Event::Update(Update::Sample(Box::new(samples::healthy(at)))), &mut Vec::new());
    model
}

fn armed(width: u16, height: u16) -> Model {
    with(previewed(with(chaotic(broken(width, height), true), "6"), "app", true), "Adefault\n")
}

#[test]
fn every_screen_in_every_state() {
    type Make = fn(u16, u16) -> Model;
    let states: [(&str, Make); 7] = [
        ("live", broken),
        ("stale", stale),
        ("frozen", frozen),
        ("armed", armed),
        ("replay", replayed),
        ("empty", console),
        ("error", lost),
    ];
    for screen in screens::all() {
        for (state, make) in states {
            let model = with(make(80, 24), &screen.number().to_string());
            let name = format!("states/{}-{state}", screen.name());
            holds(&name, &model);
            let word = match state {
                "live" => "LIVE",
                "stale" => "STALE",
                "frozen" => "FROZEN",
                "armed" => "ARMED",
                "replay" => "REPLAY",
                "empty" => "waiting",
                _ => "not read",
            };
            assert!(text(&model).to_lowercase().contains(&word.to_lowercase()), "{name}:\n{}", text(&model));
        }
    }
}

fn resized(mut model: Model, width: u16, height: u16) -> Model {
    model.reduce(Event::Resize(width, height), &mut Vec::new());
    model
}

#[test]
fn no_fault_without_all_confirmations() {
    let all: Vec<char> = (' '..='~').chain(['\n', '\x12', '\x18']).collect();
    let runs = |mut model: Model, keys: &str| {
        let mut effects = Vec::new();
        press_for(&mut model, keys, &mut effects);
        effects.iter().any(|effect| matches!(effect, Effect::RunDrill(_)))
    };
    let ready = previewed(with(chaotic(live(80, 24), true), "6"), "app", true);
    for key in &all {
        assert!(!runs(ready.clone(), &key.to_string()), "{key:?}");
        assert!(!runs(chaotic(live(80, 24), true), &format!("6{key}\x12")), "{key:?}");
    }
    assert!(!runs(ready.clone(), "Adefaul\n\x12"), "not the cluster's name");
    assert!(!runs(chaotic(live(80, 24), false), "6\nAdefault\n\x12"), "not started with --arm");
    assert!(
        !runs(previewed(with(chaotic(live(80, 24), true), "6"), "app", false), "Adefault\n\x12"),
        "refused"
    );
    assert!(
        !runs(previewed(with(chaotic(live(80, 24), true), "6j"), "app", true), "Adefault\n\x12"),
        "of another"
    );
    assert!(!runs(ready.clone(), "Adefault\nA\x12"), "disarmed again");
    assert!(runs(ready, "Adefault\n\x12"));
}

#[test]
fn a_row_is_copied_as_it_is_shown() {
    let mut effects = Vec::new();
    let mut model = live(120, 36);
    press_for(&mut model, "y", &mut effects);
    assert!(effects.is_empty() && text(&model).contains("nothing is selected"));
    press_for(&mut model, "jy", &mut effects);
    let [Effect::Copy(row)] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(row.starts_with("coord-1 ok coordinator") && !row.contains('│'), "{row}");
}

#[test]
fn latency() {
    holds("latency", &with(broken(120, 36), "7"));
    holds("latency-80x24", &with(broken(80, 24), "7j"));
    holds("latency-empty", &with(console(80, 24), "7"));
}

#[test]
fn failovers() {
    holds("failovers", &with(broken(120, 36), "3"));
    holds("failovers-zoomed", &with(broken(120, 36), "3++lm"));
    holds("failovers-80x24", &with(broken(80, 24), "3"));
    holds("failovers-compared", &with(twice(120, 36), "3gmj"));
    let across = with(two_hosts(120, 36), "3");
    holds("failovers-two-hosts", &across);
    let shown = text(&across);
    for expected in ["clock error +-20.0us", "(", "app-1 or node-2 (within the clock error) is active last"] {
        assert!(shown.contains(expected), "{expected} in:\n{shown}");
    }
    let line = shown.lines().find(|line| line.starts_with("│ node-2")).expect("its line");
    assert!(line.contains('v') && line.contains('A'), "its stamps before the decision are shown: {line}");
    holds("failovers-empty", &with(live(80, 24), "3"));
}

#[test]
fn coordinators_and_detectors() {
    holds("coordinators", &with(broken(120, 36), "4"));
    holds("coordinators-80x24", &with(broken(80, 24), "4"));
    holds("detectors", &with(broken(120, 36), "5"));
    holds("detectors-80x24", &with(broken(80, 24), "5ssss"));
}

/// A cluster in production, and others to choose from.
fn with_clusters(width: u16, height: u16) -> Model {
    let mut model = broken(width, height);
    let place = |root: &str, cluster: &str| ClusterLocation {
        root: PathBuf::from(root),
        cluster: samples::name(cluster),
    };
    let prod = Context {
        name: "prod".to_owned(),
        production: true,
        ..Context::unnamed(place("/dev/shm/obol-1000", "default"))
    };
    let others = ["gamma", "beta"].map(|name| Context::unnamed(place("/dev/shm/obol-1000", name)));
    model.context = Some(prod.clone());
    let all = [vec![prod], others.to_vec(), vec![Context::unnamed(place("/srv/obol", "lab"))]].concat();
    model.reduce(Event::Contexts(all), &mut Vec::new());
    let found = |health, view, what: &str| Summary {
        health: Some(health),
        view: Some(view),
        members: Some(9),
        failovers: usize::from(view > 6),
        incidents: usize::from(view > 6),
        what: what.to_owned(),
    };
    let lost = Summary { what: "no cluster lab in /srv/obol".to_owned(), ..Summary::default() };
    let degraded = found(Health::Degraded, 7, "00:00:06Z node-3 is frozen (stopped); to do: continue it");
    for (at, one) in
        [degraded, found(Health::Healthy, 6, ""), found(Health::Unavailable, 9, "leases ended"), lost]
            .into_iter()
            .enumerate()
    {
        model.reduce(Event::Summary(at, one), &mut Vec::new());
    }
    model
}

#[test]
fn clusters_to_choose_from_the_worst_first() {
    holds("clusters", &with(with_clusters(120, 36), "cjj"));
    holds("clusters-80x24", &with(with_clusters(80, 24), "c"));
    holds("clusters-40x10", &with(with_clusters(40, 10), "c"));
    holds("clusters-none", &with(console(80, 24), "c"));
    let mut model = with(with_clusters(120, 36), ":ctx\n/srv\nj");
    let shown = text(&model);
    assert!(shown.contains("no cluster lab") && !shown.contains("gamma"), "{shown}");
    let mut effects = Vec::new();
    press_for(&mut model, "\n", &mut effects);
    assert_eq!(effects, [Effect::Switch(3)]);
    model.owner = true;
    effects.clear();
    press_for(&mut model, "\n", &mut effects);
    assert!(effects.is_empty() && text(&model).contains("this console ends its cluster"), "{}", text(&model));
    // The first screen, and the next one from there.
    press(&mut model, "\x1b\x1b");
    assert_eq!(model.screen, screens::first());
}

#[test]
fn a_process_of_production_is_touched_by_the_name_of_its_cluster_only() {
    let mut model = with_clusters(120, 36);
    model.chaos.may_arm = true;
    let mut effects = Vec::new();
    press_for(&mut model, "jjj\x0by\n", &mut effects);
    assert!(effects.is_empty() && text(&model).contains("was not touched"), "{}", text(&model));
    press(&mut model, "\x0b");
    holds("production", &model);
    press_for(&mut model, "prod\n", &mut effects);
    assert!(matches!(effects[..], [Effect::Act(Verb::Kill, _)]), "{effects:?}");
}

/// A degraded cluster of which pulses say that a path is lost.
fn with_paths(width: u16, height: u16) -> Model {
    let mut model = live(width, height);
    let mut sample = samples::degraded(Instant(START.0 + 24 * 250_000_000));
    sample.paths = samples::paths();
    sample.reasons = vec!["the path from host 3 at 10.2.0.3 is lost".to_owned()];
    sample.advice = vec![Advice::default()];
    model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    model
}

#[test]
fn paths_and_what_is_left_of_their_timeout() {
    holds("paths", &with(with_paths(120, 36), "5"));
    holds("paths-80x24", &with(with_paths(80, 24), "5"));
}

/// A cluster with the replicas of a log.
fn with_replicas(width: u16, height: u16) -> Model {
    let mut model = live(width, height);
    let mut sample = samples::healthy(Instant(START.0 + 24 * 250_000_000));
    sample.replicas = Some(samples::replicas());
    model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    model
}

#[test]
fn stores_and_how_far_each_replica_is() {
    holds("stores", &with(with_replicas(120, 36), "9"));
    holds("stores-80x24", &with(with_replicas(80, 24), "9"));
    holds("stores-wide", &with(with_replicas(200, 24), "9"));
    holds("stores-empty", &with(live(80, 24), "9"));
    holds("stores-help", &with(with_replicas(120, 36), "9??"));
}

/// One process renews late, and another one did before.
fn late(width: u16, height: u16) -> Model {
    let mut model = console(width, height);
    for quarter in 0..640 {
        let mut sample = samples::healthy(Instant(START.0 + quarter * 250_000_000));
        let late = |at: usize, sample: &mut obol_observe::sampling::sample::Sample, n| {
            sample.processes[at].counters[obol_membership::metrics::Counter::RenewalsLate as usize] += n;
        };
        late(3, &mut sample, quarter.min(20));
        late(4, &mut sample, quarter.saturating_sub(440).min(20));
        model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    }
    model
}

/// A cluster that was degraded for a moment, and is again.
fn recovered_once(width: u16, height: u16) -> Model {
    let mut model = console(width, height);
    for quarter in 0..60 {
        let mut sample = samples::healthy(Instant(START.0 + quarter * 250_000_000));
        if (8..12).contains(&quarter) || quarter >= 40 {
            sample.health = obol_observe::Health::Degraded;
            sample.reasons = vec!["app-2, node-3 down: killed by SIGKILL".to_owned()];
            let names = ["app-2", "node-3"].map(samples::name).to_vec();
            sample.advice = vec![Advice { names, ..Advice::default() }];
        }
        model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    }
    model
}

#[test]
fn incidents_are_listed_with_all_about_them() {
    holds("incidents", &with(broken(120, 36), "0"));
    holds("incidents-40x10", &with(late(40, 10), "0"));
    holds("incidents-late", &with(late(120, 36), "0"));
    holds("incidents-over", &with(recovered_once(120, 36), "0"));
}

#[test]
fn the_drills_of_a_row_are_those_with_victims_of_its_kind() {
    for (steps, kind, drill) in [("", "(app): app", 0), ("j", "(agent): freeze", 1)] {
        let model = with(chaotic(broken(120, 36), false), &format!("{steps}j{steps}kd"));
        let shown = text(&model);
        assert!(shown.contains(&format!("victims of this kind {kind}")), "{shown}");
        assert_eq!(model.list(ScreenId("Chaos")).selected, Some(RowId::Fixed(drill)));
    }
    let none = text(&with(broken(120, 36), "d"));
    assert!(none.contains("no drill has a victim of this kind"), "{none}");
}

#[test]
fn charts_have_what_changed_with_incidents_and_gaps() {
    let mut model = console(200, 50);
    for second in (0..600).filter(|second| !(200..300).contains(second)) {
        let at = Instant(START.0 + second * 1_000_000_000);
        let mut sample =
            if (420..440).contains(&second) { samples::degraded(at) } else { samples::healthy(at) };
        let late = if second > 400 { (second - 400) / 2 } else { 0 };
        sample.renewals = Some(Renewals { on_time: second * 375, late, failed: 0 });
        model.reduce(Event::Update(Update::Sample(Box::new(sample))), &mut Vec::new());
    }
    holds("charts", &with(model.clone(), "2"));
    holds("charts-failovers", &with(model.clone(), "3"));
    model.glyphs = ASCII;
    let plain = text(&with(model, "2"));
    assert!(plain.is_ascii() && plain.contains("Least lease margin"), "{plain}");
}

#[test]
fn help_and_leaving() {
    holds("help", &with(live(120, 36), "?"));
    holds(
        "help-columns",
        &with(live(120, 36), "?????".get(..view::help_pages(&live(120, 36))).expect("pages")),
    );
    holds("help-80x24", &with(live(80, 24), "?"));
    let mut offered = HashSet::new();
    for model in [live(80, 24), chaotic(live(80, 24), true), replayed(80, 24)] {
        let mut small = with(model, "?");
        let mut all = String::new();
        while small.mode == Mode::Help {
            all += &text(&small);
            press(&mut small, "?");
        }
        for binding in input::BINDINGS {
            let is_offered = small.offers(binding.action);
            assert_eq!(all.contains(binding.help), is_offered, "{}:\n{all}", binding.name);
            offered.extend(is_offered.then_some(binding.name));
        }
    }
    assert_eq!(offered.len(), input::BINDINGS.len());
    let mut owner = live(80, 24);
    owner.owner = true;
    holds("leaving", &with(owner, "q"));
}

#[test]
fn every_column_and_sign_is_explained() {
    for (width, height) in [(200, 60), (80, 24)] {
        for screen in screens::everywhere() {
            let mut model = with(with_clusters(width, height), &format!(":{}\n?", screen.name()));
            let mut all = String::new();
            while model.mode == Mode::Help {
                all += &text(&model);
                press(&mut model, "?");
            }
            for column in view::glossary(screen) {
                let listed = all.lines().any(|line| line.contains(&format!(" {} ", column.0)));
                assert!(listed && column.1.len() > 5, "{} of {}:\n{all}", column.0, screen.name());
            }
        }
    }
}

#[test]
fn the_time_line_shows_spans_that_begin_left_of_the_window() {
    let model = with(broken(120, 36), "3+++→→→→→→→→→→");
    let shown = text(&model);
    let of =
        |name: &str| shown.lines().find(|line| line.starts_with(&format!("│ {name}"))).expect("its line");
    assert!(of("coord-1").contains("────────") && of("coord-1").contains('F'), "{shown}");
    assert!(!of("coord-1").contains('N'), "the notice lies left of the window: {shown}");
    assert!(of("path").contains("fence"), "{shown}");
}

#[test]
fn the_critical_path_is_shown_in_any_size() {
    let model = with(twice(80, 20), "3");
    let shown = text(&model);
    for name in ["coord-1", "app-1"] {
        assert!(shown.lines().any(|line| line.starts_with(&format!("│ {name}"))), "{name}:\n{shown}");
    }
}

#[test]
fn ascii_is_ascii() {
    let mut model = broken(120, 36);
    model.glyphs = ASCII;
    for keys in ["1", "3", "4", "5", "8", "?"] {
        press(&mut model, keys);
        assert!(text(&model).is_ascii(), "{}", text(&model));
    }
}

#[test]
fn no_size_panics_and_the_health_is_always_shown() {
    let sizes = || (0..=10u16).flat_map(|width| (0..=10u16).map(move |height| (width, height)));
    for make in [console, live, broken, lost] {
        for keys in screens::all().map(|screen| char::from(b'0' + screen.number())) {
            for more in ["", "?", "/x", "j", "[", " ", "++ll", "--m"] {
                let mut model = with(make(40, 12), &format!("{keys}{more}"));
                for (width, height) in sizes().chain([(20, 5), (1, 300), (300, 1), (1000, 2)]) {
                    model.reduce(Event::Resize(width, height), &mut Vec::new());
                    let _ = text(&model);
                    press(&mut model, "jkGg");
                }
                model.reduce(Event::Resize(20, 5), &mut Vec::new());
                assert!(["healthy", "degraded", "not read"].iter().any(|word| text(&model).contains(word)));
            }
        }
    }
}

/// The place of these words on the screen.
fn place(model: &Model, words: &str) -> (u16, u16) {
    let shown = text(model);
    let (y, line) = shown.lines().enumerate().find(|(_, line)| line.contains(words)).expect(words);
    let x = line[..line.find(words).expect("there")].chars().count();
    (u16::try_from(x).expect("small"), u16::try_from(y).expect("small"))
}

fn click(model: &mut Model, words: &str, effects: &mut Vec<Effect>) {
    let (x, y) = place(model, words);
    model.reduce(Event::Mouse(Mouse::Click(x, y)), effects);
}

#[test]
fn the_mouse_selects_opens_sorts_scrolls_and_changes_screens() {
    let mut model = broken(120, 36);
    let mut effects = Vec::new();
    click(&mut model, "coord-2 ", &mut effects);
    assert_eq!(
        (model.list(members::ID).selected, &model.mode),
        (Some(RowId::Process(samples::name("coord-2"))), &Mode::Normal)
    );
    model.reduce(Event::Mouse(Mouse::Wheel(true)), &mut effects);
    assert_ne!(model.list(members::ID).selected, Some(RowId::Process(samples::name("coord-2"))));
    click(&mut model, "coord-2 ", &mut effects);
    click(&mut model, "coord-2 ", &mut effects);
    assert_eq!(model.mode, Mode::Detail);
    model.reduce(Event::Mouse(Mouse::Click(1, 1)), &mut effects);
    assert_eq!(model.mode, Mode::Normal);
    click(&mut model, "MARGIN", &mut effects);
    assert!(text(&model).contains("^MARGIN"), "{}", text(&model));
    click(&mut model, "^MARGIN", &mut effects);
    assert!(text(&model).contains("vMARGIN"), "{}", text(&model));
    click(&mut model, "5 Detectors", &mut effects);
    assert_eq!(model.screen, ScreenId("Detectors"));
    press(&mut model, ":even");
    click(&mut model, "events ", &mut effects);
    assert_eq!((model.screen, &model.mode), (ScreenId("Events"), &Mode::Normal));
    for x in 0..120 {
        for y in 0..36 {
            let mut model = model.clone();
            model.reduce(Event::Mouse(Mouse::Click(x, y)), &mut Vec::new());
        }
    }
}

#[test]
fn the_footer_offers_only_keys_that_work() {
    for (keys, offered, always) in
        [("j\n", "Ctrl-K kill   Ctrl-T stop", "select"), ("6", "A arm, or disarm   Ctrl-R run", "preview")]
    {
        for may_arm in [false, true] {
            let shown = text(&with(chaotic(live(120, 36), may_arm), keys));
            let footer = shown.lines().last().unwrap_or_default();
            assert!(footer.contains(offered) == may_arm && footer.contains(always), "{footer}");
        }
    }
}

#[test]
fn a_process_is_killed_only_when_armed_selected_and_confirmed() {
    let acts = |mut model: Model, keys: &str| {
        let mut effects = Vec::new();
        press_for(&mut model, keys, &mut effects);
        effects.retain(|effect| matches!(effect, Effect::Act(..)));
        (effects, model.note.clone().unwrap_or_default())
    };
    let armed = || chaotic(live(100, 30), true);
    let killed = vec![Effect::Act(Verb::Kill, samples::name("coord-1"))];
    assert_eq!(acts(armed(), "j\x0by").0, killed);
    assert_eq!(acts(armed(), "j\n\x0by").0, killed, "from the pane about it");
    assert_eq!(acts(armed(), "j\x14y").0, [Effect::Act(Verb::Stop, samples::name("coord-1"))]);
    for (model, keys, why) in [
        (chaotic(live(100, 30), false), "j\x0b", "--arm"),
        (armed(), "\x0b", "nothing is selected"),
        (armed(), "j\x0bn", "not touched"),
        (armed(), "j\x0b\n", "not touched"),
        (armed(), "j\x15", "already running"),
        (armed(), "j \x0b", "resumes live"),
        (armed(), "2j\x0b", "on screen 1"),
        (chaotic(replayed(100, 30), true), "j\x0b", "recording"),
    ] {
        let (effects, note) = acts(model, keys);
        assert!(effects.is_empty() && note.contains(why), "{keys:?}: {note}");
    }
    let mut asked = with(armed(), "j\x0b");
    assert!(text(&asked).contains("Kill coord-1 at once (SIGKILL) of cluster default? y/N"));
    for x in 0..100 {
        asked.reduce(Event::Mouse(Mouse::Click(x, 29)), &mut Vec::new());
    }
    assert!(matches!(asked.mode, Mode::Confirm { .. }), "a click answers nothing");
}
