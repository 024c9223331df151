//! No sum of figures that another process wrote can overflow.

use std::path::{Path, PathBuf};

/// Crates that read such figures.
const READERS: [&str; 16] = [
    "observe",
    "console",
    "export",
    "cli",
    "supervise",
    "chaos",
    "doctor",
    "shadow",
    "workload",
    "report",
    "rollout",
    "server",
    "agent",
    "hooks",
    "logs",
    "bench",
];
/// Sums that cannot overflow: of lengths in memory, of cells of a screen, and of fractions.
const SAFE: [&str; 4] = [".sum::<usize>()", ".sum::<u16>()", ".sum::<f64>()", ".sum::<Duration>()"];
/// What these add up is their own: what a test program of the same command has counted, or a simulation.
const OWN: [&str; 3] = ["workload/src/smr/", "workload/src/kv/", "cli/src/commands/sim/"];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn figures_of_others_are_added_by_total_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let mut files = Vec::new();
    READERS.iter().for_each(|name| sources(&root.join(name).join("src"), &mut files));
    assert!(files.len() > 100, "{} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).expect("within").display().to_string();
        let is_test = name.ends_with("tests.rs") || name.contains("/tests/");
        if is_test || OWN.iter().any(|own| name.starts_with(own)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source");
        // Tests are at the end of a file.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let sums = line.matches(".sum()").count() + line.matches(".sum::<").count();
            let safe: usize = SAFE.iter().map(|safe| line.matches(safe).count()).sum();
            if sums > safe && !line.trim_start().starts_with("//") {
                wrong.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "use obol_observe::figures::total, or name the type:\n{}", wrong.join("\n"));
}
