//! A member of a cluster that serves or uses the cache: the membership protocol and the service in
//! one state machine, on one endpoint.

use crate::client::Client;
use crate::completeness::Copy;
use crate::members;
use crate::server::Server;
use crate::shard::Shard;
use crate::tokens::{Part, WAKEUP, part_of, token};
use obol_fabric::{Address, Event, Fabric, Incarnation, Instant, Machine, Release, Remote, ViewId};
use obol_membership::{Member, Role, View};
use std::sync::Arc;

/// A member's service.
pub enum Service {
    Server(Box<Server>),
    /// It sends requests.
    Client(Box<Client>),
}

/// A member with a service.
pub struct Node {
    member: Box<Member>,
    service: Service,
    /// The view that the service knows, and its own incarnation in it.
    known: Option<(ViewId, Option<Incarnation>)>,
    /// Peers to which links have been made.
    linked: Vec<Address>,
    once: bool,
    over: bool,
}

impl Node {
    /// A member of kind [`obol_membership::Kind::App`] with this service.
    pub fn new(member: Member, service: Service) -> Self {
        Self { member: Box::new(member), service, known: None, linked: Vec::new(), once: false, over: false }
    }

    /// Does not rejoin after an exclusion: the caller starts a new one with new memory.
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: true, ..self }
    }

    /// Whether that has happened.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    pub const fn member(&self) -> &Member {
        &self.member
    }

    /// The server, if it is one.
    pub const fn server(&self) -> Option<&Server> {
        match &self.service {
            Service::Server(server) => Some(server),
            Service::Client(_) => None,
        }
    }

    /// The complete state of a server that was excluded, for [`Server::carrying`].
    pub fn take_copy(&mut self) -> Option<Box<Copy>> {
        match &mut self.service {
            Service::Server(server) => server.take_copy(),
            Service::Client(_) => None,
        }
    }

    /// The client, if it is one.
    pub const fn client(&mut self) -> Option<&mut Client> {
        match &mut self.service {
            Service::Server(_) => None,
            Service::Client(client) => Some(client),
        }
    }

    /// Passes a new view to the service.
    fn update_service<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let (view, own) = (self.member.view(), self.member.incarnation());
        if self.known == Some((view.id, own)) {
            return;
        }
        let was = self.known.replace((view.id, own)).and_then(|(_, was)| was);
        self.over |= self.once && was.is_some() && was != own;
        // A server links to its shard's servers, itself included: it reads its own log before it
        // takes over.
        let shard = self.server().map(Server::shard);
        let links_to = |with: Option<Shard>| match shard {
            Some(_) => with.is_none() || with == shard,
            None => with.is_some(),
        };
        let peers = members::parties(view).filter(|(_, with)| own.is_some() && links_to(*with));
        let peers: Vec<Address> = peers.map(|(member, _)| member.address).collect();
        for &at in peers.iter().filter(|at| !self.linked.contains(at)) {
            // An RDMA connection takes milliseconds to make: make it before it is needed.
            fabric.read(Remote { at, offset: 0 }, 8, token(Part::Link, 0));
        }
        self.linked = peers;
        match &mut self.service {
            Service::Server(server) => server.install(view, own, fabric),
            Service::Client(client) => client.install(now, view, own, fabric),
        }
    }
}

impl Role for Node {
    fn view(&self) -> &Arc<View> {
        self.member.view()
    }

    fn leave<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.member.leave(now, fabric);
    }

    fn is_ready(&self) -> bool {
        self.member.incarnation().is_some()
    }

    fn has_left(&self) -> bool {
        self.member.has_left()
    }

    fn refused_by(&self) -> Option<Release> {
        self.member.refused_by()
    }
}

impl Machine for Node {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.member.start(now, fabric);
        self.update_service(now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } if part_of(token).is_some() => {
                if let (Some((part, argument)), Service::Server(server)) = (part_of(token), &mut self.service)
                {
                    server.on_completion(now, part, argument, result, fabric);
                }
            }
            // Its only meaning is that there is something to poll.
            Event::Datagram { bytes: WAKEUP, .. } => match &mut self.service {
                Service::Server(server) => server.on_wakeup(),
                Service::Client(client) => client.on_wakeup(),
            },
            event => {
                self.member.handle(now, event, fabric);
                self.update_service(now, fabric);
            }
        }
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if self.over {
            return;
        }
        if now >= self.member.deadline() {
            self.member.tick(now, fabric);
            self.update_service(now, fabric);
        }
        match &mut self.service {
            Service::Server(server) if now >= server.deadline() => server.tick(now, fabric),
            Service::Server(_) => {}
            Service::Client(client) => client.tick(now, fabric),
        }
    }

    fn deadline(&self) -> Instant {
        if self.over {
            return Instant::NEVER;
        }
        let service = match &self.service {
            Service::Server(server) => server.deadline(),
            Service::Client(client) => client.deadline(),
        };
        self.member.deadline().min(service)
    }
}
