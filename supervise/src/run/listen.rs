//! Threads that pass on what happens to a process of `run`, each until its source ends.

use serde::de::DeserializeOwned;
use signal_hook::iterator::Signals;
use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;

pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

/// Passes on these signals, until one is not taken any more.
pub(super) fn signals(signals: &[i32], pass: impl FnMut(i32) -> bool + Send + 'static) -> io::Result<()> {
    let mut signals = Signals::new(signals)?;
    spawn("obol-signals", move || {
        signals.forever().all(pass);
    })
}

/// Passes on each message of a stream, a line of JSON, and at last that the stream has ended.
pub(super) fn messages<T: DeserializeOwned>(
    stream: UnixStream,
    mut pass: impl FnMut(Option<T>) + Send + 'static,
) -> io::Result<()> {
    spawn("obol-messages", move || {
        for line in BufReader::new(stream).lines() {
            let Some(message) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { break };
            pass(Some(message));
        }
        pass(None);
    })
}
