//! A program with a core of its own: it needs no agent. Start a cluster with `obol up`, then
//! `cargo run --release --example embed -- guest`.

use obol_agent::Embedded;
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "guest".to_owned());
    let site = Site::open(&obol_fabric::host::default_root(), Name::new("default")?)?;
    let guest = Embedded::start(Arc::new(site), Name::new(&name)?)?;
    // The core dies with this process, but this thread could hang while the core lives: then the
    // guest is removed as well.
    guest.promise_progress(Nanos::from_secs(120));
    let mut views = guest.views();
    while let Some(view) = views.next(Nanos::from_secs(60))? {
        guest.progress();
        let names: Vec<&str> = view.members.iter().map(|member| member.name.as_str()).collect();
        println!(
            "view {}: {}{}",
            view.id,
            names.join(" "),
            if view.is_mine() { "" } else { " (without me)" }
        );
    }
    Ok(())
}
