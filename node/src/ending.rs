//! The signals upon which a program of obol ends in order: it leaves, undoes, delivers, reports. All
//! long commands and daemons take them from here.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{self, Receiver};
use std::{fs, io, thread};

/// The mask of ignored signals, in `/proc/self/status`.
const IGNORED: &str = "SigIgn:";

/// Ctrl-C, `kill`, and a terminal that was closed or a connection that was lost; the last one not if
/// the program was started to outlive its terminal (`nohup`).
#[must_use]
pub fn signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if is_ignored(&status, SIGHUP) { vec![SIGINT, SIGTERM] } else { vec![SIGINT, SIGTERM, SIGHUP] }
}

/// Gets a message at the first of these signals.
pub fn messages() -> io::Result<Receiver<()>> {
    let (tx, quit) = mpsc::channel();
    let mut signals = Signals::new(self::signals())?;
    let body = move || {
        // The receiver may have ended.
        if signals.forever().next().is_some() {
            let _ = tx.send(());
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(body)?;
    Ok(quit)
}

/// Whether a process of this status ignores a signal.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix(IGNORED));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_terminal_ends_a_program_unless_it_was_started_to_outlive_it() {
        let status = |mask: u64| format!("SigBlk:\t0000000000000001\nSigIgn:\t{mask:016x}\nSigCgt:\t0\n");
        assert!(is_ignored(&status(0b1), SIGHUP));
        assert!(!is_ignored(&status(0b10), SIGHUP) && is_ignored(&status(0b10), SIGINT));
        assert!(!is_ignored("", SIGHUP) && !is_ignored("SigIgn:\tx", SIGHUP));
    }
}
