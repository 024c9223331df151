//! What the processes of a host notice by the pulses of another one. Connections are given up only
//! after a minute here, so it is not by them.

use crate::failures::{Bed, PEER};
use crate::hosts::{PORT, Plan};
use crate::support::{kill, live, until, wait_for};
use obol_fabric::{Address, Evidence, Fabric};
use obol_fabric_ip::{GatewayCounter, Ip, counted};
use std::net::UdpSocket;

fn count(bed: &Bed, host: usize, counter: GatewayCounter) -> u64 {
    let all = counted(&bed.clusters[host - 1]).expect("its gateway runs");
    all[GatewayCounter::ALL.iter().position(|each| *each == counter).expect("it is one")]
}

#[test]
fn a_silent_host_is_noticed_by_its_pulses_and_is_reached_again_without_a_death() {
    let mut bed = Bed::with(Plan::pulsed());
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.me.flush();
    bed.until_heard();
    assert_eq!(bed.probe.deaths, []);
    kill(bed.gateway(2), "STOP");
    until(&mut bed.me, &mut bed.probe, |probe| !probe.deaths.is_empty());
    assert_eq!(bed.probe.deaths, [(peer, Evidence::Silence)]);
    assert_eq!(count(&bed, 1, GatewayCounter::PulseSilences), 1);
    let trouble = bed.me.transport::<Ip>().expect("its transport").link_status().remove(0).trouble;
    assert_eq!(trouble.as_deref(), Some("its host sends no pulse"));
    kill(bed.gateway(2), "CONT");
    bed.reach();
    assert_eq!(bed.probe.deaths.len(), 1);
}

#[test]
fn a_death_on_another_host_is_reported_once_by_pulses_and_connections_together() {
    let mut bed = Bed::with(Plan::pulsed());
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.me.flush();
    bed.until_heard();
    bed.kill_peer();
    until(&mut bed.me, &mut bed.probe, |probe| probe.deaths.len() >= 2);
    // Every pulse of the next periods repeats it.
    let neighbour = bed.neighbour();
    until(&mut bed.me, &mut bed.probe, |probe| !probe.datagrams.is_empty());
    assert_eq!(bed.probe.deaths, [(peer, Evidence::Suspicion), (peer, Evidence::Proof)]);
    drop(neighbour);
}

#[test]
fn datagrams_of_strangers_are_no_pulses() {
    let mut bed = Bed::with(Plan::pulsed());
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.until_heard();
    let stranger = UdpSocket::bind((bed.address(2), 0)).expect("bound");
    let before = count(&bed, 1, GatewayCounter::PulsesRefused);
    let mut forged = b"oblp".to_vec();
    forged.extend([2, 0, 0, 0]);
    forged.extend([7; 66]);
    let sent: [&[u8]; 4] = [b"", b"hello", &forged, &[0; 1400]];
    for bytes in sent {
        stranger.send_to(bytes, (bed.address(1), PORT)).expect("sent");
    }
    wait_for(|| count(&bed, 1, GatewayCounter::PulsesRefused) >= before + 4);
    bed.reach();
    assert_eq!(bed.probe.deaths, [], "no process is suspected");
    assert_eq!(peer.region, Address::region(PEER).region);
}
