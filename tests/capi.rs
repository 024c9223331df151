//! The C interface as a C program uses it: installed, compiled against the header, run at a
//! cluster's agent.

use crate::support::{Ran, Root, until};
use obol_checks::skipped;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");

const EXAMPLE: &str = "capi/examples/cache.c";

const STOCK: &str = "capi/examples/stock.c";

/// `capi/install` into a directory that the test has for itself.
pub(crate) fn install(root: &Root) -> PathBuf {
    let prefix = root.note("prefix");
    let built = Path::new(env!("CARGO_BIN_EXE_obol")).with_file_name("deps");
    Ran::of(Command::new(format!("{HERE}/install")).arg(&prefix).arg(&built)).ends(0);
    prefix
}

/// What `pkg-config` says of the installed library.
pub(crate) fn flags(prefix: &Path, ask: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.args(ask).arg("obol").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    Ran::of(&mut command).ends(0).out.split_whitespace().map(str::to_owned).collect()
}

pub(crate) fn compile(prefix: &Path, source: &str, program: &str, link: &[String]) -> PathBuf {
    let made = prefix.join(program);
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]);
    command.arg(format!("{HERE}/../{source}")).args(link).arg("-o").arg(&made);
    Ran::of(&mut command).ends(0);
    made
}

#[test]
fn a_program_in_c_joins_serves_sees_a_death_and_leaves() {
    let root = Root::new();
    let prefix = install(&root);
    let shared = compile(&prefix, EXAMPLE, "shared", &flags(&prefix, &["--cflags", "--libs"]));
    let archive = prefix.join("lib/libobol.a").display().to_string();
    let mut whole = flags(&prefix, &["--cflags"]);
    whole.push(archive);
    whole.extend(flags(&prefix, &["--libs-only-l", "--static"]).into_iter().filter(|flag| flag != "-lobol"));
    let fixed = compile(&prefix, EXAMPLE, "static", &whole);
    let _up = root.up(&["--apps", "2"]);
    let run = |program: &Path, victim: &str| {
        let mut command = Command::new(program);
        command.args(["node-1", "guest"]).arg(root.path()).env_remove("LD_LIBRARY_PATH");
        let path = prefix.join("said");
        command.stdout(std::fs::File::create(&path).expect("a file"));
        let said = || std::fs::read_to_string(&path).expect("text");
        let mut guest = command.spawn().expect("it starts");
        // It says so once it counts failures: one before that would not be counted.
        until("the guest serves", || said().contains("\nview "));
        until("its status says so", || root.status().is_active("guest"));
        let second = Ran::of(Command::new(program).args(["node-1", "guest"]).arg(root.path())).ends(1).err;
        let why = format!("guest runs already (pid {}), and a name belongs to one live process", guest.id());
        assert_eq!(second.trim_end(), format!("attach: {why}"));
        root.run(&["kill", victim]).ends(0);
        until("the guest ends", || guest.try_wait().expect("its status").is_some());
        assert!(guest.wait().expect("its status").success(), "{}", said());
        assert!(said().starts_with("member ") && said().contains(" failed\n"), "{}", said());
        root.run(&["start", victim]).ends(0);
        root.healthy();
    };
    run(&shared, "app-2");
    run(&fixed, "node-2");
    let missing = Ran::of(Command::new(&fixed).args(["node-9", "guest"]).arg(root.path())).ends(1).err;
    assert!(missing.starts_with("attach: ") && missing.contains("node-9"), "{missing}");
    let by_environment = |cluster: &str| {
        let mut command = Command::new(&fixed);
        command.args(["node-9", "guest"]).env("OBOL_ROOT", root.path()).env("OBOL_CLUSTER", cluster);
        Ran::of(&mut command).ends(1).err
    };
    assert_eq!(by_environment("default"), missing);
    let elsewhere = by_environment("another");
    assert!(
        elsewhere.contains("another") && elsewhere.contains(&root.path().display().to_string()),
        "{elsewhere}"
    );
    std::fs::remove_dir_all(&prefix).expect("removed");
}

/// A program in C with a replica, which answers each line that it is given.
struct Replica {
    child: Child,
    requests: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Replica {
    fn start(program: &Path, root: &Root, name: &str) -> Self {
        Self::start_with(program, root, name, &[])
    }

    fn start_with(program: &Path, root: &Root, name: &str, words: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.arg(name).arg(root.path()).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let (requests, replies) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, requests, replies: BufReader::new(replies) }
    }

    fn ask(&mut self, request: &str) -> u64 {
        writeln!(self.requests, "{request}").expect("it reads");
        let mut reply = String::new();
        self.replies.read_line(&mut reply).expect("it answers");
        reply.trim().parse().unwrap_or_else(|_| panic!("{request}: {reply:?}"))
    }
}

