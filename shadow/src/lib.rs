//! `obol shadow`: watches an existing Redis with Sentinel, or an existing etcd, without touching it, and
//! reports what obol would have noticed, beside what that system did.

mod etcd;
mod listener;
mod redis;
mod resp;

use clap::Args;
use obol_config::duration;
use obol_fabric::host::{Held, clock};
use obol_fabric::{Instant, Nanos};
use obol_observe::stats::Distribution;
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::net::{Shutdown, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// A failover that takes longer is reported without its end.
const FAILOVER_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two looks at whether the time is over.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long one call waits for the end of a process.
const WAIT: Nanos = Nanos::from_secs(60);
/// The threads that watch have ended.
const NO_WATCH: &str = "nothing is watched any more";

/// Watch an existing Redis with Sentinel, or an existing etcd, and compare its failovers with obol's
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing is configured, and no key is written. When the primary fails, it reports when each evidence came, from \
    the first one on: the end of the process by its pidfd, which is how obol's processes learn of a death on their host; the end \
    of a connection; and each step of the system itself. The pidfd needs the primary on this host; run it there.\n\
    \nRedis: it asks Sentinel for the master, subscribes to Sentinel's events, and reads the master's process id (INFO server). \
    A master that hangs is noticed by Sentinel alone. A password is taken from REDISCLI_AUTH.\n\
    \netcd: any member names the others. Each is asked for its status every 20 ms, by the JSON gateway of its client URL, so the \
    times of a request that fails and of the steps are late by as much; the failover is over when a survivor follows a leader \
    and answers a linearizable read. Client certificates and passwords are not supported.\n\
    \nBefore, it measures failovers of a cluster of its own on this machine, as on three hosts: from a kill to the last survivor \
    that may act. They are of obol's own apps: what a client of the other system waits for beyond that is in neither.\n\
    \nExit codes: 0 as many failures as wanted were seen, 1 fewer, 2 refused.\n\
    \nTry: obol shadow redis://127.0.0.1:26379/mymaster --for 8h\n     obol shadow etcd://127.0.0.1:2379"
)]
pub struct Shadow {
    /// The Sentinel and the name of its master [default port: 26379, default name: mymaster], or members of an etcd
    /// [default port: 2379]
    #[arg(value_name = "redis://HOST[:PORT][/MASTER]|etcd://HOST[:PORT][,..]", value_parser = target)]
    target: Target,
    /// Stop after this number of failures
    #[arg(long = "count", alias = "failures", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    failures: u32,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", default_value = "8h", value_parser = duration::argument)]
    span: Duration,
    /// Failovers of obol that are measured before; 0 for none
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    failovers: u32,
    /// Print one JSON object for each failure, for scripts
    #[arg(long)]
    json: bool,
}

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Redis(redis::Sentinel),
    Etcd(etcd::Endpoints),
}

fn target(text: &str) -> Result<Target, String> {
    let found = match text.split_once("://") {
        Some(("redis", rest)) => redis::parse(rest).map(Target::Redis),
        Some(("etcd", rest)) => etcd::parse(rest).map(Target::Etcd),
        _ => None,
    };
    found.ok_or_else(|| {
        format!(
            "`{text}` is neither redis://HOST[:PORT][/MASTER] such as redis://127.0.0.1:26379/mymaster, nor \
             etcd://HOST[:PORT][,HOST[:PORT]..] such as etcd://127.0.0.1:2379"
        )
    })
}

/// A host, in brackets if it is an IPv6 address, and its port.
fn host_port(text: &str, default: u16) -> Option<(String, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => (host, port.parse().ok()?),
        _ => (text, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_name = !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic() && !"@/,".contains(c));
    is_name.then(|| (host.to_owned(), port))
}

/// A system with a primary that others replace when it fails.
trait Watched {
    /// Its name in reports.
    fn system(&self) -> &'static str;

    /// Watches the primary of now.
    fn primary(&mut self, to: &Sender<Evidence>) -> Result<Primary, Failure>;

    /// Passes on what the system itself does about failures, from now on.
    fn follow(&mut self, to: Sender<Evidence>) -> Result<(), Failure>;
}

/// What an evidence means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    /// The primary has failed, or the system acts.
    Step,
    /// The failover is over.
    End,
    /// The system cannot be watched any more.
    Lost,
}

/// Something that says that the primary has failed, or that the system acts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Evidence {
    at: Instant,
    sign: Sign,
    what: String,
}

