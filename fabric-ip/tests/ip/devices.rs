//! Gateways of hosts whose members reach each other by RDMA devices: what is left for them.

use crate::failures;
use crate::hosts::{ALL, Plan};
use crate::strangers::{
    Bed, CAS, DATA, DENIED, FAILED, PEER, PROPOSER, READ, WELCOME, WRITE, next, operation, send,
};
use crate::support::{HANG, Probe, Root, kill, live, name, until, wait_for};
use obol_fabric::{Address, Endpoint, Fabric, Group, Owner};
use obol_fabric_ip::{GatewayCounter, Ip, counted};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Interval of a cue until it arrives.
const REPEAT_EVERY: Duration = Duration::from_millis(10);

/// How the gateway answers a coordinator's WRITE of a value, and its CAS of the slot beside it.
fn decides(bed: &Bed) -> [u8; 2] {
    let mut stream = bed.greet(&bed.keys(&bed.authority, &ALL), 1, PROPOSER).expect("connected");
    assert_eq!(next(&mut stream).expect("a reply")[0], WELCOME);
    let layout = *bed.cluster.layout();
    let word = 77u64.to_le_bytes();
    let answers = [
        operation(WRITE, PEER, layout.value(0, 1), &word),
        operation(CAS, PEER, layout.slot(0), &[[0; 8], word].concat()),
    ]
    .map(|message| {
        send(&mut stream, &message).expect("sent");
        let answer = next(&mut stream).expect("a reply");
        if answer[0] == FAILED {
            assert_eq!(answer[1], DENIED);
        }
        answer[0]
    });
    for offset in [layout.value(0, 1), layout.slot(0)] {
        send(&mut stream, &operation(READ, PEER, offset, &8u32.to_le_bytes())).expect("sent");
        let found = if answers[0] == FAILED { [0; 8] } else { word };
        assert_eq!(next(&mut stream).expect("a reply"), [&[DATA][..], &found].concat());
    }
    answers
}

#[test]
fn beside_devices_a_gateway_reads_and_changes_nothing() {
    let plain = Bed::new();
    assert!(decides(&plain).iter().all(|answer| *answer != FAILED), "without devices it does both");
    let beside = Bed::with(Plan::new().beside_devices());
    assert_eq!(decides(&beside), [FAILED; 2]);
    assert_eq!(beside.counted(GatewayCounter::Denied), 2);
    beside.serves();
}

#[test]
fn beside_devices_a_gateway_passes_a_cue_on_and_no_datagram_to_members() {
    let plan = Plan::new().beside_devices();
    let authority = crate::keys::Authority::new();
    let roots = [Root::new(), Root::new()];
    let clusters = [1, 2].map(|host| plan.host(&authority, &roots[usize::from(host) - 1], host));
    let _gateways = [0, 1].map(|n| plan.gateway(&clusters[n], &roots[n]));
    let open = |n: usize, text: &str, groups: u32| -> Endpoint {
        let owner = Owner { kind: 9, name: name(text), region: None, groups };
        plan.open(&clusters[n], &roots[n], owner)
    };
    let (seen, has_seen) = mpsc::channel();
    let (ask, asked) = mpsc::channel();
    // A thread has one endpoint.
    let [of_agent, of_member] = thread::scope(|scope| {
        let agent = scope.spawn(move || {
            let (mut me, mut probe) = (open(1, "agent", Group::Drills.bit()), Probe::default());
            until(&mut me, &mut probe, |probe| probe.datagrams.iter().any(|(_, bytes)| bytes == b"cue"));
            seen.send(()).expect("awaited");
            probe.datagrams
        });
        let member = scope.spawn(move || {
            let (mut me, mut probe) = (open(1, "member", Group::Everyone.bit()), Probe::default());
            asked.recv().expect("the agent has the cue");
            me.poll_once(&mut probe);
            probe.datagrams
        });
        let member_at = live(&clusters[1], "member");
        let agent_at = live(&clusters[1], "agent");
        let (mut me, mut probe) = (open(0, "runner", 0), Probe::default());
        let start = Instant::now();
        while has_seen.recv_timeout(REPEAT_EVERY).is_err() {
            assert!(
                start.elapsed() < HANG,
                "{:?}",
                me.transport::<Ip>().expect("its transport").link_status()
            );
            // In this order on one connection: what is for members was handled before the cue.
            me.multicast(Group::Everyone, b"to members");
            me.send(member_at, b"to a member");
            me.send(agent_at, b"to the agent");
            me.multicast(Group::Drills, b"cue");
            me.flush();
            me.poll_once(&mut probe);
        }
        ask.send(()).expect("awaited");
        [agent, member].map(|thread| thread.join().expect("it ends"))
    });
    let texts =
        |all: &[(Address, Vec<u8>)]| -> Vec<Vec<u8>> { all.iter().map(|(_, one)| one.clone()).collect() };
    assert_eq!(texts(&of_member), Vec::<Vec<u8>>::new());
    let of_agent = texts(&of_agent);
    assert!(of_agent.iter().all(|text| text != b"to members"));
    assert!(of_agent.iter().any(|text| text == b"to the agent"), "{of_agent:?}");
}

#[test]
fn beside_devices_a_host_whose_pulses_stay_away_is_reported_and_nobody_suspected() {
    let mut bed = failures::Bed::with(Plan::pulsed().beside_devices());
    let peer = live(&bed.clusters[1], "peer");
    bed.me.watch(peer);
    bed.me.flush();
    bed.until_heard();
    let at =
        GatewayCounter::ALL.iter().position(|each| *each == GatewayCounter::PulseSilences).expect("listed");
    let silences = || counted(&bed.clusters[0]).expect("its gateway runs")[at];
    // A loaded host may have counted some before.
    let before = silences();
    kill(bed.gateway(2), "STOP");
    // It is counted after the members are informed.
    wait_for(|| silences() > before);
    bed.me.poll_once(&mut bed.probe);
    assert_eq!(bed.probe.deaths, []);
    assert_eq!(bed.me.transport::<Ip>().expect("its transport").link_status().remove(0).trouble, None);
    kill(bed.gateway(2), "CONT");
}
