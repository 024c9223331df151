//! What crashed, came twice, or belongs to another version: nothing that runs is disturbed, and
//! what is left behind can be replaced and removed.

use crate::support::small::Small;
use crate::support::{Root, Up, freeze, has_ended, private, signal, until};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

/// Where the layout version lies in a table and in a region: behind the magic.
const VERSION_AT: u64 = 8;

/// Changes the layout version that a file says it has.
fn set_version(path: &Path, version: u8) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("it is there");
    file.write_at(&[version], VERSION_AT).expect("written");
}

fn version(path: &Path) -> u8 {
    fs::read(path).expect("it is there")[VERSION_AT as usize]
}

#[test]
fn a_second_up_is_refused_and_disturbs_nothing() {
    let (root, mut up) = Root::with_cluster(&["--apps", "1"]);
    let before = root.healthy().pids();
    root.begin(&["--apps", "1"]).end().refused(&[
        "cluster default runs already",
        "obol down",
        "--cluster NAME",
    ]);
    assert!(up.runs());
    assert_eq!(root.healthy().pids(), before);
    root.run(&["down"]).ends(0);
    up.end().well();
    root.is_gone();
}

#[test]
fn of_two_ups_at_once_one_has_the_cluster_to_itself() {
    let root = Root::new();
    for _ in 0..5 {
        let mut ups = [(); 4].map(|()| root.begin(&["--coordinators", "1", "--apps", "1"]));
        // One that came late would find the place empty.
        until("all but one have ended", || {
            ups.iter_mut().map(|up| usize::from(up.runs())).sum::<usize>() == 1
        });
        root.healthy();
        root.run(&["down"]).ends(0);
        let ended = ups.map(Up::end);
        let (won, lost): (Vec<_>, Vec<_>) = ended.into_iter().partition(|end| end.status.success());
        assert_eq!(won.len(), 1, "{won:?}");
        lost.iter().for_each(|end| end.refused(&["cluster default runs already"]));
        root.is_gone();
    }
}

#[test]
fn an_up_that_is_killed_takes_its_processes_with_it_and_the_next_one_replaces_it() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let all: Vec<i64> = root.processes().into_keys().collect();
    signal("KILL", &[up.pid()]);
    until("no process outlives its supervisor", || all.iter().all(|pid| has_ended(*pid)));
    assert_eq!(root.status().code, Some(2));
    let next = root.up(&["--apps", "1"]);
    root.run(&["down"]).ends(0);
    let said = next.end().well().err;
    assert!(said.contains("what a crashed cluster left behind"), "{said}");
    root.is_gone();
}

#[test]
fn a_server_that_was_started_by_hand_ends_with_its_cluster() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    let mut server = root.command(&["smr", "server", "--name", "smr-1"]).spawn().expect("it starts");
    root.until("it is a member", |status| status.is_active("smr-1"));
    signal("INT", &[up.pid()]);
    up.end().well();
    assert!(server.try_wait().expect("a child").is_some(), "it has ended before its memory is gone");
    root.is_gone();
}

#[test]
fn down_removes_what_a_crash_left_behind() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    root.crash();
    let unreachable = root.run(&["status"]).ends(2).out;
    assert!(unreachable.contains("unreachable") && unreachable.contains("obol down"), "{unreachable}");
    root.run(&["start", "app-1"]).refused(&["no `obol up` supervises this cluster"]);
    root.run(&["drill", "app"]).ends(2);
    root.run(&["down"]).ends(0);
    root.is_gone();
}

#[test]
fn down_ends_processes_whose_supervisor_hangs() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    freeze(up.pid());
    let said = root.run(&["down"]).ends(0).err;
    assert!(said.contains("killing its processes"), "{said}");
    assert!(!root.path().exists());
    // Once it wakes, it ends, and takes nothing of the next cluster with it.
    let _next = root.up(&["--coordinators", "1", "--apps", "1"]);
    let before = root.healthy().pids();
    signal("CONT", &[up.pid()]);
    up.end().well();
    assert_eq!(root.healthy().pids(), before);
}

#[test]
fn an_up_whose_directory_is_removed_says_so_and_ends() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    fs::remove_dir_all(root.path()).expect("removed");
    let said = up.end().well().err;
    assert!(said.contains("the directory of cluster default was removed; ending"), "{said}");
    root.is_gone();
}

