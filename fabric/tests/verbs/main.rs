//! RDMA devices of this host: what the device's own rules guarantee, and what an endpoint makes of them.
//!
//! The gate runs this binary in a VM that has a soft-RoCE device, with `OBOL_VERBS=require`; elsewhere, tests that find
//! no device say so and pass.

mod connect;
mod costs;
mod device;
mod rights;
mod support;
