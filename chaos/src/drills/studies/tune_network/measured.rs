//! What the gateways of a cluster have measured: their samples of this machine and of others, and
//! recordings of single frames.

use obol_fabric::host::clock;
use obol_fabric::{Name, Nanos};
use obol_fabric_ip::PulseReport;
use obol_node::Site;
use obol_observe::network_recording::NetworkRecording;
use obol_observe::pulse;
use obol_supervise::hosts::further_hosts;
use obol_term::output::Failure;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How much later than asked a gateway begins to keep frames, and writes them, at most.
const TRACE_LAG: Duration = Duration::from_secs(2);

/// The hosts of a cluster that are this machine, and their clusters' directories.
fn directories(root: &Path, site: &Site) -> Result<Vec<(u8, PathBuf)>, Failure> {
    let own = |site: &Site| (site.deployment.own_host(), site.cluster.dir().to_owned());
    let further = further_hosts(root, site.cluster.name()).into_iter();
    let further = further.map(|name: Name| Site::open(root, name).map(|site| own(&site)));
    [Ok(own(site))].into_iter().chain(further).collect::<Result<_, _>>().map_err(Failure::refused)
}

/// The samples of each host of this machine, and those of other hosts in copies of their directories.
pub fn samples(
    root: &Path,
    site: &Site,
    hosts: usize,
    copies: &[(u8, PathBuf)],
) -> Result<Vec<(u8, Vec<PulseReport>)>, Failure> {
    let mut reports = Vec::new();
    for (host, directory) in directories(root, site)? {
        reports.push((host, read(&directory)?));
    }
    for (host, directory) in copies {
        let all = read(directory)?;
        given(*host, hosts, &all).map_err(|fault| {
            Failure::Refused(format!("--samples {host}={}: {fault}", directory.display()))
        })?;
        reports.push((*host, all));
    }
    Ok(reports)
}

/// Records each frame that arrives at the gateways of this machine during this time, and waits for its end.
pub fn record(root: &Path, site: &Site, time: Duration) -> Result<NetworkRecording, Failure> {
    let directories = directories(root, site)?;
    // A frame is traced from the second after the request on, and written in the one after that.
    let span = time + TRACE_LAG;
    for (_, directory) in &directories {
        let until = clock::now() + Nanos(span.as_nanos() as u64);
        pulse::trace(directory, until).map_err(|error| unreadable(directory, &error))?;
    }
    obol_term::output::remark(format_args!("recording for {time:?}"))?;
    thread::sleep(span + TRACE_LAG);
    let mut recording = NetworkRecording::default();
    for (host, directory) in &directories {
        let streams = pulse::traced(directory, *host).map_err(|error| unreadable(directory, &error))?;
        recording.streams.extend(streams);
    }
    if recording.streams.is_empty() {
        let hint = "no pulses have arrived; `obol status` shows the paths";
        return Err(Failure::Failed(hint.to_owned()));
    }
    Ok(recording)
}

fn unreadable(directory: &Path, error: &io::Error) -> Failure {
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
        let heard = |host: &u8| all.iter().flat_map(|report| &report.peers).any(|peer| peer.host == *host);
        let unheard: Vec<u8> = (1..=hosts as u8).filter(|host| !heard(host)).collect();
        return Err(match unheard[..] {
            [other] => format!("they are of host {other}, which has heard host {host}"),
            _ => format!("they are not of host {host}, which they have heard"),
        });
    }
    Ok(())
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
            (2, heard(2), "not of host 2"),
            (2, [heard(2), heard(3)].concat(), "they are of host 1"),
        ] {
            let said = given(host, 3, &all).expect_err(wanted);
            assert!(said.contains(wanted), "{said}");
        }
    }
}
