//! What crosses the hosts of a cluster over RDMA by their gateways. It needs no device: two hosts are
//! loopback addresses of this machine, and their network is trusted.

use obol_fabric::{Address, Endpoint, Event, Fabric, Group, Instant, Machine, Name};
use obol_fabric_ip::Ip;
use obol_fabric_ip::{Outlets, Question};
use obol_fabric_verbs::Rdma;
use obol_membership::Kind;
use obol_node::endpoint::EndpointError;
use obol_node::keys::trust;
use obol_node::service::ServiceManager;
use obol_node::{Hosts, Site};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{self, Duration};

/// Against hangs only.
const HANG: Duration = Duration::from_secs(60);
/// Interval of a cue until it arrives.
const REPEAT_EVERY: Duration = Duration::from_millis(10);
/// No member's kind, as those of runners and fault agents.
const KIND: u32 = 9;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Makes both hosts, each in a root of its own.
fn hosts(dir: &Path) -> [PathBuf; 2] {
    let [.., high, low] = std::process::id().to_be_bytes();
    let id = u64::from(std::process::id());
    let address = |host: u8| format!("127.{high}.{low}.{host}");
    let host = |host: u8| format!("[[hosts]]\naddress = \"{}\"\nagents = [\"node-{host}\"]\n", address(host));
    let file = format!(
        "schema = 1\ncluster = \"c\"\nid = \"{id:016x}\"\nprofile = \"soft-roce\"\nkeys = \"none\"\n{}coordinator = 1\n{}",
        host(1),
        host(2)
    );
    let path = dir.join("cluster.toml");
    let hosts = Hosts::parse(&file, &path).expect("a good file");
    [0, 1].map(|place| {
        let root = dir.join(format!("host-{}", place + 1));
        let deployment = hosts.deployment(place, &path).expect("a deployment");
        let site = Site::create(&root, name("c"), deployment).expect("made");
        let network = site.deployment.network.as_ref().expect("several hosts");
        trust(network, site.cluster.dir()).expect("keys");
        root
    })
}

fn open(root: &Path) -> Site {
    Site::open(root, name("c")).expect("it was made")
}

/// Runs the gateway of a host until this process ends; its program repeats questions.
fn gateway(root: &Path) {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (questions, asked): (_, Receiver<Question>) = mpsc::sync_channel(1);
    let (ready, readied) = mpsc::channel();
    let root = root.to_owned();
    thread::spawn(move || {
        for question in asked {
            let answer = question.bytes().to_vec();
            question.answer(answer);
        }
    });
    thread::spawn(move || {
        let outlets = Outlets { questions: Some(questions), ..Outlets::default() };
        let ready = |_| ready.send(()).expect("awaited");
        open(&root)
            .gateway(name("gateway"), &STOP, outlets, &mut ServiceManager::none(), ready)
            .expect("served");
    });
    readied.recv().expect("it listens");
}

#[derive(Default)]
struct Heard(Vec<Vec<u8>>);

impl Machine for Heard {
    fn handle<F: Fabric>(&mut self, _: Instant, event: Event<'_>, _: &mut F) {
        if let Event::Datagram { bytes, .. } = event {
            self.0.push(bytes.to_vec());
        }
    }
}

/// Waits for a cue.
fn awaits(mut agent: Endpoint, cue: &[u8]) {
    let (start, mut heard) = (time::Instant::now(), Heard::default());
    while !heard.0.iter().any(|one| one == cue) {
        assert!(start.elapsed() < HANG, "no cue");
        agent.poll_once(&mut heard);
        thread::yield_now();
    }
}

#[test]
fn over_rdma_a_cue_questions_and_reads_without_a_device_go_by_the_gateways() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("made");
    let roots = hosts(dir.path());
    roots.iter().for_each(|root| gateway(root));
    let here = open(&roots[0]);

    let (seen, has_seen) = mpsc::channel();
    let there = roots[1].clone();
    let (opened, is_open) = mpsc::channel();
    let agent = thread::spawn(move || {
        let agent = open(&there).drill(KIND, name("agent"), Group::Drills.bit()).expect("opened");
        opened.send(()).expect("awaited");
        awaits(agent, b"cue");
        seen.send(()).expect("awaited");
    });
    is_open.recv().expect("opened");
    let mut runner = here.drill(KIND, name("runner"), 0).expect("opened");
    assert!(runner.transport::<Ip>().is_some(), "by the gateways");
    let (start, mut heard) = (time::Instant::now(), Heard::default());
    while has_seen.recv_timeout(REPEAT_EVERY).is_err() {
        assert!(start.elapsed() < HANG && !agent.is_finished(), "no cue");
        runner.multicast(Group::Drills, b"cue");
        runner.flush();
        runner.poll_once(&mut heard);
    }
    agent.join().expect("it ends");

    let mut gateways = here.deployment.gateways(&here.cluster).expect("there are several hosts");
    assert_eq!(gateways.others(), [2]);
    assert!(gateways.answers(2));
    assert_eq!(gateways.ask(2, b"who is there", HANG).expect("an answer"), b"who is there");

    // The gateway itself has a region.
    let region = open(&roots[1]).cluster.gateway().expect("it runs").number;
    let copy = gateways.read(Address::region(region)).expect("read");
    assert_eq!(copy.reader().seat(0).map(|owner| owner.dead), Some(false));
    let reader = here.deployment.reader(&here.cluster);
    if let Ok(Some(mut reader)) = reader
        && reader.reads_by_host()
    {
        reader.read(Address::region(region)).expect("a host without a device reads by the gateways");
    }
}

#[test]
fn over_rdma_members_go_by_the_device_and_by_no_gateway() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("made");
    let [root, _] = hosts(dir.path());
    match open(&root).member(Kind::Agent, name("node-1")) {
        Ok(member) => assert!(member.transport::<Rdma>().is_some()),
        Err(error) => assert!(matches!(error, EndpointError::Open(_)), "{error}"),
    }
}
