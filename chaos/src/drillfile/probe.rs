//! The probes of a steady state.

use obol_observe::named_enum;

named_enum! {
    /// A probe of a steady state.
    Probe {
        /// Every live member knows the newest view.
        ViewConverged = "view.converged",
        /// A coordinator leads.
        LeaderPresent = "leader.present",
        /// A majority of the coordinators runs.
        Majority = "coordinators.majority",
        /// Every live member with a lease may act now.
        LeasesActive = "lease.active",
        /// All processes that belong to the cluster run.
        ProcessesUp = "processes.up",
        /// A query to a Prometheus server has the required result.
        PromQl = "promql",
        /// An HTTP request is answered with the required status.
        Http = "http",
        /// A command ends with exit code 0.
        Command = "command",
    }
}
