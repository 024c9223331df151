//! FiDe's consensus in every reachable state: within its assumptions, and with one of them given
//! up.

use obol_fide::perfect::{Explored, Hsuc, Huc, Machine, Options, Setup, Weakness, explore};

const STATES_MAX: usize = 3_000_000;

fn setup(processes: u8, instances: u8, crashes: u8) -> Setup {
    Setup { processes, instances, crashes, weakness: None, options: Options::default() }
}

fn holds<M: Machine>(setup: Setup) -> Explored {
    let explored = explore::<M>(&setup, STATES_MAX);
    println!("{} {setup:?}: {} states", std::any::type_name::<M>(), explored.states);
    assert!(explored.complete, "more than {STATES_MAX} states: {setup:?}");
    assert_eq!((&explored.disagreement, &explored.stalled), (&None, &None), "{setup:?}");
    explored
}

#[test]
fn huc_holds_with_all_but_one_process_crashed() {
    assert!(holds::<Huc>(setup(2, 1, 1)).states > 10);
    holds::<Huc>(setup(3, 1, 2));
    holds::<Huc>(setup(2, 3, 1));
    holds::<Huc>(setup(3, 2, 2));
    holds::<Huc>(setup(4, 1, 3));
}

#[test]
fn hsuc_holds_with_all_but_one_process_crashed() {
    holds::<Hsuc>(setup(2, 1, 1));
    holds::<Hsuc>(setup(2, 3, 1));
    holds::<Hsuc>(setup(3, 1, 2));
    holds::<Hsuc>(setup(3, 2, 1));
}

#[test]
fn osrb_as_printed_leaves_a_process_waiting() {
    let printed = Setup { options: Options { printed: true }, ..setup(3, 1, 1) };
    let explored = explore::<Hsuc>(&printed, STATES_MAX);
    assert!(explored.complete);
    assert_eq!(explored.disagreement, None, "agreement does not depend on it");
    let stalled = explored.stalled.expect("a process that waits for ever");
    for action in &stalled.path {
        println!("  {action}");
    }
}

#[test]
fn huc_needs_each_of_its_assumptions() {
    for weakness in Weakness::ALL {
        let setup = Setup { weakness: Some(weakness), ..setup(2, 1, 1) };
        let explored = explore::<Huc>(&setup, STATES_MAX);
        let broken = explored.disagreement.unwrap_or_else(|| panic!("{} breaks HUC", weakness.name()));
        assert!(broken.what.starts_with("uniform agreement"), "{}: {}", weakness.name(), broken.what);
    }
}

#[test]
fn hsuc_disagrees_after_false_reports_only() {
    for (weakness, disagrees, stalls) in [
        (Weakness::DropAtOneReceiver, false, true),
        (Weakness::Partition, true, false),
        (Weakness::LateHeartbeat, true, true),
        (Weakness::EarlyNotice, false, false),
    ] {
        let setup = Setup { weakness: Some(weakness), ..setup(3, 1, 1) };
        let explored = explore::<Hsuc>(&setup, STATES_MAX);
        assert_eq!(explored.complete, !disagrees);
        // The search ends at the first disagreement, possibly before it finds who waits.
        let found = (explored.disagreement.is_some(), explored.stalled.is_some());
        assert_eq!(found, (disagrees, stalls), "{}: {explored:?}", weakness.name());
    }
}

#[test]
fn two_messages_are_kept_at_most_to_be_sent_again() {
    let mut osrb = obol_fide::perfect::Osrb::new(3, false);
    for instance in 0..10 {
        let message = obol_fide::perfect::Broadcast { instance, origin: 0, value: instance };
        assert_eq!(osrb.receive(message), (true, Vec::new()));
        assert_eq!(osrb.receive(message), (false, Vec::new()), "no duplication");
        if let Some(last) = instance.checked_sub(1) {
            osrb.stabilize(last);
        }
        assert!(osrb.kept() <= 2);
    }
    assert_eq!(osrb.crash(0).len(), 2, "the last one, to both that are left");
}
