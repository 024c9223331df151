//! libibverbs and librdmacm as their headers define them, by their C names: structures, constants,
//! and tables of functions that are looked up at run time. Nothing here decides anything.
//!
//! The definitions are this crate's own, so that building needs neither headers nor libraries;
//! `layout.rs` compares them with the real headers wherever those are installed. Versions 1.1 of
//! libibverbs' symbols exist since 2008 and those of librdmacm since 2005; a structure behind such
//! a symbol can not change.
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
