//! Redis with Sentinel: Sentinel's events, and the master's process.

use crate::resp::{Connection, Reply};
use crate::{Evidence, Primary, Sign, Watched, failed, host_port, report, spawn, wait_for_end};
use obol_fabric::host::is_here;
use obol_fabric::host::{Held, Process};
use obol_term::output::Failure;
use std::sync::mpsc::Sender;

/// The port of Sentinel, and the name of its master, if the address has none.
const PORT: u16 = 26379;
const MASTER: &str = "mymaster";
/// The password, as `redis-cli` takes it.
const PASSWORD: &str = "REDISCLI_AUTH";
/// Sentinel's words that are steps of a failover, and the one that ends it.
const STEPS: [&str; 6] = ["+sdown", "+odown", "+try-failover", "+elected-leader", "+promoted-slave", DONE];
const DONE: &str = "+switch-master";

/// Where a Sentinel is, and whose master is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentinel {
    host: String,
    port: u16,
    master: String,
}

/// Reads what follows `redis://`.
pub(crate) fn parse(rest: &str) -> Option<Sentinel> {
    let (at, master) = rest.split_once('/').unwrap_or((rest, MASTER));
    let (host, port) = host_port(at, PORT)?;
    let is_name = !master.is_empty() && master.chars().all(|c| c.is_ascii_graphic() && c != '@');
    is_name.then(|| Sentinel { host, port, master: master.to_owned() })
}

/// The process of a server on this host, if it is there.
fn held(address: &str, info: &str) -> Option<(u32, Held)> {
    let here = address.parse().is_ok_and(is_here);
    let pid = info.lines().find_map(|line| line.trim().strip_prefix("process_id:")?.parse().ok());
    let pid: u32 = pid.filter(|_| here)?;
    // The id may be one of another container.
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let is_server = ["redis", "valkey"].iter().any(|server| name.contains(server));
    let held = Process::of(pid).ok().filter(|_| is_server)?.hold().ok()?;
    Some((pid, held))
}

/// A host with a port: addresses of IPv6 have colons of their own.
fn authority(host: &str, port: impl std::fmt::Display) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn password() -> Option<String> {
    std::env::var(PASSWORD).ok()
}

impl Sentinel {
    fn open(&self) -> Result<Connection, Failure> {
        let at = format!("Sentinel at {}", authority(&self.host, self.port));
        Connection::open((&self.host, self.port), password().as_deref()).map_err(failed(&at))
    }
}

impl Watched for Sentinel {
    fn system(&self) -> &'static str {
        "redis"
    }

    /// The master of now.
    fn primary(&mut self, to: &Sender<Evidence>) -> Result<Primary, Failure> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.master];
        let reply = self.open()?.ask(&ask).map_err(failed("Sentinel refuses"))?;
        let [host, port] = reply.texts()[..] else {
            return Err(Failure::Refused(format!("Sentinel does not know a master {}", self.master)));
        };
        let address = authority(host, port);
        let number = port.parse().map_err(|_| Failure::Failed(format!("Sentinel says {address}")))?;
        let mut link = Connection::open((host, number), password().as_deref()).map_err(failed(&address))?;
        let info = link.ask(&["INFO", "server"]).map_err(failed(&address))?;
        let held = held(host, info.text().unwrap_or_default());
        let pid = held.as_ref().map(|(pid, _)| *pid);
        let closer = link.closer().map_err(failed(&address))?;
        let ends = to.clone();
        let of = address.clone();
        spawn("shadow-link", move || {
            // It sends nothing by itself.
            while link.listen().is_ok() {}
            report(&ends, Sign::Step, format!("the connection to {of} has ended"));
        })?;
        wait_for_end(held, to)?;
        Ok(Primary { name: self.master.clone(), address, pid, link: closer })
    }

    /// Passes Sentinel's steps on.
    fn follow(&mut self, to: Sender<Evidence>) -> Result<(), Failure> {
        let mut events = self.open()?;
        events.ask(&["PSUBSCRIBE", "*"]).map_err(failed("Sentinel refuses"))?;
        let master = self.master.clone();
        spawn("shadow-events", move || {
            loop {
                match events.listen() {
                    Ok(reply) => {
                        if let Some((sign, what)) = step(&reply, &master) {
                            report(&to, sign, what);
                        }
                    }
                    Err(error) => {
                        let what = format!("the connection to Sentinel has ended: {error}");
                        return report(&to, Sign::Lost, what);
                    }
                }
            }
        })
    }
}

/// A step of a failover of this master, by an event of Sentinel: `+sdown master mymaster 127.0.0.1 6379`,
/// or `+switch-master mymaster 127.0.0.1 6379 127.0.0.1 6380`.
fn step(reply: &Reply, master: &str) -> Option<(Sign, String)> {
    let texts = reply.texts();
    let ["pmessage", _, channel, text] = texts[..] else { return None };
    let mut words = text.split(' ');
    let is_ours = match channel {
        DONE => words.next() == Some(master),
        // A step of a replica names its master at the end.
        _ => text.starts_with(&format!("master {master} ")) || text.contains(&format!("@ {master} ")),
    };
    let is_failure = channel != "+sdown" || text.starts_with("master ");
    let sign = if channel == DONE { Sign::End } else { Sign::Step };
    let is_step = STEPS.contains(&channel) && is_ours && is_failure;
    is_step.then(|| (sign, format!("Sentinel: {channel} {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_may_have_a_port_and_a_master() {
        let of = |text| parse(text).map(|s| (s.host, s.port, s.master));
        let expected = |host: &str, port, master: &str| Some((host.to_owned(), port, master.to_owned()));
        assert_eq!(of("10.1.0.1"), expected("10.1.0.1", PORT, MASTER));
        assert_eq!(of("db:7000/cache"), expected("db", 7000, "cache"));
        assert_eq!(of("[::1]:7000/cache"), expected("::1", 7000, "cache"));
        assert_eq!(
            [authority("::1", 1), authority("db", PORT)],
            ["[::1]:1".to_owned(), format!("db:{PORT}")]
        );
        for wrong in ["", "db:x", "db/", "a b", "u:p@db"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn steps_of_this_master_are_evidence_and_no_others() {
        let event = |channel: &str, text: &str| {
            let all = ["pmessage", "*", channel, text];
            Reply::Items(all.map(|text| Reply::Text(text.to_owned())).to_vec())
        };
        let is_step = |channel, text| step(&event(channel, text), "mine").is_some();
        assert_eq!(
            step(&event(DONE, "mine 127.0.0.1 6379 127.0.0.1 6380"), "mine").map(|(sign, _)| sign),
            Some(Sign::End)
        );
        assert!(is_step("+sdown", "master mine 127.0.0.1 6379"));
        assert!(is_step("+odown", "master mine 127.0.0.1 6379 #quorum 1/1"));
        assert!(is_step("+promoted-slave", "slave 127.0.0.1:6380 127.0.0.1 6380 @ mine 127.0.0.1 6379"));
        assert!(is_step(DONE, "mine 127.0.0.1 6379 127.0.0.1 6380"));
        assert!(!is_step("+sdown", "slave 127.0.0.1:6380 127.0.0.1 6380 @ mine 127.0.0.1 6379"));
        assert!(!is_step("+sdown", "master other 127.0.0.1 6379"));
        assert!(!is_step(DONE, "other 127.0.0.1 6379 127.0.0.1 6380"));
        assert!(!is_step("+reboot", "master mine 127.0.0.1 6379"));
    }
}
