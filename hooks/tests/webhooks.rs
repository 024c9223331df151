//! Webhooks against servers of this process, over HTTP and HTTPS: signatures, repetitions, dead
//! letters.

use obol_hooks::dead::{self, Resent};
use obol_hooks::{Config, Dispatcher, SIGNATURE, verify};
use obol_observe::incidents::event::{Event, Kind, Severity, State};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A hang, not a slow machine.
const HANG: Duration = Duration::from_secs(60);

/// A request as a server got it.
#[derive(Debug)]
struct Request {
    line: String,
    /// By names in lower case.
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Request {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Reads a request, and answers.
fn serve(stream: impl Read + Write, answer: &str) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let stream = reader.get_mut();
    let head = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).and_then(|()| stream.flush()).ok()?;
    Some(Request { line: line.trim().to_owned(), headers, body })
}

/// A server that gives these answers, one a connection, the last one for ever.
fn server(answers: &'static [&'static str], tls: Option<Arc<ServerConfig>>) -> (u16, Receiver<Request>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        let mut answers = answers.iter();
        let mut answer = answers.next().expect("an answer");
        for stream in listener.incoming().map_while(Result::ok) {
            let request = match &tls {
                None => serve(stream, answer),
                Some(tls) => {
                    let connection = ServerConnection::new(Arc::clone(tls)).expect("configured");
                    serve(StreamOwned::new(connection, stream), answer)
                }
            };
            if let Some(request) = request {
                answer = answers.next().unwrap_or(answer);
                if tx.send(request).is_err() {
                    return;
                }
            }
        }
    });
    (port, rx)
}

fn event(title: &str) -> Event {
    Event {
        id: format!("00ff-{title}"),
        kind: Kind::Failover,
        unix: 1_795_572_847_120_394_811,
        cluster: "default".to_owned(),
        identity: "00000000000000ff".to_owned(),
        host: "web-1".to_owned(),
        severity: Severity::Warning,
        state: State::Event,
        subject: "app-2".to_owned(),
        title: title.to_owned(),
        details: Map::from_iter([("view".to_owned(), 8.into())]),
    }
}

fn config(folder: &Path, hooks: &str) -> Config {
    let dead = folder.join("dead.jsonl");
    Config::parse(&format!("schema = 1\ndead_letters = {dead:?}\n{hooks}"), "hooks.toml")
        .unwrap_or_else(|error| panic!("{error}"))
}

fn hook(port: u16, more: &str) -> String {
    format!(
        "[[hook]]\nname = \"web\"\non = [\"failover\"]\nurl = \"http://127.0.0.1:{port}/hook?x=1\"\nallow_http = true\n\
         backoff = \"1ms\"\n{more}\n"
    )
}

#[test]
fn a_delivery_is_signed_and_repeated_until_it_is_taken() {
    let folder = tempfile::tempdir().expect("made");
    let secret = folder.path().join("secret");
    fs::write(&secret, "s3cret\n").expect("written");
    let (port, requests) = server(&["500 Down", "429 Slow Down\r\nRetry-After: 0", "204 No Content"], None);
    let config = config(folder.path(), &hook(port, &format!("secret_file = {secret:?}")));
    let dispatcher = Dispatcher::start(&config).expect("started");
    dispatcher.offer(&event("one"));
    dispatcher.offer(&Event { kind: Kind::View, ..event("not wanted") });
    dispatcher.offer(&event("two"));
    let got: Vec<Request> = (0..4).map(|_| requests.recv_timeout(HANG).expect("a request")).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    for request in &got {
        assert_eq!(request.line, "POST /hook?x=1 HTTP/1.1");
        assert_eq!(request.headers["content-type"], "application/json");
        let header = &request.headers[&SIGNATURE.to_ascii_lowercase()];
        assert!(verify(b"s3cret", header, &request.body, now, 300), "{header}");
        assert!(!verify(b"other", header, &request.body, now, 300));
    }
    let titles: Vec<Value> = got.iter().map(|request| request.json()["title"].clone()).collect();
    assert_eq!(titles, ["one", "one", "one", "two"], "in order, and each until it is taken");
    assert_eq!(got[0].headers["obol-event"], got[2].headers["obol-event"]);
    dispatcher.finish();
    assert_eq!(dead::read(&config.dead_letters).expect("read"), (Vec::new(), 0));
}

#[test]
fn what_is_given_up_is_a_dead_letter_and_can_be_resent() {
    let folder = tempfile::tempdir().expect("made");
    let (port, requests) =
        server(&["500 Down", "500 Down", "404 Not Found", "302 Found\r\nLocation: /", "200 OK"], None);
    let config = config(folder.path(), &hook(port, "attempts = 2"));
    let dispatcher = Dispatcher::start(&config).expect("started");
    for title in ["repeated", "wrong", "moved"] {
        dispatcher.offer(&event(title));
    }
    (0..4).for_each(|_| drop(requests.recv_timeout(HANG).expect("a request")));
    dispatcher.finish();
    let (letters, _) = dead::read(&config.dead_letters).expect("read");
    let kept: Vec<(&str, u32)> = letters.iter().map(|l| (l.event.title.as_str(), l.attempts)).collect();
    assert_eq!(kept, [("repeated", 2), ("wrong", 1), ("moved", 1)], "{letters:?}");
    assert!(
        letters[0].why.contains("500") && letters[1].why.contains("404") && letters[2].why.contains("302")
    );
    let resent = dead::resend(&config, None, |_, _| ()).expect("resent");
    assert_eq!(resent, Resent { delivered: 3, ..Resent::default() });
    let titles: Vec<Value> =
        (0..3).map(|_| requests.recv_timeout(HANG).expect("sent").json()["title"].clone()).collect();
    assert_eq!(titles, ["repeated", "wrong", "moved"]);
}

