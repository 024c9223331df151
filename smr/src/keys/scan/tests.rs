use super::super::{Batch, Long, LongReply, stamp};
use super::*;
use obol_rng::Rng;
use std::collections::BTreeSet;

/// A store with an order of its own, as replicas have it.
fn store() -> Keys {
    let mut keys = Keys::default();
    keys.seed(0x5eed);
    keys
}

fn run(keys: &mut Keys, at: u64, args: &[&[u8]]) -> Vec<u8> {
    let (mut batch, mut reply) = (Batch::new(at), Vec::new());
    assert!(batch.push(args), "it has room");
    keys.apply(&batch.bytes(), &mut reply);
    Batch::replies(&reply).expect("valid")[0].to_vec()
}

/// The cursor and the keys of a reply, read by its lengths.
fn parse(reply: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut rest = reply;
    let mut number = |kind: u8| -> (usize, Vec<u8>) {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a line");
        assert_eq!(rest[0], kind, "{}", reply.escape_ascii());
        let number: usize = String::from_utf8_lossy(&rest[1..end]).parse().expect("a number");
        rest = &rest[end + 2..];
        let mut bytes = Vec::new();
        if kind == b'$' {
            bytes = rest[..number].to_vec();
            rest = &rest[number + 2..];
        }
        (number, bytes)
    };
    assert_eq!(number(b'*').0, 2);
    let cursor = number(b'$').1;
    let keys = (0..number(b'*').0).map(|_| number(b'$').1).collect();
    assert!(rest.is_empty());
    (cursor, keys)
}

/// A call as the front sends it: a query, which becomes an entry if time has to pass first.
fn scan(keys: &mut Keys, at: u64, args: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut batch, mut reply) = (Batch::new(at), Vec::new());
    assert!(batch.push(&[&[&b"SCAN"[..]], args].concat()));
    let bytes = batch.bytes();
    keys.read(&bytes, &mut reply);
    if Batch::replies(&reply).is_some_and(|replies| replies.is_empty()) {
        reply.clear();
        keys.apply(&bytes, &mut reply);
    }
    parse(Batch::replies(&reply).expect("valid")[0])
}

/// A replica that has loaded a snapshot of another one.
fn joined(keys: &mut Keys) -> Keys {
    let (mut other, mut bytes) = (Keys::default().begin_load(), Vec::new());
    keys.begin_save();
    while keys.save_part(&mut bytes) == Some(false) {}
    other.load_part(&mut bytes);
    assert!(other.is_loaded() && bytes.is_empty());
    other
}

/// Redis' guarantee, and a little more: what is there during a whole scan is returned once; what is never there
/// meanwhile is not. Each call asks a replica at random, and the replicas change between calls.
#[test]
fn what_is_there_during_a_whole_scan_is_returned_once() {
    let mut calls = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut replicas = vec![store()];
        // From a few keys to many in one table, and some that the test has never put.
        let names = [30, 400, 4000][seed as usize % 3];
        let name = |n: u64| format!("key:{n}").into_bytes();
        let (mut there, mut time) = (BTreeSet::new(), 1_000);
        let change = |replicas: &mut Vec<Keys>, there: &mut BTreeSet<u64>, rng: &mut Rng, time: &mut u64| {
            let (n, chance) = (rng.below(names), rng.below(1000));
            *time += 1;
            let args: Vec<Vec<u8>> = match chance {
                0 => vec![b"FLUSHALL".to_vec()],
                1..300 => vec![b"DEL".to_vec(), name(n)],
                300..340 => vec![b"PSETEX".to_vec(), name(n), b"1".to_vec(), b"x".to_vec()],
                _ => vec![b"SET".to_vec(), name(n), vec![b'v'; rng.below(9) as usize]],
            };
            let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
            replicas.iter_mut().for_each(|keys| drop(run(keys, *time, &args)));
            match chance {
                0 => there.clear(),
                // What expires after 1 ms is there no more at the next entry.
                1..340 => drop(there.remove(&n)),
                _ => drop(there.insert(n)),
            }
        };
        for _ in 0..2 * names {
            change(&mut replicas, &mut there, &mut rng, &mut time);
        }
        for _ in 0..4 {
            let (mut cursor, mut returned) = (b"0".to_vec(), Vec::new());
            let (mut always, mut ever) = (there.clone(), there.clone());
            loop {
                let who = rng.below(replicas.len() as u64) as usize;
                let count = (1 + rng.below(50)).to_string();
                time += 2;
                let (next, keys) = scan(&mut replicas[who], time, &[&cursor, b"COUNT", count.as_bytes()]);
                // A read that became an entry has happened on one replica only.
                replicas.iter_mut().for_each(|keys| keys.advance(time));
                returned.extend(keys);
                (cursor, calls) = (next, calls + 1);
                if cursor == b"0" {
                    break;
                }
                for _ in 0..rng.below(20) {
                    change(&mut replicas, &mut there, &mut rng, &mut time);
                    always.retain(|n| there.contains(n));
                    ever.extend(&there);
                }
                if rng.below(10) == 0 {
                    let new = joined(&mut replicas[who]);
                    replicas.truncate(2);
                    replicas.push(new);
                }
            }
            for n in &always {
                let times = returned.iter().filter(|key| **key == name(*n)).count();
                assert_eq!(times, 1, "seed {seed}: key {n} of {} was returned {times} times", always.len());
            }
            let ever: BTreeSet<Vec<u8>> = ever.into_iter().map(name).collect();
            assert!(returned.iter().all(|key| ever.contains(key)), "seed {seed}: a key that was not there");
            assert!(replicas.iter().all(|keys| *keys == replicas[0]), "seed {seed}");
        }
    }
    assert!(calls > 1_000, "{calls} calls");
}