/// One failure.
#[derive(Debug, PartialEq, Serialize)]
struct Report {
    /// `redis` or `etcd`.
    system: &'static str,
    /// What Sentinel calls the master, or the name of the leading member.
    master: String,
    /// The failed one, and its process on this host.
    primary: String,
    pid: Option<u32>,
    /// What was seen, and after how many microseconds from the first of it.
    evidence: Vec<Seen>,
    /// From the first evidence to the end of the failover; none if that was not seen.
    failover_us: Option<f64>,
    /// The median of obol's failovers on this machine.
    obol_failover_us: Option<f64>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Seen {
    what: String,
    after_us: f64,
}

/// The primary at present, watched by threads that end with it.
struct Primary {
    name: String,
    address: String,
    pid: Option<u32>,
    link: TcpStream,
}

fn failed(doing: &str) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::Failed(format!("{doing}: {error}"))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop).map_err(failed("start a thread"))
}

fn report(to: &Sender<Evidence>, sign: Sign, what: String) {
    report_at(to, clock::now(), sign, what);
}

fn report_at(to: &Sender<Evidence>, at: Instant, sign: Sign, what: String) {
    // Its reader ends with the command.
    let _ = to.send(Evidence { at, sign, what });
}

/// Reports the end of a process.
fn wait_for_end(held: Option<(u32, Held)>, to: &Sender<Evidence>) -> Result<(), Failure> {
    let Some((pid, held)) = held else { return Ok(()) };
    let to = to.clone();
    spawn("shadow-death", move || {
        while !held.wait_ended(WAIT) {}
        report(&to, Sign::Step, format!("process {pid} has ended (pidfd)"));
    })
}

/// Collects a failure, from the first evidence to the end of the failover. `None` if the time is over
/// before there is any.
fn failure(from: &Receiver<Evidence>, until: Instant) -> Result<Option<Vec<Evidence>>, Failure> {
    let mut seen: Vec<Evidence> = Vec::new();
    loop {
        let end = seen.first().map_or(until, |first| first.at + Nanos::from_std(FAILOVER_TIMEOUT));
        if clock::now() >= end {
            return Ok((!seen.is_empty()).then_some(seen));
        }
        match from.recv_timeout(POLL_INTERVAL) {
            Ok(Evidence { sign: Sign::Lost, what, .. }) => return Err(Failure::Failed(what)),
            Ok(evidence) => {
                let is_over = evidence.sign == Sign::End;
                seen.push(evidence);
                if is_over {
                    return Ok(Some(seen));
                }
            }
            Err(RecvTimeoutError::Timeout) => output::check_read()?,
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Failed(NO_WATCH.to_owned())),
        }
    }
}

fn compared(primary: &Primary, system: &'static str, mut seen: Vec<Evidence>, ours: Option<f64>) -> Report {
    // Threads report in any order.
    seen.sort_by_key(|evidence| evidence.at);
    let first = seen.first().map_or(Instant::ZERO, |evidence| evidence.at);
    let end = seen.iter().find(|evidence| evidence.sign == Sign::End);
    let failover_us = end.map(|end| end.at.since(first).as_micros_f64());
    let after = |evidence: Evidence| Seen {
        after_us: evidence.at.since(first).as_micros_f64(),
        what: obol_term::plain::line(&evidence.what).into_owned(),
    };
    Report {
        system,
        master: primary.name.clone(),
        primary: primary.address.clone(),
        pid: primary.pid,
        evidence: seen.into_iter().map(after).collect(),
        failover_us,
        obol_failover_us: ours,
    }
}

fn print(report: &Report) -> std::io::Result<()> {
    let time = |us: f64| Nanos((us * 1000.0) as u64).to_string();
    output::line(format_args!("{} failed: {}", report.master, report.primary))?;
    for Seen { what, after_us } in &report.evidence {
        output::line(format_args!("  +{:<8} {what}", time(*after_us)))?;
    }
    match report.failover_us {
        Some(took) => output::line(format_args!(
            "  {}: {} from the first evidence to the end of the failover",
            report.system,
            time(took)
        ))?,
        None => output::line(format_args!("  {}: no end of the failover was seen", report.system))?,
    }
    let Some(ours) = report.obol_failover_us else { return Ok(()) };
    output::line(format_args!(
        "  obol, median of failovers on this machine: {} from the kill to the last survivor",
        time(ours)
    ))
}

/// Watches the primary, and what the system does when it fails, and measures then, which takes long: a
/// failover that happens meanwhile is seen whole.
fn begin(
    watched: &mut dyn Watched,
    to: &Sender<Evidence>,
    measure: impl FnOnce() -> Result<Option<f64>, Failure>,
) -> Result<(Primary, Option<f64>), Failure> {
    let primary = watched.primary(to)?;
    watched.follow(to.clone())?;
    Ok((primary, measure()?))
}

