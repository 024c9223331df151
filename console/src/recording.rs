//! The command `record`, and the recorder that the poll thread and the console share.

use crate::output::{self, Failure};
use crate::poll::live::{Live, POLL_EVERY, Rate};
use crate::poll::record::{Header, Recorder, RecordingError};
use crate::poll::sample::Sample;
use crate::poll::{ClusterLocation, Sink, Update};
use obol_fabric::Name;
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, mpsc};
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
        if self.recorder.lock().take().is_some() {
            return Ok(None);
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
        let how = recorder.as_mut().map_or(Ok(()), |recorder| recorder.sample(sample));
        if how.is_err() {
            *recorder = None;
        }
        how
    }
}

/// Writes every sample to a file.
struct FileSink {
    recorder: Recorder,
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
                self.failed = self.recorder.sample(&sample).err();
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

/// `obol record`: records a cluster until Ctrl-C, or for a given time.
pub fn record(location: ClusterLocation, file: &Path, time: Option<Duration>) -> Result<ExitCode, Failure> {
    let recorder = Recorder::create(file, &Header::new(location.cluster)).map_err(Failure::refused)?;
    let (tx, quit) = mpsc::channel();
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Failure::failed)?;
    let body = move || {
        // The first signal ends the recording; the receiver may have ended.
        if signals.forever().next().is_some() {
            let _ = tx.send(());
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(body).map_err(Failure::failed)?;
    let mut headless = FileSink { recorder, samples: 0, lost: None, failed: None };
    let live = Live::new(location).with_all_buckets();
    let live = if let Some(time) = time { live.for_time(time) } else { live };
    live.run(&Rate::new(POLL_EVERY), &quit, &mut headless);
    let FileSink { samples, lost, failed, .. } = headless;
    if samples == 0 {
        std::fs::remove_file(file).map_err(Failure::failed)?;
        if let Some(error) = failed {
            return Err(Failure::failed(error));
        }
        let why = lost.unwrap_or_else(|| "there was no time for a sample".to_owned());
        return Err(Failure::Refused(format!("{why}; nothing was recorded")));
    }
    output::line(format_args!("{samples} samples in {}; see them with `obol replay {0}`", file.display()))?;
    failed.map_or(Ok(ExitCode::SUCCESS), |error| Err(Failure::failed(error)))
}
