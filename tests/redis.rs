//! Clients of Redis with their defaults, as people have them: `.ci/clients` installs them in a folder, which
//! `OBOL_CLIENTS` names. Their programs are in `clients/`.

use crate::support::{Root, until};
use obol_checks::skipped;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A program with the clients; `None` if they are not installed.
fn program(check: &str, path: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("OBOL_CLIENTS").map(PathBuf::from) else {
        skipped(check, "OBOL_CLIENTS names no folder with clients of Redis");
        return None;
    };
    let found = folder.join(path);
    if !found.exists() {
        skipped(check, format_args!("{} is not there", found.display()));
        return None;
    }
    Some(found)
}

fn free_port() -> u16 {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr());
    taken.expect("a port").port()
}

fn serve(root: &Root, port: u16) -> Child {
    let resp = format!("127.0.0.1:{port}");
    let mut command = root.command(&["smr", "server", "--name", "smr-1", "--voters", "1", "--resp", &resp]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it starts")
}

fn is_done(what: &str, command: &mut Command) {
    let ran = command.output().unwrap_or_else(|error| panic!("{what}: {error}"));
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("done"), "{what}: {ran:?}");
}

/// The programs in `clients/`.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/clients");

#[test]
fn clients_of_four_languages_work_with_their_defaults() {
    let python = program("redis-py", "bin/python").map(|python| {
        let mut command = Command::new(python);
        command.arg(format!("{PROGRAMS}/redis_py.py"));
        ("redis-py", command)
    });
    let node = program("node-redis", "node_modules/redis").map(|package| {
        let mut command = Command::new("node");
        let modules = package.parent().expect("a folder").to_owned();
        command.arg(format!("{PROGRAMS}/node.cjs")).env("NODE_PATH", modules);
        ("node-redis, ioredis", command)
    });
    let redigo = program("redigo", "redigo").map(|program| ("redigo", Command::new(program)));
    let rust =
        program("redis-rs", "rust/debug/redis-client").map(|program| ("redis-rs", Command::new(program)));
    let mut clients: Vec<_> = [python, node, redigo, rust].into_iter().flatten().collect();
    if clients.is_empty() {
        return;
    }
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let port = free_port();
    let mut replica = serve(&root, port);
    until("it serves", || root.run(&["smr", "put", "a", "1"]).code == Some(0));
    for (what, command) in &mut clients {
        is_done(what, command.arg(port.to_string()));
    }
    // As people try a store: short values in pipelines, and long ones.
    for args in [
        &["-t", "ping,set,get,incr,mset", "-n", "2000", "-P", "4"][..],
        &["-t", "set,get", "-n", "40", "-d", "100000"],
    ] {
        let mut command = Command::new("redis-benchmark");
        let ran = command.args(["-p", &port.to_string(), "-q", "-c", "4"]).args(args).output();
        let ran = ran.expect("redis-benchmark (package redis-tools)");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("GET: ") && !said.contains("rror"), "{ran:?}");
    }
    assert_eq!(root.run(&["stop", "smr-1"]).code, Some(0));
    assert_eq!(replica.wait().expect("a child").code(), Some(0));
}