#[test]
fn a_scan_begins_at_0_ends_with_0_and_filters() {
    let mut keys = store();
    assert_eq!(scan(&mut keys, 1, &[b"0"]), (b"0".to_vec(), vec![]));
    for n in 0..300 {
        run(&mut keys, 1, &[b"SET", format!("{}:{n}", if n % 3 == 0 { "a" } else { "b" }).as_bytes(), b"x"]);
    }
    let all = |keys: &mut Keys, options: &[&[u8]]| {
        let (mut cursor, mut found) = (b"0".to_vec(), Vec::new());
        for _ in 0..400 {
            let (next, more) = scan(keys, 1, &[&[&cursor[..]], options].concat());
            found.extend(more);
            cursor = next;
            if cursor == b"0" {
                return found;
            }
            assert!(cursor.len() <= 16, "more than a floating-point number has room for");
        }
        panic!("it does not end");
    };
    assert_eq!(all(&mut keys, &[]).len(), 300);
    assert_eq!(all(&mut keys, &[b"MATCH", b"a:*"]).len(), 100);
    assert_eq!(all(&mut keys, &[b"match", b"a:29[0-4]", b"count", b"1000000"]).len(), 2);
    assert_eq!(all(&mut keys, &[b"TYPE", b"string", b"COUNT", b"7"]).len(), 300);
    assert_eq!(all(&mut keys, &[b"TYPE", b"hash"]).len(), 0);
}

#[test]
fn wrong_cursors_and_options_are_refused() {
    let mut keys = store();
    run(&mut keys, 1, &[b"MSET", b"a", b"1", b"b", b"2"]);
    let own = scan(&mut keys, 1, &[b"0", b"COUNT", b"1"]).0;
    assert_ne!(own, b"0");
    let mut other = Keys::default();
    other.seed(0x5eee);
    let long = [b'?'; PATTERN_MAX + 1];
    let refused: [(&mut Keys, &[&[u8]], &str); 14] = [
        (&mut other, &[&own], "ERR invalid cursor: it is of another store, or of none; begin again with 0"),
        (&mut store(), &[b"1"], "ERR invalid cursor: it is of another store"),
        (&mut store(), &[b"18446744073709551615"], "ERR invalid cursor: it is of another store"),
        (&mut store(), &[b"18446744073709551616"], "ERR invalid cursor"),
        (&mut store(), &[b"-1"], "ERR invalid cursor"),
        (&mut store(), &[b"+0"], "ERR invalid cursor"),
        (&mut store(), &[b""], "ERR invalid cursor"),
        (&mut store(), &[b"x"], "ERR invalid cursor"),
        (&mut store(), &[b"0", b"COUNT", b"0"], "ERR syntax error"),
        (&mut store(), &[b"0", b"COUNT", b"x"], "ERR value is not an integer"),
        (&mut store(), &[b"0", b"MATCH"], "ERR syntax error"),
        (&mut store(), &[b"0", b"SORT", b"1"], "ERR syntax error"),
        (&mut store(), &[b"0", b"MATCH", &long], "ERR a pattern has at most 127 characters here"),
        (&mut store(), &[], "ERR wrong number of arguments for 'scan' command"),
    ];
    for (keys, args, why) in refused {
        let said = run(keys, 1, &[&[&b"SCAN"[..]], args].concat());
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.starts_with(&format!("-{why}")), "{args:?}: {said}");
    }
}

