//! `obol drill list|show|schema|plan|probes`: drills from files.

use crate::cli::{DrillCommand, DrillFile};
use crate::output::{self, Failure};
use obol_chaos::drillfile::{self, Drill};
use obol_chaos::drills::{self, Probed};
use obol_chaos::observe::{Observer, Snapshot};
use obol_fabric::Name;
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Refused by a guard.
const REFUSED: u8 = 2;

pub(crate) fn run(root: &Path, cluster: Name, command: &DrillCommand) -> Result<ExitCode, Failure> {
    match command {
        DrillCommand::List(how) => list(how.json),
        DrillCommand::Show { drill } => show(drill),
        DrillCommand::Schema => {
            output::line(serde_json::to_string_pretty(&drillfile::schema()).map_err(Failure::failed)?)?;
            Ok(ExitCode::SUCCESS)
        }
        DrillCommand::Plan(file) => plan(root, cluster, file),
        DrillCommand::Probes(file) => probes(root, cluster, file),
    }
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    struct Line<'a> {
        name: &'a str,
        title: String,
        count: u32,
    }
    let mut lines = Vec::new();
    for one in drillfile::shipped() {
        let (Drill { title, repeat, .. }, _) = drillfile::load(one.name).map_err(Failure::failed)?;
        lines.push(Line { name: one.name, title, count: repeat.count });
    }
    if json {
        output::json(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
    for line in lines {
        output::line(format_args!("{:<width$}  {:>4} x  {}", line.name, line.count, line.title))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(name: &str) -> Result<ExitCode, Failure> {
    let (_, text) = drillfile::load(name).map_err(Failure::refused)?;
    output::bytes(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// The drill, and the cluster as it is now.
fn look(root: &Path, cluster: Name, file: &DrillFile) -> Result<(Drill, Observer, Snapshot), Failure> {
    let (drill, _) = drillfile::load(&file.drill).map_err(Failure::refused)?;
    let mut observer = Observer::open(root, cluster).map_err(Failure::refused)?;
    let snapshot = observer.snapshot();
    Ok((drill, observer, snapshot))
}

fn plan(root: &Path, cluster: Name, file: &DrillFile) -> Result<ExitCode, Failure> {
    let (drill, observer, snapshot) = look(root, cluster, file)?;
    let plan = drills::plan(&drill, &observer, &snapshot, 1);
    let code = if plan.allowed { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) };
    if file.json {
        output::json(&plan)?;
        return Ok(code);
    }
    output::line(format_args!(
        "drill {}: {}, {} repetitions. Nothing was touched",
        plan.drill, plan.title, plan.count
    ))?;
    for step in &plan.steps {
        output::line(format_args!("step {}", step.step))?;
        for fault in &step.faults {
            let lasts = fault.lasts.as_ref().map_or(String::new(), |span| format!(" for {span}"));
            output::line(format_args!("  {}{lasts}", fault.fault))?;
            for hit in &fault.hits {
                let program = hit
                    .program
                    .as_ref()
                    .map_or("a program that can not be seen".into(), |p| p.to_string_lossy());
                output::line(format_args!(
                    "    {:<10} {} (pid {}, {program})",
                    hit.target, hit.process, hit.pid
                ))?;
            }
        }
        if let Some(refusal) = &step.refusal {
            output::line(format_args!("  ! {refusal}"))?;
        }
    }
    for answer in &plan.guards {
        let mark = if answer.allows { "allows" } else { "REFUSES" };
        output::line(format_args!("guard {:<18} {mark:<8} {}", answer.guard, answer.says))?;
    }
    let verdict = if plan.allowed { "it may run" } else { "it may not run" };
    output::line(verdict)?;
    Ok(code)
}

fn probes(root: &Path, cluster: Name, file: &DrillFile) -> Result<ExitCode, Failure> {
    let (drill, observer, snapshot) = look(root, cluster, file)?;
    let probed: Vec<Probed> = drill.steady.iter().map(|s| drills::probe(&observer, &snapshot, s)).collect();
    let holds = probed.iter().all(|one| one.holds);
    if file.json {
        output::json(&probed)?;
    } else {
        for (one, steady) in probed.iter().zip(&drill.steady) {
            let mark = if one.holds { "holds" } else { "DEVIATES" };
            output::line(format_args!("{:<22} {mark:<9} {}", steady.probe.name(), one.saw))?;
        }
        if probed.is_empty() {
            output::line(format_args!("drill {} has no [[steady]]", drill.id))?;
        }
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
