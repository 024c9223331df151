//! The daemons of the replicated cache (`obol_kv`) and of the store (`obol_smr`): what `obol kv server`
//! and `obol smr server` run, and the clients of the cache as members. Clients of the store are in
//! `obol_replica`.

pub mod kv;
pub mod smr;
