//! Failure detectors beside each other on one cluster: what it runs is measured by the same faults, and
//! what it does not run is computed from the pulses that arrived meanwhile (`obol drill detectors`).

mod comparison;
mod measured;
mod report;
mod silences;

pub use comparison::{Drills, measured, simulated};
pub use measured::{Measured, Times, Watched, silenced};
pub use report::{HEADS, Missing, Report};
pub use silences::{Silence, Silences};

use crate::drillfile::{self, Drill};
use crate::faults::host_network;
use obol_config::{FileError, duration};
use obol_fabric::{Name, Nanos};
use obol_fide::detectors::{self as fide, Setting};
use obol_node::Deployment;
use obol_observe::named_enum;
use obol_profiles::Profile;

/// The threshold of phi-accrual: the default of Cassandra and Akka.
const PHI: f64 = 8.0;
/// The shortest time that a fault lasts.
const LASTS_MIN: Nanos = Nanos::from_millis(1500);
/// What a fault lasts beyond twice its detection, because timeouts grow with leases.
const LASTS_MORE: Nanos = Nanos::from_secs(1);
/// The longest time that a fault may last in a drill.
const LASTS_MAX: Nanos = Nanos::from_secs(600);

named_enum! {
    /// A failure detector.
    Detector {
        /// uKharon's first level: the kernel reports the end of a process.
        Notice = "notice",
        /// uKharon's second level: a counter stands still.
        Heartbeat = "heartbeat",
        /// uKharon's third level: an operation is not answered.
        Operation = "operation",
        /// Frames of a host, once in a period.
        Pulse = "pulse",
        /// Phi-accrual.
        Phi = "phi",
        Swim = "swim",
        /// The rule of Redis Sentinel.
        Sentinel = "sentinel",
    }
}

named_enum! {
    /// What is injected so that a detector has something to notice.
    Fault {
        /// An app is killed.
        Kill = "kill",
        /// An app is stopped.
        Freeze = "freeze",
        /// A node, or a host with all its processes, is cut off from all others.
        CutOff = "cut-off",
    }
}

/// How a detector is judged on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It runs, and this fault shows it.
    Measured(Fault),
    /// It is computed from recorded arrivals.
    Computed,
}

/// The links that are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Fabric,
    Host,
}

/// What will be done on a cluster.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The detectors, and how each is judged.
    pub detectors: Vec<(Detector, How)>,
    /// Those that this cluster cannot have, if none was asked for by name.
    pub missing: Vec<Missing>,
    layer: Option<Layer>,
}

fn pulses(deployment: &Deployment) -> Result<(), String> {
    let profile = &deployment.profile;
    if !deployment.has_gateways() {
        return Err("it needs pulses, which gateways send to each other: a cluster of several hosts, such as `obol up \
                    --hosts 3`"
            .to_owned());
    }
    if !profile.pulse.enabled {
        return Err(format!(
            "profile {} sends no pulses; docs/network.md has a [pulse] to begin with",
            profile.name
        ));
    }
    Ok(())
}

fn layer(deployment: &Deployment) -> Result<Layer, String> {
    if deployment.has_devices() {
        return Err(
            "the links of this cluster belong to its RDMA device, which a drill cannot cut".to_owned()
        );
    }
    match deployment.network {
        None => Ok(Layer::Fabric),
        Some(_) => host_network::refusal(deployment).map_or(Ok(Layer::Host), |why| Err(why.to_owned())),
    }
}

