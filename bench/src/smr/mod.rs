//! What copies cost, against the same server without them, in turns.

mod failover;
mod load;
mod memory;
mod propose;
pub mod resp;

use crate::{Figure, beside, code, table};
use failover::Outages;
use load::{KEYS, Kind, Measured, RING};
use obol_chaos::drills::Host;
use obol_config::duration;
use obol_fabric::Nanos;
use obol_node::Site;
use obol_smr::{PAYLOAD_BYTES_MAX, Preset};
use obol_term::output::{self, Failure};
use obol_workload::smr::replicas::Replicas;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The presets, each once: their figures are put beside each other, and targets are those of view.
    pub engines: Vec<Preset>,
    /// Duration of each measurement.
    pub time: Duration,
    pub turns: u32,
    /// Leaders that are killed, one after the other.
    pub failovers: u32,
    /// What all measurements have in common.
    pub common: Common,
}

/// What all measurements have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// Replicas, all of which vote; the oldest leads.
    pub replicas: u32,
    /// Poll interval of the replicas, and of the client that is measured without redis-benchmark; 0 keeps
    /// a core busy for each.
    pub poll_every: String,
    /// Print one JSON object.
    pub json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    bench: &'static str,
    replicas: u32,
    poll_every: &'a str,
    turns: u32,
    figures: Vec<Figure>,
    host: Host,
    profile: String,
}

/// The figures of one preset.
#[derive(Serialize)]
struct OfPreset {
    preset: String,
    figures: Vec<Figure>,
}

/// Presets beside each other.
#[derive(Serialize)]
struct Comparison<'a> {
    bench: &'static str,
    replicas: u32,
    poll_every: &'a str,
    turns: u32,
    presets: Vec<OfPreset>,
    host: Host,
    profile: String,
}

/// Prints the presets beside each other, and returns the exit code that their figures mean.
fn compare(comparison: &Comparison<'_>, json: bool) -> Result<ExitCode, Failure> {
    output::json_or(json, comparison, |comparison| {
        let systems: Vec<(&str, &[Figure])> = comparison
            .presets
            .iter()
            .map(|OfPreset { preset, figures }| (preset.as_str(), figures.as_slice()))
            .collect();
        beside(&systems).iter().try_for_each(output::line)?;
        output::line(format_args!(
            "{} replicas, poll interval {}, {} turns, profile {}, {} cores, kernel {}",
            comparison.replicas,
            comparison.poll_every,
            comparison.turns,
            comparison.profile,
            comparison.host.cores,
            comparison.host.kernel
        ))
    })?;
    let figures: Vec<Figure> = comparison.presets.iter().flat_map(|one| one.figures.clone()).collect();
    Ok(code(&figures))
}

/// Prints a report, and returns the exit code that it means.
fn report(report: &Report<'_>, json: bool) -> Result<ExitCode, Failure> {
    output::json_or(json, report, |report| {
        table(&report.figures)?;
        output::line(format_args!(
            "{} replicas, poll interval {}, {} turns, profile {}, {} cores, kernel {}",
            report.replicas,
            report.poll_every,
            report.turns,
            report.profile,
            report.host.cores,
            report.host.kernel
        ))
    })?;
    Ok(code(&report.figures))
}

/// The middle one.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Some of each kind.
type Turn = Vec<Measured>;

/// What all turns yielded for a kind.
fn of(turns: &[Turn], kind: Kind, figure: impl Fn(&Measured) -> f64) -> f64 {
    median(turns.iter().flatten().filter(|one| one.kind == kind).map(figure).collect())
}

/// The 99.9th percentile of what all turns yielded for a kind, in microseconds.
fn tail(turns: &[Turn], kind: Kind) -> f64 {
    let mut all = turns.iter().flatten().filter(|one| one.kind == kind).map(|one| one.times.clone());
    let merged = all.next().map(|first| {
        all.fold(first, |mut sum, one| {
            // All have the same bounds, so none is refused.
            let _ = sum.add(one);
            sum
        })
    });
    merged.map_or(f64::NAN, |all| Nanos(all.value_at_quantile(0.999)).as_micros_f64())
}

/// Figures of replicas only.
fn own_figures(replicas: u32, turns: &[Turn], copied: f64, outages: &Outages) -> [Figure; 3] {
    let tails = (tail(turns, Kind::Put), tail(turns, Kind::Bursts));
    let bytes = f64::from(replicas) * PAYLOAD_BYTES_MAX as f64;
    let replicated = of(turns, Kind::Bytes, |one| one.per_s) * bytes;
    let name = format!("bytes to all, by the leader's process, 7 x {PAYLOAD_BYTES_MAX} at once");
    [
        Figure::against("PUT, p99.9, ring laps / never half full", "us", tails.0, tails.1, 1.2),
        Figure::at_least_times(name, "MB/s", replicated / 1e6, copied / 1e6, 0.5),
        Figure::against("client's failover / members', p50", "us", outages.client, outages.members, 1.1),
    ]
}

