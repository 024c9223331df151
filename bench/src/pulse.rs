//! Pulses between three hosts that are loopback addresses of this one: how soon a death and a silence
//! are noticed on another host, what pulses cost, and how often a host is suspected by mistake.

mod mistakes;

use super::{Figure, ip_failover, report};
use clap::Args;
use obol_chaos::drills::healthy;
use obol_chaos::drills::studies::tune_network::EVERY_MIN;
use obol_config::duration;
use obol_fabric::Nanos;
use obol_fabric::host::sched::pin_to_core;
use obol_fabric::host::{Cluster, clock};
use obol_fabric_ip::floor::{self, Echoes, Rhythm};
use obol_fabric_ip::{self as ip, GatewayCounter};
use obol_node::Site;
use obol_node::network::Fabric;
use obol_observe::figures::total;
use obol_observe::pulse::samples;
use obol_observe::stats::Distribution;
use obol_profiles::Profile;
use obol_supervise::running::Running;
use obol_term::output::Failure;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

const HOSTS: u8 = 3;
/// What is used if no profile is named: `lan`, with these.
const PERIOD: Nanos = Nanos::from_millis(1);
const TIMEOUT: Nanos = Nanos::from_millis(20);
/// Real-time, where it is allowed.
const PRIORITY: u32 = 20;
/// The period for the costs, and a timeout that does not interfere.
const COST_PERIOD: Nanos = Nanos::from_micros(100);
const COST_TIMEOUT: Nanos = Nanos::from_millis(500);
/// How long costs are measured, after as long a rest.
const COST_TIME: Duration = Duration::from_secs(10);
/// Frames that are sealed and opened.
const SEALS: u32 = 20_000;
/// Echoes for the floor.
const ECHOES: u32 = 10_000;
/// A silence that is not noticed by then is a failure.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at a counter, and between two silences.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
const REST: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct BenchPulse {
    /// Deaths, and half as many silences
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=1000))]
    count: u32,
    /// The profile, with a table `[pulse]`: a name that `obol profile list` knows, or a file such as `obol tune
    /// --network` writes; lan with a period of 1 ms and a timeout of 20 ms if none is named
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Measure false suspicions instead, beside this number of threads that never sleep
    #[arg(long, value_name = "N", requires = "span", conflicts_with = "count", value_parser = clap::value_parser!(u32).range(0..=64))]
    hogs: Option<u32>,
    /// How long suspicions are counted
    #[arg(long = "for", value_name = "TIME", requires = "hogs", value_parser = duration::argument)]
    span: Option<Duration>,
    /// How long the network is measured before, to derive the timeout; without --profile only
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "hogs", conflicts_with = "profile", value_parser = duration::argument)]
    measure: Duration,
    /// The timeout is derived for at most one false suspicion in this time: such as 12h, 30d, 1y
    #[arg(long, value_name = "TIME", default_value = "1d", requires = "hogs", conflicts_with = "profile", value_parser = duration::at_least(EVERY_MIN))]
    every: Duration,
    /// Print one JSON object for scripts
    #[arg(long)]
    json: bool,
}

fn profile(options: &BenchPulse) -> Result<Profile, Failure> {
    let mut profile = Profile::load(options.profile.as_deref().unwrap_or("lan")).map_err(Failure::refused)?;
    if options.profile.is_none() {
        let pulse = &mut profile.pulse;
        (pulse.enabled, pulse.period, pulse.timeout) = (true, PERIOD, TIMEOUT);
        (pulse.paths, pulse.priority) = (1, Some(PRIORITY));
    }
    if !profile.pulse.enabled {
        return Err(Failure::Refused(format!("profile {} has no [pulse]", profile.name)));
    }
    Ok(profile)
}

/// A cluster, and its part on each host.
struct Hosts {
    running: Running,
    clusters: Vec<Cluster>,
}

