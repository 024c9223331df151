//! Readable traces in the manner of etcd/raft's `testdata`: each file of `membership/testdata`
//! holds commands and, after `----`, their results. `OBOL_BLESS=1` rewrites the results; review the
//! difference in the commit.

mod common;
mod instant;
mod traced;

#[test]
fn the_engine_does_what_its_traces_show() {
    traced::script::check("engine", traced::engine::World::default);
}

#[test]
fn clusters_do_what_their_traces_show() {
    traced::script::check("cluster", traced::cluster::World::default);
}
