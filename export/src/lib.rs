//! A cluster for monitoring systems: its metrics over HTTP ([`serve`]), and alert rules
//! ([`rules`]) and a dashboard ([`dashboard`]) on them.
//!
//! A thread polls the cluster by one-sided READs at a steady rate; HTTP is served from the newest
//! poll by tokio on another thread. No scrape waits for a poll or causes one, and no process of the
//! cluster takes part, so a frozen one is reported like any other.

mod collector;
pub mod dashboard;
#[cfg(test)]
mod documented;
mod failovers;
#[cfg(test)]
mod fuzz;
mod negotiate;
mod queries;
mod render;
pub mod rules;
#[cfg(test)]
#[path = "../../observe/tests/support/scrambled.rs"]
mod scrambled;
mod server;

pub use collector::{Collector, Polled, Scope};
pub use server::{Options, ServeError, serve};
