//! The kill switch on all hosts of a cluster. The file of the own host is written first; the gateways
//! of the others write theirs, and answer when that is done.

use super::halt::{Halt, await_undone};
use super::undo_record::records;
use obol_fabric_ip::{AskError, Observer};
use obol_node::Site;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{io, thread};

/// How long a host may take to answer. A gateway that is restarted meanwhile is asked again.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// How long fault agents may take to undo. They look for the switch five times a second.
pub const OBEY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two questions to one host.
const PAUSE: Duration = Duration::from_millis(50);
/// A question is not repeated if less time is left.
const ATTEMPT_MIN: Duration = Duration::from_millis(200);

/// What a host is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    Halt(Halt),
    /// To allow them again.
    Resume,
    /// To say what is left to undo.
    Look,
}

/// What a host says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    /// It is done: the file is written or removed.
    Done {
        /// Whether drills were halted there before.
        was_halted: bool,
        /// Why the reason of a halt that is in force could not be written. Older releases
        /// do not say it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unwritten: Option<String>,
    },
    /// Number of fault agents that have not finished undoing.
    Left(usize),
    /// It could not be done, and why.
    Failed(String),
}

/// What became of an order on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OnHost {
    pub host: u8,
    /// Whether it was carried out there.
    pub done: bool,
    /// Whether drills were halted there before.
    pub was_halted: bool,
    /// After a halt: whether nothing is left to undo there.
    pub undone: bool,
    /// Why it was not carried out, why it is not known whether something is left to undo, or why its reason
    /// could not be written.
    pub error: Option<String>,
}

impl OnHost {
    const fn failed(host: u8, why: String) -> Self {
        Self { host, done: false, was_halted: false, undone: false, error: Some(why) }
    }
}

fn carry_out(dir: &Path, order: &Order) -> io::Result<Answer> {
    Ok(match order {
        Order::Halt(halt) => {
            // One that cannot be read is in force as well.
            let was_halted = !matches!(Halt::of(dir), Ok(None));
            let unwritten = halt.write(dir)?.map(|error| error.to_string());
            Answer::Done { was_halted, unwritten }
        }
        Order::Resume => Answer::Done { was_halted: Halt::end(dir)?, unwritten: None },
        Order::Look => Answer::Left(records(dir)?.len()),
    })
}

/// Carries out the order of another host in the cluster's directory, and returns the answer to it.
pub fn answer(dir: &Path, bytes: &[u8]) -> Vec<u8> {
    let answer = match serde_json::from_slice(bytes) {
        Ok(Order::Halt(halt)) if !halt.is_presentable() => {
            Answer::Failed("the reason of the halt is not one line of text".to_owned())
        }
        Ok(order) => {
            let done = carry_out(dir, &order);
            match (&order, &done) {
                (Order::Halt(Halt { reason, by, .. }), Ok(_)) => {
                    tracing::warn!(target: "drill", "drills are halted by {}: {reason}", by.name());
                }
                (Order::Resume, Ok(Answer::Done { was_halted: true, .. })) => {
                    tracing::info!(target: "drill", "drills may run again");
                }
                _ => {}
            }
            done.unwrap_or_else(|error| Answer::Failed(format!("{}: {error}", dir.display())))
        }
        Err(error) => Answer::Failed(format!("it does not understand this: {error}")),
    };
    // This cannot fail: an answer has no maps, so all its keys are text.
    serde_json::to_vec(&answer).unwrap_or_default()
}

/// Carries out an order on all hosts of the cluster, this one first, and waits until each has
/// answered and, if it is a halt, undone everything. What is not done within [`ANSWER_TIMEOUT`] and
/// [`OBEY_TIMEOUT`] is in the result.
pub fn everywhere(site: &Site, order: &Order) -> Vec<OnHost> {
    let dir = site.cluster.dir();
    let network = site.deployment.network.as_ref();
    let own = network.map_or(1, |network| network.host);
    // Before anything that could take long or fail.
    let here = carry_out(dir, order);
    let mut all = thread::scope(|scope| {
        let others = network.into_iter().flat_map(|network| network.other_hosts());
        let asked: Vec<_> = others.map(|host| (host, scope.spawn(move || on(site, host, order)))).collect();
        let here = match here {
            Ok(answer) => finished(own, &answer, order, || await_undone(dir, OBEY_TIMEOUT)),
            Err(error) => OnHost::failed(own, format!("{}: {error}", dir.display())),
        };
        let join = |(host, thread): (u8, thread::ScopedJoinHandle<'_, OnHost>)| {
            // A panic has been printed already.
            thread
                .join()
                .unwrap_or_else(|_| OnHost::failed(host, "the thread that asks it has panicked".to_owned()))
        };
        let mut all = vec![here];
        all.extend(asked.into_iter().map(join));
        all
    });
    all.sort_by_key(|one| one.host);
    all
}

