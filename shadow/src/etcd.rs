//! etcd: the status of each member, by the JSON gateway of its client URL, and the leader's process.

use crate::{
    Evidence, Primary, Sign, Watched, failed, host_port, listener, report, report_at, spawn, wait_for_end,
};
use obol_chaos::http::{self, Agent, agent};
use obol_fabric::Nanos;
use obol_fabric::host::clock;
use obol_term::output::Failure;
use serde_json::Value;
use std::fmt;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// The port of a member, if an address has none.
const PORT: u16 = 2379;
/// Between two questions to a member.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// An operation that is not answered by then has failed.
const TIMEOUT: Nanos = Nanos::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A key that does not exist: one byte of zero. A linearizable read of it needs a majority and a leader.
const READ: &str = r#"{"key":"AA==","keys_only":true,"limit":1}"#;

/// Members, as the operator names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoints(Vec<(String, u16)>);

/// Reads what follows `etcd://`.
pub(crate) fn parse(rest: &str) -> Option<Endpoints> {
    let all: Option<Vec<_>> = rest.split(',').map(|one| host_port(one, PORT)).collect();
    all.map(Endpoints)
}

/// A number is text in the JSON of etcd, and absent if it is zero.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    id: u64,
    name: String,
    url: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "{:x}", self.id) } else { f.write_str(&self.name) }
    }
}

/// The members in an answer, as far as clients can reach them.
fn members(answer: &Value) -> Vec<Member> {
    let all = answer["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let member = |value: &Value| {
        let url = value["clientURLs"].as_array()?.first()?.as_str()?.trim_end_matches('/').to_owned();
        let name = value["name"].as_str().unwrap_or_default().to_owned();
        Some(Member { id: number(&value["ID"]), name, url }).filter(|member| member.id != 0)
    };
    all.iter().filter_map(member).collect()
}

/// The address in a URL without a path.
fn address(url: &str) -> io::Result<SocketAddr> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let at =
        host_port(rest, PORT).ok_or_else(|| io::Error::other(format!("{url} is not the URL of a member")))?;
    at.to_socket_addrs()?.next().ok_or_else(|| io::Error::other(format!("{url} has no address")))
}

