//! The parameters of a cluster, stored in its directory: every process of the cluster reads the
//! same two files.

use crate::Network;
use crate::network::turn;
use obol_config::FileError;
use obol_fabric::host::HostError;
use obol_fabric::layout::LimitError;
use obol_fabric::types::NAME_BYTES_MAX;
use obol_fabric::{Address, Incarnation, Layout, Name, Release};
use obol_membership::view::{Departed, Edit, JOIN_WINDOW, Newcomer, coordinator_name};
use obol_membership::{ActiveMutant, Config, Kind, Timing, View};
use obol_profiles::Profile;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file with the numbers of processes.
const DEPLOYMENT_FILE: &str = "deployment.toml";
/// The file with the resolved profile.
const PROFILE_FILE: &str = "profile.toml";
/// Version of [`DEPLOYMENT_FILE`].
const DEPLOYMENT_SCHEMA: u32 = 1;

/// The composition of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// Coordinators, numbered from 1.
    pub coordinators: u16,
    /// App nodes started by `up`: an agent and an app each, numbered from 1.
    pub apps: u16,
    /// Lease caches, numbered from 1.
    pub caches: u16,
    /// The operators' label of the environment; a drill names the environment that it is made for.
    pub environment: Name,
    /// Every constant.
    pub profile: Profile,
    /// How its processes reach each other; `None` if they share the memory of one host.
    pub network: Option<Network>,
    /// The release that its first coordinators are of, which view 0 names. For hosts that prepare
    /// their part one by one it is the first with this entry, which later ones know as well.
    pub release: Release,
}

/// The role that commands take for a name.
const LEADER: &str = "leader";
/// The name of a host's gateway, and the beginning of that of a simulated host.
const GATEWAY: &str = "gateway";

/// The release of view 0 where nothing else is said.
const FIRST_RELEASE: &str = "0.1";

/// The environment of a cluster that was started without a label.
pub const ENVIRONMENT: &str = "local";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    coordinators: u16,
    apps: u16,
    caches: u16,
    environment: String,
    #[serde(default = "first_release")]
    release: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
}

fn first_release() -> String {
    FIRST_RELEASE.to_owned()
}

/// The room of a profile that a deployment needs: its `limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// `limits.value_bytes`.
    pub value_bytes: u32,
    /// `limits.lanes`.
    pub lanes: u32,
}

/// Why a cluster's files do not describe a deployment.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// A file is invalid.
    #[error("{0}: {1}; if no process of the cluster runs, `obol down` removes it")]
    Malformed(PathBuf, String),
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] FileError),
    /// More coordinators than the profile's limits allow.
    #[error("{wanted} coordinators, but the profile's limits.proposers is {limit}; at least one is needed")]
    Coordinators {
        wanted: u16,
        /// `limits.proposers`.
        limit: u32,
    },
    /// More app nodes than the profile's limits allow.
    #[error(
        "{wanted} app nodes, but the profile has room for {limit}; raise its limits.value_bytes to {} or more, and its \
         limits.lanes to {} or more", .needs.value_bytes, .needs.lanes
    )]
    Apps {
        wanted: u16,
        /// The number that fits.
        limit: u16,
        /// What all of them need.
        needs: Room,
    },
    /// More lease caches than fit besides the app nodes.
    #[error(
        "{wanted} lease caches, but beside the app nodes the profile has room for {limit}; raise its \
         limits.value_bytes to {} or more, and its limits.lanes to {} or more", .needs.value_bytes, .needs.lanes
    )]
    Caches {
        wanted: u16,
        /// The number that fits.
        limit: u16,
        /// What all of them need.
        needs: Room,
    },
}

impl Deployment {
    /// Checks that the profile has room for all processes.
    pub fn new(coordinators: u16, apps: u16, caches: u16, profile: Profile) -> Result<Self, DeploymentError> {
        let limit = profile.limits.proposers;
        if coordinators == 0 || u32::from(coordinators) > limit {
            return Err(DeploymentError::Coordinators { wanted: coordinators, limit });
        }
        let environment = Name::new(ENVIRONMENT).unwrap_or_default();
        let release = Release::own();
        let deployment = Self { coordinators, apps, caches, environment, profile, network: None, release };
        if !deployment.has_room(apps, 0) {
            let limit = most_below(apps, |fewer| deployment.has_room(fewer, 0));
            let needs = deployment.needs(apps, 0);
            return Err(DeploymentError::Apps { wanted: apps, limit, needs });
        }
        if !deployment.has_room(apps, caches) {
            let limit = most_below(caches, |fewer| deployment.has_room(apps, fewer));
            let needs = deployment.needs(apps, caches);
            return Err(DeploymentError::Caches { wanted: caches, limit, needs });
        }
        Ok(deployment)
    }

