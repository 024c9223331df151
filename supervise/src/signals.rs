//! Signals that a command answers when it comes to it.

use obol_node::ending;
use obol_term::output::Failure;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flag that the signals set upon which this process is to end.
pub fn ending() -> Result<Arc<AtomicBool>, Failure> {
    flag(&ending::signals())
}

/// A flag that any of these signals sets.
pub fn flag(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, Arc::clone(&flag)).map_err(Failure::failed)?;
    }
    Ok(flag)
}
