//! Tables 1 to 3 and appendix C.

use super::{Part, Row, row};
use obol_fabric::Nanos;
use obol_fide::network::{Class, Link, Network, Node, Wanted, plan};
use obol_fide::perfect::{Hsuc, Huc, Machine, timed};
use obol_rng::Rng;

pub(super) const HEARTBEAT_US: f64 = 20.0;
pub(super) const TIMEOUT_US: f64 = 45.0;
pub(super) const FLOOR_US: f64 = 4.0;
pub(super) const CEILING_US: f64 = 5.2;
pub(super) const LATENCY_SOURCE: &str = "assumed: around Table 2's average of 4.58 us, as Figure 5 is nearly vertical up to the 99.999th percentile";
pub(super) const LEVEL_US: (f64, f64) = (5.0, 10.0);
pub(super) const LEVEL_SOURCE: &str = "6.5: 5 to 10 us for larger fat trees; read as a floor and its jitter";
pub(super) const TRUNK: f64 = 0.054;
pub(super) const CORE: f64 = 0.095;
pub(super) const GROUPED: f64 = 0.41;

const RUNS: u64 = 20_000;

/// Uniform between two bounds.
fn between(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

pub(super) fn table1() -> Part {
    const NOTE: &str = "from the machine: every message takes one delay, three processes";
    let delays = [timed::<Hsuc>(3, || 1), timed::<Huc>(3, || 1)];
    let rows = ["HSUC", "HUC"].into_iter().zip(delays).zip([3.0, 2.0]);
    Part {
        name: "Table 1",
        missing: "Raft and Zab. Tests count messages, which grow linearly, and explore all states with N - 1 crashes: \
                  HUC of up to 4 processes, HSUC of up to 3.",
        rows: rows
            .map(|((name, took), published)| {
                row(format!("{name}, message delays"), "", published, took.all as f64, NOTE)
            })
            .collect(),
    }
}

/// How long after the crash of a host it is detected, on average and at most.
fn passive(seed: u64, detect: impl Fn(&mut Rng, f64) -> f64) -> (f64, f64) {
    let mut rng = Rng::new(seed);
    let (mut sum, mut most) = (0.0, 0.0_f64);
    for _ in 0..RUNS {
        // The last heartbeat was sent that long before the crash, and arrives that long after it.
        let arrives = between(&mut rng, FLOOR_US, CEILING_US) - between(&mut rng, 0.0, HEARTBEAT_US);
        let detected = detect(&mut rng, arrives);
        sum += detected;
        most = most.max(detected);
    }
    (sum / RUNS as f64, most)
}

pub(super) fn table2(seed: u64) -> Part {
    let timer = passive(seed, |_, arrives| arrives + TIMEOUT_US);
    // The poll that finds the last value follows its arrival at any time within a period.
    let polled = passive(seed, |rng, arrives| arrives + between(rng, 0.0, TIMEOUT_US) + TIMEOUT_US);
    Part {
        name: "Table 2, FiDe, OS",
        missing: "Column A, which is an input here and in `obol sim table2`, and the other systems' rows, which are their own \
                  publications' or measurements without a stated interval.",
        rows: vec![
            row(
                "timer, on average",
                "us",
                45.0,
                timer.0,
                "the published figure is the timeout, not a detection time",
            ),
            row(
                "timer, at most",
                "us",
                45.0,
                timer.1,
                "the latest heartbeat leaves with the crash and arrives after its latency",
            ),
            row(
                "polled, on average",
                "us",
                45.0,
                polled.0,
                "as 3.4 describes it: two equal values, one timeout apart",
            ),
            row("polled, at most", "us", 45.0, polled.1, "nearly two timeouts, and the latency"),
        ],
    }
}

/// The mean that `levels` of switches add to a quantity made of one-way delays.
fn added(seed: u64, levels: u32, mut quantity: impl FnMut(&mut dyn FnMut() -> u64) -> u64) -> f64 {
    let mut rng = Rng::new(seed);
    let mut hop = || {
        let us: f64 = (0..levels).map(|_| between(&mut rng, LEVEL_US.0, LEVEL_US.1)).sum();
        (us * 1000.0) as u64
    };
    let sum: u64 = (0..RUNS).map(|_| quantity(&mut hop)).sum();
    sum as f64 / RUNS as f64 / 1000.0
}

/// What the leader's decision waits for longer.
fn decision<M: Machine>(seed: u64, levels: u32) -> f64 {
    added(seed, levels, |hop| timed::<M>(2, hop).leader)
}

pub(super) fn table3(seed: u64) -> Part {
    const HSUC: &str = "mostly the input at height 1: of the published increments of 49 and 41 us a third is predicted, as \
                        the leader waits for two delays";
    const HUC: &str = "mostly the input at height 1; the client is beside the leader";
    let mut rows = Vec::new();
    for (levels, [app, os, hsuc, huc]) in [(1, [13.62, 65.0, 580.0, 530.0]), (2, [20.89, 80.0, 621.0, 541.0])]
    {
        let height = levels + 1;
        let (low, high) = LEVEL_US;
        // Period + lambda + 2 delta: what each level adds to lambda and delta.
        let timeout = 45.0 + f64::from(levels) * (low + 2.0 * (high - low));
        let found: [(&str, f64, f64, &'static str); 4] = [
            ("app", app, 6.34 + added(seed, levels, |hop| hop()), ""),
            ("OS", os, timeout, "the timeout, by the rule of 3.3"),
            ("SET by HSUC", hsuc, 531.0 + decision::<Hsuc>(seed, levels), HSUC),
            ("SET by HUC", huc, 518.0 + decision::<Huc>(seed, levels), HUC),
        ];
        let named = |(what, published, found, note)| {
            row(format!("{what}, height {height}"), "us", published, found, note)
        };
        rows.extend(found.map(named));
    }
    Part { name: "Table 3", missing: "The row of height 1, which is an input.", rows }
}

/// A fat tree of two planes with a host at either end, as appendix C deploys two processes.
fn deployment(height: u32) -> Network {
    let class = |name: &str, failure| Class {
        name: name.to_owned(),
        rate_mbit: 10_000,
        latency: Nanos(1_000),
        jitter: Nanos(1_000),
        failure,
    };
    let host = |name: &str| Node { name: name.to_owned(), host: true };
    let mut network = Network {
        name: format!("height {height}"),
        nodes: vec![host("host-1"), host("host-2")],
        classes: vec![class("trunk", TRUNK), class("core", CORE)],
        wanted: Wanted {
            members: vec![0, 1],
            trees: 2,
            period: Nanos(20_000),
            frame_bytes: 125,
            grouped: GROUPED,
            ..Wanted::default()
        },
        ..Network::default()
    };
    for plane in 0..2 {
        // Up from the first host and down to the second, through 2 height - 1 switches.
        let mut before = 0;
        let hops = 2 * height as usize;
        for hop in 1..=hops {
            let next = if hop == hops { 1 } else { network.nodes.len() };
            if hop < hops {
                network.nodes.push(Node { name: format!("switch-{plane}-{hop}"), host: false });
            }
            // The third level and what is above it are core links.
            let level = hop.min(hops + 1 - hop);
            network.links.push(Link { ends: [before, next], class: usize::from(level > 2) });
            before = next;
        }
    }
    network
}

pub(super) fn appendix_c() -> Part {
    let published = [(1, 22.7), (2, 11.3), (3, 6.0)];
    let years = |(height, published): (u32, f64)| -> Option<Row> {
        let years = plan(&deployment(height)).ok()?.risk.once_in_years?;
        Some(row(
            format!("critical failure once in, height {height}"),
            "years",
            published,
            years,
            "two processes, read off a plan by `obol plan network`; five at height 1 give 9 years",
        ))
    };
    Part {
        name: "Appendix C (and Table 3)",
        missing: "",
        rows: published.into_iter().filter_map(years).collect(),
    }
}
