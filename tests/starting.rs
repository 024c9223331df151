//! How a cluster begins and ends when something is in the way: what `up`, `start` and `down` say,
//! and what they leave alone.

use crate::support::{Ran, Root, freeze, obol, programs, signal, under_limit, until};
use serde_json::json;
use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// An address of a block that is for documents only (RFC 5737): no device has it.
const NOBODYS: &str = "192.0.2.1";

const SMALL: [&str; 4] = ["--coordinators", "1", "--apps", "1"];

#[test]
fn a_process_that_is_started_later_and_fails_does_not_end_a_cluster_that_begins() {
    let root = Root::new();
    let up = root.begin(&["--apps", "1"]);
    root.healthy();
    let obstacle = root.cluster().join("region-4");
    std::fs::create_dir(&obstacle).expect("made");
    root.run(&["start", "coord-4"]).ends(1);
    up.until_up();
    std::fs::remove_dir(&obstacle).expect("removed");
}

#[test]
fn a_fabric_that_can_not_start_ends_up_with_one_message() {
    for how in ["--headless", "--plain", "--json"] {
        let root = Root::new();
        let ended = root.run(&["up", how, "--rdma", NOBODYS]).ends(1);
        assert_eq!(ended.err.matches("did not come up").count(), 1, "{}", ended.err);
        let [first, reason @ ..] = &ended.err.lines().collect::<Vec<_>>()[..] else { panic!("it says why") };
        assert_eq!(*first, "obol: cluster default did not come up:");
        // All fail for one reason, which stands there once; a demo app may not have got that far.
        assert!(
            reason.iter().any(|line| line.contains("coord-1, coord-2, coord-3, node-1, node-2, node-3: ")),
            "{}",
            ended.err
        );
        root.is_gone();
    }
}

fn limited(root: &Root, limit: &str) -> Ran {
    under_limit(limit, &root.command(&["up", "--headless", "--for", "10s"]))
}

#[test]
fn an_up_that_may_not_open_its_files_says_so_and_leaves_nothing() {
    for files in [6, 7, 8, 10, 13, 15] {
        let root = Root::new();
        let ended = limited(&root, &format!("-n {files}"));
        assert!(
            ended.code.is_some_and(|code| code != 0) && ended.err.contains("Too many open files"),
            "{files}: {}",
            ended.err
        );
        root.is_gone();
    }
}

#[test]
fn a_file_size_limit_refuses_a_cluster_and_a_command_with_a_reason() {
    let root = Root::new();
    let ended = limited(&root, "-f 8");
    assert!(ended.code.is_some_and(|code| code != 0) && ended.err.contains("(ulimit -f)"), "{ended:?}");
    root.is_gone();
    let _up = root.up(&SMALL);
    let file = root.path().join("cut.obolrec");
    let record = ["record", file.to_str().expect("text"), "--for", "1s"];
    let ended = under_limit("-f 0", &root.command(&record));
    assert!(ended.code.is_some_and(|code| code != 0) && !file.exists(), "{ended:?}");
    root.run(&record).ends(0);
    let set = under_limit("-f 8", &root.command(&["lease", "set", "30ms"]));
    assert!(set.code.is_some_and(|code| code != 0) && set.err.contains("(ulimit -f)"), "{set:?}");
    root.healthy();
}

#[test]
fn start_tells_why_a_process_died_at_once() {
    let (root, _up) = Root::with_cluster(&SMALL);
    root.run(&["kill", "coord-1"]).ends(0);
    fs::write(root.cluster().join("recovered-view"), b"damaged").expect("written");
    let said = root.run(&["start", "coord-1"]).ends(1).err;
    assert!(said.contains("coord-1 ended at once: ") && said.contains("recovered-view"), "{said}");
    fs::remove_file(root.cluster().join("recovered-view")).expect("removed");
    root.run(&["start", "coord-1"]).ends(0);
    root.healthy();
}

#[test]
fn start_does_not_wait_for_an_up_that_is_stopped() {
    let (root, up) = Root::with_cluster(&SMALL);
    root.run(&["kill", "app-1"]).ends(0);
    freeze(up.pid());
    root.run(&["start", "app-1"]).refused(&["is stopped by a signal", &format!("kill -CONT {}", up.pid())]);
    signal("CONT", &[up.pid()]);
    root.run(&["start", "app-1"]);
    root.healthy();
}

#[test]
fn down_says_what_it_waits_for_and_for_how_long() {
    let (root, _up) = Root::with_cluster(&SMALL);
    root.crash();
    // As an `up` that hangs before it listens, or while it ends.
    let held = File::open(root.cluster()).expect("it is there");
    held.lock().expect("locked");
    let said = root.run(&["down"]).ends(0).err;
    assert!(said.contains("waiting for an `obol up` that holds") && said.contains(" s at most"), "{said}");
    root.is_gone();
}

fn directory(path: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(path).expect("made");
}

#[test]
fn a_directory_of_others_is_neither_used_nor_removed() {
    let root = Root::new();
    let own = root.cluster().join("thesis");
    directory(&root.cluster());
    fs::write(&own, b"of years").expect("written");
    root.begin(&SMALL).end().refused(&["was not made by obol", "thesis", "choose another directory"]);
    root.run(&["down"]).refused(&["was not made by obol", "thesis"]);
    assert_eq!(fs::read(&own).expect("it stays"), b"of years");
    // One that is empty can be used; it stays, and so does the root.
    fs::remove_file(&own).expect("removed");
    let up = root.up(&SMALL);
    let said = root.run(&["down"]).ends(0).err;
    assert!(said.contains("was not made by obol and stays"), "{said}");
    up.end().well();
    assert_eq!(fs::read_dir(root.cluster()).expect("it stays").count(), 0);
    // What is made in such a root goes, the root does not.
    fs::remove_dir(root.cluster()).expect("removed");
    let up = root.up(&SMALL);
    root.run(&["down"]).ends(0);
    up.end().well();
    assert_eq!(fs::read_dir(root.path()).expect("it stays").count(), 0);
}

