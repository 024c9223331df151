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
        ("SETNX n 1", ":1;"),
        ("SETNX n 2", ":0;"),
        ("GETSET n 3", "$1;1;"),
        ("TYPE n", "+string;"),
        ("TYPE none", "+none;"),
        ("APPEND n 45", ":3;"),
        ("APPEND new x", ":1;"),
        ("GETDEL n", "$3;345;"),
        ("GETDEL n", "$-1;"),
        ("SETEX n 0 x", "-ERR invalid expire time in 'setex' command;"),
        ("SETEX n 5 x", "+OK;"),
        ("TTL n", ":5;"),
        ("APPEND n y", ":2;"),
        ("TTL n", ":5;"),
        ("GETEX n PERSIST", "$2;xy;"),
        ("TTL n", ":-1;"),
        ("GETEX n px 70", "$2;xy;"),
        ("PTTL n", ":70;"),
        ("GETEX n SOON", "-ERR syntax error;"),
        ("PSETEX n 60 x", "+OK;"),
        ("PTTL n", ":60;"),
        ("EXPIRE n 5 NX", ":0;"),
        ("PEXPIRE n 50 GT", ":0;"),
        ("PEXPIRE n 50 LT", ":1;"),
        ("PEXPIRE n 80 GT", ":1;"),
        ("PEXPIRE n 90 XX", ":1;"),
        ("EXPIRE n 5 SOON", "-ERR Unsupported option SOON;"),
        ("EXPIRE n 5 XX SOON", "-ERR Unsupported option SOON;"),
        ("PTTL n", ":90;"),
        ("PEXPIRE n 80 XX GT", ":0;"),
        ("PEXPIRE n 95 gt xx", ":1;"),
        ("PEXPIRE n 99 XX LT", ":0;"),
        ("PEXPIRE n 85 XX LT", ":1;"),
        ("PTTL n", ":85;"),
        ("EXPIRE n 5 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible;"),
        ("EXPIRE n 5 GT NX", "-ERR NX and XX, GT or LT options at the same time are not compatible;"),
        ("EXPIRE n 5 XX GT LT", "-ERR GT and LT options at the same time are not compatible;"),
        ("EXPIRE new 5 GT", ":0;"),
        ("EXPIRE new 5 XX", ":0;"),
        ("EXPIRE new 5 XX LT", ":0;"),
        ("EXPIRE new 5 NX", ":1;"),
        ("EXPIREAT new x", "-ERR value is not an integer or out of range;"),
        ("UNLINK n new", ":2;"),
        ("FLUSHALL bogus", "-ERR syntax error;"),
        ("FLUSHDB 3", "-ERR syntax error;"),
        ("DBSIZE", ":2;"),
        ("FLUSHALL async", "+OK;"),
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
    // As the server words a time of day that has passed.
    for (command, reply) in [
        ("SET d 2 PX 900", "+OK;"),
        ("SET d 3 NX PXAT 0", "$-1;"),
        ("SET d 3 PXAT 0 GET", "$1;2;"),
        ("EXISTS d", ":0;"),
        ("SET d 3", "+OK;"),
        ("SET d 3 PXAT 0 PX 5", "-ERR syntax error;"),
        ("SET d 3 PXAT 0 KEEPTTL", "-ERR syntax error;"),
        ("GETEX d PXAT 0", "$1;3;"),
        ("GETEX d PXAT 0", "$-1;"),
        ("EXISTS d", ":0;"),
    ] {
        assert_eq!(run(&mut keys, 1_500, &[command]), [reply], "{command}");
    }
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
    assert!(refused[0].starts_with("-LARGE the reply has more than 1024 bytes"), "{refused:?}");
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

