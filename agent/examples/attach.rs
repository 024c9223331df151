//! A program attached to a node's agent: it joins, serves while its view is active, and reports
//! failures. Start a cluster with `obol up`, then `cargo run --release --example attach -- node-1
//! cache-1`, and then `obol kill app-2`.

use obol_agent::Attached;
use obol_fabric::{Name, Nanos};
use obol_node::Site;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(agent), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: attach AGENT NAME, for example: attach node-1 cache-1".into());
    };
    let site = Site::open(&obol_fabric::host::default_root(), Name::new("default")?)?;
    let app = Attached::open(&site, Name::new(&agent)?, Name::new(&name)?)?;
    println!("{name} is member {}", app.join(Nanos::from_secs(5))?);

    let mut failures = app.failures();
    let mut views = app.views();
    // Ends when nothing has changed for a minute, or when the agent has died.
    while let Some(view) = views.next(Nanos::from_secs(60))? {
        while let Some(failure) = failures.next(Nanos::ZERO)? {
            println!("member {} failed in view {}", failure.incarnation, failure.view);
        }
        if !view.is_mine() {
            println!("view {}: this program is not a member", view.id);
            continue;
        }
        // A view is decided before it is active: other members may still act in the previous one.
        while app.view().as_ref() == Some(&view) && !app.active(&view) {
            app.wait_changed(app.changes(), Nanos::from_millis(1));
        }
        // `None` if another view became active meanwhile: then the result must be discarded.
        match app.guard(&view, |view| view.members.len()) {
            Some(members) => println!("view {}: {members} members, active", view.id),
            None => println!("view {}: superseded", view.id),
        }
    }
    app.leave(Nanos::from_secs(5))?;
    Ok(())
}
