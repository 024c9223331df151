//! The daemons of the replicated cache (`obol_kv`) and of the store (`obol_smr`): what `obol kv server`
//! and `obol smr server` run, and the clients of the cache as members. Clients of the store are in
//! `obol_replica`.

pub mod kv;
pub mod smr;

use obol_fabric::Nanos;

/// How often a client that shares its core looks for an answer.
pub const POLL_INTERVAL: Nanos = Nanos::from_micros(20);