fn figures(replicated: &[Turn], alone: &[Turn]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (kind, name, must) in
        [(Kind::Put, "PUT, p50", 1.35), (Kind::Get, "GET, p50", 1.05), (Kind::Order, "order, p50", 1.35)]
    {
        let p50 = |turns| of(turns, kind, Measured::p50_us);
        figures.push(Figure::against(name, "us", p50(replicated), p50(alone), must));
    }
    for (kind, name, must) in
        [(Kind::Puts, "PUTs, pipelined", 1.0 / 1.35), (Kind::Gets, "GETs, pipelined", 1.0 / 1.05)]
    {
        let rate = |turns| of(turns, kind, |one| one.per_s);
        figures.push(Figure::at_least_times(name, "/s", rate(replicated), rate(alone), must));
    }
    figures
}

/// Measures replicas of a preset, or one server without copies, once.
fn measure(
    root: &Path,
    site: &Arc<Site>,
    engine: Option<Preset>,
    options: &Options,
    poll_interval: Nanos,
) -> Result<Vec<Turn>, Failure> {
    let Common { replicas, poll_every, .. } = &options.common;
    let voters = replicas.to_string();
    let preset = engine.map(|engine| engine.to_string());
    let (count, first) = match engine {
        Some(_) => (*replicas, vec!["--voters", voters.as_str()]),
        None => (1, vec!["--unreplicated"]),
    };
    let mut turns = Vec::new();
    let services: [(&[Kind], &[&str]); 2] = [(&KEYS, &[]), (&[Kind::Order], &["--service", "orderbook"])];
    for (kinds, service) in services {
        let mut of_all = service.to_vec();
        if let Some(preset) = &preset {
            of_all.extend(["--preset", preset.as_str()]);
        }
        let replicas = Replicas::start(root, site, count, poll_every, &first, &of_all)?;
        replicas.redundant()?;
        turns.push(load::measure(site, poll_interval, options.time, kinds)?);
        if engine.is_some() && service.is_empty() {
            turns.push(load::measure(site, poll_interval, options.time, &RING)?);
        }
    }
    if let Some(engine) = engine {
        let group = propose::Group { count: *replicas, poll_every, preset: engine };
        turns.push(vec![propose::measure(root, site, group, poll_interval, options.time)?]);
    }
    Ok(turns)
}

/// Measures replicas beside the same server without copies.
pub fn run(root: &Path, site: &Arc<Site>, options: &Options) -> Result<ExitCode, Failure> {
    let Common { replicas, poll_every, json } = &options.common;
    let poll_interval = match poll_every.as_str() {
        "0" => Nanos::ZERO,
        text => Nanos::from_std(duration::argument(text).map_err(Failure::Refused)?),
    };
    let engines = &options.engines;
    let sides = engines.iter().copied().map(Some).chain([None]);
    let mut all: Vec<(Option<Preset>, Vec<Turn>)> = sides.map(|side| (side, Vec::new())).collect();
    let mut copied = Vec::new();
    for turn in 0..options.turns {
        for (side, turns) in &mut all {
            let what = match side {
                Some(engine) => format!("replicas, {engine}"),
                None => "one server without copies".to_owned(),
            };
            // Informative only: the benchmark continues without it.
            let _ = output::remark(format_args!("bench: turn {}, {what}", turn + 1));
            turns.extend(measure(root, site, *side, options, poll_interval)?);
        }
        copied.push(memory::copied_per_s());
    }
    let copied = median(copied);
    let alone = all.pop().map(|(_, turns)| turns).unwrap_or_default();
    let mut presets = Vec::new();
    for (engine, (_, replicated)) in engines.iter().zip(&all) {
        let preset = engine.to_string();
        // Informative only: the benchmark continues without it.
        let _ = output::remark(format_args!("bench: {} failovers, {preset}", options.failovers));
        let outages = failover::measure(root, site, *replicas, options.failovers, *engine)?;
        let mut figures = figures(replicated, &alone);
        figures.extend(own_figures(*replicas, replicated, copied, &outages));
        if *engine != Preset::View {
            figures = figures.into_iter().map(Figure::undemanded).collect();
        }
        presets.push(OfPreset { preset, figures });
    }
    let profile = site.deployment.profile.name.to_string();
    let (bench, replicas, turns, host) = ("smr", *replicas, options.turns, Host::this());
    if *engines == [Preset::View] {
        let figures = presets.into_iter().flat_map(|one| one.figures).collect();
        return report(&Report { bench, replicas, poll_every, turns, figures, host, profile }, *json);
    }
    compare(&Comparison { bench, replicas, poll_every, turns, presets, host, profile }, *json)
}
