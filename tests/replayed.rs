//! Faults of a simulator's script on processes.

use crate::support::{Ran, Root};

/// Faults that processes have, and one that they do not. Seed 3 draws 7 coordinators, so node 7 is
/// the first agent.
const SCRIPT: &str = r#"seed = 3
faults_end = 3000000
acts = [
  { at = 100000, do = { freeze = 0 } },
  { at = 200000, do = { kill_program = [7, 1] } },
  { at = 300000, do = { cut = [1, 2] } },
  { at = 400000, do = { suspect = [1, 0] } },
  { at = 500000, do = { thaw = 0 } },
  { at = 600000, do = "kill_leader" },
]
"#;

#[test]
fn a_script_of_the_simulator_is_played_on_processes_and_undone() {
    let (root, _up) = Root::with_cluster(&[]);
    let before = root.healthy();
    let path = root.cluster().join("script.toml");
    std::fs::write(&path, SCRIPT).expect("written");
    let path = path.to_str().expect("text");
    root.run(&["drill", "replay", path]).refused(&["add --yes", "false suspicion"]);
    assert_eq!(root.healthy().pids(), before.pids(), "nothing was touched");
    let ran: Ran = root.run(&["drill", "replay", path, "--yes", "--json"]);
    let replayed = ran.ends(0).json();
    assert_eq!(replayed["plan"]["acts"], 5, "{replayed:#}");
    assert_eq!(replayed["plan"]["missing"][0], "a false suspicion is not a fault of processes");
    assert_eq!(replayed["undone"]["failed"].as_array().map(Vec::len), Some(0), "{replayed:#}");
    let after = root.healthy();
    assert_ne!(after.pid("app-1"), before.pid("app-1"), "it was killed and started again");
    assert!(root.run(&["drill", "recover"]).ends(0).out.contains("nothing is left to undo"));
}
