//! Recordings: samples in a documented file format that tolerates a crash of the recorder.
//!
//! See `docs/recording.md` for the format. A recording is a magic number followed by frames; a
//! frame is length, CRC-32 and JSON payload. If a recorder dies while writing, readers ignore the
//! incomplete frame at the end.

use crate::sampling::sample::Sample;
use obol_config::file::{self, Pipes};
use obol_fabric::Name;
use obol_membership::metrics::Counter;
use serde::{Deserialize, Serialize};
use std::fs::{File, Metadata};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The first bytes of a recording.
pub const MAGIC: &[u8; 16] = b"obol recording\n\0";
/// Changes if readers of an older version would misread the format.
pub(crate) const VERSION: u32 = 1;
/// The header's `format`.
const FORMAT: &str = "obol-recording";
/// Largest frame; a larger length is invalid.
const FRAME_BYTES_MAX: u32 = 64 << 20;
/// Bytes of a frame before its payload.
pub(crate) const FRAME_HEAD: u64 = 8;

/// The first frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: String,
    pub version: u32,
    /// The program that wrote it.
    pub writer: String,
    pub cluster: String,
    /// The names of the counters, in the order of each process's values.
    pub counters: Vec<String>,
}

impl Header {
    /// The header of a recording of this cluster by this program.
    pub fn new(cluster: Name) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            writer: concat!("obol ", env!("CARGO_PKG_VERSION")).to_owned(),
            cluster: cluster.to_string(),
            counters: Counter::ALL.iter().map(|counter| counter.name().to_owned()).collect(),
        }
    }
}

/// Every other frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Frame {
    /// The cluster at one moment.
    Sample(Box<Sample>),
}

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file exists already.
    #[error("{path} exists, and recordings are not overwritten; choose another name")]
    Exists { path: PathBuf },
    /// The file cannot be created, written or read.
    #[error("could not {doing} {path}: {error}")]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    /// The file is not what was recorded any more: others have changed, moved or removed it.
    #[error("{path} is not what was recorded: {why}")]
    Changed { path: PathBuf, why: String },
    /// It is not a recording, or of another version.
    #[error("{path}: {why}")]
    Format { path: PathBuf, why: String },
}

/// Writes a recording. Each frame is passed to the kernel at once, so it survives a crash of this
/// process.
pub struct Recorder<W = BufWriter<File>> {
    out: W,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes of the file so far.
    written: u64,
}

