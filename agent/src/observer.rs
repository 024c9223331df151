//! A cluster's views as a stream, for a program that is not a member of it.

use crate::lost::Lost;
use obol_fabric::host::{Cluster, Observed, clock};
use obol_fabric::layout::PROPOSERS_MAX;
use obol_fabric::{Address, Nanos, Remote, ViewId};
use obol_membership::stream::{Item, Regions, Stream};
use obol_membership::{Kind, View};
use obol_node::Site;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The polling period of [`Observer::next`]. Observers are not woken: that would delay a leader
/// during a failover.
const POLL_INTERVAL: Nanos = Nanos::from_millis(1);

/// Follows the decided views of a cluster, each once and in order. It only reads, without involving
/// any process of the cluster. It works as long as the memory of a majority of the coordinators can
/// be read, whether they are alive or dead.
///
/// [`View::changes`] says which members failed, joined or left, with accuser and detector.
/// Coordinators keep as many views as their rings have slots, less the prepared one (`limits.slots`
/// of the profile); a slower reader gets the range that it missed ([`Item::Gap`]).
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use obol_agent::{Item, Observer};
/// # use obol_fabric::{Name, Nanos};
/// # use obol_node::Site;
/// let site = Site::open(&obol_fabric::host::default_root(), Name::new("default")?)?;
/// let mut observer = Observer::open(&site, None);
/// while let Some(item) = observer.next(Nanos::from_secs(60))? {
///     match item {
///         Item::View(view) => println!("view {}: {:?}", view.id, view.changes),
///         Item::Gap { first, last } => println!("views {first} to {last} are lost"),
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Observer {
    stream: Stream,
    regions: Mapped,
}

/// The coordinators' regions, mapped for reading.
struct Mapped {
    cluster: Cluster,
    /// By number, with the generation of the owner that was mapped.
    open: BTreeMap<u32, (u32, Observed)>,
}

impl Observer {
    /// Observes from view `from` on, or from the newest on. To continue an earlier observer, pass
    /// its [`Observer::position`].
    #[must_use]
    pub fn open(site: &Site, from: Option<ViewId>) -> Self {
        let stream = Stream::new(from, Arc::clone(&site.genesis), &site.config);
        Self { stream, regions: Mapped { cluster: site.cluster.clone(), open: BTreeMap::new() } }
    }

    /// The next view; `None` before the first.
    #[must_use]
    pub const fn position(&self) -> Option<ViewId> {
        self.stream.position()
    }

    /// The newest view that a coordinator has published; `None` if no coordinator's memory can be
    /// read.
    pub fn newest(&mut self) -> Option<Arc<View>> {
        self.stream.newest(&mut self.regions)
    }

    /// The next item, if there is one. The child of a fork opens its own observer.
    pub fn poll(&mut self) -> Result<Option<Item>, Lost> {
        if !self.regions.cluster.is_here() {
            return Err(Lost::Forked);
        }
        Ok(self.stream.next(&mut self.regions))
    }

    /// The next item, or `None` if there is none within `timeout`.
    pub fn next(&mut self, timeout: Nanos) -> Result<Option<Item>, Lost> {
        let end = clock::now() + timeout;
        loop {
            let item = self.poll()?;
            let left = end.since(clock::now());
            if item.is_some() || left == Nanos::ZERO {
                return Ok(item);
            }
            std::thread::sleep(left.min(POLL_INTERVAL).to_std());
        }
    }
}

impl Regions for Mapped {
    fn coordinators(&mut self) -> Vec<Address> {
        let infos = (1..=PROPOSERS_MAX as u32).filter_map(|number| self.cluster.region_info(number));
        let present: BTreeMap<u32, u32> = infos
            .filter(|info| info.kind == Kind::Coordinator as u32)
            .map(|info| (info.number, info.generation))
            .collect();
        self.open.retain(|number, (generation, _)| present.get(number) == Some(generation));
        for (&number, &generation) in &present {
            if self.open.contains_key(&number) {
                continue;
            }
            // A region that is being created is not readable yet; the next poll will read it.
            if let Ok(region) = Observed::open(&self.cluster, number) {
                self.open.insert(number, (generation, region));
            }
        }
        // Including regions that could not be mapped, which count as unreachable.
        present.into_keys().map(Address::region).collect()
    }

    fn read(&mut self, from: Remote, len: u32) -> Option<Vec<u8>> {
        let (_, region) = self.open.get(&from.at.region)?;
        region.reader().bytes(from.offset, len as usize)
    }
}
