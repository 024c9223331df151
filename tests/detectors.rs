//! `obol drill detectors` on three hosts over IP, in a network of their own.

use crate::support::network::Network;
use crate::support::{Ran, Root};
use serde_json::Value;

/// Loose, because the machine is busy; a host that is cut off is suspected before an operation fails.
const PULSE: &str =
    "\n[pulse]\nmode = \"on\"\nperiod = \"2ms\"\ntimeout = \"300ms\"\npaths = 1\npriority = \"none\"\n";

fn row<'v>(all: &'v Value, key: &str, name: &str) -> &'v Value {
    let rows = all.as_array().expect("an array");
    rows.iter().find(|row| row[key] == name).unwrap_or_else(|| panic!("no {name} in {all:#}"))
}

#[test]
fn detectors_that_run_and_those_that_do_not_are_compared_on_the_same_faults() {
    let Some(network) = Network::new() else { return };
    let root = Root::new().within(network);
    let profile = obol_profiles::Profile::builtin("lan").expect("built in").to_toml() + PULSE;
    let path = root.note("profile.toml");
    std::fs::write(&path, profile).expect("written");
    let _up = root.up(&["--hosts", "3", "--profile", path.to_str().expect("text")]);

    // Without the privilege no host can be cut off, and the reason is named.
    let mut powerless = root.network().command("setpriv");
    powerless.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin", env!("CARGO_BIN_EXE_obol")]);
    powerless.args(["drill", "detectors", "--detector", "pulse", "--count", "1", "--root"]).arg(root.path());
    powerless.env("XDG_STATE_HOME", root.state());
    Ran::of(&mut powerless).refused(&["detector pulse", "CAP_NET_ADMIN"]);

    let out = root.note("detectors");
    let wanted = ["--detector", "pulse", "--detector", "swim", "--detector", "notice"];
    let more = ["--count", "1", "--json", "--out", out.to_str().expect("text")];
    let ran = root.run(&[&["drill", "detectors"], &wanted[..], &more].concat());
    let report = ran.json();
    // On a busy machine others may be suspected, which is a deviation.
    assert!(matches!(ran.code, Some(0 | 3)), "{ran:?}");
    let measured = &report["measured"];
    assert_eq!(measured.as_array().map(Vec::len), Some(2), "{report:#}");
    let pulse = row(measured, "detector", "pulse");
    assert_eq!((&pulse["fault"], &pulse["setting"]), (&"cut-off".into(), &"300ms".into()), "{report:#}");
    // Hosts 1 and 2, or 1 and 3, have lost the third.
    assert_eq!((&pulse["faults"], &pulse["detected"]), (&2.into(), &2.into()), "{report:#}");
    let after = pulse["detection_us"]["max"].as_f64().expect("it was noticed");
    assert!(after >= 290_000.0, "no silence is found before the timeout: {report:#}");
    assert_eq!(row(measured, "detector", "notice")["faults"], 1, "{report:#}");
    let computed = &report["computed"];
    let same = row(computed, "detector", "pulse, one path");
    assert_eq!((&same["faults"], &same["detected"]), (&2.into(), &2.into()), "{report:#}");
    let swim = row(computed, "detector", "SWIM, 8 members");
    assert!(swim["p9999_us"].as_f64() >= Some(300_000.0), "a ping takes a period: {report:#}");
    let text = std::fs::read_to_string(out.join("detectors.md")).expect("written");
    assert!(text.contains("SWIM, 8 members, computed"), "{text}");
    assert!(out.join("detectors-cut-off/journal.json").exists());
    root.until("all act again", |status| status.code == Some(0) && status.active().len() == 6);
}
