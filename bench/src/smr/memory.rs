//! What this host's memory can do: the floor of everything that copies.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Longer than the caches of a core.
const BYTES: usize = 32 << 20;
const TIME: Duration = Duration::from_millis(100);

/// Bytes that one thread copies in a second.
pub(super) fn copied_per_s() -> f64 {
    let (from, mut to) = (vec![1u8; BYTES], vec![2u8; BYTES]);
    let (begun, mut copied) = (Instant::now(), 0);
    while begun.elapsed() < TIME {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        copied += BYTES;
    }
    copied as f64 / begun.elapsed().as_secs_f64()
}
