//! A deterministic cluster in virtual time.
