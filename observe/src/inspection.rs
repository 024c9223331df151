//! What one host of a cluster of several still has of it, for a recovery on another one
//! (`obol coordinator inspect`). The report covers coordinators that do not run, whose memory cannot be
//! READ over the network. The operator copies it, so it is as trustworthy as that channel.

use obol_config::file;
use obol_fabric::host::Observed;
use obol_fabric::{Layout, Name};
use obol_membership::View;
use obol_membership::view::{Numbers, coordinator_name};
use obol_node::network::print_id;
use obol_node::{Network, Site};
use obol_term::output::Failure;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

/// Version of the file.
const REPORT_SCHEMA: u32 = 1;
/// No view is as long, sealed and in hexadecimal digits.
const REPORT_BYTES_MAX: u64 = 1 << 20;

/// What a host has of a cluster.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    schema: u32,
    cluster: String,
    id: String,
    pub host: IpAddr,
    /// Coordinators whose memory is there: their process lives or can be started again.
    pub there: Vec<u16>,
    /// Coordinators that have voted on this host and have lost their memory since.
    pub lost: Vec<u16>,
    /// The newest view that any process of the host knows or knew; null if there is none.
    pub view: Option<u64>,
    /// That view, sealed, in hexadecimal digits.
    sealed: Option<String>,
}

/// Whether a coordinator's memory is there: where its process lives or can be started again, its
/// slots are.
pub fn is_there(site: &Site, number: u16) -> bool {
    let region = Observed::open(&site.cluster, u32::from(number));
    region.is_ok_and(|region| region.reader().view().is_some())
}

/// The newest view that this host knows.
pub fn known(site: &Site) -> Result<Option<View>, Failure> {
    site.known().map_err(Failure::refused)
}

impl Report {
    /// That of this host. A cluster of this host alone has none.
    pub fn here(site: &Site) -> Result<Self, Failure> {
        let Some(network) = site.deployment.network.as_ref().filter(|network| !network.hosts.is_empty())
        else {
            return Err(Failure::Refused(format!(
                "cluster {} is of this host alone, and `obol coordinator recover` sees all of it",
                site.cluster.name()
            )));
        };
        let view = known(site)?;
        let numbers: Vec<u16> = network.coordinators_of(network.address).collect();
        Ok(Self {
            schema: REPORT_SCHEMA,
            cluster: site.cluster.name().to_string(),
            id: print_id(network.id),
            host: network.address,
            there: numbers.iter().copied().filter(|n| is_there(site, *n)).collect(),
            lost: network.memory_lost.clone(),
            view: view.as_ref().map(|view| view.id.0),
            sealed: view.as_ref().map(|view| hexadecimal(&view.to_frame())),
        })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing into a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).ok()?, 16).ok();
    let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit()) && text.len().is_multiple_of(2);
    plain.then(|| digits.map(byte).collect()).flatten()
}

/// What all hosts of a cluster have of it, as far as an operator has asked them.
#[derive(Debug, Default)]
pub struct RecoveryInputs {
    /// Coordinators of other hosts whose memory is there.
    pub there: Numbers,
    /// Those whose memory is lost, or that were given up with their host.
    pub lost: Numbers,
    /// The newest view that another host knows.
    pub newest: Option<View>,
    /// Hosts of which nothing is known.
    pub silent: Vec<IpAddr>,
}

impl RecoveryInputs {
    /// Reads `reports` of other hosts; those in `lost` are given up.
    pub fn of(site: &Site, reports: &[impl AsRef<Path>], lost: &[IpAddr]) -> Result<Self, Failure> {
        let network = site.deployment.network.as_ref().filter(|network| !network.hosts.is_empty());
        let Some(network) = network else {
            if reports.is_empty() && lost.is_empty() {
                return Ok(Self::default());
            }
            return Err(Failure::Refused(format!(
                "cluster {} is of this host alone: --report and --lost name other ones",
                site.cluster.name()
            )));
        };
        let elsewhere = || network.hosts.iter().copied().filter(|host| *host != network.address);
        let mut asked = Self::default();
        for host in lost {
            if !elsewhere().any(|other| other == *host) {
                let others: Vec<String> = elsewhere().map(|other| other.to_string()).collect();
                return Err(Failure::Refused(format!(
                    "--lost {host}: the cluster's other hosts are {}",
                    others.join(", ")
                )));
            }
            asked.lost = network.coordinators_of(*host).fold(asked.lost, Numbers::with);
        }
        let mut heard = Vec::new();
        for path in reports {
            let path = path.as_ref();
            let (report, view) = read(path, site, network)?;
            if let Some(number) = report.there.iter().find(|_| lost.contains(&report.host)) {
                return Err(Failure::Refused(format!(
                    "--lost {}: {} says that the memory of {} is there",
                    report.host,
                    path.display(),
                    coordinator_name(*number)
                )));
            }
            let own: Numbers = network.coordinators_of(report.host).collect();
            let of_host = |numbers: &[u16], all: Numbers| {
                numbers.iter().copied().filter(|n| own.contains(*n)).fold(all, Numbers::with)
            };
            asked.there = of_host(&report.there, asked.there);
            asked.lost = of_host(&report.lost, asked.lost);
            asked.newest = asked.newest.into_iter().chain(view).max_by_key(|view| view.rank());
            heard.push(report.host);
        }
        asked.silent = elsewhere().filter(|host| !heard.contains(host) && !lost.contains(host)).collect();
        Ok(asked)
    }
}

