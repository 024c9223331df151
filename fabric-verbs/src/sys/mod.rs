//! libibverbs and librdmacm as defined by their headers, with their C names: structures, constants,
//! and tables of functions resolved at run time. Definitions only, no logic.
//!
//! The definitions are this crate's own, so that building needs neither headers nor libraries;
//! `layout.rs` compares them with the real headers wherever those are installed. Version 1.1 of
//! libibverbs' symbols has existed since 2008 and that of librdmacm since 2005; a structure behind
//! such a symbol cannot change.
#![allow(
    non_camel_case_types,
    dead_code,
    reason = "names as in the headers; some fields only give the others their place"
)]

#[cfg(test)]
mod layout;
mod library;
mod objects;
mod rdma_cm;
mod values;

pub(crate) use library::{Cm, Verbs};
pub(crate) use objects::*;
pub(crate) use rdma_cm::*;
pub(crate) use values::*;
