//! Connections and groups by IP address.

use crate::devices::{HANG, READS, RETRY, SIZE, arena, next, nic, register};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use obol_fabric_verbs::VerbsError;
use obol_fabric_verbs::cm::{
    ACCEPT_BYTES_MAX, Event, EventChannel, Id, Offer, REQUEST_BYTES_MAX, Space, What,
};
use obol_fabric_verbs::nic::Nic;
use obol_fabric_verbs::pair::{Kind, QueuePair};
use obol_fabric_verbs::post::To;
use obol_fabric_verbs::queue::{CompletionChannel, CompletionQueue, Status};
use obol_fabric_verbs::registration::Rights;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The next event of a channel.
pub(crate) fn event(channel: &Arc<EventChannel>) -> Event {
    let until = Instant::now() + HANG;
    loop {
        if let Some(event) = channel.next().expect("the channel works") {
            return event;
        }
        assert!(Instant::now() < until, "no event came");
        std::thread::yield_now();
    }
}

fn address(nic: &Nic) -> IpAddr {
    nic.choice().address.expect("the device has an address")
}

fn listener(nic: &Nic, channel: &Arc<EventChannel>) -> (Id, SocketAddr) {
    let id = Id::new(channel, Space::Connections).expect("an id");
    id.bind(SocketAddr::new(address(nic), 0)).expect("the own address");
    id.listen(4).expect("listens");
    let at = SocketAddr::new(address(nic), id.port());
    (id, at)
}

fn resolved(nic: &Nic, channel: &Arc<EventChannel>, to: SocketAddr) -> Id {
    let id = Id::new(channel, Space::Connections).expect("an id");
    id.resolve_address(Some(address(nic)), to, HANG).expect("asked");
    assert!(matches!(event(channel).what, What::AddressResolved));
    id.resolve_route(HANG).expect("asked");
    let resolved = event(channel);
    assert!(matches!(resolved.what, What::RouteResolved) && resolved.key == id.key());
    id
}

fn pair(nic: &Nic, queue: &Arc<CompletionQueue>) -> QueuePair {
    QueuePair::new(nic.domain(), Kind::Reliable, queue, queue, SIZE).expect("a queue pair")
}

#[test]
fn two_ends_find_each_other_by_address_and_say_something() {
    let Some(nic) = nic() else { return };
    let (server, client) = (EventChannel::new().expect("a channel"), EventChannel::new().expect("a channel"));
    let (listener, at) = listener(&nic, &server);
    let queue = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
    let (initiator, responder) = (pair(&nic, &queue), pair(&nic, &queue));
    let theirs = arena(4096);
    let (here, there) =
        (register(&nic, &arena(4096), Rights::NONE), register(&nic, &theirs, Rights::READ | Rights::CAS));

    let out = resolved(&nic, &client, at);
    out.init(&initiator, Rights::NONE).expect("INIT");
    out.connect(&initiator, &Offer { reads: READS, retries: RETRY.count, data: b"who I am" }).expect("asked");

    let request = event(&server);
    assert_eq!(request.key, listener.key());
    let What::Request { id: inward, peer } = request.what else { panic!("{:?}", request.what) };
    assert_eq!((peer.queue_pair, &peer.data[..8]), (initiator.number(), &b"who I am"[..]));
    inward.init(&responder, Rights::READ).expect("INIT");
    inward.ready(&responder, READS, RETRY).expect("RTS");
    inward
        .accept(&responder, &Offer { reads: READS, retries: RETRY.count, data: b"welcome" })
        .expect("accepted");

    let What::Response(peer) = event(&client).what else { panic!("no answer") };
    assert_eq!((peer.queue_pair, &peer.data[..7]), (responder.number(), &b"welcome"[..]));
    out.ready(&initiator, READS, RETRY).expect("RTS");
    out.establish().expect("connected");
    assert!(matches!(event(&server).what, What::Established));

    theirs.words()[3].store(33, Relaxed);
    initiator.read(1, here.local(0, 8), there.target(24), true).expect("posted");
    assert_eq!(next(&queue).status(), Status::SUCCESS);
    assert_eq!(here.memory().words()[0].load(Relaxed), 33);
    // The key allows it, the queue pair does not.
    initiator.cas(2, here.local(0, 8), there.target(24), 33, 34, true).expect("posted");
    assert_ne!(next(&queue).status(), Status::SUCCESS);
    assert_eq!(theirs.words()[3].load(Relaxed), 33);

    out.disconnect().expect("ended");
    assert!(matches!(event(&server).what, What::Disconnected));
}

#[test]
fn a_request_is_rejected_with_a_reason() {
    let Some(nic) = nic() else { return };
    let (server, client) = (EventChannel::new().expect("a channel"), EventChannel::new().expect("a channel"));
    let (_listener, at) = listener(&nic, &server);
    let queue = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
    let initiator = pair(&nic, &queue);
    let out = resolved(&nic, &client, at);
    out.init(&initiator, Rights::NONE).expect("INIT");
    out.connect(&initiator, &Offer { reads: READS, retries: RETRY.count, data: b"hello" }).expect("asked");
    let What::Request { id, .. } = event(&server).what else { panic!("no request") };
    id.reject(b"another cluster").expect("rejected");
    let What::Rejected(reason) = event(&client).what else { panic!("no answer") };
    assert_eq!(&reason[..15], b"another cluster");
}

