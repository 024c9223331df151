//! Readable traces in the manner of etcd/raft's `testdata`: each file of `membership/testdata`
//! holds commands and, after `----`, their results. `OBOL_BLESS=1` rewrites the results; review the
//! difference in the commit.

#[test]
fn the_engine_does_what_its_traces_show() {
    crate::traced::script::check("engine", crate::traced::engine::World::default);
}

#[test]
fn clusters_do_what_their_traces_show() {
    crate::traced::script::check("cluster", crate::traced::cluster::World::default);
}
