//! Which processes a drill hits, and the guards that may refuse it. The runner asks before it arms,
//! and each fault agent asks again by its own observations.

pub mod guard;
pub mod select;
