//! `obol shadow` beside a real Redis with Sentinel (package redis-server), and beside a real etcd (package
//! etcd-server).

use crate::support::{obol, signal, until};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Servers that end with the test.
struct Servers(Vec<Child>);

impl Servers {
    fn start(&mut self, folder: &Path, arguments: &[&str]) -> i64 {
        self.start_program("redis-server", folder, arguments)
    }

    fn start_program(&mut self, program: &str, folder: &Path, arguments: &[&str]) -> i64 {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().unwrap_or_else(|error| panic!("{program} (package of CI): {error}"));
        let pid = i64::from(server.id());
        self.0.push(server);
        pid
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            // One that has ended needs neither.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port().to_string()
}

fn asked(port: &str, words: &[&str]) -> String {
    let ran = Command::new("redis-cli").args(["-p", port]).args(words).output();
    String::from_utf8_lossy(&ran.expect("redis-cli (package redis-tools)").stdout).into_owned()
}

#[test]
fn the_death_of_a_redis_is_seen_before_its_sentinel_sees_it_and_the_failover_is_followed() {
    let folder = tempfile::tempdir().expect("made");
    let mut servers = Servers(Vec::new());
    let [primary, replica, sentinel] = [port(), port(), port()];
    let plain = ["--save", "", "--bind", "127.0.0.1"];
    let pid = servers.start(folder.path(), &[&["--port", &primary][..], &plain].concat());
    until("the primary answers", || asked(&primary, &["PING"]).contains("PONG"));
    let of = ["--port", &replica, "--replicaof", "127.0.0.1", &primary];
    servers.start(folder.path(), &[&of[..], &plain].concat());
    until("the replica follows", || asked(&primary, &["INFO", "replication"]).contains("state=online"));
    let config = format!(
        "port {sentinel}\nbind 127.0.0.1\nsentinel monitor mine 127.0.0.1 {primary} 1\n\
         sentinel down-after-milliseconds mine 1000\nsentinel failover-timeout mine 10000\n"
    );
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, config).expect("written");
    servers.start(folder.path(), &[file.to_str().expect("text"), "--sentinel"]);
    until("Sentinel knows the replica", || {
        asked(&sentinel, &["SENTINEL", "REPLICAS", "mine"]).contains(&replica)
    });

    let url = format!("redis://127.0.0.1:{sentinel}/mine");
    let mut shadow = Shadow::start(&url);
    assert!(shadow.watches.contains(&format!("watching mine at 127.0.0.1:{primary}")), "{}", shadow.watches);
    signal("KILL", &[pid]);
    let report = shadow.report();
    assert_eq!(report["pid"], pid, "{report}");
    let evidence = report["evidence"].as_array().expect("an array");
    let place = |word| place(evidence, word);
    let (death, link, suspected, over) = (
        place("has ended (pidfd)").expect("the death"),
        place("the connection to").expect("the connection"),
        place("+sdown").expect("a suspicion"),
        place("+switch-master").expect("the failover"),
    );
    assert!(death < suspected && link < suspected && suspected < over, "{report}");
    assert_eq!(over, evidence.len() - 1, "{report}");
}

/// The command, and what it says that it watches.
struct Shadow {
    child: Child,
    watches: String,
}