#[test]
fn where_nobody_listens_a_connection_is_refused() {
    let Some(nic) = nic() else { return };
    let channel = EventChannel::new().expect("a channel");
    let (gone, at) = listener(&nic, &channel);
    drop(gone);
    let queue = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
    let initiator = pair(&nic, &queue);
    let out = resolved(&nic, &channel, at);
    out.init(&initiator, Rights::NONE).expect("INIT");
    out.connect(&initiator, &Offer { reads: READS, retries: RETRY.count, data: b"" }).expect("asked");
    assert!(matches!(event(&channel).what, What::Rejected(_) | What::Failed(_)));
}

#[test]
fn what_does_not_fit_into_a_handshake_is_refused() {
    let Some(nic) = nic() else { return };
    let channel = EventChannel::new().expect("a channel");
    let queue = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
    let (id, initiator) = (Id::new(&channel, Space::Connections).expect("an id"), pair(&nic, &queue));
    let long = [0; ACCEPT_BYTES_MAX + 1];
    let offer = |len| Offer { reads: READS, retries: RETRY.count, data: &long[..len] };
    for refused in
        [id.connect(&initiator, &offer(REQUEST_BYTES_MAX + 1)), id.accept(&initiator, &offer(long.len()))]
    {
        assert!(matches!(refused, Err(VerbsError::OutOfBounds { .. })), "{refused:?}");
    }
}

#[test]
fn an_address_of_no_device_is_refused() {
    let Some(_) = nic() else { return };
    let channel = EventChannel::new().expect("a channel");
    let id = Id::new(&channel, Space::Connections).expect("an id");
    // 192.0.2.0/24 is for documentation: nobody's.
    let nobody = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7471);
    let refused = id.bind(nobody).expect_err("nobody's address");
    assert!(refused.to_string().contains("rdma_bind_addr on 192.0.2.1:7471"), "{refused}");
}

/// Queue pairs that a soft-RoCE device attaches to one group at a time.
const ATTACHED_MAX: u32 = 56;

#[test]
fn a_datagram_to_a_group_reaches_those_who_joined() {
    let Some(nic) = nic() else { return };
    assert_ne!(nic.choice().facts.groups, 0, "the device knows multicast");
    let channel = EventChannel::new().expect("a channel");
    let wake = CompletionChannel::new(nic.context()).expect("a channel");
    let sent = CompletionQueue::new(nic.context(), 64, None).expect("a queue");
    let heard = CompletionQueue::new(nic.context(), 64, Some(&wake)).expect("a queue");
    let pair =
        |receives| QueuePair::new(nic.domain(), Kind::Datagram, &sent, receives, SIZE).expect("a pair");
    let (speaker, hearer) = (pair(&sent), pair(&heard));

    let member = Id::new(&channel, Space::Datagrams).expect("an id");
    member.bind(SocketAddr::new(address(&nic), 0)).expect("bound");
    let group = IpAddr::V4(Ipv4Addr::new(239, 77, 1, 5));
    member.join(group).expect("asked");
    let What::Joined(joined) = event(&channel).what else { panic!("not joined") };
    let port = nic.choice().port;
    speaker.open(port, joined.qkey).expect("RTS");
    hearer.open(port, joined.qkey).expect("RTS");
    hearer.attach(joined.group, joined.lid).expect("attached");
    let handle = joined.handle(nic.domain()).expect("a handle");

    let inbox = arena(4096);
    let into = register(&nic, &inbox, Rights::NONE);
    heard.arm().expect("armed");
    hearer.receive(9, into.local(0, 4096)).expect("posted");
    let there = To { handle: &handle, number: joined.number, qkey: joined.qkey };
    speaker.send_inline(1, b"a member", &there).expect("posted");
    assert_eq!(next(&sent).status(), Status::SUCCESS);
    let got = next(&heard);
    assert_eq!((got.id(), got.status(), got.bytes()), (9, Status::SUCCESS, 40 + 8));
    assert!(got.is_receive() && got.source_queue_pair() == speaker.number());
    assert_eq!(inbox.words()[5].load(Relaxed), u64::from_ne_bytes(*b"a member"));

    // The completion has made the descriptor readable, once.
    let timeout = PollTimeout::try_from(HANG).expect("short");
    assert_eq!(poll(&mut [PollFd::new(wake.as_fd(), PollFlags::POLLIN)], timeout), Ok(1));
    assert!(wake.take_event().expect("it can be taken"));
    assert!(!wake.take_event().expect("there is no more"));
    // A device has room for few at a time: those that have gone are not attached any more.
    for _ in 0..2 * ATTACHED_MAX {
        let pair = pair(&sent);
        pair.attach(joined.group, joined.lid).expect("room");
    }
    member.leave(group).expect("left");
}
