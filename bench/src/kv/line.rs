//! The floor of all communication between two cores through memory: the round trip of a cache
//! line.

use super::Peer;
use obol_server::kv::Patience;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A word that has its cache line to itself.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// Asks the other thread to end.
const END: u64 = u64::MAX;

/// A thread that writes back whatever it is written.
pub(super) struct Echo {
    lines: Arc<[Line; 2]>,
    said: u64,
    other: Option<JoinHandle<()>>,
}

/// Waits until a line is another than this one.
fn other_than(line: &Line, old: u64) -> u64 {
    let mut patience = Patience::default();
    loop {
        let new = line.0.load(Ordering::Acquire);
        if new != old {
            return new;
        }
        patience.idle();
    }
}

impl Echo {
    pub(super) fn start() -> io::Result<Self> {
        let lines = Arc::<[Line; 2]>::default();
        let [there, back] = [0, 1].map(|line| (Arc::clone(&lines), line));
        let echo = move || {
            let mut heard = 0;
            while heard != END {
                heard = other_than(&there.0[there.1], heard);
                back.0[back.1].0.store(heard, Ordering::Release);
            }
        };
        let other = std::thread::Builder::new().name("obol-echo".to_owned()).spawn(echo)?;
        Ok(Self { lines, said: 0, other: Some(other) })
    }

    fn say(&mut self) {
        self.said += 1;
        self.lines[0].0.store(self.said, Ordering::Release);
        other_than(&self.lines[1], self.said - 1);
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.lines[0].0.store(END, Ordering::Release);
        // A panic has been reported already.
        let _ = self.other.take().map(JoinHandle::join);
    }
}

impl Peer for Echo {
    fn name(&self) -> &str {
        "a cache line and back"
    }

    fn waits(&self) -> &'static str {
        super::OWN_WAITS[1]
    }

    fn put(&mut self) -> io::Result<()> {
        self.say();
        Ok(())
    }

    fn get(&mut self) -> io::Result<()> {
        self.say();
        Ok(())
    }
}
