//! The handshake of a connection, as private data: the identity of both processes, whether they are
//! of the same cluster, and the rights granted by the accepting one.

use super::cm::{ACCEPT_BYTES_MAX, REJECT_BYTES_MAX, REQUEST_BYTES_MAX};
use super::context::Gid;
use super::exposed::{Keys, LogKey, Plane, Role};
use obol_fabric::layout::Layout;
use obol_fabric::types::{Address, Instant};
use obol_fabric::version::Release;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `obol` and the version of the rest. The first four bytes identify the protocol.
const MAGIC: u32 = u32::from_le_bytes(*b"obol");
/// Changes whenever an older peer would misread a message or a region.
const VERSION: u16 = 3;

/// The identity of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Drawn when the cluster was created.
    pub(crate) nonce: u64,
    /// Half of the digest of the layout of its regions.
    pub(crate) layout: u32,
    /// The release that the process is of.
    pub(crate) release: Release,
}

impl Identity {
    pub(crate) fn new(nonce: u64, layout: &Layout) -> Self {
        Self { nonce, layout: layout.digest() as u32, release: Release::own() }
    }
}

/// The message of the connecting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) cluster: Identity,
    /// The requested region and generation; 0 for any.
    pub(crate) region: u32,
    pub(crate) generation: u32,
    /// The sender; region 0 for an observer.
    pub(crate) from: Address,
    pub(crate) role: Role,
    /// What the connection is for.
    pub(crate) plane: Plane,
}

/// 0 also stood for a member before there were mailboxes.
const fn code(role: Role) -> u8 {
    match role {
        Role::Reader => 0,
        Role::Fencer => 1,
        Role::Proposer => 2,
        Role::Member => 3,
    }
}

/// An unknown role has the fewest rights.
const fn role(code: u8) -> Role {
    match code {
        3 => Role::Member,
        2 => Role::Proposer,
        1 => Role::Fencer,
        _ => Role::Reader,
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawHello {
    magic: u32,
    version: u16,
    role: u8,
    /// 1 for a connection to the log.
    plane: u8,
    nonce: u64,
    layout: u32,
    release: u16,
    spare_release: u16,
    host: [u8; 16],
    region: u32,
    generation: u32,
    from_region: u32,
    from_generation: u32,
}

/// The message of the accepting process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The generation of the region's owner.
    pub(crate) generation: u32,
    /// The keys of the region.
    pub(crate) keys: Keys,
    /// The destination of its datagrams.
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) queue_pair: u32,
    pub(crate) qkey: u32,
    /// The tokens of its death notices, see [`obol_fabric::notice`]: of dying, and of being dead; 0 for
    /// none.
    pub(crate) tokens: [u64; 2],
    /// The reading of its clock when it was sent.
    pub(crate) clock: Instant,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawWelcome {
    magic: u32,
    version: u16,
    lid: u16,
    base: u64,
    gid: [u8; 16],
    /// Whole region, fence, slots, values; the bits of `given` mark those present, and those of
    /// `log_keys`.
    keys: [u32; 4],
    given: u32,
    generation: u32,
    queue_pair: u32,
    qkey: u32,
    tokens: [u64; 2],
    clock: u64,
    /// Values behind the log, and the log, with its part of the region.
    log_keys: [u32; 2],
    log: [u32; 2],
}

/// Why a process rejects another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It speaks another version of the handshake.
    #[error(
        "it speaks version {theirs} of the handshake, this program {VERSION}; use one release everywhere"
    )]
    Version {
        /// Its version.
        theirs: u16,
    },
    /// It is of another cluster: the nonces differ.
    #[error("it is of another cluster; check the cluster's nonce and addresses")]
    Cluster,
    /// The limits of its cluster, or the layout version of its program, differ.
    #[error("its regions have another layout; use one profile and release everywhere")]
    Layout,
    /// The address belongs to another region.
    #[error("region {region} lives at that address; check the addresses of the coordinators")]
    Elsewhere { region: u32 },
    /// The region has another owner than the requested one.
    #[error("its owner was replaced; owner {generation} is there")]
    Generation {
        /// The present owner.
        generation: u32,
    },
    /// It has reached its limit of connections.
    #[error("it has no room for one more connection")]
    Full,
    /// It admits only processes with a certificate that allows what they claim.
    #[error(
        "the certificate of this host does not allow this, or the connection was not introduced with one; \
         `obol host keys` makes new ones"
    )]
    Certificate,
    /// It has no log, or none that a process of this role writes to.
    #[error("it keeps no log that this process may write to")]
    NoLog,
    /// It is of this release, which does not work with that of the connecting process.
    #[error("{}", Release::own().advice(*.release))]
    Release { release: Release },
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawRefusal {
    magic: u32,
    version: u16,
    reason: u16,
    value: u32,
}

