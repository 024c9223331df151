//! etcd: three members on the loopback interface. Its leader is killed, and another must lead and
//! accept a write.

use super::{Rival, retry};
use crate::peer_server::{PeerServer, free_ports};
use obol_chaos::drills::Victims;
use obol_fabric::Nanos;
use obol_observe::stats::Distribution;
use obol_term::output::Failure;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
/// The shortest that etcd's documentation considers for one host; elections take ten times as long.
const HEARTBEAT_MS: u32 = 10;
const ELECTION_MS: u32 = 100;
/// A request that is not answered by then was lost with the leader.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(50);
const ANSWER_BYTES_MAX: u64 = 1 << 16;

pub(super) struct Etcd {
    version: String,
}

impl Etcd {
    pub(super) fn installed() -> Option<Self> {
        Some(Self { version: super::version_of("etcd", "--version")? })
    }
}

impl Rival for Etcd {
    fn counterpart(&self) -> Victims {
        Victims::Leader
    }

    fn measured(&self) -> &'static str {
        "leader killed, until a survivor leads and has accepted a write"
    }

    fn settings(&self) -> String {
        format!(
            "etcd {}, {MEMBERS} members, --heartbeat-interval={HEARTBEAT_MS} --election-timeout={ELECTION_MS} (ms; as it \
             comes, 100 and 1000), data in the directory for temporary files",
            self.version
        )
    }

    fn must(&self) -> Option<f64> {
        Some(600.0)
    }

    fn share(&self) -> u32 {
        4
    }

    fn turn(&self, folder: &Path, times: &mut Distribution) -> Result<(), Failure> {
        let mut cluster = Cluster::start(folder)?;
        for _ in 0..self.share() {
            times.add(cluster.fail_over()?);
        }
        Ok(())
    }
}

struct Cluster {
    folder: PathBuf,
    clients: [u16; MEMBERS],
    peers: [u16; MEMBERS],
    members: Vec<PeerServer>,
}

/// What a member says of the cluster.
struct Status {
    id: u64,
    /// 0 for none.
    leader: u64,
}

impl Cluster {
    fn start(folder: &Path) -> Result<Self, Failure> {
        let ports: [u16; 2 * MEMBERS] = free_ports()?;
        let clients = std::array::from_fn(|member| ports[member]);
        let peers = std::array::from_fn(|member| ports[MEMBERS + member]);
        let mut cluster = Self { folder: folder.to_owned(), clients, peers, members: Vec::new() };
        for member in 0..MEMBERS {
            let started = cluster.member(member)?;
            cluster.members.push(started);
        }
        cluster.wait_until_whole()?;
        Ok(cluster)
    }

    fn member(&self, number: usize) -> Result<PeerServer, Failure> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> =
            self.peers.iter().enumerate().map(|(member, port)| format!("m{member}={}", url(*port))).collect();
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{number}"), "--initial-cluster", &all.join(","), "--data-dir"]);
        command.arg(self.folder.join(format!("m{number}")));
        let (client, peer) = (url(self.clients[number]), url(self.peers[number]));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg(format!("--heartbeat-interval={HEARTBEAT_MS}"));
        command.arg(format!("--election-timeout={ELECTION_MS}"));
        PeerServer::start(&command, None)?.ok_or_else(|| Failure::Failed("etcd is gone".to_owned()))
    }

    fn status(&self, member: usize) -> io::Result<Status> {
        let answer = post(self.clients[member], "/v3/maintenance/status", "{}")?;
        let number = |value: &Value| value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Status { id: number(&answer["header"]["member_id"]), leader: number(&answer["leader"]) })
    }

    fn put(&self, member: usize) -> io::Result<()> {
        // Base64 of "obol" and of "1".
        post(self.clients[member], "/v3/kv/put", r#"{"key":"b2JvbA==","value":"MQ=="}"#).map(|_| ())
    }

    /// Waits until all members follow one leader and accept writes; returns who leads.
    fn wait_until_whole(&self) -> Result<usize, Failure> {
        retry("etcd", || {
            let all = (0..MEMBERS).map(|member| self.status(member)).collect::<io::Result<Vec<Status>>>()?;
            let leads = all.iter().position(|status| status.id != 0 && status.id == all[0].leader);
            let agreed = all.iter().all(|status| status.leader == all[0].leader);
            let leads =
                leads.filter(|_| agreed).ok_or_else(|| io::Error::other("its members agree on no leader"))?;
            (0..MEMBERS).try_for_each(|member| self.put(member)).map(|()| leads)
        })
    }

    /// Kills the leader, measures, and starts it again.
    fn fail_over(&mut self) -> Result<Nanos, Failure> {
        let victim = self.wait_until_whole()?;
        let former = self.status(victim).map_err(Failure::failed)?.id;
        let killed = Instant::now();
        self.members[victim].kill()?;
        let survivors: Vec<usize> = (0..MEMBERS).filter(|member| *member != victim).collect();
        retry("etcd", || {
            let led = |member: &usize| {
                self.status(*member).is_ok_and(|status| status.leader != 0 && status.leader != former)
            };
            let survivor = survivors.iter().find(|member| led(member));
            survivor.map_or_else(|| Err(io::Error::other("no survivor leads")), |member| self.put(*member))
        })?;
        let took = killed.elapsed();
        self.members[victim] = self.member(victim)?;
        Ok(Nanos(took.as_nanos().try_into().unwrap_or(u64::MAX)))
    }
}

/// Asks etcd's JSON gateway. HTTP/1.0: an answer ends with the connection.
fn post(port: u16, path: &str, body: &str) -> io::Result<Value> {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&at, REQUEST_TIMEOUT)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    if head.split_whitespace().nth(1) != Some("200") {
        return Err(io::Error::other(head.lines().next().unwrap_or_default().to_owned()));
    }
    serde_json::from_str(body).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answered(answer: &'static str) -> Result<Value, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut asked = [0; 64];
            let read = stream.read(&mut asked).expect("a request");
            stream.write_all(answer.as_bytes()).expect("sent");
            String::from_utf8_lossy(&asked[..read]).into_owned()
        });
        let got = post(port, "/v3/kv/put", "{}").map_err(|error| error.to_string());
        let asked = server.join().expect("it ends");
        assert!(asked.starts_with("POST /v3/kv/put HTTP/1.0\r\nContent-Length: 2\r\n\r\n"), "{asked}");
        got
    }

    #[test]
    fn an_answer_is_its_body_and_a_refusal_an_error() {
        assert_eq!(answered("HTTP/1.0 200 OK\r\n\r\n{\"leader\":\"7\"}").expect("an answer")["leader"], "7");
        let refused = answered("HTTP/1.0 503 Service Unavailable\r\n\r\n{}");
        assert_eq!(refused, Err("HTTP/1.0 503 Service Unavailable".to_owned()));
        assert!(answered("HTTP/1.0 200 OK").is_err(), "cut off");
    }
}
