//! FiDe's tables and figures: what its text gives, what follows from it, and where it contradicts
//! itself. Inputs and predictions are kept apart.

mod figures;
mod tables;

use super::reproduction::{Input, Part, Reproduction, Row};

/// A figure and its remark; empty if there is none.
fn row(what: impl Into<String>, unit: &'static str, published: f64, found: f64, note: &'static str) -> Row {
    Row::new(what, unit, published, found).noting(note)
}

/// Runs all experiments. The same seed gives the same figures.
pub fn fide(seed: u64) -> Reproduction {
    let parts = vec![
        tables::table1(),
        tables::table2(seed),
        tables::table3(seed),
        tables::appendix_c(),
        figures::figure3(),
        figures::figure4(),
        figures::figure6(),
    ];
    Reproduction {
        paper: "FiDe (Rovelli et al., USENIX ATC 2025)",
        inputs: inputs(),
        looked_at: &["Table 2's average of 4.58 us, for the assumed one-way latency"],
        parts,
        traps: &TRAPS,
    }
}

fn inputs() -> Vec<Input> {
    let input = |name, value: String, source| Input { name, value, source };
    vec![
        input("heartbeat interval", format!("{} us", tables::HEARTBEAT_US), "6.2"),
        input("timeout", format!("{} us", tables::TIMEOUT_US), "Table 2, column C"),
        input(
            "one-way latency",
            format!("{} to {} us", tables::FLOOR_US, tables::CEILING_US),
            tables::LATENCY_SOURCE,
        ),
        input(
            "a level of switches more",
            format!("{} to {} us", tables::LEVEL_US.0, tables::LEVEL_US.1),
            tables::LEVEL_SOURCE,
        ),
        input("detection and SETs at height 1", "6.34, 45, 531, 518 us".to_owned(), "Table 3, first row"),
        input(
            "a trunk link fails in a year",
            format!("{}", tables::TRUNK),
            "appendix C, from Gill et al. 2011",
        ),
        input(
            "a core link fails in a year",
            format!("{}", tables::CORE),
            "appendix C, from Gill et al. 2011",
        ),
        input(
            "a failure affects a group of links",
            format!("{}", tables::GROUPED),
            "appendix C, from Gill et al. 2011",
        ),
        input("clients", "50, closed loop".to_owned(), "6.4"),
    ]
}

/// Where the text misleads who reproduces it.
static TRAPS: [&str; 8] = [
    "Algorithm 2 (OSRB) does not pass on a message that arrives after its sender was reported. Found by exploring all \
     states: HSUC then leaves a process waiting for ever. Here such a message is passed on at once.",
    "The general formula of appendix C counts max(H-1, 0) trunk links, which gives 0 at height 1. Its figures follow from \
     min(H, 2).",
    "The timeout rule of 3.3, period + lambda + 2 delta, with Figure 3's 45 us as lambda + delta gives about 105 us, not the \
     45 us of Tables 2 and 3.",
    "Table 2's timeout of 45 us is below the 48 us that Figure 4 needs to be without false positives.",
    "Polling every timeout and firing on two equal values (3.4) takes up to almost twice the timeout.",
    "4.1 lets the highest id lead in HSUC; algorithm 3 takes the lowest.",
    "6.6 says 50 Mbit/s, appendix C 500 Mbit/s: frames of 125 and of 1250 bytes each 20 us.",
    "An active notice may overtake a heartbeat on the other tree, which breaks fail-consistency: it has to carry the last \
     sequence number.",
];
