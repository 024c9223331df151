//! `obol watch`: programs that are not members follow the views.

use crate::support::{Root, until};
use serde_json::Value;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// What is there from a view on.
fn watched(root: &Root, from: u64) -> Vec<Value> {
    lines(&root.run(&["watch", "--once", "--json", "--from", &from.to_string()]).ends(0).out)
}

fn says(line: &Value, change: &str, name: &str) -> bool {
    let changes = line["changes"].as_array().expect("an array");
    changes.iter().any(|c| c["change"] == change && c["name"] == name)
}

#[test]
fn views_come_in_order_from_any_that_is_kept_and_say_who_accused_whom() {
    let (root, _up) = Root::with_cluster(&["--apps", "1"]);
    let mut next = root.healthy().view() + 1;
    let mut until_told = |change: &str, what: &str| loop {
        // Waits for the view, which is not there yet or is.
        let from = next.to_string();
        let out = root.run(&["watch", "--count", "1", "--json", "--from", &from]).ends(0).out;
        let line = lines(&out).pop().expect("one line");
        assert_eq!((&line["event"], line["view"].as_u64()), (&"view".into(), Some(next)), "{line}");
        next += 1;
        // A busy machine may have suspected another process meanwhile.
        if says(&line, change, what) {
            return line;
        }
    };
    root.run(&["kill", "app-1"]).ends(0);
    let failed = until_told("failed", "app-1");
    let change = &failed["changes"][0];
    assert!(change["accuser_name"].is_string() && change["level"].is_string(), "{failed}");
    assert!(failed["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{failed}");
    root.run(&["start", "app-1"]).ends(0);
    until_told("joined", "app-1");
    root.run(&["stop", "app-1"]).ends(0);
    until_told("left", "app-1");
}

#[test]
fn a_reader_that_comes_late_is_told_what_it_missed() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let first = root.healthy().view();
    // The laptop's rings have 8 slots.
    while root.status().view() < first + 12 {
        root.run(&["stop", "app-1"]).ends(0);
        root.run(&["start", "app-1"]).ends(0);
        root.healthy();
    }
    let seen = watched(&root, 1);
    assert_eq!((&seen[0]["event"], &seen[0]["first"]), (&"gap".into(), &1.into()), "{:?}", seen[0]);
    let ids: Vec<u64> = seen[1..].iter().map(|line| line["view"].as_u64().expect("a view")).collect();
    assert_eq!(ids[0], seen[0]["last"].as_u64().expect("a number") + 1);
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0] + 1), "{ids:?}");
    assert!(ids.len() >= 7, "a ring of 8 slots keeps 7 views: {ids:?}");
    let text = root.run(&["watch", "--once", "--from", "1"]).ends(0).out;
    assert!(text.starts_with("-  ") && text.contains("  gap         views 1 to "), "{text}");
    assert!(
        text.lines().next_back().is_some_and(|line| line.starts_with("20") && line.contains("Z view ")),
        "{text}"
    );
    let since = |time: &str| lines(&root.run(&["watch", "--once", "--json", "--since", time]).ends(0).out);
    assert_eq!(
        since("1h").last().map(|line| line["view"].clone()),
        seen.last().map(|line| line["view"].clone())
    );
    let last = since(seen[seen.len() - 2]["time"].as_str().expect("a time"));
    assert!(!last.is_empty() && last.len() < seen.len(), "{last:?}");
    assert!(since("now").is_empty(), "no view was decided since then");
    root.run(&["watch", "--from", "1", "--since", "1h"]).refused(&["cannot be used with"]);
    root.run(&["watch", "--from", "100000"]).refused(&["view 100000 lies ahead: the newest"]);
}

#[test]
fn the_end_of_the_cluster_ends_its_stream() {
    let (root, up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    root.run(&["watch", "--cluster", "other"]).refused(&["no cluster other in"]);
    let mut command = root.command(&["watch", "--json"]);
    let watching = std::thread::spawn(move || crate::support::Ran::of(&mut command));
    until("a watch runs", || root.processes().values().any(|c| c.contains(" watch ")));
    root.run(&["down"]).ends(0);
    up.end().well();
    let ran = watching.join().expect("it ends");
    // It may have come too late to find the cluster at all; it says so just as plainly.
    assert!(
        ran.code == Some(2) && (ran.err.contains("has ended") || ran.err.contains("no cluster")),
        "{ran:?}"
    );
}

#[test]
fn a_view_is_saved_to_no_device_and_no_link() {
    let (root, _up) = Root::with_cluster(&["--coordinators", "1", "--apps", "1"]);
    let link = root.path().join("link");
    std::os::unix::fs::symlink("/dev/null", &link).expect("made");
    let said = root.run(&["watch", "--once", "--save", link.to_str().expect("text")]).ends(1).err;
    assert!(said.contains("is not a regular file"), "{said}");
    assert!(std::fs::symlink_metadata(&link).expect("it is there").is_symlink());
}
