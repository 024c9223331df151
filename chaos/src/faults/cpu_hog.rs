//! Threads that compute without a pause, on the host.

use super::load::LoadFault;

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuHog {
    pub(super) threads: u32,
}

impl LoadFault for CpuHog {
    const NAME: &'static str = "cpu-hog";
    const KEY: (&'static str, u32) = ("threads", 64);
    const DOC: &'static str = "how many threads compute";
    const UNIT: &'static str = "threads";

    fn new(threads: u32) -> Self {
        Self { threads }
    }

    fn amount(&self) -> u32 {
        self.threads
    }

    fn load(&self) -> (u32, u32) {
        (self.threads, 0)
    }
}
