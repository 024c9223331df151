//! Clients of Redis with their defaults, as people have them: `.ci/clients` installs them in a folder, which
//! `OBOL_CLIENTS` names. Their programs are in `clients/`.

use crate::support::{Root, until};
use obol_checks::skipped;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

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

/// The programs in `clients/`, and the list for those that take any command.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/clients");
/// The page with all commands, which a test of the front keeps as its tables are.
const PAGE: &str = include_str!("../docs/redis.md");

/// The commands of the page.
fn commands() -> BTreeSet<String> {
    let (_, table) = PAGE.split_once("| command | arguments | by |\n|---|---|---|\n").expect("the table");
    let rows = table.lines().take_while(|row| row.starts_with("| "));
    rows.filter_map(|row| row.split('|').nth(1)).map(|name| name.trim().to_owned()).collect()
}

/// Stands between clients and a server, and notes the names of the commands that it passes on.
struct Witness {
    port: u16,
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl Witness {
    /// Threads end with their connections, and the one that accepts them with the process.
    fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let names: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let noted = Arc::clone(&names);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let server = TcpStream::connect(("127.0.0.1", server)).expect("the server");
                let back = (server.try_clone().expect("it is open"), client.try_clone().expect("it is open"));
                std::thread::spawn(move || pass_on(back.0, back.1, |_| ()));
                let noted = Arc::clone(&noted);
                let mut unread = Vec::new();
                let note = move |bytes: &[u8]| {
                    unread.extend_from_slice(bytes);
                    while let Some((name, len)) = first_command(&unread) {
                        noted.lock().expect("no panic").insert(name);
                        unread.drain(..len);
                    }
                };
                std::thread::spawn(move || pass_on(client, server, note));
            }
        });
        Self { port, names }
    }

    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *self.names.lock().expect("no panic"))
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        // Before the reply can be there, after which the client may end.
        note(&buffer[..len]);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    // An error says that the other side has ended it first.
    let _ = to.shutdown(Shutdown::Write);
}

/// The name of a first command, an array of strings, and its bytes; `None` if it is not whole.
fn first_command(bytes: &[u8]) -> Option<(String, usize)> {
    let (mut at, mut name) = (0, None);
    let line = |at: &mut usize, kind: u8| -> Option<usize> {
        let end = *at + bytes.get(*at..)?.windows(2).position(|two| two == b"\r\n")?;
        assert_eq!(bytes[*at], kind, "clients send arrays of strings");
        let number = std::str::from_utf8(&bytes[*at + 1..end]).ok()?.parse().expect("a number");
        *at = end + 2;
        Some(number)
    };
    for _ in 0..line(&mut at, b'*')? {
        let len = line(&mut at, b'$')?;
        let text = bytes.get(at..at + len)?;
        name.get_or_insert_with(|| String::from_utf8_lossy(text).to_uppercase());
        at += len + 2;
    }
    Some((name?, at)).filter(|(_, len)| *len <= bytes.len())
}

#[test]
fn clients_of_four_languages_work_with_their_defaults() {
    let script = |program: &str, path: &str| {
        let mut command = Command::new(program);
        command.arg(format!("{PROGRAMS}/{path}"));
        command
    };
    let python = program("redis-py", "bin/python")
        .map(|python| ("redis-py", script(&python.to_string_lossy(), "redis_py.py")));
    let node = |name, package, path| {
        let package = program(name, package)?;
        let mut command = script("node", path);
        command.env("NODE_PATH", package.parent().expect("a folder"));
        Some((name, command))
    };
    let any = |name, path| program(name, path).map(|program| (name, Command::new(program)));
    let clients = [
        python,
        node("node-redis", "node_modules/redis", "node_redis.cjs"),
        node("ioredis", "node_modules/ioredis", "ioredis.cjs"),
        any("redigo", "redigo"),
        any("redis-rs", "rust/debug/redis-client"),
    ];
    if clients.iter().all(Option::is_none) {
        // One of them may be missing, but not all: no list allows this.
        return skipped("redis-clients", "no client of Redis is there");
    }
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let port = free_port();
    let mut replica = serve(&root, port);
    until("it serves", || root.run(&["smr", "put", "a", "1"]).code == Some(0));
    assert_eq!(root.run(&["smr", "delete", "a"]).code, Some(0));
    let witness = Witness::before(port);
    for (what, mut command) in clients.into_iter().flatten() {
        is_done(what, command.arg(witness.port.to_string()).arg(format!("{PROGRAMS}/commands")));
        let called = witness.take();
        let missing: Vec<String> = commands().difference(&called).cloned().collect();
        assert!(missing.is_empty(), "{what} calls no {missing:?} of docs/redis.md: add them to its program");
    }
    scan_by_cli(port);
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

/// `redis-cli --scan` finds what a script has written.
fn scan_by_cli(port: u16) {
    let cli = |args: &[&str]| {
        let ran = Command::new("redis-cli").args(["-p", &port.to_string()]).args(args).output();
        let ran = ran.expect("redis-cli (package redis-tools)");
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let names: Vec<String> = (0..200).map(|n| format!("cli:{n:03}")).collect();
    let pairs = names.iter().flat_map(|name| [name.as_str(), "v"]);
    assert_eq!(cli(&[&["MSET", "other", "v"][..], &pairs.collect::<Vec<_>>()].concat()), "OK\n");
    let said = cli(&["--scan", "--pattern", "cli:*"]);
    let mut found: Vec<&str> = said.lines().collect();
    found.sort_unstable();
    assert_eq!(found, names);
}
