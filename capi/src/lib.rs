//! The C interface of obol: the APIs of `obol_agent` and `obol_replica` as `libobol` and `obol.h`.
//!
//! Every function checks its arguments; a null pointer is refused, never dereferenced. The `#
//! Safety` section of each function, and so of the header, states what Rust cannot check. This
//! crate only translates.

#![warn(missing_docs, reason = "others write programs and backends against this")]
#![allow(unsafe_code, reason = "the caller's pointers come from C")]

mod app;
mod replica;
mod service;
mod status;
mod streams;
mod view;

pub use app::{
    App, obol_active, obol_agent_lives, obol_attach, obol_attach_again, obol_changes, obol_check, obol_close,
    obol_confirm, obol_embed, obol_guard, obol_guard_within, obol_incarnation, obol_is_excluded, obol_join,
    obol_leave, obol_newest_view, obol_progress, obol_promise_progress, obol_wait_changed,
};
pub use replica::{
    OBOL_REPLICA_BYTES_MAX, Replica, obol_propose, obol_read, obol_replica_close, obol_replica_open,
    obol_replica_open_empty, obol_replica_open_parts, obol_replica_redundancy,
};
pub use service::{
    OnCommit, OnLoad, OnLoadAbandon, OnLoadBegin, OnLoadCommit, OnLoadPart, OnRead, OnSave, OnSaveBegin,
    OnSaveEnd, OnSavePart, OnWork, Output, Parts, Service, obol_output_write,
};
pub use status::{Status, obol_last_error, obol_version};
pub use streams::{
    Failure, Failures, Views, obol_failures_close, obol_failures_next, obol_failures_open, obol_views_close,
    obol_views_next, obol_views_open,
};
pub use view::{
    Kind, Member, Reason, View, obol_view_clone, obol_view_free, obol_view_id, obol_view_is_mine,
    obol_view_member, obol_view_members,
};
