//! What `up` says when the cluster has started.

use crate::commands::root;
use obol_node::Deployment;
use obol_supervise::hosts::HostNames;
use obol_term::output;

/// Says what was started, and what to do with it.
pub(super) fn announce(hosts: &HostNames, deployment: &Deployment) -> std::io::Result<()> {
    let cluster = hosts.of(1);
    let Deployment { coordinators, caches, apps, profile, .. } = deployment;
    output::line(format_args!(
        "obol: cluster {cluster}, profile {}, coordinators {coordinators}, caches {caches}, apps {apps}. Ctrl-C ends it",
        profile.name
    ))?;
    let place =
        if cluster.as_str() == root::DEFAULT { String::new() } else { format!(" --cluster {cluster}") };
    output::line(format_args!(
        "In another terminal: `obol status{place}`, `obol kill app-1{place}`, `obol drill app{place}`"
    ))?;
    if let [_, second, ..] = hosts.all() {
        output::line(format_args!(
            "Its {} hosts are this one; as host 2 sees it: `obol status --cluster {second}`",
            hosts.all().len()
        ))?;
    }
    Ok(())
}
