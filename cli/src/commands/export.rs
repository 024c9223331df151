//! `obol export`: metrics over HTTP, and the alert rules and the dashboard on them.

use clap::{Args, Subcommand, ValueEnum};
use obol_config::duration;
use obol_export::{Collector, Options, ServeError, dashboard, rules, serve};
use obol_fabric::Name;
use obol_node::Site;
use obol_profiles::Profile;
use obol_term::output::{self, Failure};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The port of exporters.
const PORT: u16 = 17471;

/// Export metrics over HTTP, for Prometheus and other monitoring systems
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Pages:\n  /metrics  the newest poll, as OpenMetrics or in the format 0.0.4 of Prometheus, as the client accepts\n  \
        /healthz  200 while the exporter polls, else 503\n  /readyz   200 while the cluster can be read, else 503 with the reason\n\
        \nThe cluster is polled by one-sided READs at a steady rate; a scrape gets the newest poll and causes none. The \
        exporter may be started before the cluster, and stays when that ends. docs/metrics.md explains each metric.\n\
        \nExit codes: 0 ended by SIGINT, SIGTERM or SIGHUP, 1 the system refuses something, 2 cannot listen.\n\
        \nTry: obol export & curl -s localhost:17471/metrics\n     obol export rules --profile laptop > obol.rules.yml\n     \
        obol export dashboard --profile laptop > obol.json"
)]
pub(crate) struct Export {
    /// What to print instead
    #[command(subcommand)]
    what: Option<ExportCommand>,
    /// Where to listen; there is no encryption and no authentication, so not beyond the monitoring network
    #[arg(long, value_name = "IP[:PORT]", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT), value_parser = listen)]
    listen: SocketAddr,
    /// Interval of polls, from 100ms to 10s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = every)]
    every: Duration,
    /// Whose processes: those of this host if each host has an exporter, or those of the whole
    /// cluster
    #[arg(long, value_name = "SCOPE", default_value = "host")]
    scope: Scope,
    /// Print the address as one JSON object, `{"listen": "IP:PORT"}`, on standard output (asked for by
    /// the benchmark)
    #[arg(long, hide = true)]
    announce: bool,
}

#[derive(Debug, Subcommand)]
enum ExportCommand {
    /// Print alert rules for Prometheus, with the thresholds of a profile
    Rules(Rules),
    /// Print a dashboard for Grafana, to import as a file
    Dashboard(From),
}

#[derive(Debug, Args)]
struct From {
    /// The profile: a name that `obol profile list` knows, or a file [default: that of the running
    /// cluster]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
}

#[derive(Debug, Args)]
struct Rules {
    #[command(flatten)]
    from: From,
    /// Where docs/alerts.md is, for the links of alerts
    #[arg(long, value_name = "URL", default_value = rules::RUNBOOKS)]
    runbooks: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scope {
    Host,
    Cluster,
}

/// An address with or without a port.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    address.or_else(|_| text.parse()).map_err(|_| {
        format!(
            "an address looks like 127.0.0.1, 0.0.0.0:{PORT}, or [::]:{PORT} for all addresses of this host"
        )
    })
}

fn every(text: &str) -> Result<Duration, String> {
    let every = duration::argument(text)?;
    if (Duration::from_millis(100)..=Duration::from_secs(10)).contains(&every) {
        Ok(every)
    } else {
        Err("the interval is from 100ms to 10s".to_owned())
    }
}

fn profile(root: &Path, cluster: Name, from: &From) -> Result<Profile, Failure> {
    match &from.profile {
        Some(profile) => Profile::load(profile).map_err(Failure::refused),
        None => match Site::open(root, cluster) {
            Ok(site) => Ok(site.deployment.profile),
            Err(error) => Err(Failure::Refused(format!(
                "{error}\nThe thresholds are those of a profile: start the cluster, or name one with --profile"
            ))),
        },
    }
}

pub(crate) fn run(root: &Path, cluster: Name, args: &Export) -> Result<ExitCode, Failure> {
    match &args.what {
        Some(ExportCommand::Rules(Rules { from, runbooks })) => {
            output::text(&rules::yaml(&profile(root, cluster, from)?, runbooks))?;
        }
        Some(ExportCommand::Dashboard(from)) => {
            let dashboard = dashboard::json(&profile(root, cluster, from)?);
            output::text(&format!("{dashboard:#}\n"))?;
        }
        None => export(root, cluster, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn export(root: &Path, cluster: Name, args: &Export) -> Result<(), Failure> {
    let scope = match args.scope {
        Scope::Host => obol_export::Scope::Host,
        Scope::Cluster => obol_export::Scope::Cluster,
    };
    let collector = Collector::new(root.to_owned(), cluster, scope, args.every);
    let options = Options { listen: args.listen, every: args.every };
    let served = serve(collector, &options, |address| {
        if args.announce {
            // As below.
            let _ = output::json(&serde_json::json!({ "listen": address }));
        }
        // Whether anybody reads this does not matter to it.
        let _ = output::remark(format_args!(
            "obol: metrics of cluster {cluster} are at http://{address}/metrics"
        ));
    });
    served.map_err(|error| match error {
        ServeError::System { .. } => Failure::failed(error),
        _ => Failure::refused(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_port() {
        assert_eq!(listen("127.0.0.1"), Ok(SocketAddr::from(([127, 0, 0, 1], PORT))));
        assert_eq!(listen("0.0.0.0:80"), Ok(SocketAddr::from(([0, 0, 0, 0], 80))));
        assert_eq!(listen("[::1]:0").map(|at| at.port()), Ok(0));
        for loopback in ["::1", "[::1]"] {
            assert_eq!(listen(loopback), Ok(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, PORT))));
        }
        assert!(listen("localhost").is_err());
    }

    #[test]
    fn the_interval_is_bounded() {
        assert!(every("100ms").is_ok() && every("10s").is_ok());
        assert!(every("99ms").is_err() && every("11s").is_err() && every("1").is_err());
    }
}
