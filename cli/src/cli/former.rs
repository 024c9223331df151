//! Former spellings of options, which are still read and are in no help.

use crate::commands::root::{Cli, command};
use clap::error::ErrorKind;
use clap::{ArgMatches, FromArgMatches as _};

/// A line with a former spelling, and the same with the one that takes its place. They go with the
/// release after the one that has changed them (CHANGELOG.md).
const RENAMED: [(&str, &str); 32] = [
    ("drill app+leader", "drill app+coordinator"),
    ("drill app+leader+cache", "drill app+coordinator+cache"),
    ("sim campaign --seeds 5 --keep /tmp", "sim campaign --count 5 --out /tmp"),
    ("sim shrink 1 --output x.toml", "sim shrink 1 --out x.toml"),
    ("sim table2 --repetitions 2", "sim table2 --count 2"),
    ("sim scale --repetitions 2", "sim scale --count 2"),
    ("sim mu --failovers 2 --svg x.svg", "sim mu --count 2 --out x.svg"),
    ("sim dare --svg x.svg", "sim dare --out x.svg"),
    ("sim detectors --network x.rec --svg x.svg", "sim detectors --recording x.rec --out x.svg"),
    ("sim detectors --period 2ms", "sim detectors --every 2ms"),
    ("plan network net.toml --svg x.svg", "plan network net.toml --out x.svg"),
    ("man --dir /tmp", "man --out /tmp"),
    ("report --output x.html", "report --out x.html"),
    ("tune --time 2s --write x.toml", "tune --for 2s --out x.toml"),
    ("doctor --time 2s", "doctor --for 2s"),
    ("kv bench --turn 2s --rounds 2", "kv bench --for 2s --count 2"),
    ("smr bench --engines view,mu --turns 2", "smr bench --preset view,mu --count 2"),
    ("smr bench resp --turns 2", "smr bench resp --count 2"),
    ("drill smr --engines mu --at-most 2s", "drill smr --preset mu --max-wait 2s"),
    ("shadow etcd://127.0.0.1:2379 --failures 2", "shadow etcd://127.0.0.1:2379 --count 2"),
    ("upgrade --within 2s", "upgrade --timeout 2s"),
    ("bench upgrade --turns 2", "bench upgrade --count 2"),
    ("tune --share 99", "tune --timely 99"),
    ("run --name x --views-to y -- true", "run --name x --hook-stream y -- true"),
    ("run --name x --restart-pause 1s -- true", "run --name x --restart-backoff 1s -- true"),
    ("run --name x --restart-pause-max 1s -- true", "run --name x --restart-backoff-max 1s -- true"),
    ("kv server --name kv-1 --begin-anew", "kv server --name kv-1 --force-empty"),
    ("kv load --tell-every 1s", "kv load --report-every 1s"),
    ("coordinator recover --from agents --found x", "coordinator recover --from agents --report x"),
    ("deaths show", "detector show"),
    ("lease set usual", "lease set default"),
    ("smr server --name smr-1 --memory-max 1000000", "smr server --name smr-1 --memory-max 1MB"),
];

/// Former spellings with a unit of their own, and the command without them.
const OTHER_UNIT: [(&str, &str, &str); 4] = [
    ("bench console", "--seconds 3", "--for 3s"),
    ("bench export", "--seconds 3", "--for 3s"),
    ("sim leases", "--span-ms 3", "--for 3ms"),
    ("host keys hosts.toml --out x", "--days 3", "--for 3d"),
];

fn matched(line: &str) -> Result<ArgMatches, clap::Error> {
    command().try_get_matches_from(["obol"].into_iter().chain(line.split(' ')))
}

fn read(line: &str) -> String {
    let found = matched(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    format!("{:?}", Cli::from_arg_matches(&found).unwrap_or_else(|error| panic!("{line}: {error}")))
}

/// Whether the help of the command at the beginning of a line shows an option.
fn shows(line: &str, option: &str) -> bool {
    let all = command();
    let mut at = &all;
    for name in line.split(' ') {
        let Some(below) = at.find_subcommand(name) else { break };
        at = below;
    }
    let mut shown = at.get_arguments().filter(|option| !option.is_hide_set());
    shown.any(|one| {
        let mut names: Vec<&str> = one.get_long().into_iter().collect();
        names.extend(one.get_visible_aliases().unwrap_or_default());
        names.contains(&option.trim_start_matches("--"))
    })
}

fn options(line: &str) -> impl Iterator<Item = &str> {
    line.split(' ').filter(|word| word.starts_with("--") && word.len() > 2)
}

#[test]
fn a_former_spelling_is_read_as_the_one_in_its_place() {
    for (former, now) in RENAMED {
        assert_eq!(read(former), read(now), "{former}");
    }
}

#[test]
fn a_former_spelling_with_a_unit_of_its_own_is_read_and_excludes_the_other() {
    for (line, former, now) in OTHER_UNIT {
        assert!(read(&format!("{line} {former}")).contains("Some(3)"), "{line} {former}");
        read(&format!("{line} {now}"));
        let both = matched(&format!("{line} {former} {now}")).map_err(|error| error.kind());
        assert_eq!(both.err(), Some(ErrorKind::ArgumentConflict), "{line} {former} {now}");
    }
}

#[test]
fn help_shows_the_spellings_of_now() {
    for (former, now) in RENAMED {
        for option in options(former).filter(|option| !options(now).any(|now| now == *option)) {
            assert!(!shows(former, option), "{former}: {option}");
        }
        for option in options(now) {
            assert!(shows(now, option), "{now}: {option}");
        }
    }
    for (line, former, now) in OTHER_UNIT {
        assert!(options(former).all(|option| !shows(line, option)), "{line} {former}");
        assert!(options(now).all(|option| shows(line, option)), "{line} {now}");
    }
}
