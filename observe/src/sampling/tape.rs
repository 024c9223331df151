//! A recording whose samples stay in its file: each is read and decoded when it is needed, so that memory and the
//! time to the first screen do not depend on its length. What is kept of a sample is its place in the file and its
//! time.
//!
//! The file stays open, so it may be renamed or removed meanwhile, as a recorder with a limit does.

use crate::sampling::record::{FRAME_HEAD, Header, Next, Reading, RecordingError, gap, next};
use crate::sampling::sample::Sample;
use obol_config::file::{self, Pipes};
use obol_fabric::{Instant, ViewId};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are searched for samples at a time: some tens of milliseconds.
const SCAN_BYTES: u64 = 32 << 20;
/// Bytes that are read at a time while the file is searched, and while samples are decoded.
const SCAN_BUFFER: usize = 1 << 20;
const DECODE_BUFFER: usize = 64 << 10;

/// Reads a shared file from a place on.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(buffer, self.offset)?;
        self.offset += got as u64;
        Ok(got)
    }
}

/// What the search reads of a frame.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BriefFrame {
    Sample(BriefSample),
}

#[derive(Deserialize)]
struct BriefSample {
    at: Instant,
    view: Option<BriefView>,
}

#[derive(Deserialize)]
struct BriefView {
    id: ViewId,
}

/// Where a sample is.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its time, or that of a sample before it if its clock went back: times never decrease.
    at: Instant,
    /// Where its frame begins in the file.
    offset: u64,
}

/// A recording in its file. Samples are numbered from zero. The file is searched in pieces: what was not
/// searched yet is not among the samples.
#[derive(Clone, Debug)]
pub struct Tape {
    header: Header,
    file: Arc<File>,
    path: PathBuf,
    found: Vec<Entry>,
    /// Samples at which the view changed.
    changes: Vec<usize>,
    /// The view of the newest sample that was found.
    view: Option<ViewId>,
    /// Where the next frame begins; `None` once the end was found.
    next: Option<u64>,
    /// What is missing at the end, if anything.
    gap: Option<String>,
}

