//! Hooks of a real cluster: a program is called for a failover and for a drill's verdict, and a receiver
//! that was down gets what happened meanwhile.

use crate::support::{HANG, Root, signal, until_or};
use obol_hooks::{SIGNATURE, verify};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

/// A daemon that the test ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next POST to a server: the body, if it is signed by this key now.
fn delivered(server: &TcpListener, key: &[u8]) -> Value {
    server.set_nonblocking(true).expect("set");
    let stream = until_or("a delivery comes", || server.accept().ok(), String::new).0;
    stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(HANG))).expect("set");
    let mut reader = BufReader::new(&stream);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("read");
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
            None if line.trim_end().is_empty() => break,
            None => {}
        }
    }
    let header = |wanted: &str| {
        let wanted = wanted.to_ascii_lowercase();
        let found = headers.iter().find(|(name, _)| *name == wanted);
        found.unwrap_or_else(|| panic!("no {wanted} in {headers:?}")).1.as_str()
    };
    let mut body = vec![0; header("content-length").parse().expect("a number")];
    reader.read_exact(&mut body).expect("read");
    (&stream).write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").expect("answered");
    let now = obol_observe::calendar::unix_now() / 1_000_000_000;
    assert!(verify(key, header(SIGNATURE), &body, now, 300), "{headers:?}");
    serde_json::from_slice(&body).expect("JSON")
}

#[test]
fn hooks_are_called_for_a_failover_an_annotation_and_a_verdict() {
    let (root, _up) = Root::with_cluster(&["--apps", "2"]);
    let [file, got, dead, secret] =
        ["hooks.toml", "hooks.got", "hooks.dead", "hooks.secret"].map(|name| root.note(name));
    fs::write(&secret, "s3cret\n").expect("written");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("changed");
    // Of a receiver that is down.
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound").local_addr().expect("bound");
    let script = format!("{{ cat; echo; }} >> {}", got.display());
    let text = format!(
        "schema = 1\ndead_letters = {dead:?}\n[[hook]]\nname = \"all\"\non = [\"failover\", \"mark\", \"drill\", \"view\"]\n\
         exec = [\"/bin/sh\", \"-c\", {script:?}]\n[[hook]]\nname = \"bad\"\non = [\"mark\"]\nexec = [\"/bin/false\"]\n\
         attempts = 2\nbackoff = \"1ms\"\n[[hook]]\nname = \"web\"\non = [\"failover\"]\nurl = \"http://{free}/obol\"\n\
         allow_http = true\nsecret_file = {secret:?}\nattempts = 100\nbackoff = \"50ms\"\nbackoff_max = \"1s\"\n"
    );
    fs::write(&file, text).expect("written");
    let path = file.to_str().expect("text");
    root.run(&["hooks", "check", path]).ends(0);
    let tested = root.run(&["hooks", "test", path, "--json"]).ends(1).out;
    assert!(
        tested.contains("\"hook\":\"all\",\"delivered\":true")
            && tested.contains("\"hook\":\"bad\",\"delivered\":false")
    );
    let mut command = root.command(&["hooks", "run", path]);
    let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut daemon = Daemon(child);
    let events = || -> Vec<Value> {
        let text = fs::read_to_string(&got).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let seen = |what: &str, holds: &dyn Fn(&Value) -> bool| {
        until_or(what, || events().into_iter().find(|event| holds(event)), || format!("{:#?}", events()))
    };
    // Events of before its start are not reported, and nothing shows when it has started: the
    // annotation is repeated until one is.
    until_or(
        "it has begun",
        || {
            root.run(&["mark", "deploy 1.4"]).ends(0);
            events()
                .iter()
                .any(|event| event["kind"] == "mark" && event["title"] == "deploy 1.4")
                .then_some(())
        },
        || format!("{:#?}", events()),
    );
    root.run(&["drill", "app", "--count", "1"]);
    let verdict =
        seen("the verdict", &|event| event["kind"] == "drill" && event["details"]["verdict"].is_string());
    assert_eq!(verdict["state"], "resolved");
    let failover = seen("the failover", &|event| event["kind"] == "failover");
    assert!(
        failover["details"]["view"].is_u64() && failover["details"]["dead"][0]["incarnation"].is_u64(),
        "{failover}"
    );
    let server = TcpListener::bind(free).expect("its address is free");
    assert_eq!(delivered(&server, b"s3cret"), failover, "it is back, and gets what it has missed");
    seen("the view", &|event| {
        let of_failover = event["details"]["view"] == failover["details"]["view"];
        event["kind"] == "view" && (of_failover || event["details"]["skipped"].as_u64() > Some(0))
    });
    signal("TERM", &[i64::from(daemon.0.id())]);
    assert!(daemon.0.wait().expect("a child").success());
    let letters = root.run(&["hooks", "resend", path, "--list", "--json"]).ends(1).out;
    let letter: Value =
        letters.lines().next().and_then(|line| serde_json::from_str(line).ok()).expect("a letter");
    assert_eq!((&letter["hook"], &letter["event"]["title"]), (&"bad".into(), &"deploy 1.4".into()));
    root.run(&["hooks", "resend", path, "--hook", "al"]).refused(&["no hook \"al\""]);
}
