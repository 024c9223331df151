//! `obol bench console`: what the console costs and how quick it is, through a terminal, on
//! clusters of synthetic regions.
//!
//! The console is the shipped program in a process of its own, so its figures are what the kernel
//! says of that process. Processor time is counted, not elapsed: a busy machine stretches the
//! latency of keys and hardly anything else.

mod pty;
pub(super) mod synthetic;

use super::{Figure, Report, print};
use clap::Args;
use obol_chaos::drills::Host;
use obol_config::duration;
use obol_console::HOUR;
use obol_fabric::Nanos;
use obol_fabric::host::clock;
use obol_observe::usage::{resident, used};
use obol_term::output::{self, Failure};
use pty::Pty;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use synthetic::Synthetic;

#[derive(Debug, Args)]
pub(crate) struct BenchConsole {
    /// Measure this cluster only
    #[arg(long, value_name = "32|512", value_parser = nodes)]
    pub(crate) nodes: Option<u16>,
    /// How long each share of a core is measured
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = measured)]
    pub(crate) time: Duration,
    /// The same in seconds: its former spelling
    #[arg(long, value_name = "S", hide = true, conflicts_with = "time", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: Option<u64>,
    /// Print one JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long is measured: too short a time has no figures.
fn measured(text: &str) -> Result<Duration, String> {
    let times = Duration::from_secs(1)..=Duration::from_secs(600);
    let time = duration::argument(text)?;
    if times.contains(&time) { Ok(time) } else { Err("from 1s to 10m".to_owned()) }
}

/// The size of a synthetic cluster.
fn nodes(text: &str) -> Result<u16, String> {
    match text {
        "32" => Ok(32),
        "512" => Ok(512),
        _ => Err("32 or 512".to_owned()),
    }
}

/// The console reads its past, or draws for the first time, within this time.
const DRAW_TIMEOUT: Duration = Duration::from_secs(120);
/// A key without effect for this long is broken.
const KEY_TIMEOUT: Duration = Duration::from_secs(5);
/// Between a change of what the console does and the next measurement.
const SETTLE: Duration = Duration::from_secs(2);
/// What a step writes is written whole within this time.
const STEP_SETTLE: Duration = Duration::from_millis(100);
/// Keys whose latency is measured.
const KEYS: u32 = 40;
/// Steps through the past whose latency is measured: back, and forward again.
const STEPS: [(&str, u32); 2] = [("[", 10), ("]", 10)];
/// What the help shows, and nothing else does.
const HELP: &str = "key closes";

/// What must hold of one cluster.
struct Bounds {
    nodes: u16,
    live_percent: f64,
    frozen_percent: f64,
    names: [&'static str; 7],
}

/// The design's budget. It has 0.1 % for a frozen screen without saying of how many nodes; 512 may
/// take three times that, as live.
const BOUNDS: [Bounds; 2] = [
    Bounds {
        nodes: 32,
        live_percent: 1.0,
        frozen_percent: 0.1,
        names: [
            "32 nodes, live, share of a core",
            "32 nodes, frozen, share of a core",
            "32 nodes, resident with an hour of history",
            "32 nodes, written to the terminal",
            "32 nodes, written while nothing changed",
            "32 nodes, slowest of 40 keys",
            "32 nodes, slowest of 20 steps through the hour",
        ],
    },
    Bounds {
        nodes: 512,
        live_percent: 3.0,
        frozen_percent: 0.3,
        names: [
            "512 nodes, live, share of a core",
            "512 nodes, frozen, share of a core",
            "512 nodes, resident with an hour of history",
            "512 nodes, written to the terminal",
            "512 nodes, written while nothing changed",
            "512 nodes, slowest of 40 keys",
            "512 nodes, slowest of 20 steps through the hour",
        ],
    },
];
const RESIDENT_MIB: f64 = 16.0;
const WRITTEN_KB_PER_S: f64 = 20.0;
const KEY_MS: f64 = 50.0;

/// Share of a core in percent, and kB per second written to the terminal.
fn watch(pty: &Pty, time: Duration) -> (f64, f64) {
    std::thread::sleep(SETTLE);
    let (cpu, bytes, began) = (used(pty.pid), pty.bytes(), Instant::now());
    std::thread::sleep(time);
    let elapsed = began.elapsed();
    let share = 100.0 * (used(pty.pid) - cpu) as f64 / elapsed.as_nanos() as f64;
    (share, (pty.bytes() - bytes) as f64 / 1000.0 / elapsed.as_secs_f64())
}

fn measure(root: &Path, bounds: &Bounds, options: &BenchConsole) -> Result<Vec<Figure>, Failure> {
    let cluster = Synthetic::start(root, bounds.nodes)?;
    let words = format!("--root {} --cluster {} prefilled-console", cluster.root.display(), cluster.cluster);
    let mut pty = Pty::start(&words, DRAW_TIMEOUT)?;
    pty.until("LIVE", true, DRAW_TIMEOUT)?;
    let time = options.seconds.map_or(options.time, Duration::from_secs);
    let (live, written) = watch(&pty, time);
    let resident = resident(pty.pid) as f64 / 1024.0;
    let mut slowest = Duration::ZERO;
    for n in 0..KEYS {
        // At any moment between two samples.
        std::thread::sleep(Duration::from_millis(u64::from(20 + n * 37 % 250)));
        pty.press("?")?;
        slowest = slowest.max(pty.until(HELP, true, KEY_TIMEOUT)?);
        pty.press("\r")?;
        pty.until(HELP, false, KEY_TIMEOUT)?;
    }
    pty.press(" ")?;
    pty.until("FROZEN", true, KEY_TIMEOUT)?;
    let (frozen, still) = watch(&pty, time);
    let mut step = Duration::ZERO;
    for (key, times) in STEPS {
        for _ in 0..times {
            // A frozen screen is only written to for a key.
            let written = pty.bytes();
            pty.press(key)?;
            step = step.max(pty.beyond(written, KEY_TIMEOUT)?);
            std::thread::sleep(STEP_SETTLE);
        }
    }
    let of = &bounds.names;
    Ok(vec![
        Figure::at_most(of[0], "%", live, bounds.live_percent),
        Figure::at_most(of[1], "%", frozen, bounds.frozen_percent),
        Figure::at_most(of[2], "MiB", resident, RESIDENT_MIB),
        Figure::at_most(of[3], "kB/s", written, WRITTEN_KB_PER_S),
        Figure::at_most(of[4], "kB/s", still, 0.0),
        Figure::at_most(of[5], "ms", slowest.as_secs_f64() * 1000.0, KEY_MS),
        Figure::at_most(of[6], "ms", step.as_secs_f64() * 1000.0, KEY_MS),
    ])
}

/// `obol bench console`.
pub(crate) fn run(root: &Path, options: &BenchConsole) -> Result<ExitCode, Failure> {
    let lived = Nanos(clock::now().0);
    if lived < HOUR {
        // A courtesy, as below.
        let _ = output::remark(format_args!(
            "bench console: this host has been up for {lived} only, which limits the history"
        ));
    }
    let mut figures = Vec::new();
    for bounds in BOUNDS.iter().filter(|bounds| options.nodes.is_none_or(|nodes| nodes == bounds.nodes)) {
        // Informative only: the benchmark continues without it.
        let _ = output::remark(format_args!("bench console: {} nodes", bounds.nodes));
        figures.extend(measure(root, bounds, options)?);
    }
    let met = figures.iter().all(|figure| figure.met);
    let report = Report { bench: "console", figures, host: Host::this(), profile: super::PROFILE };
    output::json_or(options.json, &report, print)?;
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