    /// The same processes over a network.
    #[must_use]
    pub fn over(self, network: Network) -> Self {
        // One supervisor starts the whole cluster, unless the hosts are listed.
        let release = if network.hosts.is_empty() {
            self.release
        } else {
            FIRST_RELEASE.parse().unwrap_or(self.release)
        };
        Self { network: Some(network), release, ..self }
    }

    /// The number of this host; 1 if there is only one.
    pub fn own_host(&self) -> u8 {
        self.network.as_ref().map_or(1, |network| network.host)
    }

    /// The number of the host whose processes have this region; 1 if there is only one.
    pub fn host_of(&self, region: u32) -> Option<u8> {
        self.network.as_ref().map_or(Some(1), |network| network.number_of(region))
    }

    /// Whether each host has a gateway.
    pub fn has_gateways(&self) -> bool {
        self.network.as_ref().is_some_and(Network::has_gateways)
    }

    /// Whether one-sided operations, and the datagrams of members, go by RDMA devices.
    pub fn has_devices(&self) -> bool {
        self.network.as_ref().is_some_and(Network::has_devices)
    }

    /// The same under another label.
    #[must_use]
    pub fn labelled(self, environment: Name) -> Self {
        Self { environment, ..self }
    }

    /// The names of all initial processes of the cluster, coordinators first.
    pub fn names(&self) -> Vec<String> {
        let coordinators = (1..=self.coordinators).map(|n| coordinator_name(n).to_string());
        let members: Vec<String> = match &self.network {
            Some(network) if !network.members.is_empty() => {
                network.members.iter().chain(&network.apps).cloned().collect()
            }
            _ => (1..=self.caches).map(cache_name).chain((1..=self.apps).flat_map(app_node_names)).collect(),
        };
        coordinators.chain(members).collect()
    }

    /// What a process of [`Deployment::names`] is, as far as its name shows: a hosts file names
    /// agents and lease caches freely, and agents are the most.
    pub fn kind(&self, name: Name) -> Kind {
        let apps = || self.network.iter().flat_map(|network| &network.apps);
        if (1..=self.coordinators).any(|n| coordinator_name(n) == name) {
            Kind::Coordinator
        } else if apps().any(|app| app == name.as_str()) {
            Kind::App
        } else if (1..=self.caches).any(|n| cache_name(n) == name.as_str()) {
            Kind::LeaseCache
        } else if (1..=self.apps).any(|n| app_node_names(n)[1] == name.as_str()) {
            Kind::App
        } else {
            Kind::Agent
        }
    }

    /// Refuses a name that is kept for processes of another kind, whether one has it now or not: a
    /// namesake would stand for them in everything that goes by names, such as the note of an end, the
    /// log and `obol kill`.
    pub fn check_name(&self, kind: Kind, name: Name) -> Result<(), HostError> {
        match self.reserved(name) {
            Some((of, whose)) if !of.contains(&kind) => Err(HostError::NameReserved { name, whose }),
            _ => Ok(()),
        }
    }

    /// For which kinds a name is kept, if it is, and whose it is.
    fn reserved(&self, name: Name) -> Option<(&'static [Kind], &'static str)> {
        let text = name.as_str();
        let mut coordinators = 1..=u16::try_from(self.profile.limits.proposers).unwrap_or(u16::MAX);
        if text == LEADER {
            return Some((&[], "the leading coordinator"));
        }
        if coordinators.any(|n| coordinator_name(n) == name) {
            return Some((&[Kind::Coordinator], "a coordinator"));
        }
        let gateways = || self.network.iter().flat_map(|network| 1..=network.hosts.len());
        if self.has_gateways() && (text == GATEWAY || gateways().any(|n| text == format!("{GATEWAY}-{n}"))) {
            return Some((&[], "a gateway"));
        }
        if let Some(network) = self.network.as_ref().filter(|network| !network.members.is_empty()) {
            let is_one = |names: &[String]| names.iter().any(|one| one == text);
            return if is_one(&network.members) {
                Some((&[Kind::Agent, Kind::LeaseCache], "an agent or a lease cache"))
            } else {
                is_one(&network.apps).then_some((&[Kind::App], "a program"))
            };
        }
        if (1..=self.caches).any(|n| cache_name(n) == text) {
            return Some((&[Kind::LeaseCache], "a lease cache"));
        }
        (1..=self.apps).map(app_node_names).find_map(|[node, app]| match text {
            _ if node == text => Some((&[Kind::Agent][..], "an agent")),
            _ if app == text => Some((&[Kind::App][..], "a program")),
            _ => None,
        })
    }

