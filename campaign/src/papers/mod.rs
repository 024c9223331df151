//! The papers' experiments with this program's state machines on a simulated
//! [`Testbed`](obol_profiles::Testbed): failover times (uKharon, Table 2), timely renewals (Figure
//! 3), and how both scale; failovers and latencies of Mu; DARE's formulas; and FiDe's tables. A
//! testbed's parameters have their sources. `docs/papers` lists inputs and results.

mod cluster;
mod dare;
mod fide;
mod leases;
mod mu;
mod report;
mod reproduction;
mod samples;
mod scale;
mod shared;
mod table2;

pub use cluster::ExperimentError;
pub use dare::{dare, dare_svg};
pub use fide::fide;
pub use leases::{LENGTHS_US, Leases, Load, leases};
pub use mu::{Mu, mu};
pub use report::report;
pub use reproduction::{Input, Part, Reproduction, Row};
pub use scale::{MEMBERS, Method, Point, Scaling, scale};
pub use table2::{Cell, Detector, Figure, Scenario, Table2, table2};
