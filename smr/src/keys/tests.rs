use super::*;

/// Executes commands, words separated by spaces, in one batch.
fn run(keys: &mut Keys, at: u64, commands: &[&str]) -> Vec<String> {
    let mut batch = Batch::new(at);
    for command in commands {
        assert!(batch.push(&command.split(' ').collect::<Vec<_>>()), "{command}");
    }
    let mut reply = Vec::new();
    keys.apply(&batch.bytes(), &mut reply);
    shown(&reply)
}

fn shown(reply: &[u8]) -> Vec<String> {
    let replies = Batch::replies(reply).expect("valid");
    replies.iter().map(|reply| String::from_utf8_lossy(reply).replace("\r\n", ";")).collect()
}

fn read(keys: &Keys, at: u64, command: &str) -> Vec<String> {
    let mut batch = Batch::new(at);
    assert!(batch.push(&command.split(' ').collect::<Vec<_>>()));
    let mut reply = Vec::new();
    keys.read(&batch.bytes(), &mut reply);
    shown(&reply)
}

#[test]
fn commands_answer_as_redis_does() {
    let mut keys = Keys::default();
    for (command, reply) in [
        ("GET a", "$-1;"),
        ("SET a 1", "+OK;"),
        ("set a 2 nx", "$-1;"),
        ("SET b 2 XX", "$-1;"),
        ("SET a 3 XX GET", "$1;1;"),
        ("SET a 3 NX XX", "-ERR syntax error;"),
        ("SET a 3 EX", "-ERR syntax error;"),
        ("SET a 3 EX 0", "-ERR invalid expire time in 'set' command;"),
        ("SET a 3 EX 9223372036854775807", "-ERR invalid expire time in 'set' command;"),
        ("INCR a", ":4;"),
        ("INCRBY a 9223372036854775807", "-ERR increment or decrement would overflow;"),
        ("INCRBY a x", "-ERR value is not an integer or out of range;"),
        ("DECR a", ":3;"),
        ("DECRBY a -9223372036854775808", "-ERR decrement would overflow;"),
        ("SET t text", "+OK;"),
        ("INCR t", "-ERR value is not an integer or out of range;"),
        ("MSET x 1 y 2", "+OK;"),
        ("MGET x none y", "*3;$1;1;$-1;$1;2;"),
        ("MSET x", "-ERR wrong number of arguments for 'mset' command;"),
        ("EXISTS x x none", ":2;"),
        ("DEL x none y", ":2;"),
        ("DBSIZE", ":2;"),
        ("TTL a", ":-1;"),
        ("TTL none", ":-2;"),
        ("PERSIST a", ":0;"),
        ("GET", "-ERR wrong number of arguments for 'get' command;"),
        ("FLUSHALL", "+OK;"),
        ("DBSIZE", ":0;"),
        ("LPUSH a 1", "-ERR unknown command 'LPUSH';"),
    ] {
        assert_eq!(run(&mut keys, 5, &[command]), [reply], "{command}");
    }
}

#[test]
fn a_key_expires_by_the_time_of_entries_alone() {
    let mut keys = Keys::default();
    run(&mut keys, 1_000, &["SET a 1 PX 500", "SET b 1 EX 2", "INCR a"]);
    assert_eq!(
        run(&mut keys, 1_100, &["PTTL a", "TTL b", "SET b 2 KEEPTTL", "PTTL b"]),
        [":400;", ":2;", "+OK;", ":1900;"]
    );
    // Time does not go back.
    assert_eq!(run(&mut keys, 7, &["PTTL a"]), [":400;"]);
    assert_eq!(run(&mut keys, 1_499, &["GET a"]), ["$1;2;"]);
    assert_eq!(read(&keys, 1_499, "GET a"), ["$1;2;"]);
    assert!(read(&keys, 1_500, "GET a").is_empty(), "time has to pass in the log first");
    assert_eq!(run(&mut keys, 1_500, &["GET a", "DBSIZE"]), ["$-1;", ":1;"]);
    assert_eq!(read(&keys, 1_500, "GET a"), ["$-1;"]);
    run(&mut keys, 1_500, &["PERSIST b", "SET c 1 PX 1", "EXPIRE b 0"]);
    assert_eq!(run(&mut keys, 9_000, &["DBSIZE"]), [":0;"]);
    assert!(keys.deadlines.is_empty());
}

#[test]
fn commands_whose_replies_have_no_room_are_not_executed() {
    let mut keys = Keys::default();
    let set = format!("SET a {}", "x".repeat(900));
    run(&mut keys, 1, &[&set]);
    let replies = run(&mut keys, 1, &["GET a", "INCR n", "INCR n", "GET a"]);
    assert_eq!(replies.len(), 1, "{replies:?}");
    assert_eq!(run(&mut keys, 1, &["GET n"]), ["$-1;"]);
    let refused = run(&mut keys, 1, &["MGET a a"]);
    assert!(refused[0].starts_with("-ERR a reply has at most 1024 bytes"), "{refused:?}");
    assert!(read(&keys, 1, "SET a 1").is_empty(), "a query changes nothing");
}

#[test]
fn a_saved_state_is_loaded_with_its_time_and_deadlines() {
    let mut keys = Keys::default();
    run(&mut keys, 1_000, &["SET a 1 PX 500", "SET b 2"]);
    let mut bytes = Vec::new();
    keys.save(&mut bytes);
    assert_eq!(Keys::load(&bytes).as_ref(), Some(&keys));
    assert_eq!(Keys::load(&bytes[..bytes.len() - 1]), None);
    assert_eq!(Keys::load(b""), None);
}

#[test]
fn bytes_that_are_no_batch_change_nothing() {
    let mut keys = Keys::default();
    run(&mut keys, 1, &["SET a 1"]);
    let before = keys.clone();
    for bytes in [&b"\x04"[..], &[4, 9, 0, 0, 0, 0, 0, 0, 0, 1, 200], &[4, 9, 0, 0, 0, 0, 0, 0, 0, 5]] {
        let mut reply = Vec::new();
        keys.apply(bytes, &mut reply);
        assert_eq!((Batch::replies(&reply), &keys), (Some(Vec::new()), &before), "{bytes:?}");
    }
}