/// Set in the process that asks as another user.
const SOCKET: &str = "OBOL_TEST_SOCKET";
/// A user that owns nothing.
const NOBODY: u32 = 65_534;

#[test]
fn an_up_serves_its_own_user_and_root_whatever_the_mode_of_its_socket() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("it is open to all");
        std::io::Write::write_all(&mut stream, b"{\"do\":\"stop\"}\n").expect("asked");
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).expect("answered");
        assert!(answer.contains("refused") && answer.contains("only the user who runs"), "{answer}");
        return;
    }
    // Only root can become another user; CI's process tests run as root.
    let is_root = Command::new("id").arg("-u").output().expect("id runs").stdout == b"0\n";
    assert!(is_root, "this test has to run as root");
    let (root, mut up) = Root::with_cluster(&SMALL);
    let socket = root.cluster().join("up.sock");
    let opened = [(root.path(), 0o1711), (&root.cluster(), 0o1711), (&socket, 0o777)];
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    opened.iter().for_each(|(path, mode)| open(path, *mode));
    // The program may lie where the other user cannot go.
    let program = std::env::temp_dir().join(format!("obol-asks-{}", std::process::id()));
    programs::copy(&std::env::current_exe().expect("known"), &program);
    let name = "starting::an_up_serves_its_own_user_and_root_whatever_the_mode_of_its_socket";
    let asked =
        Command::new(&program).args(["--exact", name]).env(SOCKET, &socket).uid(NOBODY).gid(NOBODY).output();
    fs::remove_file(&program).expect("removed");
    opened.iter().for_each(|(path, mode)| open(path, *mode & 0o1700));
    let asked = asked.expect("it runs");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stdout));
    assert!(up.runs());
    root.healthy();
}

#[test]
fn coordinators_that_can_not_save_views_are_shown() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "2"]);
    // The file that a view is written to before it has its name cannot be made.
    let obstacle = root.saved(1).with_extension("view.new");
    let _ = fs::remove_file(&obstacle);
    until("there is a directory in its place", || fs::create_dir(&obstacle).is_ok() || obstacle.is_dir());
    root.run(&["stop", "app-2"]).ends(0);
    let shown = |s: &crate::support::Status| s.reasons().contains("coord-1 cannot save views");
    root.until("it is shown", |s| s.code == Some(1) && shown(s));
    fs::remove_dir(&obstacle).expect("removed");
    root.healthy();
}

#[test]
fn each_process_says_its_version() {
    let (root, _up) = Root::with_cluster(&SMALL);
    let status = root.healthy();
    for (name, process) in status.processes() {
        assert_eq!(process["version"], env!("CARGO_PKG_VERSION"), "{name}");
    }
    let text = root.run(&["status"]).out;
    let shown =
        text.lines().filter(|line| line.ends_with(&format!("  {}", env!("CARGO_PKG_VERSION")))).count();
    assert!(text.contains("  VERSION\n") && shown == 3, "{text}");
}

#[test]
fn a_dumb_terminal_gets_no_escape_codes() {
    let root = Root::new();
    let bin = env!("CARGO_BIN_EXE_obol");
    let place = root.path().display();
    let commands = format!(
        "{bin} up --coordinators 1 --apps 1 --for 5s --root {place}; {bin} console --root {place}; {bin} up --apps 0; {bin} --help"
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &commands, "/dev/null"])
        .env("TERM", "dumb")
        .env("CI", "true")
        .env_remove("NO_COLOR");
    let ran = script.stdin(Stdio::null()).output().expect("script, of util-linux, is installed");
    let shown = String::from_utf8_lossy(&ran.stdout);
    assert!(shown.contains("cluster default has ended") && shown.contains("TERM is not dumb"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    drop(Ran::of(obol().args(["down", "--root"]).arg(root.path())));
}

#[test]
fn what_was_done_to_a_process_is_said_for_scripts() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let done = |words: &[&str]| root.run(&[words, &["--json"]].concat()).ends(0).json();
    let first = root.status().incarnation("app-1");
    let killed = done(&["kill", "app-1"]);
    assert_eq!((killed["name"].as_str(), killed["incarnation"].as_u64()), (Some("app-1"), Some(first)));
    assert!(killed.get("left").is_none(), "{killed}");
    let started = done(&["start", "app-1"]);
    assert_eq!((started["name"].as_str(), started["in_place"].as_bool()), (Some("app-1"), Some(true)));
    assert_ne!(started["pid"], killed["pid"]);
    root.healthy();
    let stopped = done(&["stop", "app-1"]);
    assert_eq!((&stopped["pid"], stopped["left"].as_bool()), (&started["pid"], Some(true)));
    assert_eq!(
        done(&["mark", "deploy 1.4"]),
        json!({"cluster": "default", "text": "deploy 1.4", "missed": null})
    );
    assert_eq!(done(&["down"]), json!({"cluster": "default", "kept": null}));
}