    /// The number of the host that a process of [`Deployment::names`] belongs to; `None` for any other.
    pub fn home_of(&self, name: Name) -> Option<u8> {
        let Some(network) = self.network.as_ref().filter(|network| network.hosts.len() > 1) else {
            return Some(self.own_host());
        };
        let numbered = |count: u16, of: &dyn Fn(u16) -> bool| (1..=count).find(|n| of(*n));
        if let Some(number) = numbered(self.coordinators, &|n| coordinator_name(n) == name) {
            return network.number_of(number.into());
        }
        if !network.members.is_empty() {
            let mut all = network.members.iter().chain(&network.apps);
            let at = all.position(|one| one == name.as_str())?;
            return network.homes.get(at).copied();
        }
        let cache = numbered(self.caches, &|n| cache_name(n) == name.as_str());
        let of_app = |n| app_node_names(n).iter().any(|one| one == name.as_str());
        let number = cache.or_else(|| numbered(self.apps, &of_app))?;
        u8::try_from(turn(number, network.hosts.len())).ok()
    }

    /// The agent that an app of [`Deployment::names`] attaches to.
    pub fn agent_of(&self, app: &str) -> Option<String> {
        (1..=self.apps).map(app_node_names).find(|[_, name]| name == app).map(|[agent, _]| agent)
    }

    /// Whether the profile has the room for this many app nodes and caches.
    fn has_room(&self, apps: u16, caches: u16) -> bool {
        let (limits, needs) = (&self.profile.limits, self.needs(apps, caches));
        needs.lanes <= limits.lanes && needs.value_bytes <= limits.value_bytes
    }

    /// What this many app nodes and caches need: a view of them fits a slot's value, together with recently
    /// departed members, and every process can receive from every other.
    fn needs(&self, apps: u16, caches: u16) -> Room {
        let lanes = u32::from(self.coordinators) + u32::from(apps) + u32::from(caches);
        let mut view = self.genesis();
        let mut admit = Vec::new();
        let mut add = |kind, name: String, n| {
            let address = Address { seat: kind as u16, ..Address::region(100 + u32::from(n)) };
            let name = Name::new(&name).unwrap_or_default();
            let release = self.release;
            admit.push(Newcomer { release, ..Newcomer::new(kind, name, address, u64::from(n)) });
        };
        for n in 1..=apps {
            let [node, app] = app_node_names(n);
            add(Kind::Agent, node, n);
            add(Kind::App, app, n);
        }
        for n in 1..=caches {
            add(Kind::LeaseCache, cache_name(n), n);
        }
        view = view.successor(&Edit { admit, ..Edit::default() }, view.cleared, ActiveMutant::NONE);
        let gone = Departed {
            token: 0,
            incarnation: Incarnation::NONE,
            // The longest name.
            name: Name::new(&"x".repeat(NAME_BYTES_MAX)).unwrap_or_default(),
            kind: Kind::Coordinator,
            at: view.id,
            left: false,
        };
        view.departed = vec![gone; JOIN_WINDOW as usize];
        Room { value_bytes: u32::try_from(view.to_frame().len()).unwrap_or(u32::MAX), lanes }
    }

    /// Writes both files into a cluster's directory.
    pub fn save(&self, dir: &Path) -> Result<(), DeploymentError> {
        let Self { coordinators, apps, caches, .. } = *self;
        let (environment, network) = (self.environment.to_string(), self.network.clone());
        let (schema, release) = (DEPLOYMENT_SCHEMA, self.release.to_string());
        let file = File { schema, coordinators, apps, caches, environment, release, network };
        let text = toml::to_string(&file)
            .map_err(|e| DeploymentError::Malformed(dir.join(DEPLOYMENT_FILE), e.to_string()))?;
        for (name, text) in [(PROFILE_FILE, self.profile.to_toml()), (DEPLOYMENT_FILE, text)] {
            let path = dir.join(name);
            fs::write(&path, text).map_err(|e| DeploymentError::Io(path, e))?;
        }
        Ok(())
    }

