//! The cache, asked by a member that does nothing but ask and look for answers.

use super::{ANSWER_TIMEOUT, KEY, PUT_EVERY, Peer, VALUE};
use obol_fabric::host::clock;
use obol_fabric::{Endpoint, Fabric};
use obol_kv::{Client, Done, Node, Operation, Status};
use obol_server::kv::Patience;
use std::io;
use std::time::Duration;

/// Keys of the pipelined operations.
const KEYS: u64 = 1_024;
/// Looks at the lease that are timed at once, and how often.
const LOOKS: u32 = 1_000;
const BATCHES: usize = 200;

pub(super) const NAME: &str = "obol kv, replicated";

/// A client's member.
pub(super) struct Cache {
    pub(super) endpoint: Endpoint,
    pub(super) node: Node,
}

fn no_client() -> io::Error {
    io::Error::other("no client")
}

fn wrong() -> io::Error {
    io::Error::other("it gave a wrong answer")
}

/// One operation.
struct One<'a> {
    node: &'a mut Node,
    operation: Operation,
}

impl One<'_> {
    fn run(self, endpoint: &mut Endpoint) -> io::Result<Done> {
        let client = self.node.client().ok_or_else(no_client)?;
        let begun = clock::now();
        client.begin(begun, self.operation, endpoint).map_err(io::Error::other)?;
        endpoint.flush();
        let mut patience = Patience::default();
        loop {
            endpoint.poll_once(self.node);
            if let Some(done) = self.node.client().and_then(Client::take) {
                return Ok(done);
            }
            if clock::now().since(begun).to_std() > ANSWER_TIMEOUT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            patience.idle();
        }
    }
}

/// As many operations as go through within a span, as many at once as a client can have on the way.
struct Flood<'a> {
    node: &'a mut Node,
    span: Duration,
    /// What the n-th one is.
    operation: fn(u64) -> Operation,
    /// Limit of their number.
    most: u64,
}

impl Flood<'_> {
    fn run(self, endpoint: &mut Endpoint) -> io::Result<u64> {
        let (mut begun, mut ended) = (0, 0);
        let mut patience = Patience::default();
        let begin = clock::now();
        let mut heard = begin;
        while ended < self.most {
            endpoint.poll_once(self.node);
            let client = self.node.client().ok_or_else(no_client)?;
            let now = clock::now();
            let before = ended;
            while let Some(done) = client.take() {
                ended += 1;
                if done.status != Status::Done {
                    return Err(wrong());
                }
            }
            if ended > before {
                (heard, patience) = (now, Patience::default());
            } else if now.since(heard).to_std() > ANSWER_TIMEOUT {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            } else {
                patience.idle();
            }
            if now.since(begin).to_std() >= self.span {
                // What is on the way is answered first, so that the next one begins with nothing.
                if ended == begun {
                    break;
                }
                continue;
            }
            while begun < self.most && !client.is_busy() {
                client.begin(now, (self.operation)(begun), endpoint).map_err(io::Error::other)?;
                begun += 1;
            }
            endpoint.flush();
        }
        Ok(ended)
    }
}

/// Times looks at the lease.
struct Looks<'a> {
    node: &'a Node,
}

impl Looks<'_> {
    /// Returns the median, in nanoseconds.
    fn run(self, endpoint: &mut Endpoint) -> f64 {
        let view = self.node.member().view().id;
        let mut times: Vec<u64> = (0..BATCHES)
            .map(|_| {
                let begun = clock::now();
                for _ in 0..LOOKS {
                    std::hint::black_box(endpoint.is_active(std::hint::black_box(view)));
                }
                clock::now().since(begun).0
            })
            .collect();
        times.sort_unstable();
        times[BATCHES / 2] as f64 / f64::from(LOOKS)
    }
}

impl Cache {
    fn ask(&mut self, operation: Operation) -> io::Result<Done> {
        let done = One { node: &mut self.node, operation }.run(&mut self.endpoint)?;
        if done.status == Status::Done { Ok(done) } else { Err(wrong()) }
    }

    /// Writes all the keys of pipelined operations.
    pub(super) fn fill(&mut self) -> io::Result<u64> {
        let operation = |n| Operation::Put(n % KEYS, VALUE[..].into());
        Flood { node: &mut self.node, span: Duration::MAX, operation, most: KEYS }.run(&mut self.endpoint)
    }

    /// Nanoseconds that a look at the lease takes.
    pub(super) fn look(&mut self) -> f64 {
        Looks { node: &self.node }.run(&mut self.endpoint)
    }
}

impl Peer for Cache {
    fn name(&self) -> &str {
        NAME
    }

    fn put(&mut self) -> io::Result<()> {
        self.ask(Operation::Put(KEY, VALUE[..].into())).map(drop)
    }

    fn get(&mut self) -> io::Result<()> {
        let done = self.ask(Operation::Get(KEY))?;
        if done.value[..] == VALUE[..] { Ok(()) } else { Err(wrong()) }
    }

    fn flood(&mut self, span: Duration) -> io::Result<Option<u64>> {
        let operation = |n: u64| {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % KEYS;
            if n.is_multiple_of(PUT_EVERY) {
                Operation::Put(key, VALUE[..].into())
            } else {
                Operation::Get(key)
            }
        };
        Flood { node: &mut self.node, span, operation, most: u64::MAX }.run(&mut self.endpoint).map(Some)
    }
}
