//! Memory that is written repeatedly, on the host.

use super::load::LoadFault;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryPressure {
    pub(super) mebibytes: u32,
}

impl LoadFault for MemoryPressure {
    const NAME: &'static str = "memory-pressure";
    const KEY: (&'static str, u32) = ("mebibytes", 64 * 1024);
    const DOC: &'static str = "how many MiB are written";
    const UNIT: &'static str = "MiB";

    fn new(mebibytes: u32) -> Self {
        Self { mebibytes }
    }

    fn amount(&self) -> u32 {
        self.mebibytes
    }

    fn load(&self) -> (u32, u32) {
        (0, self.mebibytes)
    }
}