/// What a member says of the cluster: who leads, 0 if no member does, and in which term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    leader: u64,
    term: u64,
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fault {
    /// The member answers that it is not allowed, or unknown to it.
    Refused(String),
    /// It does not answer, or cannot now.
    Failed(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

/// Asks one member, by a connection that stays.
struct Asker {
    url: String,
    agent: Agent,
}

impl Asker {
    fn new(url: &str) -> Self {
        Self { url: url.to_owned(), agent: agent(TIMEOUT, url) }
    }

    fn ask(&self, path: &str, body: &str) -> Result<Value, Fault> {
        let failed = |error: &dyn fmt::Display| Fault::Failed(error.to_string());
        let answer = self.agent.post(format!("{}{path}", self.url)).send(body);
        let mut answer = answer.map_err(|error| failed(&error))?;
        let status = answer.status();
        if !status.is_success() {
            let why = format!("{path} answers {status}");
            return Err(if status.is_client_error() { Fault::Refused(why) } else { Fault::Failed(why) });
        }
        let text = answer.body_mut().with_config().limit(http::BYTES_MAX).read_to_string();
        let text = text.map_err(|error| failed(&error))?;
        serde_json::from_str(&text)
            .map_err(|error| Fault::Refused(format!("{path} is not an answer of etcd: {error}")))
    }

    fn status(&self) -> Result<Status, Fault> {
        let answer = self.ask("/v3/maintenance/status", "{}")?;
        Ok(Status { leader: number(&answer["leader"]), term: number(&answer["raftTerm"]) })
    }

    fn reads(&self) -> Result<(), Fault> {
        self.ask("/v3/kv/range", READ).map(drop)
    }
}

/// An etcd that is watched.
pub(crate) struct Etcd {
    endpoints: Endpoints,
    members: Vec<Member>,
    /// The member that led when it was last looked for.
    leader: Arc<AtomicU64>,
}

impl Etcd {
    pub(crate) fn new(endpoints: Endpoints) -> Self {
        Self { endpoints, members: Vec::new(), leader: Arc::default() }
    }

    /// The members, of the first that answers.
    fn look(&self) -> Result<Vec<Member>, Failure> {
        let given = self.endpoints.0.iter().map(|(host, port)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            format!("http://{host}:{port}")
        });
        // Those that are known later answer when the given one has failed.
        let known = self.members.iter().map(|member| member.url.clone());
        let mut refusals = Vec::new();
        for url in given.chain(known) {
            match Asker::new(&url).ask("/v3/cluster/member/list", "{}").map(|answer| members(&answer)) {
                Ok(members) if !members.is_empty() => return Ok(members),
                Ok(_) => refusals.push(format!("{url}: it names no member with a client URL")),
                Err(why) => refusals.push(format!("{url}: {why}")),
            }
        }
        Err(Failure::Failed(format!("no member of etcd answers: {}", refusals.join("; "))))
    }

    /// The member that leads, as the first says that knows.
    fn leading(&self) -> Result<Member, Failure> {
        let leader = self.members.iter().find_map(|member| {
            let status = Asker::new(&member.url).status().ok()?;
            self.members.iter().find(|one| one.id == status.leader)
        });
        leader.cloned().ok_or_else(|| Failure::Failed("no member of etcd says who leads".to_owned()))
    }
}

impl Watched for Etcd {
    fn system(&self) -> &'static str {
        "etcd"
    }

    fn primary(&mut self, to: &Sender<Evidence>) -> Result<Primary, Failure> {
        self.members = self.look()?;
        let leader = self.leading()?;
        self.leader.store(leader.id, Ordering::Relaxed);
        let at = address(&leader.url).map_err(failed(&leader.url))?;
        let held = listener::held(at, "etcd");
        let pid = held.as_ref().map(|(pid, _)| *pid);
        let link = TcpStream::connect_timeout(&at, CONNECT_TIMEOUT).map_err(failed(&leader.url))?;
        let mut listens = link.try_clone().map_err(failed(&leader.url))?;
        let ends = to.clone();
        spawn("shadow-link", move || {
            // It sends nothing by itself.
            while listens.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
            report(&ends, Sign::Step, format!("the connection to {at} has ended"));
        })?;
        wait_for_end(held, to)?;
        Ok(Primary { name: leader.to_string(), address: at.to_string(), pid, link })
    }

    fn follow(&mut self, to: Sender<Evidence>) -> Result<(), Failure> {
        for member in &self.members {
            let (member, to) = (member.clone(), to.clone());
            let (all, leader) = (self.members.clone(), Arc::clone(&self.leader));
            spawn("shadow-member", move || {
                let asker = Asker::new(&member.url);
                let mut follower = Follower { member, all, leader, last: None, said: None, answers: true };
                loop {
                    let began = Instant::now();
                    let asked = clock::now();
                    let status = asker.status();
                    for (sign, what) in follower.take(status, || asker.reads()) {
                        // A request fails when it was sent, not when it was given up.
                        let at = if follower.answers { clock::now() } else { asked };
                        report_at(&to, at, sign, what);
                    }
                    thread::sleep(ASK_EVERY.saturating_sub(began.elapsed()));
                }
            })?;
        }
        Ok(())
    }
}

/// Reads the steps of a failover from what one member answers.
struct Follower {
    member: Member,
    all: Vec<Member>,
    /// The member that is watched as the leader.
    leader: Arc<AtomicU64>,
    last: Option<Status>,
    /// What was reported of a leader under whom reads fail as yet.
    said: Option<Status>,
    answers: bool,
}

impl Follower {
    fn named(&self, id: u64) -> String {
        self.all.iter().find(|one| one.id == id).map_or_else(|| format!("{id:x}"), Member::to_string)
    }