/// The work of a call and its reply are bounded, whatever is stored; it gets on by at least one key.
#[test]
fn a_call_looks_at_a_bounded_number_of_keys_and_tables() {
    let mut keys = store();
    for n in 0..30_000_u64 {
        keys.set(format!("{n}:{}", "x".repeat(n as usize % 90)).as_bytes(), b"", 0);
    }
    for key in [&b"m"[..], b"n"] {
        keys.set(&key.repeat(1 << 20), b"", 0);
    }
    let (mut cursor, mut found, mut long) = (b"0".to_vec(), 0, 0);
    while found == 0 || cursor != b"0" {
        let args: [&[u8]; 4] = [b"SCAN", &cursor, b"COUNT", b"1000000"];
        let bound = keys.scan(&args[1..]).map(|found| found.reply_bytes).expect("valid");
        let mut reply = run(&mut keys, 1, &args);
        assert!(bound <= SHORT_BYTES_MAX || bound > 1 << 20 && bound < (1 << 20) + 100, "{bound}");
        if Long::is_needed(&reply) {
            long += 1;
            reply = run_long(&mut keys, &args);
        }
        assert!(reply.len() <= bound, "{} of {bound}", reply.len());
        let (next, names) = parse(&reply);
        (cursor, found) = (next, found + names.len());
    }
    assert_eq!((found, long), (30_002, 2));

    // Of few keys in many tables, few tables are looked into at once; and a pattern that fits none ends a call.
    keys = store();
    (0..200_000_u64).for_each(|n| keys.set(&n.to_le_bytes(), b"", 0));
    assert!((1..200_000_u64).all(|n| keys.remove(&n.to_le_bytes())));
    let calls = core::iter::successors(Some(b"0".to_vec()), |cursor| {
        let next = scan(&mut keys, 1, &[cursor, b"MATCH", b"none", b"COUNT", b"1000"]).0;
        (next != b"0").then_some(next)
    });
    assert_eq!(calls.count(), 8, "of 65,536 tables");
}

/// Executes a command as the front does for which no batch has room.
fn run_long(keys: &mut Keys, args: &[&[u8]]) -> Vec<u8> {
    let long = Long::new(7, args.iter().copied()).expect("short enough");
    let apply = |keys: &mut Keys, batch: Batch| {
        let (mut bytes, mut reply) = (batch.bytes(), Vec::new());
        stamp(&mut bytes, keys.time());
        keys.apply(&bytes, &mut reply);
        Batch::replies(&reply).expect("valid")[0].to_vec()
    };
    (0..long.pieces()).for_each(|n| assert_eq!(apply(keys, long.piece(n)), b"+OK\r\n"));
    let reply = apply(keys, long.run());
    let LongReply::Kept(len) = Long::reply(&reply) else { return reply };
    let parts = (0..Long::parts(len)).map(|n| apply(keys, long.read(n)));
    let whole = parts.collect::<Vec<_>>().concat();
    apply(keys, long.forget());
    whole
}

/// Redis' own rules (`stringmatchlen`), one way after the other.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|from| fits(rest, &text[from..])),
        _ if text.is_empty() => false,
        [b'?', rest @ ..] => fits(rest, &text[1..]),
        [b'[', rest @ ..] => {
            let (is_not, mut at) = (rest.first() == Some(&b'^'), usize::from(rest.first() == Some(&b'^')));
            let mut is_in = false;
            while at < rest.len() && rest[at] != b']' {
                if rest[at] == b'\\' && at + 1 < rest.len() {
                    is_in |= rest[at + 1] == text[0];
                    at += 2;
                } else if at + 2 < rest.len() && rest[at + 1] == b'-' {
                    let (low, high) = (rest[at].min(rest[at + 2]), rest[at].max(rest[at + 2]));
                    is_in |= (low..=high).contains(&text[0]);
                    at += 3;
                } else {
                    is_in |= rest[at] == text[0];
                    at += 1;
                }
            }
            is_in != is_not && fits(rest.get(at + 1..).unwrap_or_default(), &text[1..])
        }
        [b'\\', one, rest @ ..] => *one == text[0] && fits(rest, &text[1..]),
        [one, rest @ ..] => *one == text[0] && fits(rest, &text[1..]),
    }
}

#[test]
fn patterns_fit_as_those_of_redis() {
    let mut rng = Rng::new(9);
    let mut matched = 0;
    for n in 0..200_000 {
        let mut draw = |most: u64, of: &[u8]| -> Vec<u8> {
            (0..rng.below(most)).map(|_| of[rng.below(of.len() as u64) as usize]).collect()
        };
        let (pattern, text) = (draw(9, b"abc*?[]^-\\"), draw(6, b"abc-]"));
        let is_match = Pattern::parse(&pattern).expect("short").matches(&text);
        assert_eq!(
            is_match,
            fits(&pattern, &text),
            "{n}: {:?} {:?}",
            pattern.escape_ascii(),
            text.escape_ascii()
        );
        matched += u32::from(is_match);
    }
    assert!(matched > 5_000, "{matched}");
    // One pass, whatever the pattern.
    let hard = b"*a".repeat(60);
    let pattern = Pattern::parse(&[&hard[..], b"b"].concat()).expect("short enough");
    assert!(!pattern.matches(&b"a".repeat(1 << 20)));
    assert!(Pattern::parse(&hard).expect("short enough").matches(&b"a".repeat(60)));
}
