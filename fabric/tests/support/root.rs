//! What all tests with files share, those in the modules included.

use obol_fabric::host::Cluster;
use obol_fabric::{Limits, Name};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const LIMITS: Limits = Limits {
    seats: 3,
    slots: 8,
    proposers: 3,
    lanes: 8,
    lane_slots: 4,
    datagram_bytes: 1024,
    ..Limits::LEAST
};

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).expect("a valid name")
}

/// A root of its own for each test, gone when the test ends, by a panic too.
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(PathBuf::from(format!("/dev/shm/obol-test-{}-{n}", std::process::id())))
    }
}

/// A cluster in a root of its own.
pub(crate) fn made() -> (Root, Cluster) {
    let root = Root::new();
    let cluster = Cluster::create(&root, name("c"), LIMITS).expect("made");
    (root, cluster)
}

impl Deref for Root {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