fn how(detector: Detector, deployment: &Deployment) -> Result<How, String> {
    let pulses = || pulses(deployment);
    match detector {
        Detector::Notice => Ok(How::Measured(Fault::Kill)),
        Detector::Heartbeat => Ok(How::Measured(Fault::Freeze)),
        // Where members act on pulses, these notice a silence before an operation does.
        Detector::Operation if pulses().is_ok() && !deployment.has_devices() => Ok(How::Computed),
        Detector::Operation => layer(deployment).map(|_| How::Measured(Fault::CutOff)),
        Detector::Pulse => {
            pulses()?;
            let (pulse, operation) = (deployment.profile.pulse.timeout, deployment.profile.ip.detection);
            if pulse >= operation {
                return Err(format!(
                    "pulse.timeout is {pulse}, and ip.detection {operation}: a silence would be noticed by operations first"
                ));
            }
            layer(deployment).map(|_| How::Measured(Fault::CutOff))
        }
        Detector::Phi | Detector::Swim | Detector::Sentinel => pulses().map(|()| How::Computed),
    }
}

impl Plan {
    /// What the cluster of a deployment can run: the wanted detectors, or all if none is named.
    ///
    /// # Errors
    ///
    /// Why a detector that is named cannot run there.
    pub fn of(deployment: &Deployment, wanted: &[Detector]) -> Result<Self, String> {
        Self::new(wanted, |detector| how(detector, deployment), layer(deployment).ok())
    }

    /// The same in the simulator, which has no gateways: the computed ones take modelled arrivals.
    pub fn simulated(wanted: &[Detector]) -> Result<Self, String> {
        let how = |detector| match detector {
            Detector::Notice => Ok(How::Measured(Fault::Kill)),
            Detector::Heartbeat => Ok(How::Measured(Fault::Freeze)),
            Detector::Operation => Ok(How::Measured(Fault::CutOff)),
            Detector::Pulse | Detector::Phi | Detector::Swim | Detector::Sentinel => Ok(How::Computed),
        };
        Self::new(wanted, how, Some(Layer::Fabric))
    }

    fn new(
        wanted: &[Detector],
        how: impl Fn(Detector) -> Result<How, String>,
        layer: Option<Layer>,
    ) -> Result<Self, String> {
        let mut plan = Self { detectors: Vec::new(), missing: Vec::new(), layer };
        for (name, detector) in Detector::ALL {
            match how(*detector) {
                Ok(how) if wanted.is_empty() || wanted.contains(detector) => {
                    plan.detectors.push((*detector, how));
                }
                Err(why) if wanted.contains(detector) => {
                    return Err(format!("this cluster cannot run the detector {name}: {why}"));
                }
                Err(why) if wanted.is_empty() => plan.missing.push(Missing { detector: *detector, why }),
                _ => {}
            }
        }
        Ok(plan)
    }

    /// The faults, each once: the cut first, so that what is recorded has it.
    pub fn faults(&self) -> Vec<(Fault, Detector)> {
        let of = |fault| {
            let shows = |(_, how): &&(Detector, How)| *how == How::Measured(fault);
            self.detectors.iter().find(shows).map(|(detector, _)| (fault, *detector))
        };
        [Fault::CutOff, Fault::Kill, Fault::Freeze].into_iter().filter_map(of).collect()
    }

    /// Whether pulses have to be recorded.
    pub fn records(&self) -> bool {
        self.detectors.iter().any(|(_, how)| *how == How::Computed)
    }

    /// What is computed from arrivals, with its setting: the cluster's own timeout. The pulse is among
    /// them, so that what was measured can be compared with what follows from the arrivals.
    pub fn computed(&self, timeout: Nanos) -> Vec<(fide::Detector, Setting)> {
        let setting = |detector: Detector| {
            let timeout = Setting::Timeout(timeout);
            Some(match detector {
                Detector::Notice | Detector::Heartbeat => return None,
                Detector::Operation => (fide::Detector::Operation, timeout),
                Detector::Pulse => (fide::Detector::Pulse, timeout),
                Detector::Phi => (fide::Detector::Phi, Setting::Phi(PHI)),
                Detector::Swim => (fide::Detector::Swim, timeout),
                Detector::Sentinel => (fide::Detector::Sentinel, timeout),
            })
        };
        let computed = |(detector, how): &(Detector, How)| {
            (*how == How::Computed || *detector == Detector::Pulse).then(|| setting(*detector)).flatten()
        };
        if self.records() { self.detectors.iter().filter_map(computed).collect() } else { Vec::new() }
    }

