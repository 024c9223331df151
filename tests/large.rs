//! A large store gets another replica while clients write: with real processes, since what takes long on
//! a replica's thread costs it its lease.

use crate::support::{Root, until};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// 256 MB; less where nothing is optimised.
const KEYS: usize = if cfg!(debug_assertions) { 20_000 } else { 284_000 };
const VALUE_BYTES: usize = 900;
/// Commands of a connection on the way.
const PIPELINE: usize = 400;

fn free_port() -> u16 {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr());
    taken.expect("a port").port()
}

fn serve(root: &Root, name: &str, port: u16) -> Child {
    let said = File::create(root.note(name)).expect("a file");
    let resp = format!("127.0.0.1:{port}");
    let mut command = root.command(&["smr", "server", "--name", name, "--json", "--resp", &resp]);
    command.stdin(Stdio::null()).stdout(said).spawn().expect("it starts")
}

/// The value of a key after a number of changes.
fn value(key: usize, changes: u32) -> Vec<u8> {
    format!("{key}/{changes};").into_bytes().into_iter().cycle().take(VALUE_BYTES).collect()
}

struct Client {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
}

impl Client {
    fn of(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        stream.set_nodelay(true).expect("a socket");
        let replies = BufReader::new(stream.try_clone().expect("it is open"));
        Self { stream, replies }
    }

    fn send(&mut self, commands: &[Vec<&[u8]>]) {
        let mut bytes = Vec::new();
        for command in commands {
            bytes.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for arg in command {
                bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
                bytes.extend_from_slice(arg);
                bytes.extend_from_slice(b"\r\n");
            }
        }
        self.stream.write_all(&bytes).expect("it takes commands");
    }

    /// The first line of a reply.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).expect("a reply");
        line.trim_end().to_owned()
    }

    fn bulk(&mut self) -> Vec<u8> {
        let len = self.line().trim_start_matches('$').parse::<usize>().expect("a value");
        let mut bytes = vec![0; len + 2];
        self.replies.read_exact(&mut bytes).expect("all of it");
        bytes.truncate(len);
        bytes
    }

    fn set(&mut self, keys: &[usize], changes: u32) {
        let pairs: Vec<(String, Vec<u8>)> =
            keys.iter().map(|key| (key.to_string(), value(*key, changes))).collect();
        let commands: Vec<Vec<&[u8]>> =
            pairs.iter().map(|(key, value)| vec![b"SET", key.as_bytes(), value]).collect();
        self.send(&commands);
        keys.iter().for_each(|key| assert_eq!(self.line(), "+OK", "{key}"));
    }
}

/// Changes keys, one after the other, until it is told to stop. Returns how often each was changed.
fn change(port: u16, stop: &AtomicBool) -> Vec<u32> {
    let (mut client, mut changes) = (Client::of(port), vec![0; KEYS]);
    for n in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = n.wrapping_mul(7919) % KEYS;
        changes[key] += 1;
        client.set(&[key], changes[key]);
    }
    changes
}

#[test]
fn a_third_replica_of_a_large_store_joins_under_load_and_nobody_is_excluded() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let ports = [free_port(), free_port(), free_port()];
    let mut replicas = vec![serve(&root, "smr-1", ports[0])];
    until("the first serves", || root.run(&["smr", "put", "a", "1"]).code == Some(0));
    replicas.push(serve(&root, "smr-2", ports[1]));
    until("two have everything", || {
        std::fs::read_to_string(root.note("smr-1")).is_ok_and(|said| said.contains("\"redundancy\":2"))
    });
    let mut client = Client::of(ports[0]);
    let keys: Vec<usize> = (0..KEYS).collect();
    keys.chunks(PIPELINE).for_each(|some| client.set(some, 0));

    let members = |names: &[&str]| -> Vec<u64> {
        let status = root.status();
        names.iter().map(|name| status.incarnation(name)).collect()
    };
    let before = members(&["smr-1", "smr-2", "coord-1", "coord-2", "coord-3", "node-1"]);
    let (stop, mut shown, mut joined) = (AtomicBool::new(false), Vec::new(), 0);
    let changes = std::thread::scope(|scope| {
        let load = scope.spawn(|| change(ports[1], &stop));
        replicas.push(serve(&root, "smr-3", ports[2]));
        joined = root.until("it is a member", |status| status.is_active("smr-3")).incarnation("smr-3");
        until("it has everything", || {
            let status = root.run(&["smr", "status", "--json"]).json();
            let replicas = status["replicas"].as_array().expect("a list");
            let third = replicas.iter().find(|replica| replica["name"] == "smr-3");
            shown.extend(third.and_then(|third| third["log"]["loads"]["bytes"].as_u64()));
            status["redundancy"] == 3
        });
        stop.store(true, Ordering::Relaxed);
        load.join().expect("no command is refused")
    });
    let after = members(&["smr-1", "smr-2", "coord-1", "coord-2", "coord-3", "node-1"]);
    assert_eq!((after, members(&["smr-3"])), (before, vec![joined]), "nobody was excluded");
    assert!(shown.is_sorted(), "it loads one snapshot, from its beginning to its end: {shown:?}");
    shown.dedup();
    assert!(shown.len() >= 3 && shown.last() > Some(&((KEYS * VALUE_BYTES / 8) as u64)), "{shown:?}");
    assert!(changes.iter().filter(|changes| **changes > 0).count() > 100, "clients have written meanwhile");

    // What it says alone is its own.
    for (name, replica) in [("smr-1", 0), ("smr-2", 1)] {
        assert_eq!(root.run(&["stop", name]).code, Some(0));
        assert_eq!(replicas[replica].wait().expect("a child").code(), Some(0));
    }
    let mut client = Client::of(ports[2]);
    client.send(&[vec![b"DBSIZE"]]);
    assert_eq!(client.line(), format!(":{}", KEYS + 1));
    for some in keys.chunks(PIPELINE) {
        let names: Vec<String> = some.iter().map(usize::to_string).collect();
        client.send(&names.iter().map(|name| vec![&b"GET"[..], name.as_bytes()]).collect::<Vec<_>>());
        some.iter().for_each(|key| assert!(client.bulk() == value(*key, changes[*key]), "key {key}"));
    }
    assert_eq!(root.run(&["stop", "smr-3"]).code, Some(0));
    assert_eq!(replicas[2].wait().expect("a child").code(), Some(0));
}