/// Two bounds of the same thing: what a batch takes, and what a reply has room for.
#[test]
fn every_value_that_can_be_written_can_be_read() {
    for key_bytes in [1, 2, 99, 255] {
        let key = "k".repeat(key_bytes);
        for len in (0..1024).filter(|len| *len < 12 || *len > 700 || len % 97 == 0) {
            let (mut keys, mut set) = (Keys::default(), Batch::new(1));
            let value = "v".repeat(len);
            if !set.push(&["SET", &key, &value]) {
                assert!(len + key_bytes > 1000, "{len}");
                continue;
            }
            keys.apply(&set.bytes(), &mut Vec::new());
            let bulk = format!("${len};{value};");
            assert_eq!(run(&mut keys, 1, &[&format!("GET {key}")]), [&bulk[..]], "{len}");
            assert_eq!(read(&keys, 1, &format!("GET {key}")), [&bulk[..]], "{len}");
            assert_eq!(read(&keys, 1, &format!("MGET {key}")), [format!("*1;{bulk}")], "{len}");
            assert_eq!(run(&mut keys, 1, &[&format!("SET {key} x GET")]), [&bulk[..]], "{len}");
        }
    }
}

#[test]
fn no_reply_is_longer_than_its_bound() {
    let mut keys = Keys::default();
    let values = [0, 9, 10, 99, 100, 300].map(|len| "v".repeat(len));
    for (n, value) in values.iter().enumerate() {
        run(&mut keys, 1, &[&format!("SET k{n} {value}")]);
    }
    let long = "X".repeat(300);
    for command in [
        "GET k0",
        "GET k5",
        "GET none",
        "MGET k0 k1 k2 k3 k4 none",
        "SET k5 v GET NX",
        "SET none v GET NX",
        "INCR k5",
        "EXPIRE k5 x",
        "PEXPIRE k5 9223372036854775807",
        "TTL k1",
        "DECRBY k1 -9223372036854775808",
        &long,
        "MSET x",
        "FLUSHALL bogus",
        "DBSIZE",
    ] {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let bound = keys.reply_bytes(Command::of(args[0]), &args);
        let reply = run(&mut keys, 1, &[command])[0].replace(';', "\r\n").len();
        assert!(reply <= bound, "{command}: {reply} bytes, {bound} are the bound");
    }
}

#[test]
fn a_value_grows_no_longer_than_what_can_be_read() {
    let mut keys = Keys::default();
    let most = staging::VALUE_BYTES_MAX;
    keys.set(b"a", &vec![b'v'; most - 1], 0);
    assert_eq!(run(&mut keys, 1, &["APPEND a v"]), [format!(":{most};")]);
    let refused = format!("-ERR a value has at most {most} bytes here, this one {};", most + 1);
    assert_eq!(run(&mut keys, 1, &["APPEND a v"]), [refused]);
    assert_eq!(run_long(&mut keys, 1, &[b"GETDEL", b"a"], false).len(), 1 + 7 + 2 + most + 2);
}