const _: () = assert!(size_of::<RawHello>() <= REQUEST_BYTES_MAX);
const _: () = assert!(size_of::<RawWelcome>() <= ACCEPT_BYTES_MAX);
const _: () = assert!(size_of::<RawRefusal>() <= REJECT_BYTES_MAX);
/// A request has no field for the port; it is in the upper half of the version's word.
const PORT_SHIFT: u32 = 16;

impl Hello {
    /// The length of an encoded one.
    pub(crate) const BYTES: usize = size_of::<RawHello>();

    /// Whether it is for the process of this cluster at this address.
    pub(crate) fn fits(&self, cluster: &Identity, own: Address) -> Result<(), Refusal> {
        if self.cluster.nonce != cluster.nonce {
            return Err(Refusal::Cluster);
        }
        if self.cluster.layout != cluster.layout {
            return Err(Refusal::Layout);
        }
        let release = cluster.release;
        if !release.works_with(self.cluster.release) {
            return Err(Refusal::Release { release });
        }
        if self.region != own.region {
            return Err(Refusal::Elsewhere { region: own.region });
        }
        if self.generation != 0 && self.generation != own.generation {
            return Err(Refusal::Generation { generation: own.generation });
        }
        Ok(())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let raw = RawHello {
            magic: MAGIC,
            version: VERSION,
            role: code(self.role),
            plane: u8::from(self.plane == Plane::Log),
            nonce: self.cluster.nonce,
            layout: self.cluster.layout,
            release: self.cluster.release.number(),
            spare_release: 0,
            host: self.from.host.to_le_bytes(),
            region: self.region | u32::from(self.from.port) << PORT_SHIFT,
            generation: self.generation,
            from_region: self.from.region,
            from_generation: self.from.generation,
        };
        raw.as_bytes().to_vec()
    }

    /// `None` for another protocol.
    pub(crate) fn decode(data: &[u8]) -> Option<Result<Self, Refusal>> {
        let (raw, _) = RawHello::read_from_prefix(data).ok()?;
        if raw.magic != MAGIC {
            return None;
        }
        if raw.version != VERSION {
            return Some(Err(Refusal::Version { theirs: raw.version }));
        }
        Some(Ok(Self {
            cluster: Identity { nonce: raw.nonce, layout: raw.layout, release: Release::of(raw.release) },
            region: raw.region & ((1 << PORT_SHIFT) - 1),
            generation: raw.generation,
            from: Address {
                host: u128::from_le_bytes(raw.host),
                port: (raw.region >> PORT_SHIFT) as u16,
                seat: 0,
                region: raw.from_region,
                generation: raw.from_generation,
            },
            role: role(raw.role),
            plane: if raw.plane == 1 { Plane::Log } else { Plane::Common },
        }))
    }
}

impl Welcome {
    /// The length of an encoded one.
    pub(crate) const BYTES: usize = size_of::<RawWelcome>();