    /// The drill that injects a fault so often.
    ///
    /// # Errors
    ///
    /// If the profile's timeouts exceed what a fault may last.
    pub fn drill(
        &self,
        fault: Fault,
        profile: &Profile,
        environment: Name,
        count: u32,
    ) -> Result<Drill, FileError> {
        let (target, action) = match (fault, self.layer) {
            (Fault::Kill, _) => ("app", "kind = \"kill\"".to_owned()),
            (Fault::Freeze, _) => ("app", format!("kind = \"freeze\", {}", lasting(fault, profile))),
            (Fault::CutOff, layer) => {
                let (target, layer) =
                    if layer == Some(Layer::Host) { ("agent", "host") } else { ("node", "fabric") };
                let action =
                    format!("kind = \"partition\", layer = \"{layer}\", {}", lasting(fault, profile));
                (target, action)
            }
        };
        let name = fault.name();
        let text = format!(
            "[drill]\nschema = 1\nid = \"detectors-{name}\"\ntitle = \"Detectors beside each other: {name}\"\n\
             environment = \"{environment}\"\ntimeout = \"1440m\"\n\
             repeat = {{ count = {count}, gap = \"100ms\", stop_after_failures = 1 }}\n\
             [guards]\nmax_targets = 64\nabort = [{{ when = \"overlap_ns > 0\" }}]\n\
             [targets]\nvictim = {{ kind = \"{target}\", select = \"one\" }}\n\
             [[steady]]\nprobe = \"view.converged\"\n[[steady]]\nprobe = \"processes.up\"\n\
             [[step]]\nname = \"{name}\"\nfault = {{ {action}, target = \"victim\" }}\n\
             [[expect]]\nmetric = \"members.falsely_failed\"\nat_most = 0\n"
        );
        drillfile::parse(&text, "the drill of detectors")
    }
}

fn lasting(fault: Fault, profile: &Profile) -> String {
    format!("for = \"{}\"", duration::print(lasts(fault, profile)))
}

/// How long a fault lasts: twice as long as the slowest detector of the profile takes, and more. A kill
/// lasts until the restart.
pub fn lasts(fault: Fault, profile: &Profile) -> Nanos {
    let timing = &profile.timing;
    let heartbeat = timing.heartbeat_period.saturating_mul(u64::from(timing.heartbeat_confirm));
    let links = if timing.link_watch { timing.link_timeout.saturating_mul(2) } else { Nanos::ZERO };
    let detection = match fault {
        Fault::Kill => return Nanos::MAX,
        Fault::Freeze => heartbeat,
        Fault::CutOff => heartbeat.max(profile.ip.detection.saturating_add(links)),
    };
    detection.saturating_mul(2).saturating_add(LASTS_MORE).max(LASTS_MIN).min(LASTS_MAX)
}

