//! The load that a drill puts on a host: threads that compute, or memory that is written
//! repeatedly.

use obol_fabric::Nanos;
use obol_fabric::host::clock;
use std::hint::black_box;
use std::thread;

/// Bytes of a page: one write in each makes the kernel provide it.
const PAGE_BYTES: usize = 4096;
/// Bytes of a MiB.
const MEBIBYTE: usize = 1 << 20;
/// Rounds of arithmetic between two clock readings.
const ROUNDS: u64 = 10_000;

/// Keeps the host busy for this long.
pub fn run(threads: u32, mebibytes: u32, lasts: Nanos) {
    let end = clock::now() + lasts;
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut value = 1u64;
                while clock::now() < end {
                    for round in 0..ROUNDS {
                        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round));
                    }
                }
            });
        }
        if mebibytes > 0 {
            let mut memory = vec![0u8; mebibytes as usize * MEBIBYTE];
            let mut round = 0u8;
            while clock::now() < end {
                round = round.wrapping_add(1);
                for page in memory.chunks_mut(PAGE_BYTES) {
                    page[0] = black_box(round);
                }
            }
        }
    });
}
