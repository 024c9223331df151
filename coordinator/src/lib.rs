//! The coordinator daemon.
