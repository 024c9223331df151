//! ZooKeeper: one server, and two clients of it that speak its protocol (its Programmer's Guide;
//! the records are those of `zookeeper.jute`). One holds an ephemeral node by a session of 20 ms;
//! its connection ends as that of a killed process does, without a word; the other must be notified
//! that the node is gone.

use super::{Rival, TIMEOUT, retry};
use crate::peer_server::{PeerServer, free_ports, is_installed};
use obol_chaos::drills::Victims;
use obol_fabric::Nanos;
use obol_observe::stats::Distribution;
use obol_term::output::Failure;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The session that is as short as ZooKeeper allows: two ticks.
const SESSION_MS: i32 = 20;
const TICK_MS: i32 = 10;
/// The watching client's, which is not to end.
const LONG_SESSION_MS: i32 = 60_000;
/// Pings of the victim before it is killed, and the time between two.
const PINGS: i32 = 10;
const PING_INTERVAL: Duration = Duration::from_millis(5);
const JAR: &str = "/usr/share/java/zookeeper.jar";
const NODE: &str = "/obol";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longer answers are none of those that are asked for.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// Operations, and what the server sends unasked, by their numbers in the protocol.
const CREATE: i32 = 1;
const EXISTS: i32 = 3;
const PING: i32 = 11;
const XID_OF_NOTIFICATION: i32 = -1;
const XID_OF_PING: i32 = -2;

pub(super) struct Zookeeper {
    version: String,
}

impl Zookeeper {
    pub(super) fn installed() -> Option<Self> {
        let jars = std::fs::read_dir(Path::new(JAR).parent()?).ok()?.filter_map(Result::ok);
        let versions = jars.filter_map(|jar| {
            let name = jar.file_name().into_string().ok()?;
            let version = name.strip_prefix("zookeeper-")?.strip_suffix(".jar")?;
            version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
        });
        let version = versions.max().unwrap_or_else(|| "of unknown version".to_owned());
        (Path::new(JAR).exists() && is_installed("java")).then_some(Self { version })
    }
}

impl Rival for Zookeeper {
    fn counterpart(&self) -> Victims {
        Victims::App
    }

    fn measured(&self) -> &'static str {
        "client killed, until another client is notified that its ephemeral node is gone"
    }

    fn settings(&self) -> String {
        format!(
            "ZooKeeper {}, one server, session {SESSION_MS} ms, tickTime={TICK_MS} minSessionTimeout={SESSION_MS} (as it \
             comes, 2000 and 4000), pings every {} ms",
            self.version,
            PING_INTERVAL.as_millis()
        )
    }

    fn must(&self) -> Option<f64> {
        Some(120.0)
    }

    fn share(&self) -> u32 {
        10
    }

    fn turn(&self, folder: &Path, times: &mut Distribution) -> Result<(), Failure> {
        let [port] = free_ports()?;
        let config = folder.join("zoo.cfg");
        let text = format!(
            "tickTime={TICK_MS}\nminSessionTimeout={SESSION_MS}\nmaxSessionTimeout={LONG_SESSION_MS}\ndataDir={}\n\
             clientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
            folder.join("data").display()
        );
        std::fs::write(&config, text).map_err(Failure::failed)?;
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-cp", JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain"]);
        let _server = PeerServer::start(command.arg(&config), None)?
            .ok_or_else(|| Failure::Failed("java is gone".to_owned()))?;
        let mut watching = retry("ZooKeeper", || Client::connect(port, LONG_SESSION_MS))?;
        for _ in 0..self.share() {
            // On a busy machine a ping comes too late: then the session ended before the kill, and
            // nothing was measured.
            times.add(retry("ZooKeeper", || fail_over(port, &mut watching))?);
        }
        Ok(())
    }
}

fn fail_over(port: u16, watching: &mut Client) -> io::Result<Nanos> {
    let mut victim = Client::connect(port, SESSION_MS)?;
    victim.request(1, CREATE, &create())?;
    let mut watch = Vec::new();
    put_text(&mut watch, NODE);
    watch.push(1);
    watching.request(2, EXISTS, &watch)?;
    for _ in 0..PINGS {
        std::thread::sleep(PING_INTERVAL);
        victim.request(XID_OF_PING, PING, &[])?;
    }
    let killed = Instant::now();
    drop(victim);
    while watching.frame()?.first_chunk::<4>().map(|xid| i32::from_be_bytes(*xid))
        != Some(XID_OF_NOTIFICATION)
    {}
    Ok(Nanos(killed.elapsed().as_nanos().try_into().unwrap_or(u64::MAX)))
}