impl Hosts {
    fn start(root: &Path, profile: &Profile) -> Result<Self, Failure> {
        let (running, names) = ip_failover::start_hosts(root, "pulse", profile, HOSTS)?;
        let open = |name| Site::open(root, name).map(|site| site.cluster).map_err(Failure::failed);
        let clusters = names.all().iter().map(|name| open(*name)).collect::<Result<_, _>>()?;
        Ok(Self { running, clusters })
    }

    fn cluster(&self, host: u8) -> Result<&Cluster, Failure> {
        let cluster = self.clusters.get(usize::from(host) - 1);
        cluster.ok_or_else(|| Failure::Failed(format!("there is no host {host}")))
    }

    fn silences(&self, host: u8) -> Result<u64, Failure> {
        self.counted(host, GatewayCounter::PulseSilences)
    }

    fn counted(&self, host: u8, counter: GatewayCounter) -> Result<u64, Failure> {
        let at = GatewayCounter::ALL.iter().position(|each| *each == counter);
        let counted = ip::counted(self.cluster(host)?);
        let value = counted.as_ref().zip(at).and_then(|(all, at)| all.get(at)).copied();
        value.ok_or_else(|| Failure::Failed(format!("the gateway of host {host} does not run")))
    }

    /// From the stop of the last host's gateway until the first one's suspects that host.
    fn silence(&self) -> Result<Nanos, Failure> {
        healthy(&mut self.running.observer()?).map_err(Failure::failed)?;
        let gateway = self.cluster(HOSTS)?.gateway();
        let gateway = gateway.ok_or_else(|| Failure::Failed(format!("host {HOSTS} has no gateway")))?;
        let held = gateway.process.hold().map_err(Failure::failed)?;
        let before = self.silences(1)?;
        let until = Instant::now() + NOTICE_TIMEOUT;
        let stopped = clock::now();
        held.freeze().map_err(Failure::failed)?;
        let noticed = loop {
            if self.silences(1)? > before {
                break Ok(clock::now().since(stopped));
            }
            if Instant::now() > until {
                break Err(Failure::Failed(format!("no silence is noticed within {NOTICE_TIMEOUT:?}")));
            }
            thread::sleep(POLL_INTERVAL);
        };
        held.thaw().map_err(Failure::failed)?;
        thread::sleep(REST);
        noticed
    }

    /// What the first host has reported in the last seconds.
    fn costs(&self, seconds: usize) -> Result<Costs, Failure> {
        let all = samples(self.cluster(1)?.dir()).map_err(Failure::failed)?;
        let last = all.get(all.len().saturating_sub(seconds + 1)..).unwrap_or_default();
        let [first, .., end] = last else {
            return Err(Failure::Failed("the gateway of host 1 has reported no pulses".to_owned()));
        };
        let blocks =
            last.iter().skip(1).flat_map(|report| &report.peers).filter_map(|peer| peer.block.as_ref());
        let frames = total(blocks.flat_map(|block| &block.paths).map(|path| path.frames));
        let span = end.at.saturating_sub(first.at).max(1) as f64;
        Ok(Costs {
            busy_percent: 100.0 * end.busy.saturating_sub(first.busy) as f64 / span,
            waits_per_period: end.waits.saturating_sub(first.waits) as f64 * end.period as f64 / span,
            frames_per_period: frames as f64 * end.period as f64 / span,
        })
    }
}

/// What the pulses of a host have cost.
struct Costs {
    busy_percent: f64,
    waits_per_period: f64,
    frames_per_period: f64,
}

