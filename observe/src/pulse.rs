//! What the gateway of this host knows of the pulses of others. The gateway writes it to two files in
//! the cluster's directory: the state as it is now, and one line for each second that has passed, from
//! which `obol tune --network` derives timeouts. While `obol tune --network --record` runs, each frame
//! goes to a third one ([`trace`]).

use crate::lines;
use crate::network_recording::{Origin, Stream, streams};
use obol_fabric::{Instant, Nanos};
use obol_fabric_ip::{PulseBlock, PulseFrame, PulsePathState, PulsePeer, PulseReport};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state now, replaced as a whole.
const STATE_FILE: &str = "pulses";
/// The seconds that have passed, and the file of those before.
const SAMPLES_FILE: &str = "pulse-samples";
const EARLIER_FILE: &str = "pulse-samples.1";
/// Until when each frame is wanted, by this host's clock; and the frames.
const WANTED_FILE: &str = "pulse-trace";
const FRAMES_FILE: &str = "pulse-frames";
/// A file of frames is not made larger: some ten million frames.
const FRAMES_BYTES_MAX: u64 = 512 << 20;
/// A file of samples is not made larger: with two paths to two hosts, eight hours.
const SAMPLES_BYTES_MAX: u64 = 16 << 20;
/// A state that is older is that of a gateway that has ended or is frozen.
const STATE_AGE_MAX: Nanos = Nanos::from_secs(5);

/// Writes the reports of a gateway.
#[derive(Debug)]
pub struct PulseWriter {
    directory: PathBuf,
    /// The last second of each host, for the state: not every report has one.
    seconds: BTreeMap<u8, PulseBlock>,
    samples: Option<File>,
    bytes: u64,
    /// Whether the gateway reports each frame.
    trace: Arc<AtomicBool>,
    frames: Option<BufWriter<File>>,
    frame_bytes: u64,
}

impl PulseWriter {
    /// Into a cluster's directory. `trace` has the gateway report each frame.
    pub fn new(directory: &Path, trace: Arc<AtomicBool>) -> Self {
        let directory = directory.to_owned();
        let (seconds, bytes, frame_bytes) = (BTreeMap::new(), 0, 0);
        Self { directory, seconds, samples: None, bytes, trace, frames: None, frame_bytes }
    }

    /// The report with the last second of each host that is not silent.
    fn with_seconds(&mut self, report: &PulseReport) -> PulseReport {
        let mut state = PulseReport { peers: Vec::new(), ..*report };
        for PulsePeer { host, heard, silent, paths, block, .. } in &report.peers {
            match block {
                Some(block) => drop(self.seconds.insert(*host, block.clone())),
                None if *silent => drop(self.seconds.remove(host)),
                None => {}
            }
            let block = self.seconds.get(host).cloned();
            let (heard, silent, paths) = (*heard, *silent, paths.clone());
            state.peers.push(PulsePeer { host: *host, heard, silent, paths, block, frames: Vec::new() });
        }
        state
    }

    /// Begins and ends the file of frames, and appends to it.
    fn write_frames(&mut self, report: &PulseReport) -> io::Result<()> {
        let wanted = fs::read_to_string(self.directory.join(WANTED_FILE)).ok();
        let until = wanted.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let is_wanted = report.at < until && self.frame_bytes < FRAMES_BYTES_MAX;
        if is_wanted && self.frames.is_none() {
            self.frames = Some(BufWriter::new(File::create(self.directory.join(FRAMES_FILE))?));
        }
        self.trace.store(is_wanted, Ordering::Relaxed);
        if let Some(file) = &mut self.frames {
            for PulsePeer { host, frames, .. } in &report.peers {
                for PulseFrame { path, sequence, sent, arrived } in frames {
                    let line = format!("{host} {path} {sequence} {sent} {arrived}\n");
                    file.write_all(line.as_bytes())?;
                    self.frame_bytes += line.len() as u64;
                }
            }
            file.flush()?;
        }
        if !is_wanted && report.at >= until {
            (self.frames, self.frame_bytes) = (None, 0);
        }
        Ok(())
    }