    pub(crate) fn encode(&self) -> Vec<u8> {
        let keys = [self.keys.read, self.keys.fence, self.keys.slots, self.keys.values];
        let log_keys = [self.keys.behind, self.keys.log.map(|log| log.key)];
        let all = keys.iter().chain(&log_keys).enumerate();
        let given = all.fold(0, |given, (at, key)| given | u32::from(key.is_some()) << at);
        let raw = RawWelcome {
            magic: MAGIC,
            version: VERSION,
            lid: self.lid,
            base: self.keys.base,
            gid: self.gid.0,
            keys: keys.map(Option::unwrap_or_default),
            given,
            generation: self.generation,
            queue_pair: self.queue_pair,
            qkey: self.qkey,
            tokens: self.tokens,
            clock: self.clock.0,
            log_keys: log_keys.map(Option::unwrap_or_default),
            log: self.keys.log.map(|log| [log.begin, log.end]).unwrap_or_default(),
        };
        raw.as_bytes().to_vec()
    }

    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let (raw, _) = RawWelcome::read_from_prefix(data).ok()?;
        let [read, fence, slots, values] = raw.keys;
        let ([behind, log], [begin, end]) = (raw.log_keys, raw.log);
        let given = |at: u32, key: u32| (raw.given & 1 << at != 0).then_some(key);
        let keys = Keys {
            base: raw.base,
            read: given(0, read),
            fence: given(1, fence),
            slots: given(2, slots),
            values: given(3, values),
            behind: given(4, behind),
            log: given(5, log).map(|key| LogKey { key, begin, end }),
        };
        (raw.magic == MAGIC && raw.version == VERSION).then_some(Self {
            generation: raw.generation,
            keys,
            gid: Gid(raw.gid),
            lid: raw.lid,
            queue_pair: raw.queue_pair,
            qkey: raw.qkey,
            tokens: raw.tokens,
            clock: Instant(raw.clock),
        })
    }
}

impl Refusal {
    pub(crate) fn encode(self) -> Vec<u8> {
        let (reason, value) = match self {
            Self::Version { .. } => (1, 0),
            Self::Cluster => (2, 0),
            Self::Layout => (3, 0),
            Self::Elsewhere { region } => (4, region),
            Self::Generation { generation } => (5, generation),
            Self::Full => (6, 0),
            Self::Certificate => (8, 0),
            Self::NoLog => (9, 0),
            Self::Release { release } => (7, u32::from(release.number())),
        };
        RawRefusal { magic: MAGIC, version: VERSION, reason, value }.as_bytes().to_vec()
    }

