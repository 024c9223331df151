//! A member of a cluster that is a replica or a client: the membership protocol and the service in
//! one state machine, on one endpoint.

use crate::client::Client;
use crate::members;
use crate::preset::{Active, Detector, Guard, Views};
use crate::replica::Replica;
use crate::service::Service;
use crate::tokens::WAKEUP;
use crate::tokens::{Part, bytes_of, part_of, token};
use obol_fabric::{Address, Event, Fabric, Incarnation, Instant, Machine, Release, Remote, ViewId};
use obol_membership::{Member, Role, View};
use std::sync::Arc;

/// What a member does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Actor<S, D = Views, G = Active> {
    /// It keeps the state.
    Replica(Box<Replica<S, D, G>>),
    /// It sends requests.
    Client(Box<Client>),
}

/// A member with a replica or a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node<S, D = Views, G = Active> {
    member: Box<Member>,
    actor: Actor<S, D, G>,
    /// A client in a replica's process.
    beside: Option<Box<Client>>,
    /// The view that the actor knows, and its own incarnation in it.
    known: Option<(ViewId, Option<Incarnation>)>,
    /// Peers to which links have been made.
    linked: Vec<Address>,
}

impl<S: Service, D: Detector, G: Guard> Node<S, D, G> {
    /// A member of kind [`obol_membership::Kind::App`].
    pub fn new(member: Member, actor: Actor<S, D, G>) -> Self {
        Self { member: Box::new(member), actor, beside: None, known: None, linked: Vec::new() }
    }

    /// The same replica with a client beside it, on the same thread and endpoint: when this replica
    /// leads, a request of that client takes no switch to another thread. It has a block as any client
    /// has, as long as clients of their own leave one.
    #[must_use]
    pub fn with_client(mut self, client: Client) -> Self {
        if matches!(self.actor, Actor::Replica(_)) {
            self.beside = Some(Box::new(client.beside()));
        }
        self
    }

    /// Takes the client beside the replica, with its session, for a replica that takes its place.
    pub fn take_client(&mut self) -> Option<Client> {
        self.beside.take().map(|client| *client)
    }

    /// Puts another client beside the replica, in the place of one that can no longer be used.
    pub fn replace_client<F: Fabric>(&mut self, now: Instant, client: Client, fabric: &mut F) {
        let mut client = Box::new(client.beside());
        client.install(now, self.member.view(), self.member.incarnation(), fabric);
        self.beside = Some(client);
    }

    pub const fn member(&self) -> &Member {
        &self.member
    }

    /// The replica, if it is one.
    pub const fn replica(&self) -> Option<&Replica<S, D, G>> {
        match &self.actor {
            Actor::Replica(replica) => Some(replica),
            Actor::Client(_) => None,
        }
    }

    /// The replica, if it is one.
    #[doc(hidden)]
    pub const fn replica_mut(&mut self) -> Option<&mut Replica<S, D, G>> {
        match &mut self.actor {
            Actor::Replica(replica) => Some(replica),
            Actor::Client(_) => None,
        }
    }

    /// The client, if it is one or has one beside its replica.
    pub fn client(&mut self) -> Option<&mut Client> {
        match &mut self.actor {
            Actor::Replica(_) => self.beside.as_deref_mut(),
            Actor::Client(client) => Some(client),
        }
    }

    /// Has the replica look for the requests of the client beside it.
    fn pass_call(&mut self, own: Address) {
        if let (Actor::Replica(replica), Some(client)) = (&mut self.actor, &mut self.beside)
            && client.take_call(own)
        {
            replica.on_call();
        }
    }

    /// Passes a new view to the actor.
    fn update<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        let (view, own) = (self.member.view(), self.member.incarnation());
        if self.known == Some((view.id, own)) {
            return;
        }
        self.known = Some((view.id, own));
        let is_replica = matches!(self.actor, Actor::Replica(_));
        let replicas = members::replicas(view).filter(|_| own.is_some());
        let clients = members::clients(view).filter(|_| own.is_some() && is_replica);
        let peers: Vec<Address> = replicas.chain(clients).map(|member| member.address).collect();
        for &at in peers.iter().filter(|at| !self.linked.contains(at)) {
            // An RDMA connection takes milliseconds to make: make it before it is needed.
            fabric.read(Remote { at, offset: 0 }, 8, token(Part::Link, 0));
        }
        self.linked = peers;
        match &mut self.actor {
            Actor::Replica(replica) => {
                replica.install(view, own, fabric);
                if let Some(client) = &mut self.beside {
                    client.install(now, view, own, fabric);
                }
            }
            Actor::Client(client) => client.install(now, view, own, fabric),
        }
    }
}

impl<S: Service, D: Detector, G: Guard> Role for Node<S, D, G> {
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

impl<S: Service, D: Detector, G: Guard> Machine for Node<S, D, G> {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.member.start(now, fabric);
        self.update(now, fabric);
    }

    fn handle<F: Fabric>(&mut self, now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { token, result } if part_of(token).is_some() => {
                match (part_of(token), &mut self.actor) {
                    (Some((Part::Seek, argument)), _) => {
                        if let Some(client) = self.client() {
                            client.on_sought(now, argument, bytes_of(result), fabric);
                        }
                    }
                    (Some((part, argument)), Actor::Replica(replica)) => {
                        replica.on_completion(now, part, argument, result, fabric);
                    }
                    _ => {}
                }
            }
            // Its only meaning is that there is something to poll.
            Event::Datagram { bytes: WAKEUP, .. } => match &mut self.actor {
                Actor::Replica(replica) => {
                    replica.on_wakeup();
                    if let Some(client) = &mut self.beside {
                        client.on_wakeup();
                    }
                }
                Actor::Client(client) => client.on_wakeup(),
            },
            event => {
                if let (Event::Death { who, evidence }, Actor::Replica(replica)) = (event, &mut self.actor) {
                    replica.on_death(who, evidence);
                }
                self.member.handle(now, event, fabric);
                self.update(now, fabric);
            }
        }
    }

    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        if now >= self.member.deadline() {
            self.member.tick(now, fabric);
            self.update(now, fabric);
        }
        if let Some(client) = self.client() {
            client.tick(now, fabric);
        }
        self.pass_call(fabric.address());
        if let Actor::Replica(replica) = &mut self.actor
            && now >= replica.deadline()
        {
            replica.tick(now, fabric);
        }
    }

    fn deadline(&self) -> Instant {
        let actor = match &self.actor {
            Actor::Replica(replica) => replica.deadline(),
            Actor::Client(client) => client.deadline(),
        };
        let beside = self.beside.as_ref().map_or(Instant::NEVER, |client| client.deadline());
        self.member.deadline().min(actor).min(beside)
    }
}