#[test]
fn what_a_crash_left_behind_can_be_replaced_while_it_still_dies() {
    let root = Root::new();
    for _ in 0..5 {
        let up = root.up(&["--coordinators", "1", "--apps", "1"]);
        signal("KILL", &[up.pid()]);
        root.up(&["--coordinators", "1", "--apps", "1"]);
        root.run(&["down"]).ends(0);
    }
}

#[test]
fn a_directory_without_a_table_is_used_and_removed() {
    let root = Root::new();
    let dir = root.cluster();
    private(&dir);
    fs::write(dir.join("table.1"), b"half").expect("written");
    root.run(&["status"]).refused(&["no cluster default in"]);
    root.run(&["down"]).ends(0);
    root.is_gone();
    private(&dir);
    fs::write(dir.join("table.1"), b"half").expect("written");
    let ended = root.begin(&["--coordinators", "1", "--apps", "1", "--for", "1ms"]).end();
    // In a millisecond hardly anything comes up.
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{ended:?}");
    root.is_gone();
}

#[test]
fn a_directory_that_others_can_reach_is_refused_and_stays() {
    let root = Root::new();
    DirBuilder::new().mode(0o755).create(root.path()).expect("made");
    for command in ["up", "status", "down"] {
        DirBuilder::new().recursive(true).mode(0o755).create(root.cluster()).expect("made");
        root.run(&[command]).refused(&["open to other users (mode 755, not 700)"]);
        assert!(root.cluster().exists(), "{command}");
    }
}

#[test]
fn a_table_of_another_version_is_refused_by_all_and_removed_by_down() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    root.crash();
    let table = root.cluster().join("table");
    set_version(&table, version(&table) + 1);
    let words = ["table has layout version", "this program has"];
    for command in
        [&["status"][..], &["up"], &["events"], &["kill", "app-1"], &["start", "app-1"], &["drill", "app"]]
    {
        root.run(command).refused(&words);
        assert!(table.exists(), "{command:?}");
    }
    let json = root.status();
    assert!(json.code == Some(2) && json.reasons().contains("layout version"), "{json:?}");
    let said = root.run(&["down"]).ends(0).err;
    assert!(said.contains("removing its files"), "{said}");
    root.is_gone();
}

#[test]
fn a_running_cluster_of_another_version_is_not_disturbed_by_up_and_ended_by_down() {
    let (root, mut up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let before = root.processes().len();
    let table = root.cluster().join("table");
    set_version(&table, version(&table) + 1);
    root.run(&["up"]).refused(&["cluster default runs already"]);
    assert!(up.runs() && table.exists());
    assert_eq!(root.processes().len(), before);
    root.run(&["down"]).ends(0);
    up.end().well();
    root.is_gone();
}

#[test]
fn a_coordinator_does_not_touch_a_region_of_another_version() {
    let (root, up) = Root::with_cluster(&["--apps", "1"]);
    root.run(&["kill", "coord-3"]).ends(0);
    up.until_view("coord-3 is removed", |view| view["members"] == 4);
    let region = root.cluster().join("region-3");
    let right = version(&region);
    set_version(&region, right + 1);
    let said = root.run(&["start", "coord-3"]).ends(1).err;
    assert!(
        said.contains("coord-3 ended at once: ") && said.contains("region-3 has layout version"),
        "{said}"
    );
    let runs = || root.processes().values().any(|command| command.contains("coordinator run --number 3"));
    until("coord-3 has given up", || !runs());
    let refused = root.status();
    assert!(refused.code == Some(1) && refused.reasons().contains("coord-3 down"), "{refused:?}");
    set_version(&region, right);
    root.run(&["start", "coord-3"]).ends(0);
    root.healthy();
    root.run(&["down"]).ends(0);
    let said = up.end().well().err;
    assert!(said.contains("region-3 has layout version"), "{said}");
}

#[test]
fn a_full_file_system_is_named_and_nothing_is_left_on_it() {
    for (size, code) in [("8k", 2), ("4m", 1)] {
        let root = Root::new();
        let Some(_small) = Small::mount(root.path(), size) else { return };
        // With 4 MiB there is room for some of the regions.
        let ended = root.begin(&["--for", "1s"]).end();
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert!(ended.err.contains("no room for the") && ended.err.contains("free space there"), "{ended:?}");
        assert!(root.processes().is_empty());
        assert_eq!(fs::read_dir(root.path()).expect("mounted").count(), 0);
    }
}
