//! The simulation campaign: whole clusters in virtual time under faults, over the very machines that ship, judged by an
//! oracle that sees true time and everybody's memory. `docs/design/testing.md` says what each row proves.

mod driver;
mod marks;
mod oracle;
mod report;
mod role;
mod runner;
mod scenario;
mod storms;

pub use marks::{Mark, Marks};
pub use oracle::Violation;
pub use report::{Failure, Found, Hunt, Options, Report, campaign, hunt, throughput};
pub use runner::{Run, run};
pub use scenario::{CANARY_EVERY, Scenario};
