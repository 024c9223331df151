//! The papers' experiments as one page with charts.

use super::leases::Leases;
use super::scale::{Method, Point, Scaling};
use super::table2::{Cell as Failovers, Detector, Table2};
use obol_observe::plot::{Axis, Bars, Cell, Chart, Document, PlotError, Series};
use obol_profiles::testbed::Parameter;
use strum::VariantArray;

/// Renders the results of the three experiments.
pub fn report(table: &Table2, leases: &Leases, scaling: &Scaling) -> Result<Document, PlotError> {
    let mut doc = Document::new("uKharon's experiments, simulated");
    doc.say(format!(
        "obol's own state machines ran in its simulator on the testbed \"{}\". Most of its parameters are published; the \
         others are assumed, as marked in the list at the end. The paper is uKharon (Guerraoui et al., USENIX ATC \
         2022). The same seed gives the same report.",
        table.testbed
    ));
    failovers(&mut doc, table)?;
    renewals(&mut doc, leases)?;
    sizes(&mut doc, scaling)?;
    inputs(&mut doc, &table.inputs);
    Ok(doc)
}

fn row_name(cell: &Failovers) -> String {
    format!("{}{}", cell.failed, if cell.scenario.caches { ", caches" } else { "" })
}

fn failovers(doc: &mut Document, table: &Table2) -> Result<(), PlotError> {
    doc.heading("Table 2: failover times");
    doc.say(
        "From the failure of an app (A), alone or with the leader (C) or a lease cache (L), to the first moment at which \
         another app is active in a view without it. Waited: the paper's setting, old leases run out. Fenced: fences are \
         raised instead. Early: kernels report the fatal signal, not the exit.",
    );
    for (detector, name, caption) in [
        (Detector::Deadbeat, "failovers-deadbeat", "Processes are killed, and their kernels report it."),
        (Detector::Heartbeat, "failovers-heartbeat", "Processes hang, and their counters stall."),
    ] {
        let cells: Vec<&Failovers> =
            table.cells.iter().filter(|cell| cell.scenario.detector == detector).collect();
        let all =
            |value: fn(&Failovers) -> Option<f64>| cells.iter().map(|cell| value(cell)).collect::<Vec<_>>();
        let mut bars = Bars::grouped("median failover in us", cells.iter().map(|c| row_name(c)).collect())
            .with("waited", all(|c| Some(c.waited.p50)))
            .with("fenced", all(|c| Some(c.fenced.p50)));
        if detector == Detector::Deadbeat {
            bars = bars.with("fenced, early notice", all(|c| c.early.map(|early| early.p50)));
        }
        let bars = bars.with_mark("published", all(|c| Some(c.scenario.published)));
        doc.figure(name, bars.svg()?, format!("{caption} {} failovers per bar.", table.repetitions));
    }
    let rows = table.cells.iter().map(|cell| {
        let p50 = |p50: f64| Cell::number(format!("{p50:.1}"));
        vec![
            Cell::text(row_name(cell)),
            Cell::text(cell.scenario.detector.name()),
            Cell::number(cell.scenario.published),
            p50(cell.waited.p50),
            Cell::number(format!("{:.1} to {:.1}", cell.waited.p50_interval[0], cell.waited.p50_interval[1])),
            Cell::number(format!("{:+.1} %", cell.deviation_percent)),
            p50(cell.fenced.p50),
            cell.early.map_or(Cell::number("-"), |early| p50(early.p50)),
        ]
    });
    doc.table(
        &["failed", "detector", "published", "waited", "95 % interval", "deviation", "fenced", "early"],
        rows,
    );
    Ok(())
}

fn renewals(doc: &mut Document, leases: &Leases) -> Result<(), PlotError> {
    doc.heading("Figure 3: how long leases must be");
    doc.say(format!(
        "{} members renew while other traffic loads the network and other programs load the memory. The share of \
         renewals that would have been timely with leases of that length.",
        leases.renewers
    ));
    let mut memory: Vec<u32> = leases.loads.iter().map(|load| load.memory_percent).collect();
    memory.sort_unstable();
    memory.dedup();
    let names = ["renewals-memory-low", "renewals-memory-mid", "renewals-memory-high"];
    for (name, memory) in names.into_iter().zip(memory) {
        let mut chart = Chart::new(Axis::linear("lease in us"), Axis::linear("timely renewals in percent"));
        for load in leases.loads.iter().filter(|load| load.memory_percent == memory) {
            let points =
                leases.lengths_us.iter().map(|us| *us as f64).zip(load.timely_percent.iter().copied());
            chart =
                chart.with(Series::line(&format!("network at {} %", load.network_percent), points.collect()));
        }
        doc.figure(name, chart.svg()?, format!("Memory load {memory} %."));
    }
    Ok(())
}

fn sizes(doc: &mut Document, scaling: &Scaling) -> Result<(), PlotError> {
    doc.heading("From 8 to thousands of members");
    doc.say(
        "Each member has a lease page of its own. Up to 32 members, leases are as published; beyond that they, and all other \
         periods, grow with the members, so that renewals cost a coordinator the same at any size. Views of more than about 60 \
         members exceed a datagram: only the difference from the previous view is announced, and no member has to fetch the view.",
    );
    let lines = |value: fn(&Point) -> f64, caches: bool| {
        let of = |method: Method| {
            let points = scaling.points.iter().filter(|p| p.method == method && (!caches || p.caches > 0));
            Series::line(method.name(), points.map(|p| (f64::from(p.members), value(p))).collect())
        };
        let methods = Method::VARIANTS.iter().copied().map(of).filter(|series| !series.points.is_empty());
        methods.collect::<Vec<_>>()
    };
    for (name, title, value, caches, caption) in [
        (
            "scale-first",
            "failover in us",
            (|p: &Point| p.first_us) as fn(&Point) -> f64,
            false,
            "From the kill of an app to the first survivor that is active without it.",
        ),
        ("scale-last", "failover in us", |p| p.last_us, false, "From the kill to the last survivor."),
        (
            "scale-coordinator",
            "operations a second",
            |p| p.coordinator_operations,
            false,
            "One-sided operations that reach each coordinator while nothing fails.",
        ),
        (
            "scale-cache",
            "datagrams a second",
            |p| p.cache_datagrams,
            true,
            "Datagrams that reach each cache.",
        ),
        (
            "scale-failover-load",
            "operations",
            |p| p.failover_operations,
            false,
            "Operations and datagrams that reach each coordinator from the kill until the last survivor is active.",
        ),
    ] {
        let mut chart = Chart::new(Axis::log("members"), Axis::log(title));
        chart.series = lines(value, caches);
        doc.figure(name, chart.svg()?, caption);
    }
    let best = scaling.sizes().into_iter().filter_map(|members| scaling.best(members)).map(|p| {
        vec![
            Cell::number(p.members),
            Cell::text(p.method.name()),
            Cell::number(format!("{:.1}", p.first_us)),
            Cell::number(format!("{:.1}", p.last_us)),
            Cell::number(format!("{:.0}", p.lease_us)),
        ]
    });
    doc.say("The best method at each size, by the first survivor:");
    doc.table(&["members", "method", "first survivor, us", "last survivor, us", "lease, us"], best);
    Ok(())
}

fn inputs(doc: &mut Document, inputs: &[Parameter]) {
    doc.heading("Parameters");
    let title = format!("{} parameters of the testbed with their sources", inputs.len());
    let row = |p: &Parameter| vec![Cell::text(p.key), Cell::text(&p.value), Cell::text(&p.source)];
    doc.folded(title, &["parameter", "value", "source"], inputs.iter().map(row));
}
