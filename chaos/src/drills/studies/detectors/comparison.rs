//! The comparison of detectors: drills on a cluster while its pulses are recorded, or in the simulator.

use super::{Detector, Fault, Measured, Plan, Report, Silences, Watched, lasts, silenced};
use crate::drillfile::Drill;
use crate::drills::{Fleet, Host, Journal, Verdict};
use obol_deaths::Detectors as Deaths;
use obol_fabric::host::{Cluster, clock};
use obol_fabric::{Name, Nanos};
use obol_fide::detectors::{
    Delays, Fault as Silenced, Model, WithOutages, beside, first_arrivals, without_outages,
};
use obol_node::{Deployment, Site};
use obol_observe::network_recording::Stream;
use obol_observe::pulse;
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The seed of what is computed.
const SEED: u64 = 1;
/// Frames of the modelled network, of one period each.
const MODELLED_FRAMES: u32 = 200_000;
/// The pulses of the modelled network.
const MODELLED_PERIOD: Nanos = Nanos::from_millis(1);
const MODELLED_TIMEOUT: Nanos = Nanos::from_millis(20);
/// How far ahead gateways are asked to record, and how often: without this command they stop.
const RECORD_AHEAD: Nanos = Nanos::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Gateways look for that request, and write what they have recorded, once a second.
const RECORD_LAG: Duration = Duration::from_secs(3);

fn remark(text: impl std::fmt::Display) {
    // Progress is informative only.
    let _ = output::remark(format_args!("detectors: {text}"));
}

/// Runs the drills of a comparison, and keeps what they found.
pub trait Drills {
    /// Makes the place of the report, before anything is broken.
    fn place(&mut self) -> Result<(), Failure>;
    fn run(&mut self, drill: &Drill) -> Result<Journal, Failure>;
    fn keep(&mut self, drill: &Drill, journal: &Journal);
}

/// Compares detectors on a cluster: those that are wanted, or else all that it can run.
pub fn measured(
    root: &Path,
    cluster: Name,
    wanted: &[Detector],
    count: u32,
    drills: &mut dyn Drills,
) -> Result<Report, Failure> {
    let fleet = Fleet::open(root, cluster).map_err(Failure::refused)?;
    let deployment = Site::open(root, cluster).map_err(Failure::refused)?.deployment;
    let plan = Plan::of(&deployment, wanted).map_err(Failure::Refused)?;
    let hosts = here(root, &fleet)?;
    drills.place()?;
    let recording = plan.records().then(|| Recording::start(&hosts)).transpose()?;
    let mut run = Run { count, drills, deployment: &deployment, hosts: &hosts, found: Found::default() };
    for (fault, detector) in plan.faults() {
        if !run.fault(&plan, fault, detector)? {
            break;
        }
    }
    let Found { measured, mut errors, silenced } = run.found;
    let mut computed = Vec::new();
    let mut arrivals = String::new();
    if let Some(recording) = recording {
        let streams = recording.end()?;
        arrivals = format!(
            "the pulses that arrived meanwhile ({} streams), without the time from each cut until the host was heard again",
            streams.len()
        );
        let recorded = Recorded::of(&streams, &silenced, &mut errors);
        for (detector, setting) in plan.computed(deployment.profile.pulse.timeout) {
            let pulse = detector == obol_fide::detectors::Detector::Pulse;
            let of = if pulse { &recorded.by_any_path } else { &recorded.by_first_path };
            if !of.is_empty() {
                computed.push(beside(detector, setting, of, SEED));
            }
        }
    }
    Ok(Report {
        verdict: Report::judge(&measured, &errors),
        profile: deployment.profile.name.to_string(),
        host: Host::this(),
        deaths: Deaths::look().first.name(),
        measured,
        computed,
        arrivals,
        missing: plan.missing,
        errors,
    })
}

/// A host that is this machine, with the memory of the cluster there.
struct HostHere {
    host: u8,
    dir: PathBuf,
    cluster: Cluster,
}

/// The hosts that are this machine.
fn here(root: &Path, fleet: &Fleet) -> Result<Vec<HostHere>, Failure> {
    let open = |(host, dir): (u8, PathBuf)| {
        let name = dir.file_name().and_then(|name| Name::new(name.to_str()?).ok()).unwrap_or_default();
        let site = Site::open(root, name).map_err(Failure::refused)?;
        Ok(HostHere { host, dir, cluster: site.cluster })
    };
    fleet.dirs().map(open).collect()
}

/// What was found so far.
#[derive(Default)]
struct Found {
    measured: Vec<Measured>,
    errors: Vec<String>,
    silenced: Vec<Silenced>,
}

struct Run<'a> {
    count: u32,
    drills: &'a mut dyn Drills,
    deployment: &'a Deployment,
    hosts: &'a [HostHere],
    found: Found,
}

