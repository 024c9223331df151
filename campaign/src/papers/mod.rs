//! The papers' experiments with this program's state machines on a simulated
//! [`Testbed`](obol_profiles::Testbed): failover times (uKharon, Table 2), timely renewals (Figure
//! 3), and how both scale. A testbed's parameters have their sources. `docs/papers.md` lists inputs
//! and results.

mod cluster;
mod leases;
mod report;
mod scale;
mod shared;
mod table2;

pub use cluster::ExperimentError;
pub use leases::{LENGTHS_US, Leases, Load, leases};
pub use report::report;
pub use scale::{MEMBERS, Method, Point, Scaling, scale};
pub use table2::{Cell, Detector, Figure, Scenario, Table2, table2};