/// The outcome on a host that has answered.
fn finished<E: ToString>(
    host: u8,
    answer: &Answer,
    order: &Order,
    await_undone: impl FnOnce() -> Result<bool, E>,
) -> OnHost {
    let (was_halted, unwritten) = match answer {
        Answer::Done { was_halted, unwritten } => (*was_halted, unwritten.as_ref()),
        Answer::Left(_) => return OnHost::failed(host, "its answer is to another question".to_owned()),
        Answer::Failed(why) => return OnHost::failed(host, why.clone()),
    };
    let undone = if matches!(order, Order::Halt(_)) { await_undone() } else { Ok(true) };
    let (undone, error) = match undone {
        Ok(undone) => (undone, None),
        Err(error) => (false, Some(error.to_string())),
    };
    let unwritten = unwritten.map(|why| format!("the reason could not be written: {why}"));
    let errors: Vec<String> = unwritten.into_iter().chain(error).collect();
    let error = (!errors.is_empty()).then(|| errors.join("; "));
    OnHost { host, done: true, was_halted, undone, error }
}

/// Waits until nothing is left to undo on another host, for at most [`OBEY_TIMEOUT`]; whether that is so.
pub(crate) fn await_undone_on(site: &Site, host: u8) -> Result<bool, String> {
    Gateway::of(site, host)?.await_undone()
}

/// Has the gateway of another host carry out an order.
fn on(site: &Site, host: u8, order: &Order) -> OnHost {
    let mut gateway = match Gateway::of(site, host) {
        Ok(gateway) => gateway,
        Err(why) => return OnHost::failed(host, why),
    };
    match gateway.ask(order, Instant::now() + ANSWER_TIMEOUT) {
        Ok(answer) => finished(host, &answer, order, || gateway.await_undone()),
        Err(why) => OnHost::failed(host, why),
    }
}

/// The gateway of another host, which answers questions.
struct Gateway {
    gateways: Observer,
    host: u8,
}

impl Gateway {
    fn of(site: &Site, host: u8) -> Result<Self, String> {
        let gateways = site.deployment.gateways(&site.cluster);
        Ok(Self { gateways: gateways.ok_or_else(|| format!("the cluster has no host {host}"))?, host })
    }

