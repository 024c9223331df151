//! The gateway: serves the memory of this host to the other hosts of a cluster.

use super::{Daemon, ended, enter, service_manager};
use crate::leaving::forget;
use obol_fabric::host::clock;
use obol_fabric::{Instant, Name};
use obol_fabric_ip::{Notes, Outlets, PulseReports, Question};
use obol_logs::Settings;
use obol_observe::annotations::Mark;
use obol_observe::pulse::PulseWriter;
use obol_term::output::{self, Failure};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

/// Annotations that wait to be written; further ones are refused.
const NOTES_MAX: usize = 64;
/// Questions that wait for an answer; further ones are refused.
const QUESTIONS_MAX: usize = 64;

/// What a host answers to a question of another one, in the directory of the cluster.
pub type Answers = fn(&Path, &[u8]) -> Vec<u8>;

/// Runs the gateway `name` of this host, until it is asked to end.
pub fn run(
    root: &Path,
    cluster: Name,
    log: &Settings,
    name: Name,
    answers: Answers,
) -> Result<ExitCode, Failure> {
    let (sender, received) = mpsc::sync_channel(NOTES_MAX);
    let is_note = |bytes: &[u8]| Mark::received(bytes, Instant::ZERO).is_some();
    let notes = Notes { sender, is_note };
    let (site, stop, _name) = enter(root, cluster, log, Daemon { kind: None, name, agent: None })?;
    annotate(root, cluster, site.cluster.dir(), received)?;
    let (questions, received) = mpsc::sync_channel(QUESTIONS_MAX);
    answer(site.cluster.dir(), received, answers)?;
    let mut outlets = Outlets { notes: Some(notes), questions: Some(questions), ..Outlets::default() };
    if site.deployment.profile.pulse.enabled {
        let reports = PulseReports::new().map_err(Failure::failed)?;
        keep(PulseWriter::new(site.cluster.dir(), Arc::clone(&outlets.trace)), Arc::clone(&reports))?;
        outlets.pulses = Some(reports);
    }
    let served = site.gateway(name, &stop, outlets, &mut service_manager(), |address| {
        tracing::info!(target: "gateway", "listens on {address}");
        // A gateway serves without a reader of this message.
        let _ = output::remark(format_args!("obol: the gateway of cluster {cluster} listens on {address}"));
    });
    ended(name, served)
}

/// Writes annotations of other hosts to the file of this one, on a thread that serves nobody else.
fn annotate(
    root: &Path,
    cluster: Name,
    dir: &Path,
    received: Receiver<(u8, Vec<u8>)>,
) -> Result<(), Failure> {
    let (root, dir) = (root.to_owned(), dir.to_owned());
    let write = move || {
        for (host, bytes) in received {
            let mark = Mark::received(&bytes, clock::now());
            if let Some(mark) = mark.as_ref().filter(|mark| !mark.forgotten.is_empty())
                && let Err(error) = forget(&root, cluster, |_| mark.forgotten.clone())
            {
                tracing::warn!(target: "gateway", "members that are not expected back stay missed here: {error}");
            }
            match mark.map(|mark| mark.write_received(&dir)) {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    tracing::warn!(target: "gateway", "an annotation of host {host} is lost: {error}");
                }
                None => tracing::warn!(target: "gateway", "host {host} has sent what is not an annotation"),
            }
        }
    };
    std::thread::Builder::new().name("obol-notes".to_owned()).spawn(write).map_err(Failure::failed)?;
    Ok(())
}

/// Carries out what other hosts ask this one to do, such as to halt drills, and answers. A question that
/// takes long holds up no other: a host may have few without an answer.
fn answer(dir: &Path, received: Receiver<Question>, answers: Answers) -> Result<(), Failure> {
    let dir = dir.to_owned();
    let carry_out = move || {
        for question in received {
            let dir = dir.clone();
            let carried_out = std::thread::Builder::new().name("obol-answer".to_owned()).spawn(move || {
                let answer = answers(&dir, question.bytes());
                question.answer(answer);
            });
            if let Err(error) = carried_out {
                tracing::warn!(target: "gateway", "a question of another host is not answered: {error}");
            }
        }
    };
    std::thread::Builder::new().name("obol-answers".to_owned()).spawn(carry_out).map_err(Failure::failed)?;
    Ok(())
}

/// Writes what the pulses of other hosts show, on a thread of its own.
fn keep(mut writer: PulseWriter, reports: Arc<PulseReports>) -> Result<(), Failure> {
    let write = move || {
        let mut failures = 0u32;
        reports.each(|report| {
            if let Err(error) = writer.write(report) {
                failures = failures.saturating_add(1);
                if failures.is_power_of_two() {
                    tracing::warn!(
                        target: "gateway", failures,
                        "a report of pulses is not written: {error} (failures: {failures})"
                    );
                }
            }
        });
    };
    std::thread::Builder::new().name("obol-reports".to_owned()).spawn(write).map_err(Failure::failed)?;
    Ok(())
}
