//! Memory that is written repeatedly, on the host.

use super::load::Load;

pub(crate) const MEMORY_PRESSURE: Load = Load {
    name: "memory-pressure",
    key: ("mebibytes", 64 * 1024),
    doc: "how many MiB are written",
    unit: "MiB",
    amount: 1,
    parts: |mebibytes| (0, mebibytes),
};
