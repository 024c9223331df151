//! `obol tune --network`: period and timeout of pulses, derived from what the gateways have measured.

use crate::commands::tune::Tune;
use obol_chaos::drills::studies::tune_network::{NetworkTuned, PATH_HEADS};
use obol_fabric::host::clock;
use obol_fabric::{Name, Nanos};
use obol_fabric_ip::PulseReport;
use obol_node::Site;
use obol_observe::network_recording::NetworkRecording;
use obol_observe::pulse;
use obol_observe::tail::Wanted;
use obol_supervise::hosts::further_hosts;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How much later than asked a gateway begins to keep frames, and writes them, at most.
const TRACE_LAG: Duration = Duration::from_secs(2);
/// How long it is recorded unless said otherwise.
const RECORD: Duration = Duration::from_secs(30);

pub(crate) fn run(root: &Path, cluster: Name, options: &Tune) -> Result<ExitCode, Failure> {
    let files = options.write.iter().chain(&options.html).chain(&options.record);
    if let Some(path) = files.into_iter().find(|path| path.exists()) {
        return Err(Failure::Refused(format!("{} exists; nothing is overwritten", path.display())));
    }
    let site = Site::open(root, cluster).map_err(Failure::refused)?;
    let base = &site.deployment.profile;
    let network = site.deployment.network.as_ref().filter(|_| site.deployment.has_gateways());
    let Some(network) = network else {
        return Err(Failure::Refused(format!(
            "cluster {cluster} has no gateways, so it sends no pulses; docs/network.md says what it needs"
        )));
    };
    if !base.pulse.enabled {
        return Err(Failure::Refused(format!(
            "profile {} of cluster {cluster} has no [pulse], so nothing is measured; docs/network.md has one to begin with",
            base.name
        )));
    }
    if let Some(path) = &options.record {
        return record(root, (&site, network.host), options, path);
    }
    let mut reports = vec![(network.host, read(site.cluster.dir())?)];
    for further in further_hosts(root, cluster) {
        let there = Site::open(root, further).map_err(Failure::refused)?;
        reports.push((there.deployment.own_host(), read(there.cluster.dir())?));
    }
    for (host, directory) in &options.samples {
        let all = read(directory)?;
        given(*host, network.hosts.len(), &all).map_err(|fault| {
            Failure::Refused(format!("--samples {host}={}: {fault}", directory.display()))
        })?;
        reports.push((*host, all));
    }
    let wanted =
        Wanted { every_seconds: options.every.as_secs_f64(), confidence: options.confidence / 100.0 };
    let tuned = NetworkTuned::of(&reports, network.hosts.len(), wanted);
    let profile = tuned.profile(base).map_err(Failure::failed)?;
    let said = output::json_or(options.json, &tuned, print);
    if let Some(path) = &options.html {
        output::kept("evidence", path, std::fs::write(path, tuned.html()));
    }
    if let (Some(path), Some(profile)) = (&options.write, &profile) {
        // Scripts continue with it, so without it this has failed.
        output::file(path, profile.to_toml())?;
        output::remark(format_args!("the profile is in {}", path.display()))?;
    }
    let code = if profile.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    Ok(output::verdict(code, said))
}

/// Has the gateways of this machine keep each frame, and writes these to a file.
fn record(root: &Path, (site, host): (&Site, u8), options: &Tune, path: &Path) -> Result<ExitCode, Failure> {
    let mut directories = vec![(host, site.cluster.dir().to_owned())];
    for further in further_hosts(root, site.cluster.name()) {
        let there = Site::open(root, further).map_err(Failure::refused)?;
        directories.push((there.deployment.own_host(), there.cluster.dir().to_owned()));
    }
    // A frame is traced from the second after the request on, and written in the one after that.
    let time = options.time.unwrap_or(RECORD);
    let span = time + TRACE_LAG;
    for (_, directory) in &directories {
        let until = clock::now() + Nanos(span.as_nanos() as u64);
        pulse::trace(directory, until).map_err(|error| unreadable(directory, &error))?;
    }
    output::remark(format_args!("recording for {time:?}"))?;
    std::thread::sleep(span + TRACE_LAG);
    let mut recording = NetworkRecording::default();
    for (host, directory) in &directories {
        let streams = pulse::traced(directory, *host).map_err(|error| unreadable(directory, &error))?;
        recording.streams.extend(streams);
    }
    if recording.streams.is_empty() {
        let hint = "no pulses have arrived; `obol status` shows the paths";
        return Err(Failure::Failed(hint.to_owned()));
    }
    let mut text = Vec::new();
    recording.write(&mut text).map_err(Failure::failed)?;
    output::file(path, text)?;
    for (n, stream) in recording.streams.iter().enumerate() {
        let lost = stream.frames.iter().filter(|(_, received)| received.is_none()).count();
        output::line(format_args!(
            "stream {}: {stream}: {} frames, {lost} lost",
            n + 1,
            stream.frames.len()
        ))?;
    }
    output::remark(format_args!("the recording is in {}", path.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn unreadable(directory: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", directory.display()))
}

fn read(directory: &Path) -> Result<Vec<PulseReport>, Failure> {
    pulse::samples(directory).map_err(|error| unreadable(directory, &error))
}

/// Why samples cannot be those of a host.
fn given(host: u8, hosts: usize, all: &[PulseReport]) -> Result<(), String> {
    if !(1..=hosts).contains(&usize::from(host)) {
        return Err(format!("the cluster has the hosts 1 to {hosts}"));
    }
    if all.is_empty() {
        return Err(
            "there are no samples; name a copy of the directory of a cluster, with its file `pulse-samples`"
                .to_owned(),
        );
    }
    // Nobody hears himself.
    if all.iter().flat_map(|report| &report.peers).any(|peer| peer.host == host) {
        return Err(format!("they are of another host, which has heard host {host}"));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric_ip::PulsePeer;

    #[test]
    fn samples_of_no_host_and_of_another_one_are_refused() {
        let heard = |host| {
            let (paths, frames) = (Vec::new(), Vec::new());
            let peer = PulsePeer { host, heard: true, silent: false, paths, block: None, frames };
            vec![PulseReport { peers: vec![peer], ..PulseReport::default() }]
        };
        assert_eq!(given(2, 3, &heard(1)), Ok(()));
        for (host, all, wanted) in [
            (4, heard(1), "hosts 1 to 3"),
            (0, heard(1), "hosts 1 to 3"),
            (2, Vec::new(), "no samples"),
            (2, heard(2), "another host"),
        ] {
            let said = given(host, 3, &all).expect_err(wanted);
            assert!(said.contains(wanted), "{said}");
        }
    }
}
