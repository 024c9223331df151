//! A host is crashed by its kernel's key `sysrq`. Nothing undoes that but an operator.

use super::Key;
use super::fault::{Armed, Arming, Effect, Fault, Planning, Scope, Simulated};
use super::host_network;
use super::order::Injection;
use obol_config::{Problems, Section};
use obol_fabric::Nanos;
use obol_node::Deployment;
use obol_observe::names::hostname;
use serde_json::json;
use std::convert::Infallible;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;

/// The name of its orders.
const ORDER: &str = "host-crash";
/// Where the kernel takes a key from those who may press it.
const SYSRQ: &str = "/proc/sysrq-trigger";
/// How long after the cue a host ends: its fault agent reports the cue meanwhile.
const LEAD: Nanos = Nanos::from_millis(200);
/// The ways, with the key of each: none of them writes anything to a disk before.
const WAYS: [(&str, char); 3] = [("reboot", 'b'), ("power-off", 'o'), ("panic", 'c')];

/// The fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCrash {
    pub(crate) way: &'static str,
}

impl HostCrash {
    pub(crate) const REBOOT: Self = Self { way: WAYS[0].0 };
}

impl Fault for HostCrash {
    fn name(&self) -> &'static str {
        ORDER
    }

    fn describe(&self) -> String {
        format!("{ORDER} ({}), which an operator undoes", self.way)
    }

    fn scope(&self) -> Scope {
        Scope::Network
    }

    fn effect(&self) -> Effect {
        Effect::Ends
    }

    fn keys(&self) -> Vec<Key> {
        let schema = json!({ "enum": WAYS.map(|(name, _)| name) });
        vec![Key { name: "way", schema, doc: "what its kernel does, by default reboot" }]
    }

    fn parse(&self, section: &mut Section<'_, '_>, problems: &mut Problems) -> Arc<dyn Fault> {
        let ways = WAYS.map(|(name, _)| (name, name));
        let way = section.choice("way", &ways, problems).map_or(Self::REBOOT.way, |at| at.value);
        Arc::new(Self { way })
    }

    fn refusal(&self, planning: Planning<'_>) -> Option<&'static str> {
        (!planning.simulated).then(|| host_network::refusal(planning.deployment)).flatten()
    }

    fn spares(&self, deployment: &Deployment, host: u8) -> Option<String> {
        let may = deployment.network.as_ref().is_some_and(|network| network.may_crash.contains(&host));
        (!may).then(|| {
            format!("host {host} is not crashed by drills: its file of hosts has no may_crash = true for it")
        })
    }

    fn simulated(&self) -> Option<Simulated> {
        Some(Simulated::Crash)
    }

    fn orders(&self) -> &'static [&'static str] {
        &[ORDER]
    }

    fn order(&self, _island: u8) -> Injection {
        Injection::new(ORDER).with("way", &self.way)
    }

    fn arm(&self, order: &Injection, arming: Arming<'_>) -> Result<Box<dyn Armed>, String> {
        let way: String = order.get("way")?;
        let key = WAYS.iter().find(|(name, _)| *name == way).ok_or("unknown way to crash a host")?.1;
        if let Some(why) = self.spares(arming.deployment, arming.deployment.own_host()) {
            return Err(why);
        }
        let name = hostname();
        if !arming.allowed.crash.contains(&name) {
            return Err(format!("to crash this host, give its name: `obol drill run .. --crash {name}`"));
        }
        let trigger = OpenOptions::new().write(true).open(SYSRQ);
        let trigger = trigger.map_err(|error| format!("{SYSRQ}: {error}; crashing a host needs root"))?;
        Ok(Box::new(ArmedCrash { trigger: Some(trigger), key, lead: LEAD, cancel: None }))
    }
}

struct ArmedCrash {
    trigger: Option<File>,
    key: char,
    lead: Nanos,
    /// Without it the key is not pressed any more.
    cancel: Option<Sender<Infallible>>,
}

impl Armed for ArmedCrash {
    fn inject(&mut self) -> io::Result<()> {
        let Some(mut trigger) = self.trigger.take() else { return Ok(()) };
        let (key, lead) = (self.key, self.lead.to_std());
        let (cancel, cancelled) = mpsc::channel();
        thread::Builder::new().name("crash".to_owned()).spawn(move || {
            if cancelled.recv_timeout(lead) == Err(RecvTimeoutError::Disconnected) {
                return tracing::warn!(target: "drill", "this host is not crashed: the drill has ended before");
            }
            if let Err(error) = write!(trigger, "{key}") {
                tracing::error!(target: "drill", "this host is not crashed: {SYSRQ}: {error}");
            }
        })?;
        self.cancel = Some(cancel);
        Ok(())
    }

    fn lead(&self) -> Nanos {
        self.lead
    }

    fn undo(&mut self) -> Result<(), String> {
        self.cancel = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    /// An armed crash, and all that it presses until it ends.
    fn armed(key: char, lead: Nanos) -> (ArmedCrash, impl FnOnce() -> String) {
        let (mut pressed, trigger) = io::pipe().expect("made");
        let trigger = Some(File::from(OwnedFd::from(trigger)));
        let until_end = move || {
            let mut all = String::new();
            pressed.read_to_string(&mut all).expect("read");
            all
        };
        (ArmedCrash { trigger, key, lead, cancel: None }, until_end)
    }

    #[test]
    fn a_host_is_crashed_only_after_its_cue() {
        for (_, key) in WAYS {
            let (mut crash, pressed) = armed(key, LEAD);
            crash.inject().expect("it is injected");
            assert_eq!(pressed(), key.to_string());
            assert!(crash.is_undone(true) && !crash.is_undone(false) && crash.lead() == LEAD);
        }
    }

    #[test]
    fn a_host_is_spared_if_the_drill_ends_in_its_lead() {
        // The thread would press the key at its end.
        let lead = Nanos::from_secs(5);
        let (mut crash, pressed) = armed('b', lead);
        crash.inject().expect("it is injected");
        crash.undo().expect("undone");
        assert_eq!(pressed(), "");
        let (mut crash, pressed) = armed('b', lead);
        crash.inject().expect("it is injected");
        drop(crash);
        assert_eq!(pressed(), "");
    }

    #[test]
    fn a_host_is_spared_unless_its_file_of_hosts_allows_it() {
        let network = obol_node::Network {
            may_crash: vec![2],
            ..obol_node::Network::local(7, std::net::IpAddr::from([10, 0, 0, 1]), 7471, 3)
        };
        let profile = obol_profiles::Profile::builtin("lan").expect("built in");
        let deployment = Deployment::new(3, 3, 0, profile).expect("it fits").over(network);
        assert_eq!(HostCrash::REBOOT.spares(&deployment, 2), None);
        let why = HostCrash::REBOOT.spares(&deployment, 3).expect("spared");
        assert!(why.contains("may_crash"), "{why}");
    }
}