    /// What an answer adds. `reads` tries a linearizable read.
    fn take(
        &mut self,
        status: Result<Status, Fault>,
        reads: impl FnOnce() -> Result<(), Fault>,
    ) -> Vec<(Sign, String)> {
        let member = self.member.to_string();
        let status = match status {
            Ok(status) => status,
            Err(why) => {
                let is_first = std::mem::replace(&mut self.answers, false);
                // The end of another member is not a failover.
                let is_leader = self.leader.load(Ordering::Relaxed) == self.member.id;
                let sign = (is_first && is_leader)
                    .then(|| (Sign::Step, format!("an operation on {member} failed: {why}")));
                return sign.into_iter().collect();
            }
        };
        self.answers = true;
        let before = self.last.replace(status);
        if before.is_none_or(|before| before.leader == status.leader) {
            return Vec::new();
        }
        if status.leader == 0 {
            return vec![(Sign::Step, format!("etcd: {member} has no leader (term {})", status.term))];
        }
        let mut steps = Vec::new();
        if self.said.replace(status) != Some(status) {
            let leader = self.named(status.leader);
            steps.push((Sign::Step, format!("etcd: {member} follows {leader} (term {})", status.term)));
        }
        match reads() {
            Ok(()) => steps.push((Sign::End, format!("etcd: {member} answers a linearizable read"))),
            Err(Fault::Refused(why)) => {
                steps.push((Sign::End, format!("etcd: {member} refuses a read without a user: {why}")));
            }
            // It is tried again with the next answer.
            Err(Fault::Failed(_)) => self.last = before,
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(id: u64, name: &str) -> Member {
        Member { id, name: name.to_owned(), url: format!("http://127.0.0.1:{id}") }
    }

    fn follower() -> Follower {
        let all = vec![member(1, "m1"), member(2, "m2"), member(3, "")];
        Follower {
            member: all[1].clone(),
            all,
            leader: Arc::new(AtomicU64::new(1)),
            last: None,
            said: None,
            answers: true,
        }
    }

    const fn status(leader: u64, term: u64) -> Result<Status, Fault> {
        Ok(Status { leader, term })
    }

    fn reads() -> Result<(), Fault> {
        Ok(())
    }

    fn failed<T>() -> Result<T, Fault> {
        Err(Fault::Failed("refused".to_owned()))
    }

    #[test]
    fn members_have_a_port_or_the_usual_one() {
        let of = |text| parse(text).map(|Endpoints(all)| all);
        let expected = |all: &[(&str, u16)]| {
            Some(all.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect::<Vec<_>>())
        };
        assert_eq!(of("10.1.0.1"), expected(&[("10.1.0.1", PORT)]));
        assert_eq!(of("db:7000,[::1]:7001"), expected(&[("db", 7000), ("::1", 7001)]));
        for wrong in ["", "db,", "db:x", "db/path", "u:p@db"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
        assert_eq!(address("http://127.0.0.1:2380").expect("one").to_string(), "127.0.0.1:2380");
        assert_eq!(address("https://[::1]:2380").expect("one").to_string(), "[::1]:2380");
        assert!(address("http://").is_err());
    }

    #[test]
    fn answers_of_etcd_name_the_members_that_clients_reach() {
        let answer = json!({ "members": [
            { "ID": "1", "name": "m1", "clientURLs": ["http://127.0.0.1:1/"] },
            { "ID": "2", "name": "starting" },
            { "ID": "3", "clientURLs": ["http://127.0.0.1:3"] },
        ]});
        assert_eq!(members(&answer), [member(1, "m1"), member(3, "")]);
        assert_eq!(member(31, "").to_string(), "1f");
        assert_eq!(members(&json!({})), []);
    }

    #[test]
    fn a_failover_begins_without_a_leader_and_ends_with_a_read() {
        let mut follower = follower();
        assert_eq!(follower.take(status(1, 4), reads), []);
        assert_eq!(follower.take(status(1, 4), reads), []);
        assert_eq!(
            follower.take(status(0, 5), reads),
            [(Sign::Step, "etcd: m2 has no leader (term 5)".to_owned())]
        );
        assert_eq!(
            follower.take(status(3, 5), failed),
            [(Sign::Step, "etcd: m2 follows 3 (term 5)".to_owned())]
        );
        assert_eq!(follower.take(status(3, 5), failed), []);
        assert_eq!(
            follower.take(status(3, 5), reads),
            [(Sign::End, "etcd: m2 answers a linearizable read".to_owned())]
        );
        assert_eq!(follower.take(status(3, 5), reads), []);
        let refused = follower.take(status(1, 6), || Err(Fault::Refused("400".to_owned())));
        assert_eq!(refused.last().map(|(sign, _)| *sign), Some(Sign::End), "{refused:?}");
    }

    #[test]
    fn an_operation_that_fails_is_evidence_at_the_leader_alone_and_once() {
        let mut follower = follower();
        assert_eq!(follower.take(failed(), reads), []);
        follower.leader.store(2, Ordering::Relaxed);
        assert_eq!(follower.take(status(2, 4), reads), []);
        assert_eq!(
            follower.take(failed(), reads),
            [(Sign::Step, "an operation on m2 failed: refused".to_owned())]
        );
        assert_eq!(follower.take(failed(), reads), []);
    }
}
