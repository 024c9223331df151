//! Connections and batches with a store beside them, without a cluster.

use super::batches::{Batches, Connections, Way};
use super::connection::{Connection, READ_BYTES};
use obol_fabric::sim::Rng;
use obol_smr::{KeyValue, Operation, Service};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// A store that answers operations later.
#[derive(Default)]
struct Store {
    service: KeyValue,
    begun: Vec<(u64, Operation)>,
    operations: u64,
}

impl Way for Store {
    fn is_busy(&self) -> bool {
        self.begun.len() > 5
    }

    fn begin(&mut self, operation: Operation) -> Option<u64> {
        self.operations += 1;
        self.begun.push((self.operations, operation));
        Some(self.operations)
    }
}

impl Store {
    /// Answers all that was sent.
    fn answer(&mut self, batches: &mut Batches, connections: &mut Connections, touched: &mut Vec<u64>) {
        for (id, operation) in std::mem::take(&mut self.begun) {
            let mut reply = Vec::new();
            match operation {
                Operation::Propose(command) => self.service.apply(&command, &mut reply),
                Operation::Query(query) => self.service.read(&query, &mut reply),
                Operation::Resize(_) => {}
            }
            batches.finish(id, &reply, connections, touched);
        }
    }
}

/// Clients and the connections to them.
fn connect(count: u64) -> (Vec<TcpStream>, Connections) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("bound");
    let (mut clients, mut connections) = (Vec::new(), Connections::new());
    for id in 0..count {
        let client = TcpStream::connect(at).expect("it listens");
        client.set_nonblocking(true).expect("a socket");
        clients.push(client);
        let (stream, _) = listener.accept().expect("one connects");
        connections.insert(id, Connection::new(stream).expect("a socket"));
    }
    (clients, connections)
}

fn info() -> String {
    "info".to_owned()
}

fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Commands of a client on a key of its own, and the replies to them.
fn pipeline(client: u64, rng: &mut Rng) -> (Vec<u8>, Vec<u8>) {
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    let (key, mut value) = (format!("key{client}"), None::<String>);
    let bulk = |value: &Option<String>| match value {
        None => "$-1\r\n".to_owned(),
        Some(value) => format!("${}\r\n{value}\r\n", value.len()),
    };
    for n in 0..40 {
        match rng.below(6) {
            0 => {
                bytes.extend(request(&["PING"]));
                replies.extend(b"+PONG\r\n");
            }
            1 => {
                bytes.extend(format!("get \"{key}\"\r\n").into_bytes());
                replies.extend(bulk(&value).into_bytes());
            }
            2 | 3 => {
                // Two of them do not fit into one reply.
                let new = n.to_string().repeat(1 + rng.below(200) as usize);
                bytes.extend(request(&["SET", &key, &new]));
                replies.extend(b"+OK\r\n");
                value = Some(new);
            }
            4 => {
                bytes.extend(request(&["MGET", &key, &key]));
                let all = bulk(&value).repeat(2);
                // With the longest possible length of each.
                let is_long = 2 * value.as_ref().map_or(0, |value| value.len() + 16) + 16 + 3 > 1024;
                let refused = "-ERR a reply has at most 1024 bytes here; ask for fewer keys\r\n".to_owned();
                replies.extend(if is_long { refused } else { format!("*2\r\n{all}") }.into_bytes());
            }
            _ => {
                bytes.extend(request(&["SET", &key, &"x".repeat(1100)]));
                let why = "-ERR a command has at most 1008 bytes in 3 arguments here, this one has";
                replies.extend(format!("{why} {}\r\n", 1103 + key.len()).into_bytes());
            }
        }
    }
    (bytes, replies)
}