/// What a detector is set to by a profile, as text.
pub fn setting(detector: Detector, profile: &Profile) -> String {
    let timing = &profile.timing;
    match detector {
        Detector::Notice => "-".to_owned(),
        Detector::Heartbeat => {
            duration::print(timing.heartbeat_period.saturating_mul(u64::from(timing.heartbeat_confirm)))
        }
        Detector::Operation => duration::print(profile.ip.detection),
        Detector::Pulse | Detector::Swim | Detector::Sentinel => duration::print(profile.pulse.timeout),
        Detector::Phi => Setting::Phi(PHI).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use obol_node::Network;
    use obol_node::network::Fabric;

    fn hosts(pulse: Option<Nanos>) -> Deployment {
        let hosts = [1, 2, 3].map(|n| [10, 0, 0, n].into()).to_vec();
        let fabric = Fabric::Ip { keys: "keys".into() };
        let network = Network {
            fabric,
            hosts,
            state: Some("/var/lib/obol".into()),
            ..Network::local(7, [10, 0, 0, 1].into(), 7471, 3)
        };
        let mut profile = Profile::builtin("lan").expect("it is built in");
        if let Some(timeout) = pulse {
            (profile.pulse.enabled, profile.pulse.timeout, profile.pulse.paths) = (true, timeout, 1);
            profile.pulse.period = Nanos::from_millis(1);
        }
        Deployment::new(3, 3, 0, profile).expect("three fit").over(network)
    }

    fn one_host() -> Deployment {
        let profile = Profile::builtin("laptop").expect("it is built in");
        Deployment::new(3, 3, 0, profile).expect("three fit")
    }

    #[test]
    fn a_cluster_runs_what_it_has_and_says_why_the_rest_is_missing() {
        let plan = Plan::of(&hosts(Some(Nanos::from_millis(20))), &[]).expect("it can");
        assert_eq!(plan.detectors.len(), Detector::ALL.len());
        assert_eq!(
            plan.faults(),
            [
                (Fault::CutOff, Detector::Pulse),
                (Fault::Kill, Detector::Notice),
                (Fault::Freeze, Detector::Heartbeat)
            ]
        );
        assert!(plan.records() && plan.missing.is_empty());
        let without = Plan::of(&hosts(None), &[]).expect("it can");
        let missing: Vec<_> = without.missing.iter().map(|missing| missing.detector).collect();
        assert_eq!(missing, [Detector::Pulse, Detector::Phi, Detector::Swim, Detector::Sentinel]);
        assert_eq!(without.faults()[0], (Fault::CutOff, Detector::Operation));
        assert!(!without.records() && without.computed(Nanos(1)).is_empty());
        let one = Plan::of(&one_host(), &[]).expect("it can");
        assert!(one.missing.iter().all(|missing| missing.why.contains("a cluster of several hosts")));
    }

    #[test]
    fn a_detector_that_is_named_and_missing_is_refused_with_the_reason() {
        let refused = |deployment, detector| Plan::of(&deployment, &[detector]).expect_err("missing");
        let why = refused(hosts(None), Detector::Pulse);
        assert!(why.contains("detector pulse") && why.contains("profile lan sends no pulses"), "{why}");
        let why = refused(one_host(), Detector::Swim);
        assert!(why.contains("detector swim") && why.contains("obol up --hosts 3"), "{why}");
        let why = refused(hosts(Some(Nanos::from_secs(1))), Detector::Pulse);
        assert!(why.contains("noticed by operations first"), "{why}");
        let only = Plan::of(&one_host(), &[Detector::Notice]).expect("it can");
        assert_eq!(only.faults(), [(Fault::Kill, Detector::Notice)]);
        assert!(only.missing.is_empty(), "nothing else was asked for");
    }

    #[test]
    fn every_fault_is_a_drill_that_lasts_longer_than_the_detection_of_every_profile() {
        for name in ["laptop", "lan"] {
            let profile = Profile::builtin(name).expect("it is built in");
            for plan in [Plan::of(&one_host(), &[]), Plan::of(&hosts(None), &[])] {
                let plan = plan.expect("it can");
                for (fault, _) in plan.faults() {
                    let drill = plan.drill(fault, &profile, Name::new("local").expect("a name"), 3);
                    let drill = drill.unwrap_or_else(|error| panic!("{name}: {error}"));
                    let expected = (fault != Fault::Kill).then(|| lasts(fault, &profile));
                    assert_eq!(drill.steps[0].faults[0].lasts, expected);
                    assert!(drill.judges());
                }
            }
            let slowest =
                profile.timing.heartbeat_period.saturating_mul(profile.timing.heartbeat_confirm.into());
            assert!(lasts(Fault::Freeze, &profile) > slowest);
        }
    }
}