    /// Replaces the state, and appends the seconds that have ended.
    pub fn write(&mut self, report: &PulseReport) -> io::Result<()> {
        let state = self.directory.join(STATE_FILE);
        let draft = self.directory.join(format!("{STATE_FILE}.new"));
        fs::write(&draft, serde_json::to_vec(&self.with_seconds(report))?)?;
        fs::rename(&draft, &state)?;
        if report.peers.iter().all(|peer| peer.block.is_none()) {
            return Ok(());
        }
        self.write_frames(report)?;
        let mut line = serde_json::to_vec(report)?;
        line.push(b'\n');
        let path = self.directory.join(SAMPLES_FILE);
        if self.samples.is_some() && self.bytes >= SAMPLES_BYTES_MAX {
            self.samples = None;
            fs::rename(&path, self.directory.join(EARLIER_FILE))?;
        }
        if self.samples.is_none() {
            let file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
            self.bytes = file.metadata()?.len();
            if !lines::begins(&file, self.bytes)? {
                line.insert(0, b'\n');
            }
            self.samples = Some(file);
        }
        if let Some(file) = &mut self.samples {
            if let Err(error) = file.write_all(&line) {
                // The next second looks at what is left of this line.
                self.samples = None;
                return Err(error);
            }
            self.bytes += line.len() as u64;
        }
        Ok(())
    }
}

/// What the gateway of a cluster's directory has reported last. `None` if it sends no pulses, or has ended.
pub(crate) fn state(directory: &Path) -> Option<PulseReport> {
    let report: PulseReport = serde_json::from_slice(&fs::read(directory.join(STATE_FILE)).ok()?).ok()?;
    let age = obol_fabric::host::clock::now().0.saturating_sub(report.at);
    (age <= STATE_AGE_MAX.0).then_some(report)
}

/// The seconds that a gateway has written into a cluster's directory, oldest first. A line that is not
/// whole is that of a gateway that was killed.
pub fn samples(directory: &Path) -> io::Result<Vec<PulseReport>> {
    let mut all = Vec::new();
    for name in [EARLIER_FILE, SAMPLES_FILE] {
        let file = match File::open(directory.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).lines() {
            all.extend(serde_json::from_str::<PulseReport>(&line?).ok());
        }
    }
    Ok(all)
}

/// Has the gateway whose cluster has this directory keep each frame until then. It begins within two
/// seconds.
pub fn trace(directory: &Path, until: Instant) -> io::Result<()> {
    fs::write(directory.join(WANTED_FILE), until.0.to_string())
}

/// The frames that the gateway of host `to` has kept since the last [`trace`]. The addresses are those in
/// its state.
pub fn traced(directory: &Path, to: u8) -> io::Result<Vec<Stream>> {
    let state = fs::read(directory.join(STATE_FILE))?;
    let state: PulseReport = serde_json::from_slice(&state)?;
    let mut frames: BTreeMap<u8, Vec<PulseFrame>> = BTreeMap::new();
    for line in BufReader::new(File::open(directory.join(FRAMES_FILE))?).lines() {
        // The last line may not be whole.
        if let Some((host, frame)) = traced_frame(&line?) {
            frames.entry(host).or_default().push(frame);
        }
    }
    let of = |peer: &PulsePeer| {
        let addresses: Vec<IpAddr> = peer.paths.iter().map(|path| path.address).collect();
        let frames = frames.get(&peer.host).map(Vec::as_slice).unwrap_or_default();
        streams(Origin { from: peer.host, addresses: &addresses, period: state.period }, to, frames)
    };
    Ok(state.peers.iter().flat_map(of).filter(|stream| !stream.frames.is_empty()).collect())
}

fn traced_frame(line: &str) -> Option<(u8, PulseFrame)> {
    let mut words = line.split(' ');
    let (host, path) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let mut number = || words.next()?.parse().ok();
    let frame = PulseFrame { path, sequence: number()?, sent: number()?, arrived: number()? };
    words.next().is_none().then_some((host, frame))
}