/// A file that was written, and must still be where it was.
#[derive(Debug)]
pub struct Written {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Written {
    /// Fails if what was written, and nothing else, is not at its path any more.
    pub fn check(&self) -> Result<(), RecordingError> {
        check(&self.path, &self.file, self.bytes)
    }
}

/// Fails if a file is not at its path any more, or has not just the bytes that were written: others may have
/// removed, renamed, replaced, cut or extended it.
fn check(path: &Path, file: &File, bytes: u64) -> Result<(), RecordingError> {
    let failed = |error| RecordingError::Io { doing: "read", path: path.to_owned(), error };
    let own = file.metadata().map_err(failed)?;
    let why = match std::fs::metadata(path) {
        Ok(found) if same(&found, &own) => match own.len() {
            len if len == bytes => return Ok(()),
            len if len < bytes => format!(
                "it was cut to {len} bytes, of {bytes} that were written; record again, to a file that nothing else writes"
            ),
            len => format!(
                "{} bytes of it were written by another program, and no sample behind them can be read; those before \
                 can (`obol replay`). Record again, to a file that nothing else writes",
                len - bytes
            ),
        },
        Ok(_) => format!("another file has taken its place, and {}", whereabouts(file, &own)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && own.nlink() > 0 => {
            format!("it was renamed, and {}", whereabouts(file, &own))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("it was removed, and {}", whereabouts(file, &own))
        }
        Err(error) => return Err(failed(error)),
    };
    Err(RecordingError::Changed { path: path.to_owned(), why })
}

fn same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// What has become of a file that is not at its path, and what to do.
fn whereabouts(file: &File, own: &Metadata) -> String {
    if own.nlink() == 0 {
        return "what was recorded is lost; record again, to a file that nothing removes or replaces"
            .to_owned();
    }
    let now = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok();
    let now = now.filter(|now| std::fs::metadata(now).is_ok_and(|found| same(&found, own)));
    let to = now.map_or("under another name".to_owned(), |now| format!("in {}", now.display()));
    format!(
        "what was recorded is {to}; record again, to a new file, and rename it when the recording has ended"
    )
}

/// Where the older half of a recording with a limit goes.
pub fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

impl Recorder {
    /// Begins the file anew, and keeps what there is as its older half, in place of the one before.
    /// Every sample is complete, so each half is a recording. Returns the older half.
    pub fn turn_over(&mut self, header: &Header) -> Result<Written, RecordingError> {
        self.check()?;
        let written = self.so_far()?;
        let failed = |error| RecordingError::Io { doing: "rename", path: self.path.clone(), error };
        std::fs::rename(&self.path, older(&self.path)).map_err(failed)?;
        *self = Self::create(&self.path, header)?;
        Ok(Written { path: older(&self.path), ..written })
    }

    /// What was written so far.
    pub fn so_far(&self) -> Result<Written, RecordingError> {
        let file = self.out.get_ref().try_clone();
        let file =
            file.map_err(|error| RecordingError::Io { doing: "read", path: self.path.clone(), error })?;
        Ok(Written { path: self.path.clone(), file, bytes: self.written })
    }

    /// Records a sample, and fails as well if it is not in the file with all before it: a sample behind what
    /// others have written there could not be read.
    pub fn record(&mut self, sample: &Sample) -> Result<(), RecordingError> {
        self.sample(sample)?;
        self.check()
    }

    /// Fails if the file is not what was written.
    pub fn check(&self) -> Result<(), RecordingError> {
        check(&self.path, self.out.get_ref(), self.written)
    }

    /// Creates a file; an existing one is not overwritten.
    pub fn create(path: &Path, header: &Header) -> Result<Self, RecordingError> {
        // What is written after another process has cut the file must not hide that.
        let made = File::options().append(true).create_new(true).open(path);
        let out = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RecordingError::Exists { path: path.to_owned() },
            _ => RecordingError::Io { doing: "create", path: path.to_owned(), error },
        })?;
        Self::begin(BufWriter::new(out), path, header).inspect_err(|_| {
            // It would be in the way of the next attempt. The first error says more than this one.
            let _ = std::fs::remove_file(path);
        })
    }
}

impl<W: Write> Recorder<W> {
    /// Begins a recording on any writer; `path` is for errors.
    pub fn begin(out: W, path: &Path, header: &Header) -> Result<Self, RecordingError> {
        let mut recorder = Self { out, path: path.to_owned(), buffer: Vec::new(), written: 0 };
        recorder.out.write_all(MAGIC).map_err(|error| recorder.failed(error))?;
        recorder.written = MAGIC.len() as u64;
        recorder.frame(header)?;
        Ok(recorder)
    }

    pub fn sample(&mut self, sample: &Sample) -> Result<(), RecordingError> {
        // Borrowed form of `Frame`.
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case")]
        enum Borrowed<'a> {
            Sample(&'a Sample),
        }
        self.frame(&Borrowed::Sample(sample))
    }

    fn frame(&mut self, value: &impl Serialize) -> Result<(), RecordingError> {
        self.buffer.clear();
        self.buffer.extend([0; 8]);
        serde_json::to_writer(&mut self.buffer, value).map_err(|error| self.failed(error.into()))?;
        let payload = &self.buffer[8..];
        let len = u32::try_from(payload.len()).ok().filter(|len| *len <= FRAME_BYTES_MAX);
        let crc = crc32fast::hash(payload);
        let Some(len) = len else {
            return Err(self.failed(io::Error::other("a sample exceeds the largest frame")));
        };
        self.buffer[..4].copy_from_slice(&len.to_le_bytes());
        self.buffer[4..8].copy_from_slice(&crc.to_le_bytes());
        let written = self.out.write_all(&self.buffer).and_then(|()| self.out.flush());
        self.written += self.buffer.len() as u64;
        written.map_err(|error| self.failed(error))
    }

    /// Bytes of the file so far.
    pub const fn written(&self) -> u64 {
        self.written
    }

    fn failed(&self, error: io::Error) -> RecordingError {
        RecordingError::Io { doing: "write", path: self.path.clone(), error }
    }
}

