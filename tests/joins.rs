//! A program that crashes as soon as it is a member, again and again: its name waits before it
//! joins, others do not notice, and what waits does not take their seats.

use crate::support::{Root, until, until_or};
use obol_agent::Attached;
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// The arguments of the program that crashes, which is this test program: root, name, and where it
/// says what kept it out.
const ARGUMENTS: &str = "OBOL_TEST_CRASHES";
/// Failures that are free in the profile of this test: of one name, until it waits.
const FREE: u32 = 3;
const SIGABRT: i32 = 6;

/// A program of that name joins and crashes.
fn crashes(root: &Root, name: &str, n: u32) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "joins::the_program_that_crashes", "--ignored", "--nocapture"]);
    command.env(ARGUMENTS, format!("{}\n{name}\n{}", root.path().display(), root.note(n).display()));
    // The harness registers it with the root, so that a test that fails leaves nothing behind.
    command.arg("--skip").arg(root.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

fn signal_of(child: &mut Child) -> Option<i32> {
    let mut status = None;
    until("the program ends", || {
        status = child.try_wait().expect("a child");
        status.is_some()
    });
    status.and_then(|status| status.signal())
}

#[test]
#[ignore = "a program that another test runs"]
fn the_program_that_crashes() {
    let arguments = std::env::var(ARGUMENTS).expect("its arguments");
    let [root, called, note] = arguments.lines().collect::<Vec<_>>()[..] else { panic!("{arguments:?}") };
    let name = |text| Name::new(text).expect("a name");
    let site = Site::open(std::path::Path::new(root), name("default")).expect("the cluster runs");
    let joined = Attached::open(&site, name("node-1"), name(called))
        .and_then(|app| app.join(Nanos::from_secs(60)).map(|_| app));
    match joined {
        Ok(_app) => std::process::abort(),
        Err(error) => std::fs::write(note, error.to_string()).expect("written"),
    }
}

/// What all coordinators have counted.
fn counted(root: &Root, counter: &str) -> u64 {
    let status = root.status();
    let coordinators = status.processes().into_iter().filter(|(name, _)| name.starts_with("coord-"));
    coordinators.filter_map(|(_, process)| process["counters"][counter].as_u64()).sum()
}

fn held_events(root: &Root) -> Vec<serde_json::Value> {
    root.events().into_iter().filter(|event| event["event"] == "join_held_back").collect()
}

#[test]
fn a_program_that_crashes_again_and_again_waits_takes_no_seats_and_others_act_on() {
    let root = Root::new();
    let _up = root.up_with(&["--apps", "2"], |profile| {
        profile.timing.join_burst = FREE;
        profile.timing.join_window = Nanos::from_secs(60);
        profile.timing.join_hold = Nanos::from_secs(8);
        profile.timing.join_hold_max = Nanos::from_secs(20);
    });
    let before = root.healthy();
    for n in 0..=FREE {
        let mut child = crashes(&root, "looper", n);
        assert_eq!(signal_of(&mut child), Some(SIGABRT), "{:?}", std::fs::read_to_string(root.note(n)));
    }
    until("the last one is removed", || counted(&root, "joins_held_back") == 1);
    assert_eq!(held_events(&root).len(), 1, "recorders and counters agree");
    assert_eq!(
        counted(&root, "failures"),
        u64::from(FREE) + 1,
        "and so do the crashes that this test has seen"
    );

    let mut waits = crashes(&root, "looper", 10);
    let waiting = root.until("one waits", |status| {
        status
            .processes()
            .get("looper")
            .is_some_and(|p| p["alive"] == true && p["held_back_us"].as_f64() > Some(0.0))
    });
    let warnings = waiting.json["warnings"].to_string();
    assert!(warnings.contains("join of looper on hold for "), "{warnings}");
    let text = root.run(&["status"]).out;
    assert!(text.contains("on hold"), "{text}");
    for app in ["app-1", "app-2"] {
        assert_eq!(waiting.incarnation(app), before.incarnation(app), "{app} is who it was");
    }
    // More than there are seats. The one that waits has the name.
    for n in 20..32 {
        let mut refused = crashes(&root, "looper", n);
        assert_eq!(signal_of(&mut refused), None, "it ends by itself");
        let said = until_or("it says why", || std::fs::read_to_string(root.note(n)).ok(), String::new);
        if !said.contains("looper runs already (pid ") {
            // The first may be a member by now, on a busy machine.
            assert!(waits.try_wait().expect("a child").is_some(), "{said}");
            break;
        }
    }
    let mut other = crashes(&root, "another", 40);
    assert_eq!(
        signal_of(&mut other),
        Some(SIGABRT),
        "another name joins: {:?}",
        std::fs::read_to_string(root.note(40))
    );
    assert_eq!(signal_of(&mut waits), Some(SIGABRT), "who waited was admitted, and crashed");
    until("and its name waits again, for longer", || counted(&root, "joins_held_back") == 2);
    let holds: Vec<f64> =
        held_events(&root).iter().map(|event| event["hold_us"].as_f64().expect("a time")).collect();
    assert_eq!(holds, [8e6, 16e6]);
    assert!(root.run(&["events"]).out.contains("on hold for 16.0s"), "{}", root.run(&["events"]).out);
    root.until("others act", |status| status.is_active("app-1") && status.is_active("app-2"));
}
