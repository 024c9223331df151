//! The command `record`, and the recorder that the poll thread and the console share.

use obol_fabric::Name;
use obol_node::ClusterLocation;
use obol_node::ending;
use obol_observe::sampling::live::{Live, POLL_EVERY, Rate};
use obol_observe::sampling::record::{Header, Recorder, RecordingError, Written, older};
use obol_observe::sampling::sample::Sample;
use obol_observe::sampling::{Sink, Update};
use obol_term::output::{self, Failure};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// File extension of recordings.
const EXTENSION: &str = "obolrec";
/// Recordings of one cluster with default names in one folder, at most.
const NAMES_MAX: u32 = 10_000;

/// A recording that can be started and ended while samples arrive. Clones share it.
#[derive(Clone)]
pub(crate) struct SharedRecorder {
    cluster: Name,
    recorder: Arc<Mutex<Option<Recorder>>>,
}

impl SharedRecorder {
    /// One that does not record yet.
    pub(crate) fn new(cluster: Name) -> Self {
        Self { cluster, recorder: Arc::default() }
    }

    /// Begins to record to this file.
    pub(crate) fn begin(&self, file: &Path) -> Result<(), Failure> {
        let made = Recorder::create(file, &Header::new(self.cluster)).map_err(Failure::refused)?;
        *self.recorder.lock() = Some(made);
        Ok(())
    }

    /// Begins a recording to a new file in the working directory and returns its name, or ends the
    /// recording.
    pub(crate) fn toggle(&self) -> Result<Option<String>, RecordingError> {
        if let Some(recorder) = self.recorder.lock().take() {
            return recorder.check().map(|()| None);
        }
        let header = Header::new(self.cluster);
        let mut number = 1;
        loop {
            let file = PathBuf::from(format!("{}-{number}.{EXTENSION}", self.cluster));
            match Recorder::create(&file, &header) {
                Err(RecordingError::Exists { .. }) if number < NAMES_MAX => number += 1,
                made => {
                    *self.recorder.lock() = Some(made?);
                    return Ok(Some(file.display().to_string()));
                }
            }
        }
    }

    /// Records a sample if active; a write error ends the recording.
    pub(crate) fn take(&self, sample: &Sample) -> Result<(), RecordingError> {
        let mut recorder = self.recorder.lock();
        let how = recorder.as_mut().map_or(Ok(()), |recorder| recorder.record(sample));
        if how.is_err() {
            *recorder = None;
        }
        how
    }
}

/// The least limit: of a large cluster a sample takes a tenth of it.
pub const LIMIT_LEAST: u64 = 10_000_000;

/// Writes every sample to a file, which is turned over when it has half of the limit.
struct FileSink {
    recorder: Recorder,
    header: Header,
    limit: u64,
    /// Whether older samples were dropped.
    dropped: bool,
    /// The older half, if there is one.
    turned: Option<Written>,
    samples: u64,
    /// Why the cluster is missing.
    lost: Option<String>,
    failed: Option<RecordingError>,
}

impl Sink for FileSink {
    fn take(&mut self, update: Update) -> bool {
        match update {
            Update::Sample(sample) => {
                self.lost = None;
                self.failed = self.recorder.record(&sample).err().or_else(|| self.bound().err());
                self.samples += u64::from(self.failed.is_none());
            }
            // It may come back; the recording has a gap until then.
            Update::Lost { why } => {
                if self.lost.is_none() {
                    // If the message is lost, the recording still shows the gap.
                    let _ = output::remark(format_args!("obol: {why}; recording continues when it is back"));
                }
                self.lost = Some(why);
            }
        }
        self.failed.is_none()
    }
}

impl FileSink {
    /// Keeps the recording within its limit.
    fn bound(&mut self) -> Result<(), RecordingError> {
        if self.recorder.written() < self.limit / 2 {
            return Ok(());
        }
        let turned = self.recorder.turn_over(&self.header)?;
        self.dropped = self.turned.replace(turned).is_some();
        Ok(())
    }

