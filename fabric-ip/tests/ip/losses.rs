//! A network that loses packets, in a network namespace.

use crate::failures::Bed;
use crate::network::Network;
use obol_fabric::{Address, Fabric, Remote, Token};
use std::process::Stdio;

const CASES: u64 = 5000;
/// In a thousand, each way.
const LOSS: u32 = 50;

/// Without probes and early repetition, nearly every tenth would take 0.2 s: more than the bound of a
/// hang in all.
#[test]
fn each_operation_is_executed_once_and_answered_though_packets_are_lost() {
    let Some(network) = Network::new() else { return };
    let program = std::env::current_exe().expect("this program");
    network.lose(LOSS);
    let ran = network
        .command(program.to_str().expect("text"))
        .args(["--exact", "losses::counts_by_cas", "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .expect("nsenter runs");
    assert!(ran.status.success(), "{}{}", text(&ran.stdout), text(&ran.stderr));
    assert!(text(&ran.stdout).contains("1 passed"), "{}", text(&ran.stdout));
    assert!(network.dropped() > CASES / 20, "{} packets were dropped", network.dropped());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "the other test runs it in a network that loses packets"]
fn counts_by_cas() {
    let mut bed = Bed::new();
    // A word that the peer leaves alone: it proposes nothing.
    let word = bed.clusters[1].layout().slot(0);
    let at = Remote { at: Address::region(crate::failures::PEER), offset: word };
    let start = std::time::Instant::now();
    for n in 0..CASES {
        bed.probe.completions.clear();
        bed.me.cas(at, n, n + 1, Token(n));
        bed.me.flush();
        crate::support::until(&mut bed.me, &mut bed.probe, |probe| !probe.completions.is_empty());
        assert_eq!(bed.probe.swapped(Token(n)), Some(n), "executed once, and in order");
        assert!(start.elapsed() < crate::support::HANG, "{n} operations in {:?}", start.elapsed());
    }
}
