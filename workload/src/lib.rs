//! Clients and faults for the replicated cache and store of a cluster, and checks of every answer: what
//! `obol kv check` and `obol smr check` run, and what drills and measurements start for themselves.

pub mod drill;
pub mod kv;
pub mod smr;
