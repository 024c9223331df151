//! The clusters that a console can show: those of the configuration, and the others of its root.

use crate::message::Message;
use crate::theme::Theme;
use obol_fabric::Nanos;
use obol_fabric::host::Cluster;
use obol_node::ClusterLocation;
use obol_observe::Health;
use obol_observe::sampling::Update;
use obol_observe::sampling::data::Data;
use obol_observe::sampling::live::Live;
use obol_term::output::Failure;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Interval of polls of each cluster while the list is shown.
const POLL_EVERY: Duration = Duration::from_secs(2);
/// Failovers from this time on are counted.
const LATELY: Nanos = Nanos::from_secs(3600);

/// A cluster that a console can show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Its name in the configuration, else that of the cluster.
    pub(crate) name: String,
    pub(crate) location: ClusterLocation,
    /// Its colours, unless an option names others.
    pub(crate) theme: Option<Theme>,
    /// Whether its name has to be typed before a process is killed, stopped or started.
    pub(crate) production: bool,
}

impl Context {
    /// A cluster that no configuration names.
    pub(crate) fn unnamed(location: ClusterLocation) -> Self {
        Self { name: location.cluster.to_string(), location, theme: None, production: false }
    }
}

/// The configured ones, then the others of this root. A root that cannot be listed has none.
pub(crate) fn all(configured: &[Context], root: &Path) -> Vec<Context> {
    let mut all = configured.to_vec();
    for cluster in Cluster::list(root).unwrap_or_default() {
        let location = ClusterLocation { root: root.to_owned(), cluster };
        if all.iter().all(|known| known.location != location) {
            all.push(Context::unnamed(location));
        }
    }
    all
}

/// The one of this place.
pub(crate) fn of(configured: &[Context], location: &ClusterLocation) -> Context {
    let known = configured.iter().find(|known| known.location == *location);
    known.cloned().unwrap_or_else(|| Context::unnamed(location.clone()))
}

/// What the list shows of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// `None` if it cannot be read.
    pub(crate) health: Option<Health>,
    pub(crate) view: Option<u64>,
    pub(crate) members: Option<usize>,
    /// Failovers of the last hour, as far as flight recorders have them.
    pub(crate) failovers: usize,
    /// Incidents that are not over, without those that somebody acknowledged.
    pub(crate) incidents: usize,
    /// The newest of them, or why it cannot be read.
    pub(crate) what: String,
}

impl Summary {
    fn of(data: &Data) -> Self {
        let Some(sample) = data.sample.as_deref() else { return Self::default() };
        let view = sample.view.as_ref();
        let lately = data.failovers().into_iter().filter(|one| sample.at.since(one.began) < LATELY);
        let open: Vec<_> = data.incidents().into_iter().filter(|one| one.acknowledged.is_none()).collect();
        Self {
            health: Some(sample.health),
            view: view.map(|view| view.id.0),
            members: view.map(|view| view.members),
            failovers: lately.count(),
            incidents: open.len(),
            what: open.first().map_or(String::new(), |one| one.sentence(sample)),
        }
    }
}

/// Polls clusters until it is dropped.
pub(crate) struct Watch {
    _quit: Sender<()>,
}

impl Watch {
    pub(crate) fn start(contexts: &[Context], tx: Sender<Message>) -> Result<Self, Failure> {
        let (quit, ended) = mpsc::channel();
        let places: Vec<ClusterLocation> = contexts.iter().map(|context| context.location.clone()).collect();
        let body = move || {
            let mut all: Vec<(Live, Data)> =
                places.into_iter().map(|place| (Live::new(place), Data::default())).collect();
            loop {
                for (at, (live, data)) in all.iter_mut().enumerate() {
                    let found = match live.poll(true) {
                        Update::Sample(sample) => {
                            data.take(Arc::new(*sample));
                            Summary::of(data)
                        }
                        Update::Lost { why } => {
                            *data = Data::default();
                            Summary { what: why, ..Summary::default() }
                        }
                    };
                    if ended.try_recv() != Err(mpsc::TryRecvError::Empty)
                        || tx.send(Message::Summary(at, found)).is_err()
                    {
                        return;
                    }
                }
                if ended.recv_timeout(POLL_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let spawned = thread::Builder::new().name("clusters".to_owned()).spawn(body);
        spawned.map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
        Ok(Self { _quit: quit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use obol_fabric::Instant;

    #[test]
    fn a_summary_has_what_is_wrong_and_the_failovers_of_the_last_hour() {
        let mut data = Data::default();
        assert_eq!(Summary::of(&data), Summary::default());
        let start = 2 * LATELY.0;
        data.take(Arc::new(samples::degraded(Instant(start))));
        let found = Summary::of(&data);
        assert_eq!((found.health, found.view, found.failovers), (Some(Health::Degraded), Some(7), 1));
        assert_eq!(found.incidents, 2);
        assert!(found.what.contains("node-3 is frozen") || found.what.contains("app-2 down"), "{found:?}");
        let mut later = samples::healthy(Instant(start + LATELY.0));
        later.events.clear();
        data.take(Arc::new(later));
        assert_eq!(Summary::of(&data).failovers, 0);
    }

    #[test]
    fn clusters_of_the_root_follow_those_of_the_configuration_once() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let root = folder.path().join("root");
        assert!(all(&[], &root).is_empty(), "there is no such folder");
        for name in ["beta", "alpha"] {
            Cluster::make_directory(&root, samples::name(name)).expect("made");
            std::fs::write(root.join(name).join("table"), "").expect("written");
        }
        let place = |name: &str| ClusterLocation { root: root.clone(), cluster: samples::name(name) };
        let named = Context { name: "prod".to_owned(), production: true, ..Context::unnamed(place("beta")) };
        let listed = all(std::slice::from_ref(&named), &root);
        assert_eq!(listed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["prod", "alpha"]);
        assert_eq!(of(&listed, &place("beta")), named);
        assert_eq!(of(&listed, &place("gamma")).name, "gamma");
    }
}