#[test]
fn events_beyond_the_rate_are_not_delivered() {
    let folder = tempfile::tempdir().expect("made");
    let (port, requests) = server(&["200 OK"], None);
    let config = config(folder.path(), &hook(port, "rate = 2"));
    let dispatcher = Dispatcher::start(&config).expect("started");
    (0..5).for_each(|n| dispatcher.offer(&event(&n.to_string())));
    dispatcher.finish();
    let got: Vec<Value> = requests.try_iter().map(|request| request.json()["title"].clone()).collect();
    assert_eq!(got, ["0", "1"]);
}

#[test]
fn an_unreachable_receiver_delays_no_other() {
    let folder = tempfile::tempdir().expect("made");
    let (port, requests) = server(&["200 OK"], None);
    let closed =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound").local_addr().expect("bound").port();
    let dead_hook =
        hook(closed, "backoff_max = \"60m\"").replace("\"web\"", "\"dead\"").replace("1ms", "60m");
    let config = config(folder.path(), &format!("{dead_hook}{}", hook(port, "")));
    let dispatcher = Dispatcher::start(&config).expect("started");
    dispatcher.offer(&event("one"));
    assert_eq!(requests.recv_timeout(HANG).expect("delivered").json()["title"], "one");
    dispatcher.finish();
    let (letters, _) = dead::read(&config.dead_letters).expect("read");
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].hook.as_str(), letters[0].attempts), ("dead", 1));
}

#[test]
fn the_end_waits_for_no_receiver_that_hangs_and_nothing_that_waits_is_lost() {
    let folder = tempfile::tempdir().expect("made");
    // It takes connections, and answers none.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bound");
    let port = silent.local_addr().expect("bound").port();
    let pid = folder.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; sleep 600", pid.display());
    let program = format!(
        "[[hook]]\nname = \"page\"\non = [\"failover\"]\nexec = [\"/bin/sh\", \"-c\", {script:?}]\ntimeout = \"10m\"\n"
    );
    let config = config(folder.path(), &format!("{program}{}", hook(port, "timeout = \"10m\"")));
    let dispatcher = Dispatcher::start(&config).expect("started");
    let titles = ["one", "two", "three"];
    titles.iter().for_each(|title| dispatcher.offer(&event(title)));
    let began = Instant::now();
    while !pid.exists() {
        assert!(began.elapsed() < HANG, "the program does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Were it to wait for them, it would take half an hour.
    dispatcher.finish();
    let (letters, _) = dead::read(&config.dead_letters).expect("read");
    for name in ["page", "web"] {
        let of = letters.iter().filter(|letter| letter.hook == name);
        assert_eq!(of.map(|letter| letter.event.title.as_str()).collect::<Vec<_>>(), titles, "{letters:#?}");
    }
    let pid = fs::read_to_string(&pid).expect("read");
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "the program was killed");
}

/// An authority, and the configuration of a server that it has certified.
fn certified() -> (String, Arc<ServerConfig>) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("made");
    let authority = params.self_signed(&key).expect("signed");
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let key = KeyPair::generate().expect("made");
    let certificate = params.signed_by(&key, &issuer).expect("signed");
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    (authority.pem(), Arc::new(server))
}

#[test]
fn a_receiver_is_known_by_its_certificate() {
    let folder = tempfile::tempdir().expect("made");
    let (authority, tls) = certified();
    let (other, _) = certified();
    let (port, requests) = server(&["200 OK"], Some(tls));
    let [own, foreign] = [("own.pem", authority), ("foreign.pem", other)].map(|(name, pem)| {
        let path = folder.path().join(name);
        fs::write(&path, pem).expect("written");
        path
    });
    let deliver = |ca: &Path| {
        let text = format!(
            "ca_file = {ca:?}\n[[hook]]\nname = \"web\"\non = [\"failover\"]\nurl = \"https://127.0.0.1:{port}/\"\nattempts = 1\n"
        );
        let config = config(folder.path(), &text);
        let receiver = obol_hooks::Receiver::new(&config.hooks[0], config.ca_file.as_deref()).expect("made");
        receiver.deliver(&event("one"), 0)
    };
    deliver(&own).expect("delivered");
    assert_eq!(requests.recv_timeout(HANG).expect("sent").json()["title"], "one");
    let refused = deliver(&foreign).expect_err("another authority").to_string();
    assert!(refused.to_lowercase().contains("certificate") || refused.contains("UnknownIssuer"), "{refused}");
    assert!(requests.try_recv().is_err(), "nothing was sent");
}