/// The median of echoes over TCP between two cores of this host, as between two hosts: within a core it
/// takes a third of the time. In microseconds.
fn echo(hosts: &Hosts) -> Result<f64, Failure> {
    let site = hosts.running.site()?;
    let network = site.deployment.network.as_ref();
    let Some((Fabric::Ip { keys }, address)) = network.map(|network| (&network.fabric, network.address))
    else {
        return Err(Failure::Failed("the cluster of the benchmark is not over IP".to_owned()));
    };
    let cores = thread::available_parallelism().map_or(1, usize::from) as u32;
    // On a thread of its own, because it is bound to a core.
    let measure = || {
        pin_to_core(0).map_err(Failure::failed)?;
        let mut echoes = Echoes::start(keys, address, cores - 1).map_err(Failure::failed)?;
        echoes.plain(ECHOES).map_err(Failure::failed)
    };
    let measured = thread::scope(|scope| scope.spawn(measure).join());
    let measured =
        measured.unwrap_or_else(|_| Err(Failure::Failed("the measuring thread panicked".to_owned())));
    let mut times = Distribution::new();
    measured?.into_iter().for_each(|time| times.add(time));
    Ok(times.quantile(0.5).as_micros_f64())
}

fn costs(root: &Path, profile: &Profile) -> Result<Vec<Figure>, Failure> {
    let mut profile = profile.clone();
    (profile.pulse.period, profile.pulse.timeout) = (COST_PERIOD, COST_TIMEOUT);
    let rhythm = Rhythm {
        at: Ipv4Addr::LOCALHOST.into(),
        hosts: usize::from(HOSTS),
        period: COST_PERIOD,
        rounds: (COST_TIME.as_nanos() / u128::from(COST_PERIOD.0)) as u32,
        priority: profile.pulse.priority,
    };
    let percent = |share: f64| 100.0 * share;
    let timer = rhythm.timer().map(percent).map_err(Failure::failed)?;
    let bare = rhythm.datagrams().map(percent).map_err(Failure::failed)?;
    let [seal, open] = floor::seals(SEALS)
        .ok_or_else(|| Failure::Failed("a frame cannot be sealed and opened again".to_owned()))?;
    let hosts = Hosts::start(root, &profile)?;
    thread::sleep(COST_TIME + COST_TIME);
    let costs = hosts.costs(COST_TIME.as_secs() as usize)?;
    let arrived = 100.0 * costs.frames_per_period / f64::from(HOSTS - 1);
    let busy = costs.busy_percent;
    Ok(vec![
        Figure::at_most("pulses every 100 us, 3 hosts: time of a core", "%", busy, 5.0).beside(timer),
        Figure::against("pulses every 100 us, against bare datagrams", "%", busy, bare, 1.5),
        Figure::at_most("pulses every 100 us: waits of the thread a period", "", costs.waits_per_period, 1.1),
        Figure::at_least("pulses every 100 us that arrive, of computed", "%", arrived, 95.0),
        Figure::at_most("a pulse is sealed", "us", seal.as_micros_f64(), 1.0),
        Figure::at_most("a pulse is opened", "us", open.as_micros_f64(), 1.0),
    ])
}

pub(super) fn run(root: &Path, options: &BenchPulse) -> Result<ExitCode, Failure> {
    let profile = profile(options)?;
    if let Some((hogs, span)) = options.hogs.zip(options.span) {
        let figures = mistakes::run(root, &profile, options, (hogs, span))?;
        return report("pulse", "lan with pulses", figures, options.json);
    }
    let mut figures = Vec::new();
    {
        let hosts = Hosts::start(root, &profile)?;
        let echo = echo(&hosts)?;
        let mut silences = Distribution::new();
        for _ in 0..options.count / 2 {
            silences.add(hosts.silence()?);
        }
        let (silent, timeout) =
            (silences.quantile(0.5).as_micros_f64(), profile.pulse.timeout.as_micros_f64());
        drop(hosts);
        let notices = ip_failover::notices(root, &profile, options.count)?;
        let noticed = notices.quantile(0.5).as_micros_f64();
        figures.push(Figure::against(
            "app of another host dies: notice, against echo",
            "us",
            noticed,
            echo,
            3.0,
        ));
        figures.push(Figure::against("host falls silent, against the timeout", "us", silent, timeout, 1.2));
    }
    figures.extend(costs(root, &profile)?);
    report("pulse", "lan with pulses", figures, options.json)
}
