//! Servers and clients of the cache as members of a cluster.

mod daemon;
mod marks;
mod session;

pub use daemon::{Settings, run};
pub use marks::MarkOwner;
pub use session::{Session, Work};

use obol_fabric::{Endpoint, Name, Nanos};
use obol_kv::{Area, Client, Node, Service};
use obol_membership::Kind;
use obol_node::Site;
use obol_term::output::Failure;

/// How long a client waits for an answer before it asks again.
pub const AGAIN_EVERY: Nanos = Nanos::from_millis(2);

/// After this many polls without result, some microseconds, a loop that waits for another process
/// yields its core: that one may be waiting for it.
const POLLS_BEFORE_YIELD: u32 = 64;

/// A loop's polls without result.
#[derive(Default)]
pub struct Patience(u32);

impl Patience {
    /// Nothing was there.
    #[inline]
    pub fn idle(&mut self) {
        self.0 += 1;
        if self.0 < POLLS_BEFORE_YIELD {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// The part of the regions that the cache uses.
pub fn area(site: &Site) -> Result<Area, Failure> {
    Area::of(&site.config.layout).ok_or_else(|| {
        Failure::Refused(
            "the regions of this cluster have no room for the cache: raise limits.slots or limits.value_bytes of its profile"
                .to_owned(),
        )
    })
}

/// A place in the cluster for a server or a client.
pub fn join(site: &Site, name: Name, service: Service) -> Result<(Endpoint, Node), Failure> {
    let endpoint = site.mailbox(Kind::App, name).map_err(Failure::refused)?;
    let member = site.start(obol_agent::seed()).map_err(Failure::refused)?.member(Kind::App, name);
    Ok((endpoint, Node::new(member, service)))
}

/// A client with this poll interval while it waits for answers.
pub fn client(site: &Site, poll_interval: Nanos) -> Result<Service, Failure> {
    Ok(Service::Client(Box::new(Client::new(area(site)?, obol_agent::seed(), poll_interval, AGAIN_EVERY))))
}