impl Run<'_> {
    /// Injects a fault as often as wanted. Whether the cluster can be used for another one.
    fn fault(&mut self, plan: &Plan, fault: Fault, detector: Detector) -> Result<bool, Failure> {
        let (profile, count) = (&self.deployment.profile, self.count);
        let drill = plan.drill(fault, profile, self.deployment.environment, count);
        let drill = drill.map_err(Failure::failed)?;
        remark(format_args!("{}, {count} times", drill.id));
        let by_pulses = detector == Detector::Pulse;
        let watch: Vec<_> = self.hosts.iter().map(|here| (here.host, here.cluster.clone())).collect();
        let silences = by_pulses.then(|| Silences::watch(watch)).transpose().map_err(Failure::failed)?;
        let journal = self.drills.run(&drill);
        let seen = silences.map(Silences::end).unwrap_or_default();
        let journal = match journal {
            Ok(journal) => journal,
            // Nothing was injected: then the reason is the answer, unless other detectors have one.
            Err(failure) if self.found.measured.is_empty() => return Err(failure),
            Err(failure) => {
                self.found.errors.push(format!("{}: {failure}", drill.id));
                return Ok(true);
            }
        };
        self.drills.keep(&drill, &journal);
        let lasts = lasts(fault, profile);
        if fault == Fault::CutOff {
            self.found.silenced = silenced(&journal, lasts);
        }
        self.found.measured.push(if by_pulses {
            let hosts: Vec<u8> = self.hosts.iter().map(|here| here.host).collect();
            let all = self.deployment.network.as_ref().map_or(1, |network| network.hosts.len());
            Measured::by_pulses(profile, &journal, Watched { seen: &seen, hosts: &hosts, all }, lasts)
        } else {
            Measured::of(detector, fault, profile, &journal)
        });
        Ok(!matches!(journal.verdict, Verdict::Failed | Verdict::Aborted | Verdict::Interrupted))
    }
}

/// Has gateways keep each frame while this lives.
struct Recording {
    hosts: Vec<(u8, PathBuf)>,
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Recording {
    fn start(hosts: &[HostHere]) -> Result<Self, Failure> {
        let hosts: Vec<(u8, PathBuf)> = hosts.iter().map(|here| (here.host, here.dir.clone())).collect();
        let ask = |dir: &PathBuf| pulse::trace(dir, clock::now() + RECORD_AHEAD);
        for (_, dir) in &hosts {
            ask(dir).map_err(Failure::failed_at(dir))?;
        }
        let (stop, stopped) = mpsc::channel();
        let dirs: Vec<PathBuf> = hosts.iter().map(|(_, dir)| dir.clone()).collect();
        let renew = move || {
            while stopped.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A host whose directory is gone records no more; reading it reports that.
                dirs.iter().for_each(|dir| drop(ask(dir)));
            }
        };
        let thread = thread::Builder::new().name("recording".to_owned()).spawn(renew);
        remark("the gateways begin to record their pulses");
        thread::sleep(RECORD_LAG);
        Ok(Self { hosts, stop, thread: thread.map_err(Failure::failed)? })
    }

    /// Ends it, and reads what was recorded.
    fn end(self) -> Result<Vec<Stream>, Failure> {
        drop(self.stop);
        // It has nothing to report.
        let _ = self.thread.join();
        thread::sleep(RECORD_LAG);
        let mut streams = Vec::new();
        for (host, dir) in &self.hosts {
            pulse::trace(dir, clock::now()).map_err(Failure::failed_at(dir))?;
            streams.extend(pulse::traced(dir, *host).map_err(Failure::failed_at(dir))?);
        }
        Ok(streams)
    }
}

/// What was recorded in each direction, without the silences that were caused.
struct Recorded {
    by_first_path: Vec<WithOutages>,
    by_any_path: Vec<WithOutages>,
}

impl Recorded {
    fn of(streams: &[Stream], faults: &[Silenced], errors: &mut Vec<String>) -> Self {
        let mut each = |streams: &[Stream]| {
            let mut found = Vec::new();
            for stream in streams {
                match without_outages(stream, faults) {
                    Ok(of) => found.push(of),
                    Err(error) => errors.push(error.to_string()),
                }
            }
            found
        };
        let first: Vec<Stream> = streams.iter().filter(|stream| stream.path == 0).cloned().collect();
        let by_first_path = each(&first);
        let has_more = streams.iter().any(|stream| stream.path > 0);
        let by_any_path = if has_more { each(&first_arrivals(streams)) } else { by_first_path.clone() };
        Self { by_first_path, by_any_path }
    }
}

/// The same faults in the simulator, and modelled arrivals.
pub fn simulated(
    profile: &Profile,
    wanted: &[Detector],
    count: u32,
    drills: &mut dyn Drills,
) -> Result<Report, Failure> {
    let plan = Plan::simulated(wanted).map_err(Failure::Refused)?;
    drills.place()?;
    let mut measured = Vec::new();
    for (fault, detector) in plan.faults() {
        let environment = Name::new(obol_node::deployment::ENVIRONMENT).map_err(Failure::failed)?;
        let drill = plan.drill(fault, profile, environment, count).map_err(Failure::failed)?;
        let journal = drills.run(&drill)?;
        drills.keep(&drill, &journal);
        measured.push(Measured::of(detector, fault, profile, &journal));
    }
    let delays = Model::default().draw(MODELLED_PERIOD, MODELLED_FRAMES, SEED);
    let arrivals = Delays { source: String::new(), ..delays.clone() };
    let modelled = [WithOutages { delays: arrivals, outages: Vec::new() }];
    let timeout = if profile.pulse.enabled { profile.pulse.timeout } else { MODELLED_TIMEOUT };
    let computed = plan.computed(timeout);
    let computed =
        computed.into_iter().map(|(detector, setting)| beside(detector, setting, &modelled, SEED)).collect();
    Ok(Report {
        verdict: Report::judge(&measured, &[]),
        profile: profile.name.to_string(),
        host: Host { kernel: "simulated".to_owned(), ..Host::this() },
        deaths: "the simulator",
        measured,
        computed,
        arrivals: format!("arrivals that are {}", delays.source),
        missing: plan.missing,
        errors: Vec::new(),
    })
}