/// Says what is missing after bytes that were ignored.
pub(crate) fn gap(torn: u64) -> Option<String> {
    (torn > 0).then(|| format!("{torn} bytes at the end are ignored: a frame there is incomplete or damaged"))
}

/// A recording that is read sample by sample.
pub struct Reading<R = BufReader<File>> {
    pub header: Header,
    from: R,
    path: PathBuf,
    samples: u64,
    /// Bytes at the end that are ignored, from the first frame on that is incomplete or damaged; `None` before the
    /// end.
    torn: Option<u64>,
}

impl Reading {
    /// Opens a file. Its length is unlimited; that of a frame is not.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |error| RecordingError::Io { doing: "read", path: path.to_owned(), error };
        let file = file::open(path, Pipes::Refused).map_err(failed)?;
        Self::begin(BufReader::new(file), path)
    }
}

impl<R: Read> Reading<R> {
    /// Begins to read from any reader; `path` is for errors.
    pub fn begin(mut from: R, path: &Path) -> Result<Self, RecordingError> {
        let wrong = |why: String| RecordingError::Format { path: path.to_owned(), why };
        let failed = |error| RecordingError::Io { doing: "read", path: path.to_owned(), error };
        let mut magic = [0; MAGIC.len()];
        let got = fill(&mut from, &mut magic).map_err(failed)?;
        if got < magic.len() || magic != *MAGIC {
            return Err(wrong("not a recording of obol".to_owned()));
        }
        let Next::Frame(first) = next(&mut from).map_err(failed)? else {
            return Err(wrong("its header is incomplete, because its recorder died at once".to_owned()));
        };
        let header: Header =
            serde_json::from_slice(&first).map_err(|error| wrong(format!("its header: {error}")))?;
        if header.format != FORMAT || header.version != VERSION {
            let Header { format, version, writer, .. } = &header;
            return Err(wrong(format!(
                "{format} version {version} by {}; this obol reads {FORMAT} version {VERSION}",
                obol_term::plain::line(writer)
            )));
        }
        Ok(Self { header, from, path: path.to_owned(), samples: 0, torn: None })
    }

    /// The next sample; `None` at the end.
    pub fn sample(&mut self) -> Result<Option<Sample>, RecordingError> {
        if self.torn.is_some() {
            return Ok(None);
        }
        let failed = |error| RecordingError::Io { doing: "read", path: self.path.clone(), error };
        match next(&mut self.from).map_err(failed)? {
            Next::Frame(payload) => {
                self.samples += 1;
                let sample = self.header.sample(&payload).map_err(|error| {
                    let why = format!("frame {}: {error}", self.samples);
                    RecordingError::Format { path: self.path.clone(), why }
                })?;
                Ok(Some(sample))
            }
            Next::Torn(bytes) => {
                self.torn = Some(bytes);
                Ok(None)
            }
        }
    }

    /// What is missing after the last sample, if anything.
    pub fn gap(&self) -> Option<String> {
        gap(self.torn())
    }

    /// Bytes at the end that were ignored.
    pub fn torn(&self) -> u64 {
        self.torn.unwrap_or_default()
    }
}

impl Header {
    /// The sample of a frame.
    pub fn sample(&self, payload: &[u8]) -> serde_json::Result<Sample> {
        let Frame::Sample(sample) = serde_json::from_slice(payload)?;
        let mut sample = self.in_our_order(*sample);
        sample.neutralise();
        Ok(sample)
    }

    /// Reorders the counters of another build's sample; unknown counters are dropped.
    fn in_our_order(&self, mut sample: Sample) -> Sample {
        let same = self.counters.iter().map(String::as_str).eq(Counter::ALL.iter().map(|c| c.name()));
        if !same {
            let place = |counter: &Counter| self.counters.iter().position(|name| name == counter.name());
            let places: Vec<Option<usize>> = Counter::ALL.iter().map(place).collect();
            for row in &mut sample.processes {
                let value = |at: &Option<usize>| at.and_then(|at| row.counters.get(at)).copied().unwrap_or(0);
                row.counters = places.iter().map(value).collect();
            }
        }
        sample
    }
}

/// The next item of a recording.
pub(crate) enum Next {
    Frame(Vec<u8>),
    /// The end, after this many bytes of an incomplete frame.
    Torn(u64),
}