    /// Reads both files of a cluster's directory.
    pub fn load(dir: &Path) -> Result<Self, DeploymentError> {
        let path = dir.join(DEPLOYMENT_FILE);
        let text = fs::read_to_string(&path).map_err(|e| DeploymentError::Io(path.clone(), e))?;
        let file: File =
            toml::from_str(&text).map_err(|e| DeploymentError::Malformed(path.clone(), e.to_string()))?;
        if file.schema != DEPLOYMENT_SCHEMA {
            let why = format!("schema {} is not {DEPLOYMENT_SCHEMA}: another version of obol", file.schema);
            return Err(DeploymentError::Malformed(path, why));
        }
        let path = dir.join(PROFILE_FILE);
        let text = fs::read_to_string(&path).map_err(|e| DeploymentError::Io(path.clone(), e))?;
        let profile = Profile::parse(&text, &path.display().to_string())?;
        let deployment = Self::new(file.coordinators, file.apps, file.caches, profile)?;
        if let Some(network) = &file.network
            && network.coordinators.len() < usize::from(file.coordinators)
        {
            let why =
                format!("{} addresses of {} coordinators", network.coordinators.len(), file.coordinators);
            return Err(DeploymentError::Malformed(dir.join(DEPLOYMENT_FILE), why));
        }
        let environment = Name::new(&file.environment).map_err(|error| {
            DeploymentError::Malformed(dir.join(DEPLOYMENT_FILE), format!("environment: {error}"))
        })?;
        let release = file.release.parse().map_err(|error| {
            DeploymentError::Malformed(dir.join(DEPLOYMENT_FILE), format!("release: {error}"))
        })?;
        Ok(Self { network: file.network, environment, release, ..deployment })
    }

    /// Name and address of coordinator `number` in its first life: region `number`, generation 1.
    pub fn coordinator(number: u16) -> (Name, Address) {
        (coordinator_name(number), Address { generation: 1, ..Address::region(u32::from(number)) })
    }

    /// Whether `obol host prepare` has made the memory of this host: the cluster has other hosts, which
    /// count on the votes in it.
    pub fn is_prepared(&self) -> bool {
        self.network.as_ref().is_some_and(|network| network.state.is_some())
    }

    /// View 0.
    pub fn genesis(&self) -> View {
        let coordinators: Vec<(Name, Address)> = (1..=self.coordinators).map(Self::coordinator).collect();
        let Timing { lease, cache_lease, .. } = self.profile.timing;
        View::genesis(&coordinators, lease, cache_lease).of_release(self.release)
    }

    /// The configuration of the machines.
    pub fn config(&self) -> Result<Config, LimitError> {
        Ok(Config {
            release: Release::own(),
            timing: self.profile.timing,
            layout: Layout::new(self.profile.limits)?,
            mutant: ActiveMutant::NONE,
        })
    }
}

/// The maximum below `many` that fits; `fit` is monotonic.
fn most_below(many: u16, fit: impl Fn(u16) -> bool) -> u16 {
    let (mut most, mut too_many) = (0, many);
    while too_many - most > 1 {
        let middle = most + (too_many - most) / 2;
        if fit(middle) {
            most = middle;
        } else {
            too_many = middle;
        }
    }
    most
}

/// The name of lease cache `n`, as started by `up`.
pub fn cache_name(n: u16) -> String {
    format!("cache-{n}")
}

