//! What the pulses of other hosts show, as `obol status --json` has it: with the units in the names. The
//! gateway's own report is a file, whose names have none.

use obol_fabric::Nanos;
use obol_fabric_ip::{PulseBlock, PulseDelays, PulsePath, PulsePeer, PulseReport};
use serde::{Serialize, Serializer};

#[derive(Serialize)]
struct PulsesJson<'a> {
    /// When, by the clock of this host.
    at_ns: u64,
    period_us: f64,
    timeout_us: f64,
    /// The time that the thread has used on a core so far.
    busy_us: f64,
    /// How often it has waited.
    waits: u64,
    peers: Vec<PeerJson<'a>>,
}

#[derive(Serialize)]
struct PeerJson<'a> {
    host: u8,
    heard: bool,
    silent: bool,
    paths: &'a [PulsePath],
    block: Option<BlockJson>,
}

/// The last second.
#[derive(Serialize)]
struct BlockJson {
    pulses: u64,
    gap_max_us: f64,
    silences: u64,
    paths: Vec<DelaysJson>,
}

#[derive(Serialize)]
struct DelaysJson {
    frames: u64,
    /// By clocks of two hosts: only the sum of both directions is a delay.
    floor_us: f64,
    spread_max_us: f64,
    spread_mean_us: f64,
}

fn us(nanos: u64) -> f64 {
    Nanos(nanos).as_micros_f64()
}

impl DelaysJson {
    fn of(&PulseDelays { frames, floor, spread_max, spread_mean }: &PulseDelays) -> Self {
        let (spread_max_us, spread_mean_us) = (us(spread_max), us(spread_mean));
        Self { frames, floor_us: floor as f64 / 1e3, spread_max_us, spread_mean_us }
    }
}

impl BlockJson {
    fn of(PulseBlock { pulses, gap_max, silences, paths }: &PulseBlock) -> Self {
        let paths = paths.iter().map(DelaysJson::of).collect();
        Self { pulses: *pulses, gap_max_us: us(*gap_max), silences: *silences, paths }
    }
}

impl<'a> PulsesJson<'a> {
    fn of(report: &'a PulseReport) -> Self {
        let peer = |peer: &'a PulsePeer| PeerJson {
            host: peer.host,
            heard: peer.heard,
            silent: peer.silent,
            paths: &peer.paths,
            block: peer.block.as_ref().map(BlockJson::of),
        };
        Self {
            at_ns: report.at,
            period_us: us(report.period),
            timeout_us: us(report.timeout),
            busy_us: us(report.busy),
            waits: report.waits,
            peers: report.peers.iter().map(peer).collect(),
        }
    }
}

/// Writes a report so, for `serialize_with`.
pub fn with_units<S: Serializer>(report: &Option<PulseReport>, to: S) -> Result<S::Ok, S::Error> {
    report.as_ref().map(PulsesJson::of).serialize(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric_ip::PulsePathState;

    #[test]
    fn every_time_has_its_unit_in_its_name() {
        let delays = PulseDelays { frames: 9, floor: -4_000, spread_max: 30_000, spread_mean: 14_000 };
        let block = PulseBlock { pulses: 9, gap_max: 1_500_000, silences: 0, paths: vec![delays] };
        let path = PulsePath { address: std::net::Ipv4Addr::LOCALHOST.into(), state: PulsePathState::Up };
        let peer = PulsePeer {
            host: 2,
            heard: true,
            silent: false,
            paths: vec![path],
            block: Some(block),
            frames: Vec::new(),
        };
        let report = PulseReport {
            at: 7,
            period: 1_000_000,
            timeout: 20_000_000,
            busy: 5_000,
            waits: 6,
            peers: vec![peer],
        };
        let written = with_units(&Some(report), serde_json::value::Serializer).expect("JSON");
        assert_eq!(
            written,
            serde_json::json!({
                "at_ns": 7, "period_us": 1000.0, "timeout_us": 20000.0, "busy_us": 5.0, "waits": 6,
                "peers": [{
                    "host": 2, "heard": true, "silent": false,
                    "paths": [{ "address": "127.0.0.1", "state": "up" }],
                    "block": {
                        "pulses": 9, "gap_max_us": 1500.0, "silences": 0,
                        "paths": [{
                            "frames": 9, "floor_us": -4.0, "spread_max_us": 30.0, "spread_mean_us": 14.0,
                        }],
                    },
                }],
            })
        );
        assert!(with_units(&None, serde_json::value::Serializer).expect("JSON").is_null());
    }
}