    /// `None` if the rejection is of another origin, for example because no process listens there.
    pub(crate) fn decode(data: &[u8]) -> Option<Self> {
        let (raw, _) = RawRefusal::read_from_prefix(data).ok()?;
        if raw.magic != MAGIC {
            return None;
        }
        match raw.reason {
            1 => Some(Self::Version { theirs: raw.version }),
            2 => Some(Self::Cluster),
            3 => Some(Self::Layout),
            4 => Some(Self::Elsewhere { region: raw.value }),
            5 => Some(Self::Generation { generation: raw.value }),
            6 => Some(Self::Full),
            7 => Some(Self::Release { release: Release::of(raw.value as u16) }),
            8 => Some(Self::Certificate),
            9 => Some(Self::NoLog),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        let from = Address { host: 7 << 80 | 5, port: 65_001, seat: 0, region: 1023, generation: 9 };
        let cluster = Identity { nonce: u64::MAX - 1, layout: 3, release: Release::THIS };
        Hello { cluster, region: 1022, generation: 4, from, role: Role::Fencer, plane: Plane::Log }
    }

    const fn keys() -> Keys {
        let log = Some(LogKey { key: 0, begin: 64, end: 128 });
        Keys { base: 2, read: Some(3), fence: Some(0), slots: None, values: Some(4), behind: None, log }
    }

    #[test]
    fn what_is_said_survives_the_padding_of_the_library() {
        let padded = |mut data: Vec<u8>, len| {
            data.resize(len, 0);
            data
        };
        let hello = hello();
        assert_eq!(Hello::decode(&padded(hello.encode(), REQUEST_BYTES_MAX)), Some(Ok(hello)));
        let gid = Gid([3; 16]);
        let keys = keys();
        let (tokens, clock) = ([8, 9], Instant(10));
        let welcome = Welcome { generation: 1, keys, gid, lid: 5, queue_pair: 6, qkey: 7, tokens, clock };
        assert_eq!(Welcome::decode(&padded(welcome.encode(), ACCEPT_BYTES_MAX)), Some(welcome));
        let all = [
            Refusal::Version { theirs: VERSION },
            Refusal::Cluster,
            Refusal::Layout,
            Refusal::Elsewhere { region: 3 },
            Refusal::Generation { generation: 8 },
            Refusal::Full,
            Refusal::Certificate,
            Refusal::NoLog,
            Refusal::Release { release: Release::of(2) },
        ];
        for refusal in all {
            assert_eq!(Refusal::decode(&padded(refusal.encode(), REJECT_BYTES_MAX)), Some(refusal));
        }
    }

    #[test]
    fn all_releases_are_understood() {
        let keys = keys();
        let (gid, tokens, clock) = (Gid([3; 16]), [8, 9], Instant(10));
        let welcome = Welcome { generation: 1, keys, gid, lid: 5, queue_pair: 6, qkey: 7, tokens, clock };
        let mut first = hello();
        first.cluster.release = "0.1".parse().expect("a release");
        let refusal = Refusal::Release { release: Release::of(2) };
        let now = [("hello", first.encode()), ("welcome", welcome.encode()), ("refusal", refusal.encode())];
        let now = now.map(|(name, bytes)| (name.to_owned(), bytes));
        let folder =
            [env!("CARGO_MANIFEST_DIR"), "testdata/handshake"].iter().collect::<std::path::PathBuf>();
        for old in obol_fuzz::recorded::check(&folder, env!("CARGO_PKG_VERSION"), &now) {
            let read = match old.name.as_str() {
                "hello" => Hello::decode(&old.bytes) == Some(Ok(first)),
                "welcome" => Welcome::decode(&old.bytes) == Some(welcome),
                _ => Refusal::decode(&old.bytes) == Some(refusal),
            };
            assert!(read, "{old:?}");
        }
    }

    #[test]
    fn what_strangers_say_is_not_taken_for_ours() {
        assert_eq!(Hello::decode(&[0; REQUEST_BYTES_MAX]), None);
        assert_eq!(Hello::decode(b"obol"), None);
        assert_eq!(Welcome::decode(&[0; ACCEPT_BYTES_MAX]), None);
        assert_eq!(Refusal::decode(&[0; REJECT_BYTES_MAX]), None);
        assert_eq!(Refusal::decode(&[]), None);
        let mut other = hello().encode();
        other[4] += 1;
        assert_eq!(Hello::decode(&other), Some(Err(Refusal::Version { theirs: VERSION + 1 })));
    }

    #[test]
    fn clusters_of_other_limits_differ() {
        let limits = crate::test::LIMITS;
        let of = |limits| Identity::new(1, &Layout::new(limits).expect("in bounds"));
        assert_ne!(of(limits), of(obol_fabric::Limits { slots: limits.slots * 2, ..limits }));
        assert_eq!(of(limits), of(limits));
    }

    /// Any foreign input is rejected, or encodes again to the same.
    #[test]
    fn fuzz_what_is_said() {
        let keys = keys();
        let (gid, tokens, clock) = (Gid([3; 16]), [8, 9], Instant(10));
        let welcome = Welcome { generation: 1, keys, gid, lid: 5, queue_pair: 6, qkey: 7, tokens, clock };
        obol_fuzz::Target::new("handshake", obol_fuzz::Shape::Bytes, 200_000)
            .with(hello().encode())
            .with(welcome.encode())
            .with(Refusal::Generation { generation: 8 }.encode())
            .run(|input| {
                let hello = Hello::decode(input);
                if let Some(Ok(hello)) = hello {
                    assert_eq!(Hello::decode(&hello.encode()), Some(Ok(hello)));
                }
                let welcome = Welcome::decode(input);
                if let Some(welcome) = welcome {
                    assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
                }
                let refusal = Refusal::decode(input);
                let words = refusal.map(|refusal| refusal.to_string().len());
                let role = hello.map(|hello| hello.map(|hello| code(hello.role)).is_ok());
                obol_fuzz::outcome((role, welcome.is_some(), words))
            });
    }
}
