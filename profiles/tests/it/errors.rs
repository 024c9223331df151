//! Every fault of a file is reported with its position, its key and a remedy.

use obol_profiles::Profile;

const LAPTOP: &str = include_str!("../../laptop.toml");

/// The laptop profile without comments and empty lines, so that lines can be counted.
fn plain() -> String {
    LAPTOP
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The errors of the laptop profile with pieces replaced; line numbers are shown as the text of the
/// line before " =".
fn said(changes: &[(&str, &str)]) -> String {
    let mut text = plain();
    for (old, new) in changes {
        assert!(text.contains(old), "{old}");
        text = text.replacen(old, new, 1);
    }
    let message = Profile::parse(&text, "mine.toml").expect_err("it has a fault").to_string();
    let lines = message.lines().map(|line| {
        let (number, rest) =
            line.strip_prefix("mine.toml:").and_then(|l| l.split_once(':')).expect("a place");
        let number: usize = number.parse().expect("the number of a line");
        let there = text.lines().nth(number - 1).expect("a line of the file");
        format!("mine.toml:{}:{rest}", there.split(" =").next().unwrap_or_default().trim())
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_plain_profile_has_no_fault() {
    assert_eq!(Profile::parse(&plain(), "mine.toml"), Ok(Profile::default()));
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    assert_eq!(
        said(&[("duration", "durration")]),
        "mine.toml:durration:1: unknown key lease.durration; did you mean lease.duration?"
    );
    assert_eq!(
        said(&[("schema = 1\n", "schema = 1\ncolour = 3\n")]),
        "mine.toml:colour:1: unknown key colour"
    );
    assert_eq!(
        said(&[("[notice]\n", "[notice]\nperiod = \"1ms\"\n")]),
        "mine.toml:period:1: unknown key notice.period; did you mean heartbeat.period?"
    );
    assert_eq!(
        said(&[("[notice]\n", "[notice]\n  \"a b\\u001b\" = 1\n")]),
        "mine.toml:\"a b\\u001b\":3: unknown key notice.\"a b\\u{1b}\""
    );
    assert_eq!(
        said(&[("fencing", "fencing.too")]),
        "mine.toml:fencing.too:1: lease.fencing is a table, but must be true or false"
    );
}

#[test]
fn an_unknown_table_is_answered_with_the_nearest() {
    assert_eq!(
        said(&[("[notice]", "[notise]")]),
        "mine.toml:[notise]:2: unknown table [notise]; did you mean [notice]?"
    );
    assert_eq!(
        said(&[("[notice]", "[zebra]")]),
        "mine.toml:[zebra]:2: unknown table [zebra]\nmine.toml:schema:1: missing table [notice]"
    );
    assert_eq!(
        said(&[("[notice]", "[lease.x]\n[notice]")]),
        "mine.toml:[lease.x]:8: unknown table [lease.x]"
    );
    assert_eq!(
        said(&[("[notice]", "[[notice]]")]),
        "mine.toml:[[notice]]:1: notice is an array, but must be a table, [notice]"
    );
}

#[test]
fn missing_keys_are_reported_at_the_head_of_their_table() {
    assert_eq!(
        said(&[("drift_ppm = 200\n", "")]),
        "mine.toml:[lease]:1: missing key lease.drift_ppm, a whole number from 1 to 10000 (ppm)"
    );
    assert_eq!(
        said(&[("yield_for = \"30us\"\n", "")]),
        "mine.toml:[wait]:1: missing key wait.yield_for, a duration from \"1us\" to \"1s\""
    );
    assert_eq!(said(&[("schema = 1\n", "")]), "mine.toml:name:1: missing key schema, the number 1");
    assert_eq!(Profile::parse("", "mine.toml").expect_err("empty").to_string().lines().count(), 3 + 12);
}

#[test]
fn a_profile_from_the_future_is_refused_without_guesses() {
    assert_eq!(
        said(&[("schema = 1", "schema = 2"), ("[lease]", "[contract]")]),
        "mine.toml:schema:10: schema is 2, but this obol reads schema 1 only; take the obol that the file was written \
         for, or rewrite it for schema 1"
    );
    assert_eq!(
        said(&[("schema = 1", "schema = \"1\"")]),
        "mine.toml:schema:10: schema is the string \"1\", but must be the number 1"
    );
}

#[test]
fn a_value_of_another_type_is_shown() {
    assert_eq!(
        said(&[("duration = \"20ms\"", "duration = 20")]),
        "mine.toml:duration:12: lease.duration is the integer 20, but must be a duration from \"1us\" to \"60s\""
    );
    assert_eq!(
        said(&[("fencing = true", "fencing = \"yes\"")]),
        "mine.toml:fencing:11: lease.fencing is the string \"yes\", but must be true or false"
    );
    assert_eq!(
        said(&[("confirm = 3", "confirm = 3.5")]),
        "mine.toml:confirm:11: heartbeat.confirm is the float 3.5, but must be a whole number from 2 to 1000 (READs)"
    );
    assert_eq!(
        said(&[("name = \"laptop\"", "name = \"my laptop\"")]),
        "mine.toml:name:8: name: a name is made of a-z A-Z 0-9 . _ - and starts with a letter or digit; byte 2 is not"
    );
    assert_eq!(
        said(&[("description = \"", "description = \"\\n")]),
        "mine.toml:description:15: description is \"\\nShared cores, no privileges: a laptop, ...\", but must be a line of 1 to \
         200 characters"
    );
}

#[test]
fn a_bad_duration_says_what_to_write() {
    assert_eq!(
        said(&[("\"20ms\"", "\"20\"")]),
        "mine.toml:duration:12: lease.duration: \"20\" has no unit; write ns, us, ms, s, m, h, d, w, mo or y behind the number, as in \"20ms\""
    );
    assert_eq!(
        said(&[("\"20ms\"", "\"20 m\"")]),
        "mine.toml:duration:12: lease.duration: \"20 m\" has the unknown unit \" m\"; units are ns, us, ms, s, m, h, d, w, mo and y; did you mean \"20m\"?"
    );
}

#[test]
fn a_value_out_of_bounds_is_reported_with_its_bounds() {
    assert_eq!(
        said(&[("after = \"1ms\"", "after = \"0ms\"")]),
        "mine.toml:after:9: notice.after is 0ns, but must lie in 1us..=60s"
    );
    assert_eq!(
        said(&[("confirm = 3", "confirm = 1")]),
        "mine.toml:confirm:11: heartbeat.confirm is 1, but must lie in 2..=1000"
    );
    assert_eq!(
        said(&[("drift_ppm = 200", "drift_ppm = 0x1_0000_0000")]),
        "mine.toml:drift_ppm:13: lease.drift_ppm is 0x100000000, but must lie in 1..=10000"
    );
    assert_eq!(
        said(&[("policy = \"other\"", "policy = \"fifo\"\npriority = 100")]),
        "mine.toml:priority:12: scheduling.priority is 100, but must lie in 1..=99"
    );
}

#[test]
fn limits_are_checked_by_the_layout_and_all_are_reported() {
    assert_eq!(
        said(&[("proposers = 7", "proposers = 8"), ("lanes = 48", "lanes = -1"), ("= 4096", "= 8100")]),
        "mine.toml:proposers:13: limits.proposers is 8, but must lie in 1..=7\n\
         mine.toml:value_bytes:15: limits.value_bytes is 8100, but must lie in 512..=1048576 and be a multiple of 64\n\
         mine.toml:lanes:9: limits.lanes is -1, but must lie in 4..=4096"
    );
    assert_eq!(
        said(&[("seats = 9", "seats = 1")]),
        "mine.toml:seats:9: limits.seats is 1, but must lie in 2..=256"
    );
    assert_eq!(
        said(&[("slots = 8", "slots = 1024"), ("= 4096", "= 1048576")]),
        "mine.toml:value_bytes:15: limits.value_bytes and all other limits together must keep a region below 4 GiB, because \
         its offsets have 32 bits; here slots * proposers * value_bytes = 7516192768, lanes * lane_slots * \
         datagram_bytes = 1572864, seats * recorder_events = 2304"
    );
}

#[test]
fn a_choice_lists_what_it_takes() {
    assert_eq!(
        said(&[("\"hybrid\"", "\"hibrid\"")]),
        "mine.toml:strategy:12: wait.strategy is \"hibrid\", but must be one of spin, hybrid, block; did you mean hybrid?"
    );
}

#[test]
fn a_key_that_would_do_nothing_is_refused() {
    assert_eq!(
        said(&[("\"hybrid\"", "\"block\"")]),
        "mine.toml:yield_for:1: wait.yield_for applies only with wait.strategy = \"hybrid\"; remove it, or change \
         wait.strategy"
    );
}

#[test]
fn rules_between_keys_give_their_reason() {
    assert_eq!(
        said(&[("\"6ms\"", "\"9ms\"")]),
        "mine.toml:duration:12: lease.duration less drift must be more than lease.renew_every + cache.timeout + \
         lease.renew_timeout, or one lost renewal ends the lease; here 19.996ms is not more than 22ms"
    );
    assert_eq!(
        said(&[("every = \"50ms\"", "every = \"100ms\"")]),
        "mine.toml:every:9: heartbeat.every must be less than heartbeat.period, or a healthy process shows the same \
         value twice and is suspected; here 100ms is not less than 100ms"
    );
    // Drift alone breaks the rule: 9 ms + 10.997 ms lie between 20 ms less 4 us and 20 ms.
    assert_eq!(said(&[("\"10ms\"", "\"10.997ms\"")]).lines().count(), 1);
}

#[test]
fn syntax_errors_are_reported_with_the_other_faults_of_the_file() {
    assert_eq!(
        said(&[("\"6ms\"", "6ms"), ("confirm = 3", "confirm = 1"), ("[limits]\n", "[limits]\nseats = 9\n")]),
        "mine.toml:renew_every:15: syntax: string values must be quoted, expected literal string\n\
         mine.toml:confirm:11: heartbeat.confirm is 1, but must lie in 2..=1000\n\
         mine.toml:seats:1: syntax: duplicate key"
    );
}

#[test]
fn columns_count_characters() {
    assert_eq!(
        said(&[
            ("[lease]", "wait = { \"äöü\" = 1, strategy = \"spin\", zebra = 2 }\n[lease]"),
            ("[wait]\nstrategy = \"hybrid\"\nyield_for = \"30us\"\n", ""),
        ]),
        "mine.toml:wait:10: unknown key wait.\"äöü\"\nmine.toml:wait:40: unknown key wait.zebra"
    );
}
