//! The papers' experiments: their shape, their repeatability, and their dependence on the model.

use obol_campaign::papers::{Detector, Method, Table2, leases, report, scale, table2};
use obol_fabric::Nanos;
use obol_fabric_sim::{BILLION, Quantiles};
use obol_profiles::Testbed;
use strum::VariantArray;

/// Few: these tests compare figures, and do not need them to a percent.
const REPETITIONS: u32 = 15;

fn testbed() -> Testbed {
    Testbed::builtin("infiniband").expect("it is in order")
}

fn table(testbed: &Testbed, seed: u64) -> Table2 {
    table2(testbed, REPETITIONS, seed, 2).expect("every failover comes")
}

fn median(table: &Table2, failed: &str, caches: bool, detector: Detector) -> f64 {
    let cell = |c: &&obol_campaign::papers::Cell| {
        c.failed == failed && c.scenario.caches == caches && c.scenario.detector == detector
    };
    table.cells.iter().find(cell).expect("the cell is there").waited.p50
}

#[test]
fn table_2_has_every_published_cell_and_the_papers_order() {
    let table = table(&testbed(), 1);
    assert_eq!(table.cells.len(), 12);
    assert!(table.inputs.iter().all(|input| !input.source.is_empty()));
    for cell in &table.cells {
        assert!(cell.fenced.p50 < cell.waited.p50, "a fence is faster than a lease: {cell:?}");
        assert_eq!(cell.early.is_some(), cell.scenario.detector == Detector::Deadbeat);
        assert!(cell.early.is_none_or(|early| early.p50 < cell.fenced.p50), "{cell:?}");
        assert_eq!(cell.waited.p99, None, "{REPETITIONS} repetitions are too few for a 99th percentile");
    }
    for detector in [Detector::Deadbeat, Detector::Heartbeat] {
        let at = |failed, caches| median(&table, failed, caches, detector);
        assert!(at("A+C", false) > at("A", false));
        assert!(at("A", true) > at("A", false));
        assert!(at("A+C", true) > at("A", true));
    }
    assert!(median(&table, "A", false, Detector::Heartbeat) > median(&table, "A", false, Detector::Deadbeat));
}

#[test]
fn all_are_excluded_with_the_last_and_not_with_the_app() {
    let mut wide = testbed();
    let end = Nanos::from_micros(400);
    wide.spread = Quantiles::new(vec![(0, Nanos::ZERO), (BILLION, end)]).expect("the points rise");
    let table = table(&wide, 3);
    let cell = |failed: &str| {
        let of = |c: &&obol_campaign::papers::Cell| {
            (c.failed, c.scenario.caches, c.scenario.detector) == (failed, true, Detector::Deadbeat)
        };
        table.cells.iter().find(of).expect("the cell is there").waited
    };
    let (one, three) = (cell("A"), cell("A+L+C"));
    assert!((one.all_p50 - one.p50).abs() < f64::EPSILON, "{one:?}");
    assert!(three.all_p50 > three.p50 + 30.0, "{three:?}");
    for figure in [one, three] {
        assert!((figure.p50_interval[0]..=figure.p50_interval[1]).contains(&figure.p50), "{figure:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_table_on_any_number_of_threads() {
    let once = table(&testbed(), 7);
    let again = table2(&testbed(), REPETITIONS, 7, 1).expect("every failover comes");
    assert_eq!(once.cells, again.cells);
    assert_ne!(once.cells, table(&testbed(), 8).cells);
}

#[test]
fn a_later_notice_delays_the_failover() {
    let usual = table(&testbed(), 1);
    let mut slow = testbed();
    let late = Nanos::from_micros(100);
    slow.model.notice = Quantiles::fixed(Nanos(slow.model.notice.median().0 + late.0));
    let slow = table(&slow, 1);
    let by = median(&slow, "A", false, Detector::Deadbeat) - median(&usual, "A", false, Detector::Deadbeat);
    assert!((95.0..105.0).contains(&by), "a notice that is 100 us later makes it {by} us later");
    let beats = |table: &Table2| median(table, "A", false, Detector::Heartbeat);
    assert!((beats(&slow) - beats(&usual)).abs() < f64::EPSILON, "no notice reports a process that hangs");
}

#[test]
fn longer_leases_and_less_load_are_never_less_timely() {
    let sweep = leases(&testbed(), 2, 1).expect("all loads run");
    assert_eq!(sweep.loads.len(), 12);
    for load in &sweep.loads {
        assert_eq!(load.timely_percent.len(), sweep.lengths_us.len());
        assert!(load.renewals > 500, "{load:?}");
        for shares in [&load.timely_percent, &load.covered_percent] {
            assert!(shares.windows(2).all(|pair| pair[0] <= pair[1]), "{load:?}");
            assert!(shares.iter().all(|share| (0.0..=100.0).contains(share)), "{load:?}");
        }
    }
    let timely = |network, memory| {
        let of =
            |l: &&obol_campaign::papers::Load| (l.network_percent, l.memory_percent) == (network, memory);
        sweep.loads.iter().find(of).expect("the load is there").timely_percent.iter().sum::<f64>()
    };
    assert!(timely(30, 0) >= timely(30, 100));
    assert!(timely(30, 0) > timely(80, 0));
    assert!(timely(80, 0) > timely(100, 0));
}

#[test]
fn failovers_scale_by_every_method() {
    // From about 60 members on, views exceed a datagram.
    let once = scale(&testbed(), 256, 1, 1, 2).expect("every failover comes");
    assert_eq!(once.sizes(), [8, 16, 32, 64, 128, 256]);
    assert_eq!(once.points.len(), 6 * Method::VARIANTS.len());
    let again = scale(&testbed(), 16, 1, 1, 1).expect("every failover comes");
    assert_eq!(once.points[..again.points.len()], again.points);
    for point in &once.points {
        assert!(point.first_us <= point.last_us && point.first_us > 0.0, "{point:?}");
        assert!(point.active_percent > 50.0, "{point:?}");
        assert_eq!(point.caches > 0, point.cache_datagrams > 0.0, "{point:?}");
    }
    let at = |members, method| {
        *once.points.iter().find(|p| (p.members, p.method) == (members, method)).expect("it is there")
    };
    // The purpose of the methods: fences end leases sooner, caches relieve coordinators of
    // renewals.
    assert!(at(8, Method::Fenced).first_us < at(8, Method::Waited).first_us);
    assert!(
        at(64, Method::WaitedCaches).coordinator_operations
            < at(64, Method::Waited).coordinator_operations / 2.0
    );
    let grows = at(64, Method::Fenced).failover_operations / at(8, Method::Fenced).failover_operations;
    assert!(grows > 2.0, "more members read more: {grows}");
}

#[test]
fn a_report_has_all_results_and_is_self_contained() {
    let testbed = testbed();
    let table = table2(&testbed, 2, 1, 2).expect("every failover comes");
    let leases = leases(&testbed, 1, 1).expect("all loads run");
    let scaling = scale(&testbed, 16, 1, 1, 2).expect("every failover comes");
    let report = report(&table, &leases, &scaling).expect("there are points to draw");
    assert_eq!(report.figures().count(), 10);
    let html = report.html();
    assert_eq!(html.matches("<svg ").count(), 10);
    for cell in &table.cells {
        assert!(html.contains(&format!("{:.1}", cell.waited.p50)), "{cell:?}");
    }
    for parameter in &table.inputs {
        assert!(html.contains(parameter.key), "{parameter:?}");
    }
    for outside in ["src=", "href=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}