    /// Fails if a half of the recording is not what was written.
    fn check(&self) -> Result<(), RecordingError> {
        self.recorder.check()?;
        self.turned.as_ref().map_or(Ok(()), Written::check)
    }
}

/// `obol record`: records a cluster until Ctrl-C, or for a given time, in a file and its older half of
/// `limit` bytes together.
pub fn record(
    location: ClusterLocation,
    file: &Path,
    time: Option<Duration>,
    limit: u64,
) -> Result<ExitCode, Failure> {
    let header = Header::new(location.cluster);
    if older(file).exists() {
        return Err(Failure::refused(RecordingError::Exists { path: older(file) }));
    }
    let recorder = Recorder::create(file, &header).map_err(Failure::refused)?;
    output::remark(format_args!(
        "obol: cluster {} is recorded to {}; Ctrl-C ends it",
        location.cluster,
        file.display()
    ))?;
    let quit = ending::messages().map_err(Failure::failed)?;
    let (samples, lost, failed) = (0, None, None);
    let mut headless =
        FileSink { recorder, header, limit, dropped: false, turned: None, samples, lost, failed };
    let live = Live::new(location).with_all_buckets();
    let live = if let Some(time) = time { live.for_time(time) } else { live };
    live.run(&Rate::new(POLL_EVERY), &quit, &mut headless);
    let found = headless.check();
    let FileSink { samples, lost, failed, turned, dropped, .. } = headless;
    // Where writing has failed, less is there than was written, and that error says why.
    let is_other = failed.as_ref().is_some_and(|error| !matches!(error, RecordingError::Changed { .. }));
    let found = if is_other { Ok(()) } else { found };
    if samples == 0 {
        // What others have put in its place is theirs.
        if found.is_ok() {
            std::fs::remove_file(file).map_err(Failure::failed)?;
        }
        if let Some(error) = failed {
            return Err(Failure::failed(error));
        }
        let why = lost.unwrap_or_else(|| "there was no time for a sample".to_owned());
        return Err(Failure::Refused(format!("{why}; nothing was recorded")));
    }
    found.map_err(Failure::failed)?;
    output::line(format_args!("{samples} samples in {}; see them with `obol replay {0}`", file.display()))?;
    if turned.is_some() {
        let gone = if dropped { "; those before it are gone, as --limit says" } else { "" };
        output::line(format_args!("the older ones are in {}{gone}", older(file).display()))?;
    }
    failed.map_or(Ok(ExitCode::SUCCESS), |error| Err(Failure::failed(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use crate::samples::Recording;
    use obol_fabric::Instant;

    #[test]
    fn a_recording_stays_within_its_limit_and_its_halves_follow_each_other() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("night.obolrec");
        let header = Header::new(samples::name("default"));
        let recorder = Recorder::create(&file, &header).expect("created");
        let limit = 200_000;
        let (samples, lost, failed) = (0, None, None);
        let mut sink =
            FileSink { recorder, header, limit, dropped: false, turned: None, samples, lost, failed };
        for n in 0..100 {
            assert!(sink.take(Update::Sample(Box::new(samples::healthy(Instant(n * 250_000_000))))));
            let bytes: u64 = [file.clone(), older(&file)]
                .iter()
                .filter_map(|file| std::fs::metadata(file).ok())
                .map(|meta| meta.len())
                .sum();
            // The sample that reaches the limit is written whole.
            assert!(bytes <= limit + 20_000, "{bytes} after {n}");
        }
        assert!(sink.turned.is_some() && sink.dropped);
        sink.check().expect("both halves are there");
        drop(sink);
        let read = |file: &Path| Recording::open(file).expect("a recording").samples;
        let all: Vec<u64> =
            read(&older(&file)).iter().chain(&read(&file)).map(|s| s.at.0 / 250_000_000).collect();
        assert_eq!(all.last(), Some(&99));
        assert!(
            all.len() > 5 && all.windows(2).all(|pair| pair[1] == pair[0] + 1),
            "no sample lacks: {all:?}"
        );
    }

    /// A recording that has begun, of one sample.
    fn begun(file: &Path, limit: u64) -> FileSink {
        let header = Header::new(samples::name("default"));
        let recorder = Recorder::create(file, &header).expect("created");
        let (samples, lost, failed) = (0, None, None);
        let mut sink =
            FileSink { recorder, header, limit, dropped: false, turned: None, samples, lost, failed };
        assert!(sink.take(sample(1)));
        sink.check().expect("it is there");
        sink
    }

    fn sample(n: u64) -> Update {
        Update::Sample(Box::new(samples::healthy(Instant(n * 250_000_000))))
    }

    /// What ends a recording at its second sample, which is not counted.
    fn ends(mut sink: FileSink) -> String {
        assert!(!sink.take(sample(2)));
        assert_eq!(sink.samples, 1);
        sink.failed.expect("it ends for a reason").to_string()
    }

    #[test]
    fn a_recording_that_others_have_removed_replaced_or_cut_ends_and_says_so() {
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("c.obolrec");
        let sink = begun(&file, LIMIT_LEAST);
        std::fs::remove_file(&file).expect("removed");
        let why = ends(sink);
        assert!(why.contains("c.obolrec is not what was recorded: it was removed, and"), "{why}");
        assert!(why.contains("is lost; record again"), "{why}");

        let sink = begun(&file, LIMIT_LEAST);
        std::fs::remove_file(&file).expect("removed");
        std::fs::write(&file, vec![0; 1 << 20]).expect("written");
        let why = ends(sink);
        assert!(why.contains("another file has taken its place") && why.contains("is lost"), "{why}");
        std::fs::remove_file(&file).expect("removed");

        // What follows does not fill the gap.
        let sink = begun(&file, LIMIT_LEAST);
        std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(0)).expect("cut");
        let why = ends(sink);
        assert!(why.contains("it was cut to"), "{why}");
        std::fs::remove_file(&file).expect("removed");

        // It is seen before the older half is overwritten.
        let sink = begun(&file, 1);
        assert!(sink.turned.is_some());
        std::fs::remove_file(&file).expect("removed");
        assert!(ends(sink).contains("it was removed"));
        assert!(older(&file).exists());
    }

    #[test]
    fn samples_behind_bytes_of_another_program_are_not_counted() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().expect("made");
        let file = folder.path().join("c.obolrec");
        let sink = begun(&file, LIMIT_LEAST);
        let mut other = std::fs::File::options().append(true).open(&file).expect("open");
        other.write_all(b"a line of a log\n").expect("written");
        let why = ends(sink);
        assert!(why.contains("16 bytes of it were written by another program"), "{why}");
        assert!(why.contains("Record again, to a file that nothing else writes"), "{why}");
        assert_eq!(Recording::open(&file).expect("a recording").samples.len(), 1, "as many as were counted");
    }

    #[test]
    fn of_a_recording_that_was_renamed_it_is_said_where_it_is() {
        let folder = tempfile::tempdir().expect("made");
        let (file, moved) = (folder.path().join("c.obolrec"), folder.path().join("moved.obolrec"));
        for is_replaced in [false, true] {
            let sink = begun(&file, LIMIT_LEAST);
            std::fs::rename(&file, &moved).expect("renamed");
            if is_replaced {
                std::fs::write(&file, "another").expect("written");
            }
            let why = ends(sink);
            let what = if is_replaced { "another file has taken its place" } else { "it was renamed" };
            let wanted = format!("{what}, and what was recorded is in {}", moved.display());
            assert!(why.contains(&wanted) && !why.contains("lost"), "{why}");
            assert!(Recording::open(&moved).is_ok_and(|recording| !recording.samples.is_empty()));
        }
    }
}