#[test]
fn a_service_in_c_is_replicated_and_survives_its_leader() {
    let root = Root::new();
    let prefix = install(&root);
    let program =
        compile(&prefix, "capi/examples/tickets.c", "tickets", &flags(&prefix, &["--cflags", "--libs"]));
    let refused = |words: &[&str]| Ran::of(Command::new(&program).args(words).arg(root.path())).ends(1).err;
    assert!(refused(&["smr-1"]).contains("open: "), "there is no cluster yet");
    let _up = root.up(&["--apps", "1"]);
    assert!(refused(&["replica-1"]).contains("begins with `smr-`"));
    assert!(refused(&["smr-a-name-that-is-long"]).contains("a shorter name of the replica is needed"));
    let mut first = Replica::start(&program, &root, "smr-1");
    assert_eq!(first.ask("take 2"), 2);
    let second = refused(&["smr-1"]);
    assert!(second.contains(&format!("open: smr-1 runs already (pid {})", first.child.id())), "{second}");
    let mut others = ["smr-2", "smr-3"].map(|name| {
        let replica = Replica::start(&program, &root, name);
        root.until("it is a member", |status| status.is_active(name));
        replica
    });
    until("all have everything", || first.ask("copies") == 3);
    assert_eq!(others[0].ask("take 3"), 5);
    assert_eq!(others[1].ask("look"), 5);
    root.run(&["kill", "smr-1"]).ends(0);
    assert!(!first.child.wait().expect("its status").success());
    assert_eq!(others[1].ask("take 1"), 6);
    assert_eq!(others[0].ask("look"), 6);
    // It has no state, and gets it from another one.
    let mut again = Replica::start(&program, &root, "smr-1");
    assert_eq!(again.ask("look"), 6);
    for mut replica in others.into_iter().chain([again]) {
        drop(replica.requests);
        assert!(replica.child.wait().expect("its status").success());
    }
    std::fs::remove_dir_all(&prefix).expect("removed");
}

#[test]
fn a_leader_of_two_that_is_closed_leaves_its_state_to_the_other_one() {
    let root = Root::new();
    let prefix = install(&root);
    let program =
        compile(&prefix, "capi/examples/tickets.c", "tickets", &flags(&prefix, &["--cflags", "--libs"]));
    let _up = root.up(&["--apps", "1"]);
    let mut first = Replica::start(&program, &root, "smr-1");
    assert_eq!(first.ask("take 3"), 3);
    let mut second = Replica::start(&program, &root, "smr-2");
    until("both have everything", || first.ask("copies") == 2);
    // The end of its requests closes it.
    drop(first.requests);
    assert!(first.child.wait().expect("its status").success());
    assert_eq!([second.ask("look"), second.ask("take 1"), second.ask("copies")], [3, 4, 1]);
    drop(second.requests);
    assert!(second.child.wait().expect("its status").success());
    std::fs::remove_dir_all(&prefix).expect("removed");
}

#[test]
fn a_service_in_c_begins_an_empty_state_where_that_is_asked_for_and_none_has_one() {
    let root = Root::new();
    let prefix = install(&root);
    let program =
        compile(&prefix, "capi/examples/tickets.c", "tickets", &flags(&prefix, &["--cflags", "--libs"]));
    let _up = root.up(&["--apps", "1"]);
    let start = |name: &str, words: &[&str]| Replica::start_with(&program, &root, name, words);
    let mut first = start("smr-1", &[]);
    assert_eq!(first.ask("take 2"), 2);
    let mut second = start("smr-2", &["empty"]);
    assert_eq!(second.ask("look"), 2, "it takes the state that is there");
    for mut replica in [first, second] {
        replica.child.kill().expect("it runs");
        replica.child.wait().expect("its status");
    }
    root.until("both are out", |status| ["smr-1", "smr-2"].iter().all(|name| !status.is_active(name)));
    // One that was not told waits for the state.
    let mut waits = start("smr-1", &[]);
    until("it waits", || root.run(&["smr", "status"]).out.contains("waits for a replica that has the log"));
    drop(waits.requests);
    assert!(waits.child.wait().expect("its status").success());
    let mut anew = start("smr-1", &["empty"]);
    assert_eq!(anew.ask("take 1"), 1);
    let mut other = start("smr-2", &[]);
    assert_eq!(other.ask("look"), 1);
    for mut replica in [other, anew] {
        drop(replica.requests);
        assert!(replica.child.wait().expect("its status").success());
    }
    std::fs::remove_dir_all(&prefix).expect("removed");
}