impl Shadow {
    fn start(url: &str) -> Self {
        let mut command = obol();
        command.args(["shadow", url, "--failovers", "0", "--for", "100s", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("started");
        let mut said = BufReader::new(child.stderr.take().expect("piped"));
        let mut watches = String::new();
        said.read_line(&mut watches).expect("text");
        Self { child, watches }
    }

    /// What it reports of the failure.
    fn report(&mut self) -> Value {
        let mut out = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        assert!(self.child.wait().expect("it ends").success(), "{out}");
        serde_json::from_str(&out).expect("JSON")
    }
}

/// Where a word is in the evidence.
fn place(evidence: &[Value], word: &str) -> Option<usize> {
    evidence.iter().position(|one| one["what"].as_str().is_some_and(|what| what.contains(word)))
}

/// Asks a member of etcd by its JSON gateway.
fn etcd(port: &str, path: &str, body: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).ok()?;
    let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// The members of an etcd: clients' ports, and processes.
fn start_etcd(servers: &mut Servers, folder: &Path) -> [(String, i64); 3] {
    let ports: [[String; 2]; 3] = std::array::from_fn(|_| [port(), port()]);
    let url = |port: &str| format!("http://127.0.0.1:{port}");
    let cluster: Vec<String> =
        ports.iter().enumerate().map(|(n, [_, peers])| format!("m{n}={}", url(peers))).collect();
    let cluster = cluster.join(",");
    std::array::from_fn(|n| {
        let [clients, peers] = &ports[n];
        let (name, data) = (format!("m{n}"), folder.join(format!("m{n}")));
        let (client_url, peer_url) = (url(clients), url(peers));
        let arguments = [
            ["--name", &name],
            ["--initial-cluster", &cluster],
            ["--data-dir", data.to_str().expect("text")],
            ["--listen-client-urls", &client_url],
            ["--advertise-client-urls", &client_url],
            ["--listen-peer-urls", &peer_url],
            ["--initial-advertise-peer-urls", &peer_url],
        ];
        (clients.clone(), servers.start_program("etcd", folder, &arguments.concat()))
    })
}

#[test]
fn the_death_of_etcds_leader_is_seen_before_its_survivors_see_it_and_the_failover_is_followed() {
    let folder = tempfile::tempdir().expect("made");
    let mut servers = Servers(Vec::new());
    let members = start_etcd(&mut servers, folder.path());
    let leads = |(clients, _): &(String, i64)| {
        let status = etcd(clients, "/v3/maintenance/status", "{}")?;
        (status["leader"].is_string() && status["leader"] == status["header"]["member_id"]).then_some(())
    };
    until("a member leads", || members.iter().filter_map(leads).count() == 1);
    let led = members.iter().position(|member| leads(member).is_some()).expect("it leads");
    // Any member names the others.
    let url = format!("etcd://127.0.0.1:{}", members[(led + 1) % 3].0);
    let mut shadow = Shadow::start(&url);
    let (clients, pid) = &members[led];
    assert!(
        shadow.watches.contains(&format!("watching m{led} at 127.0.0.1:{clients}")),
        "{}",
        shadow.watches
    );
    signal("KILL", &[*pid]);
    let report = shadow.report();
    assert_eq!((&report["system"], &report["pid"]), (&"etcd".into(), &(*pid).into()), "{report}");
    let evidence = report["evidence"].as_array().expect("an array");
    let (death, link, follows, over) = (
        place(evidence, "has ended (pidfd)").expect("the death"),
        place(evidence, "the connection to").expect("the connection"),
        place(evidence, " follows m").expect("a new leader"),
        place(evidence, "answers a linearizable read").expect("the end"),
    );
    assert!(death < follows && link < follows && follows < over, "{report}");
    assert_eq!(over, evidence.len() - 1, "{report}");
    assert!(report["failover_us"].as_f64() > Some(0.0), "{report}");
    // It has not touched anything: no write but the members' own.
    let survivor = &members[(led + 1) % 3].0;
    let all = r#"{"key":"AA==","range_end":"AA==","count_only":true}"#;
    let counted = etcd(survivor, "/v3/kv/range", all).expect("it answers");
    assert!(counted["count"].is_null() && counted["header"]["revision"] == "1", "{counted}");
}

#[test]
fn what_is_no_etcd_is_refused() {
    let url = format!("etcd://127.0.0.1:{}", port());
    let ran = obol().args(["shadow", &url, "--failovers", "0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && said.contains("no member of etcd answers: http://127.0.0.1:"), "{said}");
}

#[test]
fn what_is_no_sentinel_is_refused() {
    let url = format!("redis://127.0.0.1:{}/mine", port());
    let ran = obol().args(["shadow", &url, "--failovers", "0"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(!ran.status.success() && said.contains("Sentinel at 127.0.0.1:"), "{said}");
}
