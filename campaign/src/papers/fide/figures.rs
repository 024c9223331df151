//! Figures 3, 4 and 6: what their numbers imply about each other.

use super::{Part, row};

pub(super) fn figure3() -> Part {
    Part {
        name: "Figure 3",
        missing: "All of it: the maxima (FiDe below 45 us, RDMA 243 us) are measurements, and inputs of Figure 4. One stream at \
                  20 us would take 76 weeks for 2.3e12 packets; the 30 streams among 6 servers take 2.5, and the paper says \
                  several weeks.",
        rows: Vec::new(),
    }
}

pub(super) fn figure4() -> Part {
    // A heartbeat as early as possible, and the next one as late as possible.
    let bound = |interval: f64, latency_max: f64| interval + latency_max;
    Part {
        name: "Figure 4",
        missing: "",
        rows: vec![
            row(
                "FiDe, no false positive from",
                "us",
                48.0,
                bound(20.0, 45.0),
                "an upper bound: the gap between a heartbeat without latency and one with the largest of Figure 3",
            ),
            row(
                "X-Lane",
                "us",
                800.0,
                bound(100.0, 550.0),
                "published is only that the interval exceeds 100 us: it was longer, or more than the network delays heartbeats",
            ),
            row(
                "uKharon",
                "us",
                800.0,
                bound(100.0, 243.0),
                "as for X-Lane; Figure 3 has RDMA alone, Figure 4 the detector on top of it",
            ),
        ],
    }
}

pub(super) fn figure6() -> Part {
    const LAW: &str = "in a closed loop throughput is clients / latency, so one ratio follows from the other";
    const PEAK: &str = "the largest ratios need not belong to one number of processes";
    let law = |latency: f64| 1.0 / latency;
    Part {
        name: "Figure 6",
        missing: "The curves: Redis's and ZooKeeper's own processing dominates them, and is not published.",
        rows: vec![
            row("throughput, HUC to RedisRaft, average", "x", 1.22, law(0.79), LAW),
            row("throughput, HUC to RedisRaft, largest", "x", 1.70, law(0.46), PEAK),
            row("throughput, HUC to ZooKeeper, average", "x", 1.71, law(0.64), LAW),
            row("throughput, HUC to ZooKeeper, largest", "x", 2.23, law(0.57), PEAK),
            row(
                "largest throughput of HUC",
                "Mbit/s",
                32.0,
                400.0 * 8.0 / 100.0,
                "400 bytes in each interval of 100 us",
            ),
        ],
    }
}
