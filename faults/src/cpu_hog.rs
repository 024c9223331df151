//! Threads that compute without a pause, on the host.

use super::load::Load;

pub(crate) const CPU_HOG: Load = Load {
    name: "cpu-hog",
    key: ("threads", 64),
    doc: "how many threads compute",
    unit: "threads",
    amount: 1,
    parts: |threads| (threads, 0),
};