/// Runs `obol shadow`. `failovers` measures as many of obol's own.
pub fn run(
    options: &Shadow,
    failovers: impl FnOnce(u32) -> Result<Distribution, Failure>,
) -> Result<ExitCode, Failure> {
    let mut watched: Box<dyn Watched> = match options.target.clone() {
        Target::Redis(sentinel) => Box::new(sentinel),
        Target::Etcd(endpoints) => Box::new(etcd::Etcd::new(endpoints)),
    };
    let (to, evidence) = mpsc::channel();
    let (mut primary, ours) = begin(&mut *watched, &to, || match options.failovers {
        0 => Ok(None),
        n => {
            output::remark(format_args!("measuring {n} failovers of obol on this machine"))?;
            Ok(Some(failovers(n)?.quantile(0.5).as_micros_f64()))
        }
    })?;
    if primary.pid.is_none() {
        output::remark(
            "the primary does not run on this host, or is not visible here: its death is seen by its connection only",
        )?;
    }
    let until = clock::now() + Nanos::from_std(options.span);
    for number in 0..options.failures {
        output::remark(format_args!("watching {} at {}", primary.name, primary.address))?;
        let Some(seen) = failure(&evidence, until)? else {
            output::remark(format_args!("the time is over; failures seen: {number}"))?;
            return Ok(ExitCode::FAILURE);
        };
        let report = compared(&primary, watched.system(), seen, ours);
        output::json_or(options.json, &report, print)?;
        // One that is closed already is what is wanted.
        let _ = primary.link.shutdown(Shutdown::Both);
        if number + 1 < options.failures {
            // What the failed one still has to say is over.
            thread::sleep(POLL_INTERVAL);
            evidence.try_iter().for_each(drop);
            primary = watched.primary(&to)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_failover_while_obol_is_measured_is_seen_to_end() {
        struct Stub(Arc<AtomicBool>);
        impl Watched for Stub {
            fn system(&self) -> &'static str {
                "stub"
            }

            fn primary(&mut self, _: &Sender<Evidence>) -> Result<Primary, Failure> {
                let listener = TcpListener::bind("127.0.0.1:0").map_err(Failure::failed)?;
                let at = listener.local_addr().map_err(Failure::failed)?;
                let link = TcpStream::connect(at).map_err(Failure::failed)?;
                Ok(Primary { name: "mine".to_owned(), address: at.to_string(), pid: None, link })
            }

            fn follow(&mut self, _: Sender<Evidence>) -> Result<(), Failure> {
                self.0.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
        let follows = Arc::new(AtomicBool::new(false));
        let (to, evidence) = mpsc::channel();
        let (primary, ours) = begin(&mut Stub(Arc::clone(&follows)), &to, || {
            // The primary fails, and is replaced.
            report(&to, Sign::Step, "the connection has ended".to_owned());
            if follows.load(Ordering::Relaxed) {
                report(&to, Sign::End, "+switch-master".to_owned());
            }
            Ok(Some(1.0))
        })
        .expect("nothing fails");
        let seen = evidence.try_iter().collect();
        assert!(compared(&primary, "stub", seen, ours).failover_us.is_some());
    }

    #[test]
    fn a_target_is_a_redis_or_an_etcd() {
        assert!(matches!(target("redis://10.1.0.1"), Ok(Target::Redis(_))));
        assert!(matches!(target("etcd://[::1]:2379,db"), Ok(Target::Etcd(_))));
        for wrong in ["", "db:7000", "redis://", "etcd://", "etcd://a,,b", "etcd://a/b", "zookeeper://db"] {
            let said = target(wrong).expect_err(wrong);
            assert!(said.contains("redis://HOST") && said.contains("etcd://HOST"), "{said}");
        }
    }

    #[test]
    fn a_failure_is_from_the_first_evidence_to_the_end() {
        let (to, from) = mpsc::channel();
        assert_eq!(failure(&from, clock::now()).expect("none"), None, "the time is over");
        let start = clock::now();
        for (after, sign, what) in [
            (30, Sign::Step, "+sdown"),
            (10, Sign::Step, "process 7 has ended"),
            (90, Sign::End, "+switch-master"),
        ] {
            report_at(&to, start + Nanos(after * 1000), sign, what.to_owned());
        }
        report(&to, Sign::Step, "later".to_owned());
        let seen = failure(&from, Instant::NEVER).expect("seen").expect("seen");
        assert_eq!(seen.len(), 3);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let link = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (name, address) = ("mine".to_owned(), "127.0.0.1:6379".to_owned());
        let primary = Primary { name, address, pid: Some(7), link };
        let found = compared(&primary, "redis", seen, Some(900.0));
        assert_eq!(found.evidence[0], Seen { what: "process 7 has ended".to_owned(), after_us: 0.0 });
        assert_eq!(found.failover_us, Some(80.0));
        report(&to, Sign::Lost, "gone".to_owned());
        assert!(failure(&from, Instant::NEVER).is_err());
    }
}
