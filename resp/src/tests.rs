//! Connections and batches with a store beside them, without a cluster.

use super::admission::Password;
use super::batches::{Batches, Connections, DOWN, STALLED_AFTER};
use super::connection::{Connection, READ_BYTES};
use super::local::{Session, Setting};
use super::operation_sink::OperationSink;
use obol_fabric::Name;
use obol_rng::Rng;
use obol_smr::{KeyValue, Operation, Service};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A store that answers operations later.
#[derive(Default)]
struct Store {
    service: KeyValue,
    begun: Vec<(u64, Operation)>,
    operations: u64,
}

impl OperationSink for Store {
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
                Operation::Propose(mut command) => {
                    self.service.admit(&mut command);
                    self.service.apply(&command, &mut reply);
                }
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
        connections.insert(id, Connection::new(stream, Session::new(id, true)).expect("a socket"));
    }
    (clients, connections)
}

/// Where nobody looks whether somebody has asked.
fn nobody() -> &'static Cell<bool> {
    Box::leak(Box::new(Cell::new(false)))
}

/// A server without a password.
fn setting() -> Setting<'static> {
    Setting { password: None, info: &|| "info".to_owned(), down: None, asked: nobody(), is_crowded: false }
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
                replies.extend(format!("*2\r\n{all}").into_bytes());
            }
            _ => {
                // It does not fit into one entry.
                let new = "long".repeat(260 + rng.below(2000) as usize);
                bytes.extend(request(&["SET", &key, &new]));
                replies.extend(b"+OK\r\n");
                value = Some(new);
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
        batches.fill(&mut connections, &mut touched, &setting());
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
    batches.fill(&mut connections, &mut touched, &setting());
    assert_eq!((batches.are_left(), batches.owners()), (true, (0, 0)));
    batches.fill(&mut connections, &mut touched, &setting());
    assert_eq!((batches.are_left(), batches.owners()), (true, (1, 0)), "the other's command is in a batch");
    let turns = (0..).take_while(|_| {
        batches.fill(&mut connections, &mut touched, &setting());
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
fn a_command_that_is_longer_than_the_store_takes_is_refused_and_the_next_one_executed() {
    let (mut rng, mut store, mut batches) = (Rng::new(1), Store::default(), Batches::default());
    let long = "x".repeat(1_200_000);
    let sends = vec![[request(&["SET", "k", &long]), request(&["INCR", "n"])].concat()];
    let received = run(&sends, &mut store, &mut batches, &mut rng);
    let why =
        "-ERR a command has at most 1179648 bytes with lengths, in 1024 arguments; this one has 1200004 in 3";
    assert_eq!(String::from_utf8_lossy(&received[0]), format!("{why}\r\n:1\r\n"));
}

#[test]
fn a_read_that_a_full_store_cannot_execute_says_what_is_wrong() {
    let mut rng = Rng::new(1);
    let mut store = Store { service: KeyValue::default().with_memory_max(1), ..Store::default() };
    let mut said = |sends: Vec<u8>| {
        let received = run(&[sends], &mut store, &mut Batches::default(), &mut rng);
        String::from_utf8_lossy(&received[0]).into_owned()
    };
    assert_eq!(said(request(&["SET", "k", "v"])), "+OK\r\n");
    let (long, longer) = ("k".repeat(2000), "k".repeat((1 << 20) + 1));
    let (long, longer) = (long.as_str(), longer.as_str());
    let why = "-ERR a key or value has at most 1048576 bytes, this one 1048577\r\n";
    let full = "used memory > 'maxmemory'";
    for (command, reply) in [
        (["GET", "k"], "$1\r\nv\r\n".to_owned()),
        (["INCR", "n"], format!("-OOM command not allowed when {full}.\r\n")),
        (["GET", longer], why.to_owned()),
        (
            ["GET", long],
            format!(
                "-OOM a command whose text or reply has more than about 1000 bytes needs memory also if it only reads, \
                 and {full}\r\n"
            ),
        ),
    ] {
        assert_eq!(said(request(&command)), reply);
    }
    // Others are executed after it.
    let both = [request(&["SET", "k", longer]), request(&["INCR", "n"])].concat();
    let received = run(&[both], &mut Store::default(), &mut Batches::default(), &mut Rng::new(1));
    assert_eq!(String::from_utf8_lossy(&received[0]), format!("{why}:1\r\n"));
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
    batches.fill(&mut connections, &mut touched, &setting());
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

/// What a client gets that sends these bytes, and whether its connection ends.
fn said(setting: &Setting<'_>, store: &mut Store, sends: &[u8]) -> (String, bool) {
    let ((mut clients, mut connections), mut batches) = (connect(1), Batches::default());
    let (mut touched, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    let connection = connections.get_mut(&0).expect("connected");
    connection.session = Session::new(7, setting.password.is_none());
    clients[0].write_all(sends).expect("there is room");
    while connection.untaken() < sends.len() {
        connection.receive(&mut buffer);
    }
    batches.enqueue(0, connection);
    loop {
        batches.fill(&mut connections, &mut touched, setting);
        batches.send(true, store);
        if store.begun.is_empty() && !batches.are_left() {
            break;
        }
        store.answer(&mut batches, &mut connections, &mut touched);
    }
    let connection = connections.get_mut(&0).expect("connected");
    connection.send();
    let is_over = connection.is_over();
    connections.clear();
    clients[0].set_nonblocking(false).expect("a socket");
    let mut received = Vec::new();
    while let Ok(read @ 1..) = clients[0].read(&mut buffer) {
        received.extend_from_slice(&buffer[..read]);
    }
    (String::from_utf8_lossy(&received).into_owned(), is_over)
}

#[test]
fn commands_in_the_body_of_a_request_of_http_are_not_executed() {
    let mut store = Store::default();
    assert_eq!(said(&setting(), &mut store, b"SET k v\r\n"), ("+OK\r\n".to_owned(), false));
    let body = "Content-Type: text/plain\r\n\r\nFLUSHALL\r\nSET k w\r\n";
    for begin in [
        "POST / HTTP/1.1\r\nHost: a\r\n",
        "post / HTTP/1.1\r\nHost: a\r\n",
        "PUT / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:6379\r\n",
        "DELETE /key\r\nhOsT:a\r\n",
        "*1\r\n$4\r\nPOST\r\n",
    ] {
        let (_, is_over) = said(&setting(), &mut store, format!("{begin}{body}").as_bytes());
        assert!(is_over, "{begin}");
    }
    let got = said(&setting(), &mut store, b"GET k\r\nDBSIZE\r\n").0;
    assert_eq!(got, "$1\r\nv\r\n:1\r\n");
}

#[test]
fn a_request_of_http_is_logged_with_its_address() {
    let ((mut clients, mut connections), mut batches) = (connect(1), Batches::default());
    let (mut touched, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    clients[0].write_all(b"POST / HTTP/1.1\r\n").expect("there is room");
    let connection = connections.get_mut(&0).expect("connected");
    while connection.untaken() == 0 {
        connection.receive(&mut buffer);
    }
    batches.enqueue(0, connection);
    batches.fill(&mut connections, &mut touched, &setting());
    let connection = connections.get_mut(&0).expect("connected");
    let line = connection.take_event().expect("there is one");
    let from = clients[0].local_addr().expect("a socket").to_string();
    assert!(line.contains("a request of HTTP") && line.contains(&from), "{line}");
    assert_eq!(connection.take_event(), None, "once");
}

#[test]
fn nothing_is_done_for_a_client_before_it_has_sent_the_password() {
    const RIGHT: &str = "0123456789abcdef";
    let password = Password::new(RIGHT);
    let setting = Setting { password: Some(&password), ..setting() };
    let mut store = Store::default();
    let mut ask = |sends: &str| said(&setting, &mut store, sends.replace('\n', "\r\n").as_bytes());
    let no = "-NOAUTH Authentication required.\r\n";
    for command in
        ["SET k v", "GET k", "FLUSHALL", "PING", "INFO", "CLIENT SETNAME a", "CONFIG GET *", "NONE"]
    {
        assert_eq!(ask(&format!("{command}\n")), (no.to_owned(), false), "{command}");
    }
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for attempt in ["AUTH x", "AUTH default x", &format!("AUTH other {RIGHT}"), "HELLO 2 AUTH default x"] {
        assert_eq!(ask(&format!("{attempt}\nGET k\n")), (format!("{wrong}{no}"), false), "{attempt}");
    }
    assert!(ask("HELLO 2\n").0.starts_with("-NOAUTH HELLO must be called"));
    for attempt in [format!("AUTH {RIGHT}"), format!("AUTH default {RIGHT}")] {
        assert_eq!(ask(&format!("{attempt}\nGET k\n")).0, "+OK\r\n$-1\r\n", "{attempt}");
    }
    let (hello, _) = ask(&format!("HELLO 2 AUTH default {RIGHT} SETNAME me\nGET k\n"));
    assert!(hello.starts_with("*14\r\n") && hello.ends_with("$-1\r\n"), "{hello}");
    let (revoked, _) = ask(&format!("AUTH {RIGHT}\nAUTH x\nGET k\n"));
    assert_eq!(revoked, format!("+OK\r\n{wrong}{no}"));
    let (long, is_over) = ask(&format!("*2\n$3\nGET\n$60000\n{}", "x".repeat(5000)));
    assert!(long.contains("unauthenticated request is too big") && is_over, "{long}");
}

#[test]
fn a_password_that_nobody_has_set_is_not_accepted() {
    for attempt in ["AUTH x", "AUTH default x", "HELLO 2 AUTH anyone wrong"] {
        let (reply, _) = said(&setting(), &mut Store::default(), format!("{attempt}\r\n").as_bytes());
        assert_eq!(reply, "-ERR Client sent AUTH, but no password is set\r\n", "{attempt}");
    }
    for (attempt, why) in [
        ("HELLO 2 AUTH x", "-ERR Syntax error in HELLO option 'AUTH'"),
        ("HELLO 2 SOMETHING", "-ERR Syntax error in HELLO option 'SOMETHING'"),
        ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
        ("HELLO 9", "-NOPROTO unsupported protocol version"),
    ] {
        let (reply, _) = said(&setting(), &mut Store::default(), format!("{attempt}\r\n").as_bytes());
        assert_eq!(reply, format!("{why}\r\n"), "{attempt}");
    }
}

#[test]
fn a_transaction_takes_effect_at_exec_and_only_as_a_whole() {
    for (lines, expected) in [
        ("MULTI\nSET a 1\nINCR a\nEXEC\nGET a\n", "+OK;+QUEUED;+QUEUED;*2;+OK;:2;$1;2;"),
        ("MULTI\nSET a 1\nDISCARD\nEXISTS a\nEXEC\n", "+OK;+QUEUED;+OK;:0;-ERR EXEC without MULTI;"),
        ("MULTI\nEXEC\nMULTI\nMULTI\nDISCARD\n", "+OK;*0;+OK;-ERR MULTI calls can not be nested;+OK;"),
        // An error at EXEC concerns its command alone, as in Redis.
        (
            "SET t x\nMULTI\nINCR t\nSET b 1\nEXEC\nGET b\n",
            "+OK;+OK;+QUEUED;+QUEUED;*2;-ERR value is not an integer or out of range;+OK;$1;1;",
        ),
        // Before and after it commands of the same packet are executed in order.
        ("SET a 1\nMULTI\nGET a\nSET a 2\nEXEC\nINCR a\n", "+OK;+OK;+QUEUED;+QUEUED;*2;$1;1;+OK;:3;"),
        (
            "MULTI\nPEXPIREAT a 1\nSET a 1 EXAT 1\nEXEC\nWATCH a\nUNWATCH\n",
            "+OK;+QUEUED;+QUEUED;*2;:0;+OK;-ERR WATCH is not supported: SET with NX, XX or GET, or INCR, may do;+OK;",
        ),
    ] {
        assert_eq!(answers(&mut Store::default(), lines), expected, "{lines}");
    }
    let long = format!("SET a {}\n", "x".repeat(600));
    for refused in ["PING\n", "SET a\n", "FLUSHALL\n", "NONSENSE\n", "EXEC now\n", &long.repeat(2)] {
        let lines = format!("MULTI\nSET tx 1\n{refused}INCR tx\nEXEC\nEXISTS tx\nEXEC\n");
        let said = answers(&mut Store::default(), &lines);
        assert!(said.starts_with("+OK;+QUEUED;") && said.contains("-ERR"), "{refused}: {said}");
        let ends = "-EXECABORT Transaction discarded because of previous errors.;:0;-ERR EXEC without MULTI;";
        assert!(said.ends_with(ends), "{refused}: {said}");
    }
}

/// What a client gets for these lines.
fn answers(store: &mut Store, lines: &str) -> String {
    said(&setting(), store, lines.replace('\n', "\r\n").as_bytes()).0.replace("\r\n", ";")
}

#[test]
fn a_client_of_resp3_gets_maps_and_its_sign_for_nothing() {
    let mut store = Store::default();
    let hello = answers(&mut store, "HELLO 3 SETNAME me\n");
    assert!(hello.starts_with("%7;$6;server;$4;obol;") && hello.contains("$5;proto;:3;$2;id;:7;"), "{hello}");
    let lines =
        "HELLO 3\nGET a\nSET a $-1\nGET a\nMGET a none a\nSET a x NX\nCLIENT GETNAME\nCONFIG GET save x\n";
    let all = answers(&mut store, lines);
    let (_, rest) = all.split_once("$7;modules;*0;").expect("HELLO is answered");
    assert_eq!(rest, "_;+OK;$3;$-1;*3;$3;$-1;_;$3;$-1;_;_;%1;$4;save;$0;;");
    let both = answers(&mut store, "HELLO 3\nHELLO 2\nGET none\n");
    assert!(both.ends_with("$7;modules;*0;$-1;") && both.contains("*14;"), "{both}");
}

#[test]
fn a_client_is_told_its_name_and_number() {
    let lines = "CLIENT GETNAME\nCLIENT SETNAME me\nCLIENT GETNAME\nCLIENT ID\nCLIENT SETNAME \"a b\"\n";
    let expected =
        "$-1;+OK;$2;me;:7;-ERR Client names cannot contain spaces, newlines or special characters.;";
    assert_eq!(answers(&mut Store::default(), lines), expected);
    for list in ["LIST", "INFO"] {
        let all = answers(&mut Store::default(), &format!("CLIENT SETNAME me\nCLIENT {list}\nPING\n"));
        assert!(all.contains("id=7 addr=127.0.0.1:") && all.contains(" name=me "), "{all}");
        assert!(all.ends_with("resp=2\n;+PONG;"), "{all}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "commands with a time of day mean this clock")]
fn times_of_day_are_those_of_the_server() {
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 100;
    let lines =
        format!("SET a 1\nEXPIREAT a {soon}\nTTL a\nSET b 1 EXAT {soon}\nTTL b\nEXPIREAT b 5\nGET b\n");
    let got = answers(&mut Store::default(), &lines);
    let got: Vec<&str> = got.split(';').collect();
    let [_, _, first, _, second, ..] = got[..] else { panic!("{got:?}") };
    assert!([first, second].iter().all(|left| matches!(*left, ":98" | ":99" | ":100")), "{got:?}");
    assert_eq!(got[5..], [":1", "$-1", ""], "what has passed ends at once");
    let lines = "SET a 1\nGETEX a EXAT 5\nGET a\nSET a 1\nSET a 2 EXAT 5\nGET a\nDBSIZE\n";
    assert_eq!(answers(&mut Store::default(), lines), "+OK;$1;1;$-1;+OK;+OK;$-1;:0;");
}

#[test]
fn a_time_of_day_that_is_too_late_or_none_is_refused_in_the_words_of_redis() {
    let late = i64::MAX;
    let none = "-ERR value is not an integer or out of range;";
    for (command, why) in [
        (format!("SET a 2 EXAT {late}"), "-ERR invalid expire time in 'set' command;"),
        (format!("set a 2 nx get exat {late}"), "-ERR invalid expire time in 'set' command;"),
        (format!("SET a 2 EX {late}"), "-ERR invalid expire time in 'set' command;"),
        ("SET a 2 EXAT 0".to_owned(), "-ERR invalid expire time in 'set' command;"),
        (format!("GETEX a EXAT {late}"), "-ERR invalid expire time in 'getex' command;"),
        (format!("EXPIREAT a {late}"), "-ERR invalid expire time in 'expire' command;"),
        (format!("EXPIRE a {late}"), "-ERR invalid expire time in 'expire' command;"),
        ("SET a 2 PXAT 9223372036854775808".to_owned(), none),
        ("SET a 2 EXAT soon".to_owned(), none),
        ("GETEX a PXAT soon".to_owned(), none),
        ("EXPIREAT a soon".to_owned(), none),
        ("PEXPIREAT a 9223372036854775808".to_owned(), none),
        ("EXPIREAT a".to_owned(), "-ERR wrong number of arguments for 'expireat' command;"),
    ] {
        let store = &mut Store::default();
        let said = answers(store, &format!("SET a 1\n{command}\nGET a\nTTL a\n"));
        assert_eq!(said, format!("+OK;{why}$1;1;:-1;"), "{command}");
        // One with too few arguments is refused before EXEC.
        if command == "EXPIREAT a" {
            continue;
        }
        let said = answers(store, &format!("MULTI\n{command}\nGET a\nEXEC\n"));
        assert_eq!(said, format!("+OK;+QUEUED;+QUEUED;*2;{why}$1;1;"), "{command}");
    }
    // A ms of the far future is one.
    let lines = format!("SET a 1\nPEXPIREAT a {late}\nSET b 1 PXAT {late}\nGET a\nGET b\n");
    assert_eq!(answers(&mut Store::default(), &lines), "+OK;:1;+OK;$1;1;$1;1;");
}

#[test]
fn a_store_that_does_not_answer_is_reported_and_its_commands_are_refused() {
    let ((mut clients, mut connections), mut store, mut batches) =
        (connect(3), Store::default(), Batches::default());
    let (mut touched, mut buffer) = (Vec::new(), vec![0; READ_BYTES]);
    let send =
        |clients: &mut [TcpStream], connections: &mut Connections, batches: &mut Batches, all: &[&[u8]]| {
            let mut buffer = vec![0; READ_BYTES];
            for ((client, (id, connection)), bytes) in clients.iter_mut().zip(connections.iter_mut()).zip(all)
            {
                client.write_all(bytes).expect("there is room");
                while connection.untaken() < bytes.len() {
                    connection.receive(&mut buffer);
                }
                batches.enqueue(*id, connection);
            }
        };
    send(&mut clients, &mut connections, &mut batches, &[b"INCR n\r\n", b"GET n\r\n", b"PING\r\n"]);
    batches.fill(&mut connections, &mut touched, &setting());
    batches.send(true, &mut store);
    let begun = Instant::now();
    batches.expire(begun, &mut connections, &mut touched);
    assert_eq!(batches.stalled(), None);
    batches.expire(begun + STALLED_AFTER + Duration::from_secs(1), &mut connections, &mut touched);
    assert!(batches.stalled().is_some());
    let down = Setting { down: Some(DOWN), ..setting() };
    send(&mut clients, &mut connections, &mut batches, &[b"INCR n\r\n", b"GET n\r\n", b"PING\r\n"]);
    batches.fill(&mut connections, &mut touched, &down);
    let mut got = |clients: &mut [TcpStream], connections: &mut Connections| {
        connections.values_mut().for_each(Connection::send);
        clients
            .iter_mut()
            .map(|client| {
                client.set_nonblocking(false).expect("a socket");
                let read = client.read(&mut buffer).expect("an answer");
                String::from_utf8_lossy(&buffer[..read]).into_owned()
            })
            .collect::<Vec<_>>()
    };
    let replies = got(&mut clients, &mut connections);
    assert!(
        replies[0].starts_with("-CLUSTERDOWN no leader has answered for seconds: this command may still")
    );
    assert!(
        replies[0]
            .lines()
            .nth(1)
            .is_some_and(|line| line.starts_with("-CLUSTERDOWN the store does not serve"))
    );
    assert!(replies[1].lines().all(|line| line.starts_with("-CLUSTERDOWN the store does not serve")));
    assert!(replies[2].starts_with("+PONG\r\n-CLUSTERDOWN"), "{replies:?}");
    // What was sent takes effect once after all, and the store serves again.
    store.answer(&mut batches, &mut connections, &mut touched);
    assert_eq!(batches.stalled(), None);
    send(&mut clients, &mut connections, &mut batches, &[b"INCR n\r\n", b"PING\r\n", b"PING\r\n"]);
    batches.fill(&mut connections, &mut touched, &setting());
    batches.send(true, &mut store);
    store.answer(&mut batches, &mut connections, &mut touched);
    assert_eq!(got(&mut clients, &mut connections), [":2\r\n", "+PONG\r\n", "+PONG\r\n"]);
}

#[test]
fn the_state_of_a_store_that_does_not_serve_is_not_ok() {
    let shown = |stalled| super::info(Name::new("smr-1").expect("a name"), 1, stalled);
    assert!(shown(None).contains("store_state:ok\r\nstore_unavailable_ms:0\r\n"));
    let stalled = shown(Some(Duration::from_millis(1500)));
    assert!(stalled.contains("store_state:unavailable\r\nstore_unavailable_ms:1500\r\n"), "{stalled}");
    assert!(!stalled.contains("store_state:ok"));
}

#[test]
fn a_long_command_that_was_not_executed_when_the_store_stalled_says_so_and_those_that_wait_go_on() {
    let (mut clients, mut connections) = connect(4);
    let (mut store, mut batches, mut touched) = (Store::default(), Batches::default(), Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    let value = "v".repeat(20_000);
    for ((client, (id, connection)), key) in
        clients.iter_mut().zip(&mut connections).zip(["a", "b", "c", "d"])
    {
        client.write_all(&request(&["SET", key, &value])).expect("there is room");
        while connection.untaken() < 20_000 {
            connection.receive(&mut buffer);
        }
        batches.enqueue(*id, connection);
    }
    batches.fill(&mut connections, &mut touched, &setting());
    batches.send(true, &mut store);
    assert!(!store.begun.is_empty() && store.begun.len() < 6, "others have room in the window");
    let waiting = connections.values().filter(|connection| connection.waits).count();
    assert_eq!(waiting, 2);
    batches.expire(Instant::now() + STALLED_AFTER, &mut connections, &mut touched);
    // The answers come after all; the two commands that had waited are sent.
    for _ in 0..100 {
        store.answer(&mut batches, &mut connections, &mut touched);
        batches.fill(&mut connections, &mut touched, &setting());
        batches.send(true, &mut store);
    }
    connections.values_mut().for_each(Connection::send);
    let got: Vec<String> = clients
        .iter_mut()
        .map(|client| {
            client.set_nonblocking(false).expect("a socket");
            let read = client.read(&mut buffer).expect("an answer");
            String::from_utf8_lossy(&buffer[..read]).into_owned()
        })
        .collect();
    assert!(
        got[..2].iter().all(|reply| reply.starts_with("-CLUSTERDOWN the store does not serve")),
        "{got:?}"
    );
    assert_eq!(got[2..], ["+OK\r\n", "+OK\r\n"]);
    assert_eq!(store.service.len(), 2, "what was given up is not executed");
}

#[test]
fn a_long_command_is_refused_while_too_many_bytes_of_others_wait() {
    let crowded = Setting { is_crowded: true, ..setting() };
    let long = request(&["SET", "a", &"v".repeat(2000)]);
    let (said, _) = said(&crowded, &mut Store::default(), &long);
    assert!(said.starts_with("-ERR too many long commands and replies wait here"), "{said}");
}

#[test]
fn a_client_that_only_asks_whether_the_store_serves_has_the_truth() {
    let (mut store, mut batches) = (Store::default(), Batches::default());
    let asked = Cell::new(false);
    let asking = Setting { asked: &asked, ..setting() };
    said(&asking, &mut store, b"GET a\r\n");
    assert!(!asked.replace(false));
    said(&asking, &mut store, b"PING\r\n");
    assert!(asked.get());
    let now = Instant::now();
    batches.probe(now, &mut store);
    batches.probe(now, &mut store);
    assert_eq!(store.begun.len(), 1, "one at a time");
    batches.expire(now + STALLED_AFTER, &mut Connections::new(), &mut Vec::new());
    assert!(batches.stalled().is_some());
    store.answer(&mut batches, &mut Connections::new(), &mut Vec::new());
    batches.probe(now, &mut store);
    assert!(store.begun.is_empty() && batches.stalled().is_none(), "it has just answered");
}

/// `docs/redis.md` has every command: OBOL_BLESS=1 writes it.
#[test]
fn the_page_of_commands_is_as_the_tables_are() {
    const BEGIN: &str = "<!-- commands: written by OBOL_BLESS=1 cargo test -p obol-resp the_page_of -->\n";
    const END: &str = "<!-- end of commands -->\n";
    let row = |(name, args, who): (&str, &str, &str)| {
        format!("| {name} | {} | {who} |\n", args.replace('|', "\\|"))
    };
    let store = obol_smr::commands().map(|(name, args, access)| match access {
        obol_smr::Access::Read => (name, args, "state"),
        obol_smr::Access::Write => (name, args, "entry"),
    });
    let server = super::local::TABLE.iter().map(|(name, args)| (*name, *args, "server"));
    let mut rows: Vec<String> = store.chain(server).map(row).collect();
    rows.sort();
    let table = format!("| command | arguments | by |\n|---|---|---|\n{}", rows.concat());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/redis.md");
    let page = std::fs::read_to_string(path).expect("docs/redis.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
    let (_, after) = rest.split_once(END).expect("the end of the table");
    let fresh = [before, BEGIN, &table, END, after].concat();
    if std::env::var_os("OBOL_BLESS").is_some() {
        std::fs::write(path, &fresh).expect("written");
    }
    assert!(
        fresh == page || std::env::var_os("OBOL_BLESS").is_some(),
        "OBOL_BLESS=1 writes docs/redis.md anew"
    );
    for (name, _) in super::local::TABLE {
        let got = answers(&mut Store::default(), &format!("{name}\n"));
        assert!(!got.contains("unknown command"), "{name}: {got}");
    }
}