    /// Its answer. It is asked again until `end` if it does not answer.
    fn ask(&mut self, order: &Order, end: Instant) -> Result<Answer, String> {
        let bytes = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        let mut last = None;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            // What too short an attempt would end with says nothing.
            if let Some(error) = last.take().filter(|_| left < ATTEMPT_MIN) {
                return Err(error);
            }
            match self.gateways.ask(self.host, &bytes, left) {
                Ok(answer) => {
                    return serde_json::from_slice(&answer)
                        .map_err(|error| format!("its answer cannot be read: {error}"));
                }
                Err(error @ AskError::Refused(_)) => return Err(error.to_string()),
                Err(error) => {
                    last = Some(error.to_string());
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Waits until nothing is left to undo on its host; whether that is so.
    fn await_undone(&mut self) -> Result<bool, String> {
        let end = Instant::now() + OBEY_TIMEOUT;
        loop {
            match self.ask(&Order::Look, end)? {
                Answer::Left(0) => return Ok(true),
                Answer::Failed(why) => return Err(why),
                Answer::Left(_) | Answer::Done { .. } if Instant::now() >= end => return Ok(false),
                Answer::Left(_) | Answer::Done { .. } => thread::sleep(PAUSE),
            }
        }
    }
}

/// Where an order was not carried out or not obeyed, or a halt lacks its reason, and why; `None` if all is
/// well.
pub fn missed(hosts: &[OnHost], order: &Order) -> Option<String> {
    let what = match order {
        Order::Halt(_) => "drills are not halted",
        Order::Resume | Order::Look => "drills may still be halted",
    };
    let again = if matches!(order, Order::Halt(_)) { "halt" } else { "resume" };
    let one = |found: &OnHost| {
        let OnHost { host, done, undone, error, .. } = found;
        let why = error.as_deref().map_or(String::new(), |why| format!(" ({why})"));
        match (done, undone) {
            (true, true) => {
                error.as_deref().map(|why| format!("drills are halted on host {host}, but {why}"))
            }
            (false, _) => Some(format!("{what} on host {host}{why}: run `obol drill {again}` there")),
            (true, false) => Some(format!(
                "faults are left to undo on host {host}{why}: `obol drill recover` there undoes them once their drill has ended"
            )),
        }
    };
    let all: Vec<String> = hosts.iter().filter_map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drills::audit::log::Who;
    use crate::faults::Record;

    fn asked(dir: &Path, order: &Order) -> Answer {
        let answer = answer(dir, &serde_json::to_vec(order).expect("JSON"));
        serde_json::from_slice(&answer).expect("an answer")
    }

    const fn done(was_halted: bool) -> Answer {
        Answer::Done { was_halted, unwritten: None }
    }

    #[test]
    fn an_order_of_another_host_is_carried_out_before_it_is_answered() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        let halt = Halt { reason: "the sale is on".to_owned(), by: Who::this(), at: 7 };
        assert_eq!(asked(dir, &Order::Resume), done(false));
        assert_eq!(asked(dir, &Order::Halt(halt.clone())), done(false));
        assert_eq!(Halt::of(dir).expect("read"), Some(halt.clone()));
        assert_eq!(asked(dir, &Order::Halt(halt)), done(true));
        assert_eq!(asked(dir, &Order::Look), Answer::Left(0));
        Record::new((77, 1), Vec::new()).write(dir).expect("written");
        assert_eq!(asked(dir, &Order::Look), Answer::Left(1));
        assert_eq!(asked(dir, &Order::Resume), done(true));
        assert_eq!(Halt::of(dir).expect("read"), None);
    }

    #[test]
    fn what_cannot_be_shown_or_done_is_answered_with_the_reason() {
        let dir = tempfile::tempdir().expect("made");
        let order = |reason: &str| Order::Halt(Halt { reason: reason.to_owned(), by: Who::this(), at: 7 });
        for reason in ["", "two\nlines", &"x".repeat(300)] {
            assert!(matches!(asked(dir.path(), &order(reason)), Answer::Failed(_)), "{reason}");
        }
        assert_eq!(Halt::of(dir.path()).expect("read"), None);
        let gone = dir.path().join("gone");
        assert!(matches!(asked(&gone, &order("now")), Answer::Failed(why) if why.contains("gone")));
        let stranger: Answer = serde_json::from_slice(&answer(dir.path(), b"{}")).expect("an answer");
        assert!(matches!(stranger, Answer::Failed(_)), "{stranger:?}");
    }

    #[test]
    fn a_halt_without_its_reason_is_done_and_says_why_the_reason_lacks() {
        let dir = tempfile::tempdir().expect("made");
        let dir = dir.path();
        // A folder in its place: no file can be written there.
        std::fs::create_dir(dir.join(format!("drill-halt-{}.draft", std::process::id()))).expect("made");
        let order = Order::Halt(Halt { reason: "the sale".to_owned(), by: Who::this(), at: 7 });
        let answer = asked(dir, &order);
        let Answer::Done { was_halted: false, unwritten: Some(_) } = &answer else { panic!("{answer:?}") };
        let found = finished(2, &answer, &order, || Ok::<bool, String>(true));
        assert!(found.done && found.undone);
        assert!(found.error.is_some_and(|why| why.starts_with("the reason could not be written: ")));
        // What an older release answers is understood.
        let older: Answer = serde_json::from_str(r#"{"done":{"was_halted":true}}"#).expect("an answer");
        assert_eq!(older, done(true));
    }

    #[test]
    fn a_halt_that_is_in_force_without_its_reason_fails() {
        let halted = |error: Option<&str>| OnHost {
            host: 1,
            done: true,
            was_halted: false,
            undone: true,
            error: error.map(ToOwned::to_owned),
        };
        let order = Order::Halt(Halt { reason: "the sale".to_owned(), by: Who::this(), at: 7 });
        assert_eq!(missed(&[halted(None)], &order), None);
        let why = "the reason could not be written: No space left on device (os error 28)";
        let said = missed(&[halted(None), halted(Some(why))], &order);
        assert_eq!(said, Some(format!("drills are halted on host 1, but {why}")));
    }
}
