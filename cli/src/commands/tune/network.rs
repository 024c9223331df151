//! `obol tune --network`: period and timeout of pulses, derived from what the gateways have measured.

use super::Tune;
use obol_chaos::drills::studies::tune_network::{NetworkTuned, PATH_HEADS, measured};
use obol_fabric::Name;
use obol_node::Site;
use obol_observe::tail::Wanted;
use obol_term::file;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long it is recorded unless said otherwise.
const RECORD: Duration = Duration::from_secs(30);

pub(crate) fn run(root: &Path, cluster: Name, options: &Tune) -> Result<ExitCode, Failure> {
    let files = options.write.iter().chain(&options.html).chain(&options.record);
    if let Some(path) = files.into_iter().find(|path| path.exists()) {
        return Err(Failure::Refused(format!("{} exists; nothing is overwritten", path.display())));
    }
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let base = &site.deployment.profile;
    let network = site.deployment.network.as_ref().filter(|network| network.has_gateways());
    let Some(network) = network else {
        return Err(Failure::Refused(format!(
            "cluster {cluster} is of one host, so it sends no pulses; docs/network.md says what they need"
        )));
    };
    if !base.pulse.enabled {
        return Err(Failure::Refused(format!(
            "profile {} of cluster {cluster} has no [pulse], so nothing is measured; docs/network.md has one to begin with",
            base.name
        )));
    }
    if let Some(path) = &options.record {
        return record(root, &site, options, path);
    }
    let reports = measured::samples(root, &site, network.hosts.len(), &options.samples)?;
    let wanted =
        Wanted { every_seconds: options.every.as_secs_f64(), confidence: options.confidence / 100.0 };
    let tuned = NetworkTuned::of(&reports, network.hosts.len(), wanted);
    let profile = tuned.profile(base).map_err(Failure::failed)?;
    let said = output::json_or(options.json, &tuned, print);
    if let Some(path) = &options.html {
        output::kept("evidence", path, file::replace(path, tuned.html().as_bytes()));
    }
    if let (Some(path), Some(profile)) = (&options.write, &profile) {
        // Scripts continue with it, so without it this has failed.
        output::file(path, profile.to_toml())?;
        output::remark(format_args!("the profile is in {}", path.display()))?;
    }
    let code = if profile.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(output::verdict(code, said))
}

/// Records the frames that arrive at this machine, and writes them to a file.
fn record(root: &Path, site: &Site, options: &Tune, path: &Path) -> Result<ExitCode, Failure> {
    let recording = measured::record(root, site, options.time.unwrap_or(RECORD))?;
    let mut text = Vec::new();
    recording.write(&mut text).map_err(Failure::failed)?;
    output::file(path, text)?;
    for (n, stream) in (1..).zip(&recording.streams) {
        let lost = stream.frames.iter().filter(|(_, received)| received.is_none()).count();
        output::line(format_args!("stream {n}: {stream}: {} frames, {lost} lost", stream.frames.len()))?;
    }
    output::remark(format_args!("the recording is in {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn print(tuned: &NetworkTuned) -> std::io::Result<()> {
    for of in &tuned.directions {
        output::line(format_args!("from host {} to host {}: {}", of.from, of.to, of.text()))?;
        let [path, frames, missed, floor, jitter, most] = PATH_HEADS;
        output::line(format_args!(
            "  {path:<24} {frames:>10} {missed:>10} {floor:>10} {jitter:>11} {most:>15}"
        ))?;
        for path in &of.paths {
            let [path, frames, missed, floor, jitter, most] = path.cells();
            output::line(format_args!(
                "  {path:<24} {frames:>10} {missed:>10} {floor:>10} {jitter:>11} {most:>15}"
            ))?;
        }
    }
    output::line(tuned.text())?;
    output::line(tuned.advice())
}