#[test]
fn every_command_of_the_table_is_found_by_its_name() {
    for (name, command, _) in commands::TABLE {
        assert_eq!(Command::of(name.to_lowercase().as_bytes()), Some(*command), "{name}");
    }
    let names: Vec<&str> = commands::TABLE.iter().map(|(name, ..)| *name).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn times_of_day_are_replaced_by_times_from_now() {
    let replaced = |command: &str| {
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let args = from_now(args.into_iter(), || 1_000_500)?;
        Some(args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join(" "))
    };
    for (command, by) in [
        ("EXPIREAT k 1002", Some("PEXPIRE k 1500")),
        ("expireat k 1000 NX", Some("PEXPIRE k -500 NX")),
        ("PEXPIREAT k 1000700", Some("PEXPIRE k 200")),
        ("SET k v EXAT 1002 NX", Some("SET k v PX 1500 NX")),
        ("SET k v GET pxat 5", Some("SET k v GET PXAT 0")),
        ("GETEX k EXAT 1000", Some("GETEX k PXAT 0")),
        ("GETEX k PXAT 1000501", Some("GETEX k PX 1")),
        ("SET k v EXAT 0", Some("SET k v PX 0")),
        ("SET EXAT 1", None),
        ("SET k v EX 5", None),
        ("SET k v EXAT x", None),
        ("EXPIREAT k x", None),
        ("EXPIREAT k 9223372036854775807", None),
        ("GET k", None),
    ] {
        assert_eq!(replaced(command).as_deref(), by, "{command}");
    }
}

#[test]
fn keys_that_expire_together_have_no_effect_and_are_removed_in_steps() {
    let mut keys = Keys::default();
    for n in 0..1000 {
        run(&mut keys, 1000, &[&format!("SET k{n} 7 PX 100")]);
    }
    assert_eq!(run(&mut keys, 1050, &["DBSIZE"]), [":1000;"]);
    // In each batch some are removed, and of the others those that it names.
    assert_eq!(run(&mut keys, 1200, &["DBSIZE"]), [format!(":{};", 1000 - EXPIRED_MAX)]);
    assert!(read(&keys, 1200, "GET k999").is_empty(), "a read needs an entry until all are removed");
    let commands = [
        "GET k999",
        "SET k998 a NX",
        "INCR k997",
        "DEL k996 k998",
        "TTL k995",
        "EXPIRE k994 5",
        "PERSIST k993",
    ];
    assert_eq!(run(&mut keys, 1200, &commands), ["$-1;", "+OK;", ":1;", ":1;", ":-2;", ":0;", ":0;"]);
    let mut batches = 2;
    while keys.has_expired() {
        let before = keys.len();
        run(&mut keys, 1200, &["GET none"]);
        batches += 1;
        assert!(before - keys.len() <= EXPIRED_MAX, "{before} to {}", keys.len());
    }
    assert!(batches > 1000 / EXPIRED_MAX, "{batches} batches");
    assert_eq!(
        (run(&mut keys, 1200, &["GET k997", "DBSIZE"]), keys.bytes),
        (vec!["$1;1;".into(), ":1;".into()], 5)
    );
    assert_eq!(read(&keys, 1200, "GET k997"), ["$1;1;"]);
}

#[test]
fn what_was_removed_at_once_is_dropped_in_steps() {
    let mut keys = Keys::default();
    for n in 0..3 * DROPPED_DEADLINES {
        run(&mut keys, 1000, &[&format!("SET k{n} 7 PX 100")]);
    }
    assert!(!keys.work(), "nothing to drop");
    run(&mut keys, 1000, &["FLUSHALL", "SET a b"]);
    let steps = core::iter::repeat_with(|| keys.work()).take_while(|more| *more).count();
    assert!(steps > 3, "{steps}");
    assert_eq!(keys.begin_save(), 8 + 16 + 2);
    assert_eq!((keys.len(), keys.bytes), (1, 2));
}

/// Executes the commands of a transaction after some others, all in one batch.
fn transact(keys: &mut Keys, first: &[&str], commands: &[&str], full: bool) -> Vec<String> {
    let mut batch = Batch::new(keys.time());
    for command in first {
        assert!(batch.push(&command.split(' ').collect::<Vec<_>>()), "{command}");
    }
    let mut transaction = Transaction::default();
    for command in commands {
        assert!(transaction.push(command.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter()));
    }
    assert!(batch.push(transaction.args()));
    let (mut bytes, mut reply) = (batch.bytes(), Vec::new());
    if full {
        bytes[0] = BATCH_IF_FULL;
    }
    keys.apply(&bytes, &mut reply);
    shown(&reply)
}

#[test]
fn a_transaction_has_one_reply_and_leaves_nothing_behind_when_that_has_no_room() {
    let mut keys = Keys::default();
    let commands = ["SET a 1", "INCR a", "GET a", "INCR none x", "DEL a b"];
    let reply = "*5;+OK;:2;$1;2;-ERR wrong number of arguments for 'incr' command;:1;";
    assert_eq!(transact(&mut keys, &[], &commands, false), [reply]);
    assert_eq!(keys.len(), 0);

    let long = format!("SET v {}", "x".repeat(400));
    run(&mut keys, 0, &[&long, "SET w 1", "SET e 1 PX 100"]);
    let before = keys.clone();
    let commands = ["APPEND v y", "SET new 1", "DEL w", "PERSIST e", "GET v", "GET v", "GET v"];
    // As the first of its batch it gets an error, and is left for another one otherwise.
    let said = transact(&mut keys, &[], &commands, false);
    assert!(said.len() == 1 && said[0].starts_with("-LARGE "), "{said:?}");
    assert_eq!(keys, before);
    assert_eq!(transact(&mut keys, &["GET w"], &commands, false), ["$1;1;"]);
    assert_eq!(keys, before);

    let refused = "-OOM command not allowed when used memory > 'maxmemory'.;";
    assert_eq!(transact(&mut keys, &[], &["DEL w", "SET new 1"], true), [refused]);
    assert_eq!(keys, before);
    assert_eq!(transact(&mut keys, &[], &["DEL w"], true), ["*1;:1;"]);
}

/// Executes a command as a long one, all of whose pieces are staged; returns its reply.
fn run_long(keys: &mut Keys, id: u64, args: &[&[u8]], full: bool) -> Vec<u8> {
    let long = Long::new(id, args.iter().copied()).expect("short enough");
    let apply = |keys: &mut Keys, batch: Batch| {
        let (mut bytes, mut reply) = (batch.bytes(), Vec::new());
        stamp(&mut bytes, keys.time());
        if full {
            bytes[0] = BATCH_IF_FULL;
        }
        keys.apply(&bytes, &mut reply);
        Batch::replies(&reply).expect("valid").first().expect("one").to_vec()
    };
    for n in 0..long.pieces() {
        let reply = apply(keys, long.piece(n));
        if reply != b"+OK\r\n" {
            return reply;
        }
    }
    let reply = apply(keys, long.run());
    let LongReply::Kept(len) = Long::reply(&reply) else { return reply };
    let mut whole = Vec::new();
    for n in 0..Long::parts(len) {
        let mut part = Vec::new();
        keys.read(&long.read(n).bytes(), &mut part);
        let part = Batch::replies(&part).expect("valid")[0].to_vec();
        assert_eq!((whole.len(), part.len()), Long::part(len, n));
        whole.extend(part);
    }
    assert_eq!(apply(keys, long.forget()), b"+OK\r\n");
    whole
}

#[test]
fn a_long_command_does_what_a_short_one_does() {
    let mut rng = obol_rng::Rng::new(5);
    let (mut short, mut long) = (Keys::default(), Keys::default());
    for n in 0..2000 {
        let key = format!("k{}", rng.below(5));
        let value = "v".repeat(rng.below(200) as usize);
        let command = match rng.below(8) {
            0 => format!("GET {key}"),
            1 => format!("SET {key} {value} GET"),
            2 => format!("APPEND {key} x"),
            3 => format!("MGET {key} k1 none"),
            4 => format!("DEL {key}"),
            5 => format!("SET {key} {value} PX {}", 1 + rng.below(20)),
            6 => format!("GETDEL {key}"),
            _ => "INCR n".to_owned(),
        };
        let at = n / 2;
        short.advance(at);
        long.advance(at);
        let args: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        let replies = run(&mut short, at, &[&command]);
        let reply = run_long(&mut long, n, &args, false);
        assert_eq!(String::from_utf8_lossy(&reply).replace("\r\n", ";"), replies[0], "{command}");
        assert_eq!(short, long, "{command}");
    }
}

#[test]
fn values_of_a_megabyte_are_written_and_read_and_longer_ones_refused() {
    let mut keys = Keys::default();
    let most = staging::VALUE_BYTES_MAX;
    let value: Vec<u8> = (0..most).map(|n| (n % 251) as u8).collect();
    assert_eq!(run_long(&mut keys, 1, &[b"SET", b"k", &value], false), b"+OK\r\n");
    assert_eq!(run(&mut keys, 0, &["STRLEN k"]), [format!(":{most};")]);
    assert!(run(&mut keys, 0, &["GET k"])[0].starts_with("-LARGE "));
    assert!(read(&keys, 0, "GET k")[0].starts_with("-LARGE "));
    let bulk = [format!("${most}\r\n").as_bytes(), &value, b"\r\n"].concat();
    assert_eq!(run_long(&mut keys, 2, &[b"GET", b"k"], false), bulk);
    assert_eq!(run_long(&mut keys, 3, &[b"GETSET", b"k", b"short"], false), bulk);
    assert_eq!(run(&mut keys, 0, &["GET k"]), ["$5;short;"]);
    assert_eq!(run_long(&mut keys, 4, &[b"SET", b"k", &value], false), b"+OK\r\n");

    let reply = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let longer = [&value[..], b"x"].concat();
    let said = reply(run_long(&mut keys, 5, &[b"SET", b"k", &longer], false));
    assert!(said.starts_with("-ERR a key or value has at most 1048576 bytes, this one 1048577"), "{said}");
    let said = reply(run_long(&mut keys, 6, &[b"APPEND", b"k", b"x"], false));
    assert!(said.starts_with("-ERR a value has at most"), "{said}");
    let said = reply(run_long(&mut keys, 7, &[b"MGET", b"k", b"k"], false));
    assert!(said.starts_with("-ERR a reply has at most"), "{said}");
    let huge = vec![0; STAGED_BYTES_MAX];
    assert!(Long::new(8, [&huge[..]].into_iter()).is_none());
    assert!(keys.staging.is_empty(), "nothing is left");
}

#[test]
fn a_long_transaction_takes_effect_as_one_or_not_at_all() {
    let mut keys = Keys::default();
    let value = "v".repeat(600);
    run(&mut keys, 0, &[&format!("SET a {value}")]);
    let mut transaction = Transaction::default();
    for command in ["GET a", "SET b 1", "GET a"] {
        assert!(transaction.push(command.split(' ').map(str::as_bytes).collect::<Vec<_>>().into_iter()));
    }
    let args: Vec<&[u8]> = transaction.args().iter().map(Vec::as_slice).collect();
    let bulk = format!("$600\r\n{value}\r\n");
    let expected = format!("*3\r\n{bulk}+OK\r\n{bulk}");
    assert_eq!(run_long(&mut keys, 1, &args, false), expected.as_bytes());
    run(&mut keys, 0, &["DEL b"]);
    assert!(run_long(&mut keys, 2, &args, true).starts_with(b"-OOM"), "its pieces need memory");
    assert_eq!(run(&mut keys, 0, &["EXISTS b"]), [":0;"]);
}

#[test]
fn what_is_staged_is_saved_with_the_state_and_forgotten_in_time() {
    let mut keys = Keys::default();
    run(&mut keys, 1_000, &["SET a 1"]);
    let value = vec![7; 5_000];
    let long = Long::new(1, [&b"SET"[..], b"k", &value].into_iter()).expect("short enough");
    let stage = |keys: &mut Keys, n| {
        let (mut bytes, mut reply) = (long.piece(n).bytes(), Vec::new());
        stamp(&mut bytes, keys.time());
        keys.apply(&bytes, &mut reply);
        shown(&reply)[0].clone()
    };
    assert_eq!((stage(&mut keys, 0), stage(&mut keys, 1)), ("+OK;".into(), "+OK;".into()));
    // Another replica goes on with what was staged when its snapshot began.
    let at_begin = keys.clone();
    let (bytes, mut saved) = (keys.begin_save(), Vec::new());
    assert_eq!(stage(&mut keys, 2), "+OK;");
    while keys.save_part(&mut saved) == Some(false) {}
    assert_eq!(saved.len() as u64, bytes);
    for cut in [0, 9, 20, 700, saved.len()] {
        let (mut other, mut from) = (Keys::default().begin_load(), saved[..cut].to_vec());
        other.load_part(&mut from);
        from.extend_from_slice(&saved[cut..]);
        other.load_part(&mut from);
        assert!(from.is_empty() && other.is_loaded());
        assert_eq!(other, at_begin, "cut at {cut}");
    }
    let mut whole = Vec::new();
    at_begin.save(&mut whole);
    assert_eq!(Keys::load(&whole), Some(at_begin));

    // FLUSHALL leaves it, since it is not a key; a piece that does not follow is refused.
    assert_eq!(run(&mut keys, 1_000, &["FLUSHALL", "DBSIZE"]), ["+OK;", ":0;"]);
    assert!(stage(&mut keys, 1).starts_with("-ERR a piece"), "it was there before");
    assert!(stage(&mut keys, 5).starts_with("-ERR a piece"), "one is missing");
    assert_eq!(stage(&mut keys, 3), "+OK;");
    run(&mut keys, 61_001, &["GET a"]);
    assert!(stage(&mut keys, 4).starts_with("-ERR the long command is not there"));
    assert!(keys.staging.is_empty());
}

#[test]
fn there_is_a_bound_on_what_is_staged() {
    let mut keys = Keys::default();
    let first = |keys: &mut Keys, id: u64| {
        let long = Long::new(id, [&b"SET"[..], b"k", b"v"].into_iter()).expect("short");
        let mut reply = Vec::new();
        keys.apply(&long.piece(0).bytes(), &mut reply);
        shown(&reply)[0].clone()
    };
    for id in 0..64 {
        assert_eq!(first(&mut keys, id), "+OK;");
    }
    assert!(first(&mut keys, 64).starts_with("-ERR too many long commands"));
    run(&mut keys, 60_000, &["GET a"]);
    assert_eq!(first(&mut keys, 64), "+OK;", "those of fronts that died make room");
}

#[test]
fn only_the_front_stages() {
    for name in [staging::STAGE, staging::RUN, staging::READ, staging::DROP] {
        assert_eq!(access(name), None);
        assert!(refused_in_transaction(&[name, b"12345678"]).is_some());
    }
    // Nor does a long command execute another one.
    let mut keys = Keys::default();
    let said = run_long(&mut keys, 1, &[staging::RUN, &2u64.to_le_bytes()], false);
    assert!(said.starts_with(b"-ERR unknown command"), "{said:?}");
}

/// Any bytes as pieces: no panic, and nothing but what is staged changes.
#[test]
fn fuzz_staging() {
    let mut rng = obol_rng::Rng::new(17);
    let mut keys = Keys::default();
    run(&mut keys, 0, &["SET a 1"]);
    for _ in 0..20_000 {
        let name = [staging::STAGE, staging::RUN, staging::READ, staging::DROP][rng.below(4) as usize];
        let word = |rng: &mut obol_rng::Rng| rng.below(3).to_le_bytes().to_vec();
        let mut args = vec![name.to_vec(), word(&mut rng)];
        if rng.below(4) > 0 {
            args.push(if rng.below(2) == 0 { word(&mut rng) } else { 0u64.to_le_bytes().to_vec() });
        }
        if rng.below(4) > 0 {
            args.push((0..rng.below(30)).map(|_| rng.below(4) as u8).collect());
        }
        let mut batch = Batch::new(0);
        assert!(batch.push(&args));
        keys.apply(&batch.bytes(), &mut Vec::new());
    }
    assert_eq!(run(&mut keys, 0, &["GET a", "DBSIZE"]), ["$1;1;", ":1;"]);
}

#[test]
fn what_a_transaction_cannot_undo_is_no_part_of_it() {
    let mut keys = Keys::default();
    run(&mut keys, 0, &["SET a 1"]);
    let said = transact(&mut keys, &[], &["FLUSHALL", "EXEC", "GET a"], false);
    let no = |name| format!("-ERR {name} cannot be part of a transaction;");
    assert_eq!(said, [format!("*3;{}{}$1;1;", no("FLUSHALL"), no("EXEC"))]);
}