/// An ephemeral node that everyone may read.
fn create() -> Vec<u8> {
    const ALL_RIGHTS: i32 = 31;
    const EPHEMERAL: i32 = 1;
    let mut body = Vec::new();
    put_text(&mut body, NODE);
    put_text(&mut body, "");
    body.extend(1_i32.to_be_bytes());
    body.extend(ALL_RIGHTS.to_be_bytes());
    put_text(&mut body, "world");
    put_text(&mut body, "anyone");
    body.extend(EPHEMERAL.to_be_bytes());
    body
}

/// A string or a buffer: its length and its bytes.
fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u32).to_be_bytes());
    to.extend(text.bytes());
}

struct Client(TcpStream);

impl Client {
    /// Opens a session.
    fn connect(port: u16, session_ms: i32) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        // A server that is starting may accept the connection and never answer on it.
        stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
        let mut client = Self(stream);
        // Version, last transaction seen, session timeout, session, password.
        let mut request = Vec::from([0; 12]);
        request.extend(session_ms.to_be_bytes());
        request.extend([0; 8]);
        request.extend(16_u32.to_be_bytes());
        request.extend([0; 16]);
        client.send(&request)?;
        let answer = client.frame()?;
        let granted = answer.get(4..8).and_then(|bytes| bytes.try_into().ok()).map(i32::from_be_bytes);
        if granted != Some(session_ms) {
            return Err(io::Error::other(format!("it grants {granted:?} ms, not {session_ms}")));
        }
        client.0.set_read_timeout(Some(TIMEOUT))?;
        Ok(client)
    }

    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend(body);
        self.0.write_all(&frame)
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        let mut len = [0; 4];
        self.0.read_exact(&mut len)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(io::Error::other(format!("an answer of {len} bytes")));
        }
        let mut frame = vec![0; len];
        self.0.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Sends a request and checks that the answer reports no error.
    fn request(&mut self, xid: i32, operation: i32, body: &[u8]) -> io::Result<()> {
        let mut request = xid.to_be_bytes().to_vec();
        request.extend(operation.to_be_bytes());
        request.extend(body);
        self.send(&request)?;
        loop {
            // Its xid, the transaction, an error.
            let answer = self.frame()?;
            let number = |at: usize| answer.get(at..at + 4)?.try_into().ok().map(i32::from_be_bytes);
            match (number(0), number(12)) {
                (Some(answered), _) if answered != xid => {}
                (Some(_), Some(0)) => return Ok(()),
                (_, error) => {
                    return Err(io::Error::other(format!("operation {operation}: error {error:?}")));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers a connection with these frames, and returns what was asked.
    fn served(answers: &[&[u8]], ask: impl FnOnce(u16)) -> Vec<u8> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let answers: Vec<Vec<u8>> =
            answers.iter().map(|body| [&(body.len() as u32).to_be_bytes(), *body].concat()).collect();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            answers.iter().for_each(|answer| stream.write_all(answer).expect("sent"));
            let mut asked = Vec::new();
            stream.read_to_end(&mut asked).expect("read");
            asked
        });
        ask(port);
        server.join().expect("it ends")
    }

    fn granted(ms: i32) -> Vec<u8> {
        [&[0; 4], &ms.to_be_bytes()[..], &[0; 28]].concat()
    }

    /// Xid, transaction, error.
    fn answer(xid: i32, error: i32) -> Vec<u8> {
        [&xid.to_be_bytes()[..], &[0; 8], &error.to_be_bytes()].concat()
    }

    #[test]
    fn a_session_shorter_than_the_server_grants_is_an_error() {
        served(&[&granted(40)], |port| {
            let refused = Client::connect(port, 20).err().map(|error| error.to_string());
            assert_eq!(refused.as_deref(), Some("it grants Some(40) ms, not 20"));
        });
    }

    #[test]
    fn a_request_skips_notifications_and_reports_the_servers_error() {
        const NODE_EXISTS: i32 = -110;
        let answers = [granted(20), answer(XID_OF_NOTIFICATION, 0), answer(1, 0), answer(2, NODE_EXISTS)];
        let asked = served(&answers.each_ref().map(Vec::as_slice), |port| {
            let mut client = Client::connect(port, 20).expect("granted");
            client.request(1, CREATE, &create()).expect("created");
            let error = client.request(2, CREATE, &create()).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some("operation 1: error Some(-110)"));
        });
        // After the session's request: a frame with xid 1, operation 1, and the path.
        let request = asked.get(4 + 44..).expect("a request");
        assert_eq!(
            request.get(4..20),
            Some([&[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5][..], b"/obo"].concat().as_slice())
        );
    }
}