/// Sends what each client has, in pieces; returns what each received.
fn run(sends: &[Vec<u8>], store: &mut Store, batches: &mut Batches, rng: &mut Rng) -> Vec<Vec<u8>> {
    let (mut clients, mut connections) = connect(sends.len() as u64);
    let mut received = vec![Vec::new(); sends.len()];
    let mut at = vec![0; sends.len()];
    let (mut touched, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    for round in 0..100_000 {
        for (n, client) in clients.iter_mut().enumerate() {
            let rest = &sends[n][at[n]..];
            let some = rest.len().min(rng.below(600) as usize);
            client.write_all(&rest[..some]).expect("there is room");
            at[n] += some;
        }
        for (id, connection) in &mut connections {
            connection.receive(&mut buffer);
            batches.enqueue(*id, connection);
        }
        // Some answers are late.
        if round % 3 != 0 {
            store.answer(batches, &mut connections, &mut touched);
        }
        batches.fill(&mut connections, &mut touched, &info);
        batches.send(round % 4 == 0, store);
        for id in touched.drain(..) {
            let connection = connections.get_mut(&id).expect("it is there");
            connection.send();
        }
        for (client, received) in clients.iter_mut().zip(&mut received) {
            while let Ok(read @ 1..) = client.read(&mut buffer) {
                received.extend_from_slice(&buffer[..read]);
            }
        }
        let is_done = connections.values().all(|one| one.in_flight == 0 && one.untaken() == 0);
        if is_done && at.iter().zip(sends).all(|(at, all)| *at == all.len()) {
            break;
        }
    }
    received
}

#[test]
fn each_connection_has_its_replies_in_order_however_its_commands_are_batched() {
    for seed in 0..20 {
        let (mut rng, mut store, mut batches) = (Rng::new(seed), Store::default(), Batches::default());
        let all: Vec<_> = (0..30).map(|client| pipeline(client, &mut rng)).collect();
        let sends: Vec<Vec<u8>> = all.iter().map(|(sends, _)| sends.clone()).collect();
        let received = run(&sends, &mut store, &mut batches, &mut rng);
        for (client, ((_, expected), received)) in all.iter().zip(&received).enumerate() {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            assert_eq!(text(received), text(expected), "seed {seed}, client {client}");
        }
    }
}

#[test]
fn a_connection_that_sends_thousands_of_commands_leaves_their_turns_to_others() {
    const PINGS: usize = 5000;
    let (mut batches, mut touched, mut buffer) = (Batches::default(), Vec::new(), vec![0; READ_BYTES]);
    let (mut clients, mut connections) = connect(2);
    clients[0].write_all(&b"PING\r\n".repeat(PINGS)).expect("there is room");
    clients[1].write_all(&request(&["GET", "a"])).expect("there is room");
    while connections[&0].untaken() < 6 * PINGS || connections[&1].untaken() == 0 {
        for (id, connection) in &mut connections {
            connection.receive(&mut buffer);
            batches.enqueue(*id, connection);
        }
    }
    batches.fill(&mut connections, &mut touched, &info);
    assert_eq!((batches.are_left(), batches.owners()), (true, (0, 0)));
    batches.fill(&mut connections, &mut touched, &info);
    assert_eq!((batches.are_left(), batches.owners()), (true, (1, 0)), "the other's command is in a batch");
    let turns = (0..).take_while(|_| {
        batches.fill(&mut connections, &mut touched, &info);
        batches.are_left()
    });
    assert_eq!(turns.count(), 2);
    assert_eq!(connections[&0].untaken(), 0);
}

#[test]
fn commands_of_many_connections_share_operations() {
    let (mut rng, mut store, mut batches) = (Rng::new(1), Store::default(), Batches::default());
    let sends: Vec<Vec<u8>> = (0..40).map(|n| request(&["SET", &format!("key:{n:012}"), "xxx"])).collect();
    let received = run(&sends, &mut store, &mut batches, &mut rng);
    assert!(received.iter().all(|reply| reply == b"+OK\r\n"), "{received:?}");
    assert!(store.operations < 40, "{} operations", store.operations);
    assert_eq!(store.service.len(), 40);
}

#[test]
fn a_command_that_is_longer_than_what_is_read_at_once_is_refused_and_the_next_one_executed() {
    let (mut rng, mut store, mut batches) = (Rng::new(1), Store::default(), Batches::default());
    let long = "x".repeat(200_000);
    let sends = vec![[request(&["SET", "k", &long]), request(&["INCR", "n"])].concat()];
    let received = run(&sends, &mut store, &mut batches, &mut rng);
    let why = "-ERR a command has at most 1008 bytes in 3 arguments here, this one has 200004\r\n:1\r\n";
    assert_eq!(String::from_utf8_lossy(&received[0]), why);
}

#[test]
fn what_was_sent_when_the_client_of_the_store_ended_is_answered_with_an_error() {
    let ((mut clients, mut connections), mut store, mut batches) =
        (connect(2), Store::default(), Batches::default());
    let (mut touched, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    clients[0].write_all(&request(&["INCR", "n"])).expect("there is room");
    let first = connections.get_mut(&0).expect("connected");
    while first.untaken() == 0 {
        first.receive(&mut buffer);
    }
    batches.enqueue(0, first);
    batches.fill(&mut connections, &mut touched, &info);
    batches.send(true, &mut store);
    let (id, _) = store.begun.pop().expect("it was sent");
    batches.abandon("it ended", &mut connections, &mut touched);
    assert!(touched.contains(&0) && !touched.contains(&1), "{touched:?}");
    let first = connections.get_mut(&0).expect("connected");
    first.send();
    assert!(first.is_over());
    batches.finish(id, &[1, 4, 0, b':', b'1', b'\r', b'\n'], &mut connections, &mut touched);
    clients[0].set_nonblocking(false).expect("a socket");
    connections.clear();
    let mut said = String::new();
    clients[0].read_to_string(&mut said).expect("text");
    assert_eq!(said, "-ERR whether the command took effect is unknown: it ended\r\n");
}

#[test]
fn a_client_for_which_there_is_no_room_is_told_so() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    super::refuse(listener.accept().expect("one connects").0);
    let mut said = String::new();
    client.read_to_string(&mut said).expect("until its end");
    assert_eq!(said, "-ERR max number of clients reached\r\n");
}