pub(crate) fn next(from: &mut impl Read) -> io::Result<Next> {
    let mut head = [0; 8];
    let got = fill(from, &mut head)?;
    if got < head.len() {
        return Ok(Next::Torn(got as u64));
    }
    let [a, b, c, d, e, f, g, h] = head;
    let (len, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    if len > FRAME_BYTES_MAX {
        return Ok(Next::Torn(8 + rest(from)?));
    }
    let mut payload = Vec::new();
    let got = from.by_ref().take(u64::from(len)).read_to_end(&mut payload)?;
    if got < len as usize || crc32fast::hash(&payload) != crc {
        return Ok(Next::Torn(8 + got as u64 + rest(from)?));
    }
    Ok(Next::Frame(payload))
}

/// Skips the rest.
fn rest(from: &mut impl Read) -> io::Result<u64> {
    io::copy(from, &mut io::sink())
}

/// Reads up to the buffer's length.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, Recording};
    use obol_fabric::Instant;

    fn written(samples: &[Sample]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = Header::new(samples::name("default"));
        let mut recorder = Recorder::begin(&mut bytes, Path::new("memory"), &header).expect("written");
        for sample in samples {
            recorder.sample(sample).expect("written");
        }
        drop(recorder);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Recording, RecordingError> {
        Recording::read(bytes, Path::new("memory"))
    }

    fn three() -> Vec<Sample> {
        vec![
            samples::healthy(Instant(1_000_000_000)),
            samples::degraded(Instant(2_000_000_000)),
            samples::empty(Instant(3_000_000_000)),
        ]
    }

    #[test]
    fn a_recording_is_read_back() {
        let recording = read(&written(&three())).expect("whole");
        assert_eq!((recording.samples, recording.torn), (three(), 0));
        assert_eq!(recording.header, Header::new(samples::name("default")));
    }

    #[test]
    fn a_recorder_that_dies_at_any_byte_loses_its_last_frame_only() {
        let wanted = three();
        let whole = written(&wanted);
        let ends: Vec<usize> = (0..=3).map(|n| written(&wanted[..n]).len()).collect();
        for cut in 0..whole.len() {
            let got = read(&whole[..cut]);
            let Some(kept) = ends.iter().rposition(|end| *end <= cut) else {
                assert!(got.is_err(), "{cut} is in the header");
                continue;
            };
            let recording = got.expect("the whole frames are read");
            assert_eq!(recording.samples.len(), kept, "cut at {cut}");
            assert_eq!(recording.torn, (cut - ends[kept]) as u64, "cut at {cut}");
        }
    }

    #[test]
    fn a_corrupt_byte_ends_the_recording_there() {
        let mut bytes = written(&three());
        let two = written(&three()[..2]).len();
        bytes[two + 20] ^= 1;
        let recording = read(&bytes).expect("two frames are whole");
        assert_eq!((recording.samples.len(), recording.torn), (2, (bytes.len() - two) as u64));
    }

    #[test]
    fn other_files_are_rejected_with_a_reason() {
        let refused = |bytes: &[u8]| read(bytes).expect_err("refused").to_string();
        assert!(refused(b"").contains("not a recording"));
        assert!(refused(&[7; 4096]).contains("not a recording"));
        let mut bytes = Vec::new();
        let header = Header { version: 2, ..Header::new(samples::name("default")) };
        drop(Recorder::begin(&mut bytes, Path::new("memory"), &header).expect("written"));
        assert!(refused(&bytes).contains("version 2"), "{}", refused(&bytes));
    }

    #[test]
    fn an_old_recording_without_acceptors_is_read() {
        let sample = samples::healthy(Instant(1_000_000_000));
        let mut older = serde_json::to_value(Frame::Sample(Box::new(sample))).expect("JSON");
        for row in older["sample"]["processes"].as_array_mut().expect("a list") {
            row.as_object_mut().expect("an object").remove("acceptor");
        }
        let Frame::Sample(read) = serde_json::from_value(older).expect("read");
        assert!(read.processes.iter().all(|row| row.acceptor.is_none()));
    }

    #[test]
    fn counters_of_another_build_are_matched_by_name() {
        let mut header = Header::new(samples::name("default"));
        header.counters.reverse();
        let mut sample = samples::healthy(Instant(1));
        let wanted = sample.clone();
        for row in &mut sample.processes {
            row.counters.reverse();
        }
        assert_eq!(header.in_our_order(sample), wanted);
    }
}