/// What an operator should know of these pulses, in sentences without their full stops.
pub fn complaints(report: &PulseReport) -> Vec<String> {
    let mut all = Vec::new();
    for PulsePeer { host, silent, paths, .. } in &report.peers {
        if *silent {
            all.push(format!("host {host} sends no pulses to this host"));
            continue;
        }
        for path in paths.iter().filter(|path| path.state == PulsePathState::Lost) {
            all.push(format!("the path from host {host} at {} is lost", path.address));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_fabric_ip::PulsePath;

    fn report(silent: bool, state: PulsePathState, block: bool) -> PulseReport {
        let path = PulsePath { address: [10, 1, 0, 2].into(), state };
        let block = block.then(PulseBlock::default);
        let peer = PulsePeer { host: 2, heard: true, silent, paths: vec![path], block, frames: Vec::new() };
        PulseReport { at: 7, period: 1, timeout: 3, peers: vec![peer], ..PulseReport::default() }
    }

    #[test]
    fn a_lost_path_is_named_and_a_silent_host_has_no_paths() {
        let said = |silent, state| complaints(&report(silent, state, false));
        assert_eq!(said(false, PulsePathState::Up), [] as [&str; 0]);
        assert_eq!(said(false, PulsePathState::Lost), ["the path from host 2 at 10.1.0.2 is lost"]);
        assert_eq!(said(true, PulsePathState::Lost), ["host 2 sends no pulses to this host"]);
    }

    #[test]
    fn seconds_are_read_back_and_alarms_between_them_are_none() {
        let folder = tempfile::tempdir().expect("made");
        assert_eq!(samples(folder.path()).expect("none"), []);
        let mut writer = PulseWriter::new(folder.path(), Arc::default());
        let second = report(false, PulsePathState::Up, true);
        for each in [&second, &report(true, PulsePathState::Up, false), &second] {
            writer.write(each).expect("written");
        }
        assert_eq!(samples(folder.path()).expect("read"), [second.clone(), second.clone()]);
        // A gateway that was killed in the middle of a line, and its successor.
        let torn = folder.path().join(SAMPLES_FILE);
        fs::write(&torn, [&fs::read(&torn).expect("read")[..], b"{\"at\":1,"].concat()).expect("written");
        PulseWriter::new(folder.path(), Arc::default()).write(&second).expect("written");
        assert_eq!(samples(folder.path()).expect("read").len(), 3);
    }
    #[test]
    fn frames_are_kept_while_they_are_wanted() {
        let folder = tempfile::tempdir().expect("made");
        let wanted = Arc::new(AtomicBool::new(false));
        let mut writer = PulseWriter::new(folder.path(), Arc::clone(&wanted));
        let mut at = |at: u64, sequences: &[u64]| {
            let mut report = PulseReport { at, ..report(false, PulsePathState::Up, true) };
            let frame = |n: &u64| PulseFrame { path: 0, sequence: *n, sent: n * 10, arrived: n * 10 + 3 };
            report.peers[0].frames = sequences.iter().map(frame).collect();
            writer.write(&report).expect("written");
            wanted.load(Ordering::Relaxed)
        };
        assert!(!at(10, &[]), "no reader wants them");
        trace(folder.path(), Instant(30)).expect("written");
        assert!(at(20, &[]));
        assert!(at(29, &[1, 2]));
        assert!(!at(30, &[4]), "the last second");
        assert!(!at(40, &[]));
        let of = traced(folder.path(), 1).expect("read");
        assert_eq!(of.len(), 1);
        assert_eq!(of[0].frames, [(10, Some(13)), (20, Some(23)), (30, None), (40, Some(43))]);
        assert_eq!((of[0].from, of[0].to, of[0].period), (2, 1, 1));
        trace(folder.path(), Instant(60)).expect("written");
        assert!(at(50, &[]) && !at(60, &[9]));
        assert_eq!(traced(folder.path(), 1).expect("read")[0].frames, [(90, Some(93))], "a new file");
    }
}