/// The names of the agent and the app of app node `n`, as started by `up`.
pub fn app_node_names(n: u16) -> [String; 2] {
    [format!("node-{n}"), format!("app-{n}")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Fabric;

    #[test]
    fn a_deployment_comes_back_from_its_directory() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let deployment = Deployment::new(5, 2, 1, Profile::default()).expect("five coordinators fit");
        assert_eq!(deployment.environment.as_str(), ENVIRONMENT);
        let deployment = deployment.labelled(Name::new("staging").expect("a name"));
        assert_eq!(deployment.names().len(), 5 + 2 * 2 + 1);
        deployment.save(dir).expect("saved");
        assert_eq!(Deployment::load(dir).expect("loaded"), deployment);
        let network = Network::local(0xfedc_ba98_7654_3210, "10.1.0.1".parse().expect("an address"), 7471, 5);
        let deployment = deployment.over(network);
        deployment.save(dir).expect("saved");
        assert_eq!(Deployment::load(dir).expect("loaded"), deployment);
        fs::write(
            dir.join(DEPLOYMENT_FILE),
            "schema = 2\ncoordinators = 3\napps = 1\ncaches = 0\nenvironment = \"x\"\n",
        )
        .expect("written");
        let refused = Deployment::load(dir).expect_err("another schema").to_string();
        assert!(refused.contains("schema 2 is not 1"), "{refused}");
        fs::write(dir.join(DEPLOYMENT_FILE), "schema = 1\ncoordinatros = 3\n").expect("written");
        let refused = Deployment::load(dir).expect_err("a typo").to_string();
        assert!(refused.contains("coordinatros"), "{refused}");
    }

    #[test]
    fn coordinators_must_fit_the_profile() {
        assert!(Deployment::new(0, 1, 0, Profile::default()).is_err());
        let refused = Deployment::new(8, 1, 0, Profile::default()).expect_err("seven fit").to_string();
        assert!(refused.contains("limits.proposers is 7"), "{refused}");
    }

    #[test]
    fn apps_must_fit_a_view() {
        let refused = Deployment::new(3, 500, 0, Profile::default()).expect_err("too many").to_string();
        assert!(refused.starts_with("500 app nodes, but the profile has room for "), "{refused}");
        assert!(Deployment::new(7, 16, 2, Profile::default()).is_ok());
        let all = Deployment::new(3, u16::MAX, 0, Profile::default()).expect_err("too many").to_string();
        let fits = |text: &str| {
            text.split_once("room for ").and_then(|(_, rest)| Some(rest.split_once(';')?.0.to_owned()))
        };
        assert_eq!(fits(&all), fits(&refused), "as many fit for any process");
        assert!(fits(&all).is_some());
        let refused = Deployment::new(3, 3, 500, Profile::default()).expect_err("too many").to_string();
        assert!(refused.starts_with("500 lease caches, but beside the app nodes "), "{refused}");
    }

    #[test]
    fn limits_that_a_refusal_names_are_enough_and_one_less_is_not() {
        let needs = match Deployment::new(3, 100, 0, Profile::default()) {
            Err(DeploymentError::Apps { needs, .. }) => needs,
            other => panic!("{other:?}"),
        };
        let with = |value_bytes, lanes| {
            let mut profile = Profile::default();
            (profile.limits.value_bytes, profile.limits.lanes) = (value_bytes, lanes);
            Deployment::new(3, 100, 0, profile).is_ok()
        };
        let Room { value_bytes, lanes } = needs;
        assert!(with(value_bytes, lanes));
        assert!(!with(value_bytes - 1, lanes) && !with(value_bytes, lanes - 1));
    }

    #[test]
    fn a_name_that_belongs_to_a_process_of_another_kind_is_refused() {
        let deployment = Deployment::new(3, 2, 1, Profile::default()).expect("it fits");
        let refused = |deployment: &Deployment, kind, name: &str| {
            let refused = deployment.check_name(kind, Name::new(name).expect("a name")).err();
            refused.map_or(String::new(), |error| error.to_string())
        };
        for (kind, name, whose) in [
            (Kind::App, "node-2", "an agent"),
            (Kind::App, "cache-1", "a lease cache"),
            // It may be added later.
            (Kind::App, "coord-7", "a coordinator"),
            (Kind::App, "leader", "the leading coordinator"),
            (Kind::Agent, "app-1", "a program"),
            (Kind::LeaseCache, "node-1", "an agent"),
        ] {
            let said = refused(&deployment, kind, name);
            assert!(said.starts_with(&format!("the name {name} belongs to {whose} ")), "{said}");
        }
        for (kind, name) in [
            (Kind::App, "app-2"),
            (Kind::Agent, "node-1"),
            (Kind::LeaseCache, "cache-1"),
            (Kind::App, "cache-2"),
            (Kind::App, "node-3"),
            (Kind::App, "web"),
            (Kind::App, "gateway-1"),
        ] {
            assert_eq!(refused(&deployment, kind, name), "", "{name}");
        }
        let address: std::net::IpAddr = "10.1.0.1".parse().expect("an address");
        let hosts = Network {
            fabric: Fabric::Ip { keys: PathBuf::from("keys") },
            hosts: vec![address; 2],
            members: vec!["web-agent".to_owned()],
            apps: vec!["web".to_owned()],
            ..Network::local(1, address, 7471, 1)
        };
        let listed = deployment.over(hosts);
        assert!(refused(&listed, Kind::App, "web-agent").contains("an agent or a lease cache"));
        assert!(refused(&listed, Kind::App, "gateway-2").contains("a gateway"));
        assert!(refused(&listed, Kind::Agent, "web").contains("a program"));
        assert_eq!(refused(&listed, Kind::LeaseCache, "web-agent"), "");
        assert_eq!(refused(&listed, Kind::App, "node-1"), "", "no process of it has that name");
    }

    #[test]
    fn the_first_view_names_the_coordinators() {
        let deployment = Deployment::new(3, 1, 0, Profile::default()).expect("three fit");
        let names: Vec<String> = deployment.genesis().members.iter().map(|m| m.name.to_string()).collect();
        assert_eq!(names, ["coord-1", "coord-2", "coord-3"]);
    }
}