fn read(path: &Path, site: &Site, network: &Network) -> Result<(Report, Option<View>), Failure> {
    let refused = |why: String| Failure::Refused(format!("{}: {why}", path.display()));
    let text = file::text(path, REPORT_BYTES_MAX, "what `obol coordinator inspect --json` prints")
        .map_err(|error| refused(error.to_string()))?;
    judge(&text, site.cluster.name(), network, &site.config.layout).map_err(refused)
}

/// What a text says of another host of this cluster, and the view in it; else what is wrong with
/// it.
fn judge(
    text: &str,
    cluster: Name,
    network: &Network,
    layout: &Layout,
) -> Result<(Report, Option<View>), String> {
    let report: Report = serde_json::from_str(text)
        .map_err(|error| format!("not what `obol coordinator inspect --json` prints: {error}"))?;
    if report.schema != REPORT_SCHEMA {
        return Err(format!("schema {} is not {REPORT_SCHEMA}: of another version of obol", report.schema));
    }
    let (cluster, id) = (cluster.to_string(), print_id(network.id));
    if (&report.cluster, &report.id) != (&cluster, &id) {
        let (other, other_id) = (&report.cluster, &report.id);
        return Err(format!("of cluster {other} with id {other_id}, but this is {cluster} with id {id}"));
    }
    if report.host == network.address || !network.hosts.contains(&report.host) {
        return Err(format!("of host {}, which is none of the cluster's other hosts", report.host));
    }
    let view = match &report.sealed {
        None => None,
        Some(sealed) => {
            let view = from_hexadecimal(sealed).and_then(|bytes| View::from_frame_for(layout, &bytes));
            let view = view.filter(|view| Some(view.id.0) == report.view);
            Some(view.ok_or_else(|| "its view is damaged".to_owned())?)
        }
    };
    Ok((report, view))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_come_back_as_they_were() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hexadecimal(&hexadecimal(&bytes)), Some(bytes));
        for bad in ["0", "0g", "+1", "é"] {
            assert_eq!(from_hexadecimal(bad), None, "{bad}");
        }
    }

    #[test]
    fn fuzz_report() {
        let [own, other] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let mut network = Network::local(0xaa, own, 7471, 7);
        network.hosts = vec![own, other];
        let cluster = Name::new("prod").expect("a name");
        let layout = Layout::new(obol_profiles::Profile::default().limits).expect("in bounds");
        let coordinators = [(coordinator_name(1), obol_fabric::Address::region(1))];
        let lease = obol_fabric::Nanos::from_millis(10);
        let view = View::genesis(&coordinators, lease, lease);
        let report = Report {
            schema: REPORT_SCHEMA,
            cluster: cluster.to_string(),
            id: print_id(network.id),
            host: other,
            there: vec![1],
            lost: vec![2],
            view: Some(0),
            sealed: Some(hexadecimal(&view.to_frame())),
        };
        let good = serde_json::to_string(&report).expect("JSON");
        assert_eq!(judge(&good, cluster, &network, &layout).expect("good").1, Some(view));
        let target = obol_fuzz::Target::new("report", obol_fuzz::Shape::Text, 20_000).with(good.into_bytes());
        target.run(|input| {
            let text = String::from_utf8_lossy(input);
            match judge(&text, cluster, &network, &layout) {
                Ok((report, view)) => {
                    let numbers: Numbers = report.there.iter().chain(&report.lost).copied().collect();
                    obol_fuzz::outcome((numbers, view))
                }
                Err(why) => obol_fuzz::outcome(why.len()),
            }
        });
    }
}
