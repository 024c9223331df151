//! Judges processes that connect: what they say must be allowed by the certificate of their host.

use super::{Counts, GatewayCounter, Input, Inputs};
use crate::config::Config;
use crate::frame::{FRAME_BYTES_MAX, Hello, Refusal, Reply};
use obol_fabric::host::Cluster;
use obol_fabric::rights::Role;
use obol_fabric::version::Release;
use obol_identity::{Claims, Duty, Gate, Stream, Unintelligible};
use std::net::{IpAddr, SocketAddr};

/// An admitted process.
pub(super) struct Admission {
    pub(super) stream: Stream,
    pub(super) region: u32,
    pub(super) generation: u32,
    pub(super) role: Role,
    pub(super) claims: Claims,
}

/// The gate of a gateway.
pub(super) struct Admitter {
    nonce: u64,
    layout: u64,
    coordinators: Vec<u8>,
    /// The addresses of the hosts.
    hosts: Vec<IpAddr>,
    inbox: Inputs,
    counts: Counts,
}

impl Admitter {
    pub(super) fn new(cluster: &Cluster, config: &Config, inbox: Inputs, counts: Counts) -> Self {
        let (nonce, layout) = (cluster.nonce(), cluster.layout().digest());
        let hosts = config.gateways.iter().map(|gateway| gateway.ip().to_canonical()).collect();
        Self { nonce, layout, coordinators: config.coordinators.clone(), hosts, inbox, counts }
    }

    fn check(&self, hello: &Hello, claims: Option<Claims>) -> Result<(Role, Claims), Refusal> {
        if hello.nonce != self.nonce {
            return Err(Refusal::Cluster);
        }
        if hello.layout != self.layout {
            return Err(Refusal::Layout);
        }
        let own = Release::own();
        if !own.works_with(hello.release) {
            return Err(Refusal::Release(own));
        }
        let Hello { region, role, .. } = *hello;
        let claims = claims.filter(|claims| claims.is_of(self.hosts.len())).ok_or(Refusal::Certificate)?;
        // A gateway says by its first request that it comes for its pulses; it reads nothing.
        let is_gateway = role == Role::Reader && region == 0 && claims.allow(Duty::Gateway);
        let fits = is_gateway || claims.fit(role, region, &self.coordinators);
        if fits { Ok((role, claims)) } else { Err(Refusal::Certificate) }
    }
}

impl Gate for Admitter {
    const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX;
    /// Certificates are checked in the time that others leave.
    const NICENESS: i32 = 10;

    fn introduced(
        &self,
        mut stream: Stream,
        from: SocketAddr,
        message: &[u8],
        claims: Option<Claims>,
    ) -> Result<(), Unintelligible> {
        let hello = Hello::decode(message).ok_or(Unintelligible)?;
        match self.check(&hello, claims) {
            Ok((role, claims)) => {
                let Hello { region, generation, .. } = hello;
                tracing::info!(target: "gateway", %from, region, generation, ?role, "admitted region {region} of {from}");
                let admission = Admission { stream, region, generation, role, claims };
                self.inbox.put(Input::Admitted(Box::new(admission)));
            }
            Err(refusal) => {
                self.counts.add(GatewayCounter::Refused);
                tracing::warn!(target: "gateway", %from, "refused a process of {from}: {refusal}");
                Reply::Refused(refusal).encode(&mut stream.output);
                // If it does not take this, it learns of the refusal by the end of the connection.
                let _ = stream.send();
            }
        }
        Ok(())
    }

    fn knows(&self, address: IpAddr) -> bool {
        self.hosts.contains(&address)
    }

    fn crowded(&self) {
        self.counts.add(GatewayCounter::Crowded);
    }

    fn ended(&self, waited: bool) {
        self.counts.add(if waited { GatewayCounter::Missed } else { GatewayCounter::Strangers });
    }
}