/// Items of the first, the second, the middle and the last page change while all of them are loaded.
#[test]
fn a_service_in_c_saves_and_loads_its_state_in_parts_while_it_changes() {
    const PAGES: u64 = 4000;
    const ITEMS: u64 = 509;
    let root = Root::new();
    let prefix = install(&root);
    let program = compile(&prefix, STOCK, "stock", &flags(&prefix, &["--cflags", "--libs"]));
    let _up = root.up(&["--apps", "1"]);
    let start = |name: &str| {
        let replica = Replica::start(&program, &root, name);
        root.until("it is a member", |status| status.is_active(name));
        replica
    };
    let mut first = start("smr-1");
    assert_eq!(first.ask(&format!("open {PAGES}")), PAGES);
    // They load 16 MB.
    let mut others = ["smr-2", "smr-3"].map(start);
    let items = [0, ITEMS, PAGES * ITEMS / 2, PAGES * ITEMS - 1];
    let mut added = 0;
    let mut change = |by: &mut Replica| {
        added += 1;
        for item in items {
            assert_eq!(by.ask(&format!("add {item} 1")), item + added);
        }
    };
    until("all have everything", || {
        change(&mut first);
        first.ask("copies") == 3
    });
    root.run(&["kill", "smr-1"]).ends(0);
    assert!(!first.child.wait().expect("its status").success());
    change(&mut others[0]);
    let mut again = Replica::start(&program, &root, "smr-1");
    until("it has loaded the state", || {
        change(&mut others[0]);
        others.iter_mut().any(|replica| replica.ask("copies") == 3)
    });
    // What it says now is from its own state: it is the only one.
    for mut replica in others {
        drop(replica.requests);
        assert!(replica.child.wait().expect("its status").success());
    }
    for item in items {
        assert_eq!(again.ask(&format!("look {item}")), item + added, "{item}");
    }
    let middle = PAGES / 3 * ITEMS + 100;
    assert_eq!((again.ask(&format!("look {middle}")), again.ask("pages")), (middle, PAGES));
    drop(again.requests);
    assert!(again.child.wait().expect("its status").success());
    std::fs::remove_dir_all(&prefix).expect("removed");
}

#[test]
fn a_service_that_calls_itself_is_refused_at_once_and_a_child_has_no_redundancy() {
    let root = Root::new();
    let prefix = install(&root);
    let program = compile(&prefix, "tests/nested.c", "nested", &flags(&prefix, &["--cflags", "--libs"]));
    let _up = root.up(&["--apps", "1"]);
    let mut command = Command::new(&program);
    command.arg("smr-1").arg(root.path()).stdout(Stdio::piped());
    let mut first = command.spawn().expect("it starts");
    let mut said = BufReader::new(first.stdout.take().expect("piped")).lines();
    let mut line = || said.next().expect("a line").expect("text");
    assert_eq!(line(), "nested 1 1", "it does not wait for itself");
    assert_eq!([line(), line()], ["parent 1", "child 0"]);
    assert_eq!(line(), "waits");
    let proposed = Ran::of(Command::new(&program).arg("smr-2").arg(root.path()).arg("c"));
    assert_eq!(line(), "closed", "{}", proposed.err);
    assert!(first.wait().expect("its status").success());
    std::fs::remove_dir_all(&prefix).expect("removed");
}

/// The parts of the example against a state that is copied at once.
#[test]
fn the_example_in_c_saves_the_state_of_the_begin_of_a_save() {
    let root = Root::new();
    let prefix = install(&root);
    let program = compile(&prefix, "tests/stock.c", "alone", &flags(&prefix, &["--cflags", "--libs"]));
    let said = Ran::of(&mut Command::new(&program)).ends(0).out;
    assert!(said.trim().parse::<u32>().is_ok_and(|saves| saves >= 40), "{said}");
    std::fs::remove_dir_all(&prefix).expect("removed");
}

/// The name of a program that finds errors in the use of memory.
const VALGRIND: &str = "valgrind";

/// A valgrind that does not know all system calls of the library makes it refuse to open anything, with the
/// reason. Whatever it knows, the program does not crash, and makes no error in its memory.
#[test]
fn a_program_with_the_library_makes_no_error_under_valgrind() {
    let found = Command::new(VALGRIND).arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        skipped(VALGRIND, "it is not installed");
        return;
    }
    let root = Root::new();
    let prefix = install(&root);
    let flags = flags(&prefix, &["--cflags", "--libs"]);
    let tickets = compile(&prefix, "capi/examples/tickets.c", "tickets", &flags);
    let cache = compile(&prefix, EXAMPLE, "cache", &flags);
    let stock = compile(&prefix, STOCK, "stock", &flags);
    let alone = compile(&prefix, "tests/stock.c", "alone", &flags);
    let _up = root.up(&["--apps", "1"]);
    const FOUND: i32 = 99;
    let under = |program: &Path, names: &[&str]| {
        let mut command = Command::new(VALGRIND);
        command.args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        command.arg(format!("--error-exitcode={FOUND}")).arg(program).args(names).arg(root.path());
        // Without requests it leaves as soon as it has joined.
        command.stdin(Stdio::null());
        let ran = command.output().expect("it runs");
        (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    for program in [&tickets, &stock] {
        let (code, said) = under(program, &["smr-1"]);
        let refused = code == Some(1) && said.contains("open: ") && said.contains("futex");
        assert!(code == Some(0) || refused, "{code:?}: {said}");
        if refused {
            skipped("valgrind-futex", said);
        }
    }
    let (code, said) = under(&alone, &[]);
    assert_eq!(code, Some(0), "{said}");
    // The agent is not there, which takes clocks, files and errors, and no futex.
    let (code, said) = under(&cache, &["node-9", "guest"]);
    assert!(code == Some(1) && said.contains("attach: "), "{code:?}: {said}");
    std::fs::remove_dir_all(&prefix).expect("removed");
}
