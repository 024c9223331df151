//! The C interface as a C program uses it: installed, compiled against the header, run at a
//! cluster's agent.

use crate::support::{Ran, Root, until};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi");

const EXAMPLE: &str = "capi/examples/cache.c";

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
        let mut command = Command::new(program);
        command.arg(name).arg(root.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
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