impl Tape {
    /// Opens a recording and searches its first piece. Fails if the file is not a recording, or if its first
    /// sample is damaged.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |error| RecordingError::Io { doing: "read", path: path.to_owned(), error };
        Self::of(file::open(path, Pipes::Refused).map_err(failed)?, path)
    }

    /// The same of an open file; `path` is for errors.
    pub fn of(file: File, path: &Path) -> Result<Self, RecordingError> {
        let mut from = At { file: &file, offset: 0 };
        let header = Reading::begin(&mut from, path)?.header;
        let next = Some(from.offset);
        let (file, path) = (Arc::new(file), path.to_owned());
        let (found, changes) = (Vec::new(), Vec::new());
        let mut tape = Self { header, file, path, found, changes, view: None, next, gap: None };
        match tape.search() {
            Err(error) if tape.found.is_empty() => return Err(error),
            Err(error) => tape.end_at(tape.found(), &error),
            Ok(()) => {}
        }
        tape.samples(0..tape.found().min(1)).next().transpose()?;
        Ok(tape)
    }

    /// The cluster's name, as the recording has it.
    pub fn cluster(&self) -> &str {
        &self.header.cluster
    }

    /// Samples that were found so far.
    pub fn found(&self) -> usize {
        self.found.len()
    }

    /// Whether the end was found.
    pub const fn is_scanned(&self) -> bool {
        self.next.is_none()
    }

    /// The time of a sample.
    pub fn at(&self, place: usize) -> Option<Instant> {
        self.found.get(place).map(|entry| entry.at)
    }

    /// What is missing at the end, if that was found.
    pub fn gap(&self) -> Option<&str> {
        self.gap.as_deref()
    }

    /// The bytes of the file from one sample to a later one.
    pub fn bytes(&self, places: Range<usize>) -> u64 {
        let offset = |place: usize| self.found.get(place).map(|entry| entry.offset);
        let [from, to] = [places.start, places.end].map(offset);
        from.zip(to.or(self.next)).map_or(0, |(from, to)| to.saturating_sub(from))
    }

    /// Searches the next piece of the file.
    pub fn scan(&mut self) {
        if let Err(error) = self.search() {
            self.end_at(self.found(), &error);
        }
    }

    fn search(&mut self) -> Result<(), RecordingError> {
        let Some(begin) = self.next else { return Ok(()) };
        let file = Arc::clone(&self.file);
        let mut from = BufReader::with_capacity(SCAN_BUFFER, At { file: &file, offset: begin });
        let mut offset = begin;
        while offset - begin < SCAN_BYTES {
            let payload = match next(&mut from).map_err(|error| self.unread(error))? {
                Next::Frame(payload) => payload,
                Next::Torn(bytes) => {
                    (self.next, self.gap) = (None, gap(bytes));
                    return Ok(());
                }
            };
            let BriefFrame::Sample(BriefSample { at, view }) =
                serde_json::from_slice(&payload).map_err(|error| self.wrong(self.found(), offset, &error))?;
            let view = view.map(|view| view.id);
            if !self.found.is_empty() && view != self.view {
                self.changes.push(self.found());
            }
            self.view = view;
            let at = self.found.last().map_or(at, |last| last.at.max(at));
            self.found.push(Entry { at, offset });
            offset += FRAME_HEAD + payload.len() as u64;
            self.next = Some(offset);
        }
        Ok(())
    }

    /// The recording ends before this sample, because it cannot be read.
    pub fn end_at(&mut self, place: usize, error: &RecordingError) {
        self.found.truncate(place);
        self.changes.truncate(self.changes.partition_point(|change| *change < place));
        (self.next, self.gap) = (None, Some(error.to_string()));
    }

    /// The number of samples up to a moment; searches for them.
    pub fn until(&mut self, moment: Instant) -> usize {
        while self.next.is_some() && self.found.last().is_none_or(|last| last.at <= moment) {
            self.scan();
        }
        self.found_until(moment)
    }

    /// How many of the samples that were found are not later than a moment.
    pub fn found_until(&self, moment: Instant) -> usize {
        self.found.partition_point(|entry| entry.at <= moment)
    }

    /// Whether there is this sample; searches for it.
    pub fn has(&mut self, place: usize) -> bool {
        while self.next.is_some() && place >= self.found() {
            self.scan();
        }
        place < self.found()
    }

    /// The newest sample before this one at which the view changed.
    pub fn change_before(&self, place: usize) -> Option<usize> {
        self.changes[..self.changes.partition_point(|change| *change < place)].last().copied()
    }

    /// The oldest sample after this one at which the view changed; searches for it.
    pub fn change_after(&mut self, place: usize) -> Option<usize> {
        while self.next.is_some() && self.changes.last().is_none_or(|last| *last <= place) {
            self.scan();
        }
        self.changes.get(self.changes.partition_point(|change| *change <= place)).copied()
    }

    /// Reads these samples, which must have been found. Ends at the first that cannot be read.
    pub fn samples(&self, places: Range<usize>) -> impl Iterator<Item = Result<Sample, RecordingError>> + '_ {
        let offset = self.found.get(places.start).map_or(0, |entry| entry.offset);
        let mut from = BufReader::with_capacity(DECODE_BUFFER, At { file: &self.file, offset });
        let each = places.map(move |place| self.decode(&mut from, place));
        each.scan(true, |goes_on, one| goes_on.then(|| one.inspect_err(|_| *goes_on = false)))
    }

    fn decode(&self, from: &mut impl Read, place: usize) -> Result<Sample, RecordingError> {
        let offset = self.found.get(place).map_or(0, |entry| entry.offset);
        match next(from).map_err(|error| self.unread(error))? {
            Next::Frame(payload) => {
                self.header.sample(&payload).map_err(|error| self.wrong(place, offset, &error))
            }
            Next::Torn(_) => {
                Err(self.wrong(place, offset, &"the file was cut or changed while it was shown"))
            }
        }
    }

    fn unread(&self, error: io::Error) -> RecordingError {
        RecordingError::Io { doing: "read", path: self.path.clone(), error }
    }

    fn wrong(&self, place: usize, offset: u64, why: &dyn std::fmt::Display) -> RecordingError {
        let why = format!("frame {} at byte {offset}: {why}", place + 1);
        RecordingError::Format { path: self.path.clone(), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, Recording, frame, opened, written};
    use std::fs;
    use std::io::{Seek as _, SeekFrom, Write as _};

    fn three() -> [Sample; 3] {
        [
            samples::healthy(Instant(1_000_000_000)),
            samples::degraded(Instant(2_000_000_000)),
            samples::empty(Instant(3_000_000_000)),
        ]
    }

    fn all(tape: &Tape) -> Result<Vec<Sample>, RecordingError> {
        tape.samples(0..tape.found()).collect()
    }

    #[test]
    fn samples_are_read_where_they_are() {
        let tape = samples::tape(&three());
        assert!(tape.is_scanned() && tape.gap().is_none() && tape.cluster() == "default");
        assert_eq!(all(&tape).expect("read"), three());
        for place in 0..3 {
            let one: Vec<Sample> = tape.samples(place..place + 1).collect::<Result<_, _>>().expect("read");
            assert_eq!((one.as_slice(), tape.at(place)), (&three()[place..=place], Some(three()[place].at)));
        }
        assert_eq!((tape.change_before(2), tape.change_before(1)), (Some(1), None));
        let mut tape = tape;
        assert_eq!(
            (tape.change_after(0), tape.change_after(1), tape.change_after(2)),
            (Some(1), Some(2), None)
        );
        let until = [0, 1_000_000_000, 2_999_999_999, u64::MAX].map(|at| tape.until(Instant(at)));
        assert_eq!((until, tape.has(2), tape.has(3)), ([0, 1, 2, 3], true, false));
    }

    #[test]
    fn a_recording_that_was_cut_anywhere_has_the_samples_before() {
        let bytes = written(&three());
        for cut in (0..bytes.len()).step_by(7) {
            match (Recording::read(&bytes[..cut], Path::new("memory")), opened(&bytes[..cut])) {
                (Ok(whole), Ok(tape)) => {
                    assert_eq!(all(&tape).expect("read"), whole.samples, "cut at {cut}");
                    assert_eq!(tape.gap().is_some(), whole.torn > 0, "cut at {cut}");
                }
                (whole, tape) => assert!(whole.is_err() && tape.is_err(), "cut at {cut}"),
            }
        }
    }

    #[test]
    fn a_damaged_frame_ends_the_recording_and_the_error_says_where() {
        let two = written(&three()[..2]);
        let mut corrupt = written(&three());
        corrupt[two.len() + 20] ^= 1;
        let tape = opened(&corrupt).expect("two are whole");
        let ignored = format!("{} bytes at the end are ignored", corrupt.len() - two.len());
        assert!(tape.found() == 2 && tape.gap().is_some_and(|gap| gap.starts_with(&ignored)), "{tape:?}");

        let nonsense = [two.as_slice(), &frame(b"{\"sample\": 7}"), &two[two.len() / 2..]].concat();
        let tape = opened(&nonsense).expect("two are whole");
        let place = format!("night.obolrec: frame 3 at byte {}: invalid type", two.len());
        assert!(tape.found() == 2 && tape.gap().is_some_and(|gap| gap.starts_with(&place)), "{tape:?}");

        // One that has a time only is found, and cannot be shown.
        let half = [two.as_slice(), &frame(b"{\"sample\": {\"at\": 7, \"view\": null}}")].concat();
        let mut tape = opened(&half).expect("two are whole");
        assert_eq!((tape.found(), tape.gap()), (3, None));
        let error = all(&tape).expect_err("it has a time only");
        assert!(error.to_string().starts_with(&place[..place.len() - 12]), "{error}");
        tape.end_at(2, &error);
        assert_eq!((all(&tape).expect("read").len(), tape.change_after(1)), (2, None));

        let header = written(&[]);
        let none = [header.as_slice(), &frame(b"[]")].concat();
        assert!(opened(&none).is_err_and(|error| error.to_string().contains("frame 1 at byte")));
    }

    #[test]
    fn a_file_that_is_renamed_is_still_read_and_one_that_is_cut_or_overwritten_is_an_error() {
        let folder = tempfile::tempdir().expect("made");
        let [path, old] = ["night.obolrec", "night.obolrec.old"].map(|name| folder.path().join(name));
        fs::write(&path, written(&three())).expect("written");
        let tape = Tape::open(&path).expect("opened");
        fs::rename(&path, &old).expect("renamed");
        fs::write(&path, written(&[])).expect("written");
        assert_eq!(all(&tape).expect("read"), three());
        let error = || all(&tape).expect_err("damaged").to_string();
        let mut file = File::options().write(true).open(&old).expect("opened");
        file.seek(SeekFrom::Start(written(&three()[..1]).len() as u64 + 30)).expect("sought");
        file.write_all(b"another").expect("written");
        assert!(error().contains("frame 2 at byte") && error().contains("cut or changed"), "{}", error());
        file.set_len(3).expect("cut");
        assert!(error().contains("frame 1 at byte") && error().contains("cut or changed"), "{}", error());
        fs::remove_file(&old).expect("removed");
        assert!(all(&tape).is_err());
    }

    #[test]
    fn a_clock_that_went_back_does_not_disturb_the_order() {
        let times = [5, 9, 3, 4, 12].map(|s| s * 1_000_000_000);
        let mut tape = samples::tape(&times.map(|at| samples::empty(Instant(at))));
        let until = [4, 5, 9, 11, 12].map(|s| tape.until(Instant(s * 1_000_000_000)));
        assert_eq!(until, [0, 1, 4, 4, 5]);
        assert!(all(&tape).expect("read").iter().map(|sample| sample.at.0).eq(times));
    }
}
