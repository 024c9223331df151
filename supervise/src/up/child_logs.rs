//! What the processes of `up` write to standard error. It is kept while a cluster starts, so that a
//! failed start is one message; later it is forwarded to this process's standard error, unless the
//! console has the terminal.

use obol_term::output;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::process::ChildStderr;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Lines that are kept; of more, the newest.
const LINES_MAX: usize = 64;
/// Bytes of a line; the rest of a longer one is a line of its own.
const LINE_BYTES_MAX: u64 = 4096;

#[derive(Default)]
struct State {
    /// Whose line, and the line.
    kept: VecDeque<(String, String)>,
    /// The last line of each process.
    last: BTreeMap<String, String>,
    /// Lines that there was no room for.
    lost: u64,
    /// Whether lines are forwarded at once.
    passes: bool,
}

/// The lines of all processes.
#[derive(Default)]
pub(super) struct ChildLogs(Mutex<State>);

impl ChildLogs {
    /// Reads the lines of a process until it closes its end.
    pub(super) fn listen(self: &Arc<Self>, name: &str, from: ChildStderr) -> io::Result<JoinHandle<()>> {
        let (logs, name) = (Arc::clone(self), name.to_owned());
        logs.0.lock().last.remove(&name);
        std::thread::Builder::new().name("child-logs".to_owned()).spawn(move || {
            let mut from = BufReader::new(from);
            let mut line = Vec::new();
            // What cannot be read is not reported; processes do not depend on it.
            while let Ok(1..) = (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                logs.take(&name, String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        })
    }

    fn take(&self, name: &str, line: String) {
        let mut state = self.0.lock();
        state.last.insert(name.to_owned(), line.clone());
        if state.passes {
            // There is no one left to report to if this fails, too.
            let _ = output::remark(line);
            return;
        }
        if state.kept.len() == LINES_MAX {
            state.kept.pop_front();
            state.lost += 1;
        }
        state.kept.push_back((name.to_owned(), line));
    }

    /// The last line of a process, without its name and the program's.
    pub(super) fn last(&self, name: &str) -> Option<String> {
        let line = self.0.lock().last.get(name)?.clone();
        let line = line.strip_prefix("obol: ").unwrap_or(&line);
        Some(line.strip_prefix(&format!("{name}: ")).unwrap_or(line).to_owned())
    }

    /// Forwards the kept lines, and later ones at once.
    pub(super) fn pass(&self) {
        let mut state = self.0.lock();
        state.passes = true;
        if state.lost > 0 {
            let _ =
                output::remark(format_args!("obol: {} earlier lines of its processes are lost", state.lost));
        }
        for (_, line) in state.kept.drain(..) {
            // There is no one left to report to if this fails, too.
            let _ = output::remark(line);
        }
    }

    /// Drops the kept lines: a message has reported them.
    pub(super) fn drop_kept(&self) {
        self.0.lock().kept.clear();
    }
}

/// One line for each reason, with all who have it.
pub(super) fn by_reason(failures: &BTreeMap<String, String>) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, reason) in failures {
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    let lines = reasons.iter().map(|(reason, names)| format!("{}: {reason}", names.join(", ")));
    lines.collect::<Vec<_>>().join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_for_one_reason_stands_in_one_line() {
        let failures = [("a", "no room"), ("b", "no device"), ("c", "no room")];
        let failures = failures.map(|(name, reason)| (name.to_owned(), reason.to_owned()));
        assert_eq!(by_reason(&failures.into()), "a, c: no room\n  b: no device");
    }

    #[test]
    fn of_many_lines_the_newest_are_kept_and_the_last_is_reported_without_names() {
        let logs = ChildLogs::default();
        (0..LINES_MAX + 3).for_each(|n| logs.take("coord-1", format!("obol: coord-1: line {n}")));
        assert_eq!(logs.last("coord-1").as_deref(), Some("line 66"));
        assert_eq!(logs.last("coord-2"), None);
        let state = logs.0.lock();
        assert_eq!((state.kept.len(), state.lost), (LINES_MAX, 3));
    }
}
