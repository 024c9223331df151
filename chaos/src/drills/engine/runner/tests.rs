use super::*;
use crate::drillfile;
use crate::drills::engine::journal::Host;
use obol_campaign::Cluster;
use obol_membership::ActiveMutant;
use obol_node::Deployment;
use obol_profiles::Profile;
use std::path::PathBuf;
use std::sync::Arc;

/// A system that never says that its faults have ended.
struct Silent {
    cluster: Cluster,
    /// For how long more they were said to last, each time that their end was waited for.
    left: Vec<Nanos>,
}

impl System for Silent {
    type Subject = Cluster;

    fn subject(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    fn supervisor(&self) -> Supervisor {
        Supervisor::Simulator
    }

    fn stamps(&self, _: &Process) -> bool {
        true
    }

    fn host(&self) -> Host {
        Host::this()
    }

    fn arm(&mut self, _: &Drill, _: &Step, _: &[Chosen], _: &[Process]) -> Result<(), RunError> {
        Ok(())
    }

    fn fire(&mut self) -> Result<Option<Vec<Stamp>>, RunError> {
        Ok(None)
    }

    fn undo_early(&mut self) -> Result<(), RunError> {
        Ok(())
    }

    fn undone(&mut self, lasts: Nanos) -> Result<Vec<String>, RunError> {
        self.left.push(lasts);
        Ok(Vec::new())
    }

    fn start(&mut self, _: &Process) -> Result<(), RunError> {
        Ok(())
    }

    fn restored(&mut self) -> Result<(), RunError> {
        Ok(())
    }
}

#[test]
fn a_fault_agent_that_says_nothing_is_not_waited_for_twice_as_long_as_its_faults_last() {
    let (drill, _) = drillfile::load("triple-loss").expect("a drill that ships");
    let options = Options::new(PathBuf::new());
    let profile = Profile::builtin("laptop").expect("a profile");
    let deployment = Deployment::new(3, 3, 3, profile).expect("it fits");
    let cluster = Cluster::start(deployment, drill.seed.into(), ActiveMutant::NONE).expect("it starts");
    let (dir, lasts) = (tempfile::tempdir().expect("made"), Nanos::from_secs(4));
    let silent = Silent { cluster, left: Vec::new() };
    let runner = Runner::new(&drill, &options, silent, Vec::new());
    let stop = Some(Stop::watch(dir.path(), &[], &Arc::default()));
    let mut runner = Runner { stop, ..runner };
    let injected = runner.system.subject().now();
    let stamp = Stamp { name: "app-1".to_owned(), at: injected.0, error: None, host: 1, clock_error: 0 };
    let trial = Trial { stamps: vec![stamp], ..Trial::default() };
    // It was followed for a second.
    runner.system.subject().sleep(Nanos::from_secs(1));
    assert_eq!(runner.undo(lasts, &trial).expect("silent"), [""; 0]);
    assert!(runner.system.subject().now().since(injected) >= lasts, "the faults have their time");
    assert_eq!(runner.system.left, [Nanos::ZERO]);
    // With `undo_early` it is waited for as long as the faults last, which have just been injected.
    let early = Options { undo_early: true, ..Options::new(PathBuf::new()) };
    let mut runner = Runner { options: &early, ..runner };
    runner.system.left.clear();
    let at = runner.system.subject().now().0;
    let stamps = trial.stamps.into_iter().map(|stamp| Stamp { at, ..stamp }).collect();
    assert_eq!(runner.undo(lasts, &Trial { stamps, ..Trial::default() }).expect("silent"), [""; 0]);
    assert_eq!(runner.system.left, [lasts]);
}

#[test]
fn hosts_are_crashed_once_whatever_a_run_asks_for() {
    let (drill, _) = drillfile::load("host-crash").expect("a drill that ships");
    let refused = |drill: &Drill, count| crashes_once(drill, count).map_err(|error| error.to_string());
    assert_eq!((drill.repeat.warmup, refused(&drill, 1)), (0, Ok(())));
    let mut warm = drill.clone();
    warm.repeat.warmup = 1;
    let mut twice = drill.clone();
    twice.steps.push(drill.steps[0].clone());
    for (drill, count, says) in [
        (&drill, 5, "1 steps crash hosts, in 5 repetitions"),
        (&warm, 1, "1 steps crash hosts, in 2 repetitions"),
        (&twice, 1, "2 steps crash hosts, in 1 repetitions"),
    ] {
        let why = refused(drill, count).expect_err("a second crash");
        assert!(why.contains("crashed once") && why.contains(says), "{why}");
    }
    let (other, _) = drillfile::load("triple-loss").expect("a drill that ships");
    assert_eq!(refused(&other, 1000), Ok(()));
    // A run asks that before it does anything else.
    let profile = Profile::builtin("laptop").expect("a profile");
    let options = Options { count: Some(5), ..Options::new(PathBuf::new()) };
    let error = crate::drills::simulate(&drill, profile, ActiveMutant::NONE, &options, |_| true);
    assert!(error.expect_err("refused").to_string().contains("crashed once"));
}

#[test]
fn only_a_host_whose_stamp_has_no_error_was_crashed() {
    let stamp = |host, error: Option<&str>| Stamp {
        name: "host".to_owned(),
        at: 1,
        error: error.map(str::to_owned),
        host,
        clock_error: 0,
    };
    let stamps = [stamp(1, None), stamp(2, Some("it failed")), stamp(4, None)];
    // The third host has not answered, and the fourth has another fault.
    let hosts = BTreeSet::from([1, 2, 3]);
    let said = |cut| crash_remarks(&hosts, &stamps, cut);
    assert_eq!(said(false), [format!("host 1 was crashed: {BY_OPERATOR}")]);
    assert_eq!(said(true), [format!("host 1 may have crashed: {BY_OPERATOR}")]);
}
