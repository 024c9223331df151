//! Whole runs: they are reproducible, leave nothing behind, and are fast.

use super::*;
use obol_fabric::contract::Group;
use obol_rng::Rng;

/// A machine that generates all kinds of traffic.
#[derive(Debug)]
struct Busy {
    peers: u32,
    rng: Rng,
    due: Instant,
    layout: Layout,
}

impl Busy {
    fn act<F: Fabric>(&mut self, fabric: &mut F) {
        let peer = self.rng.below(u64::from(self.peers)) as u32;
        let (word, value) = (self.layout.slot(1), self.layout.value(1, 1));
        match self.rng.below(6) {
            0 => fabric.read(at(peer, value), 256, Token(1)),
            1 => fabric.write(at(peer, value), &[self.rng.next_u64() as u8; 256], Token(2)),
            2 => fabric.cas(at(peer, word), self.rng.below(4), self.rng.below(4), Token(3)),
            3 => fabric.send(Address::region(peer), &self.rng.next_u64().to_le_bytes()),
            4 => fabric.multicast(Group::Everyone, b"to all of you"),
            _ => fabric.watch(Address { region: peer, generation: 1, ..Address::default() }),
        }
    }
}

impl Machine for Busy {
    fn start<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.due = now + Nanos(2_000);
        self.act(fabric);
    }
    fn handle<F: Fabric>(&mut self, _now: Instant, event: Event<'_>, fabric: &mut F) {
        if matches!(event, Event::Completion { result: Ok(_), .. }) {
            self.act(fabric);
        }
    }
    fn tick<F: Fabric>(&mut self, now: Instant, fabric: &mut F) {
        self.due = if now < Instant(20 * MILLI) { now + Nanos(2_000) } else { Instant::NEVER };
        self.act(fabric);
    }
    fn deadline(&self) -> Instant {
        self.due
    }
}

/// A run with all faults: its hash and its length.
fn run_all_faults(seed: u64) -> (u64, u64) {
    const NODES: u32 = 6;
    let network = Network {
        loss_permille: 100,
        duplicate_permille: 50,
        stall_permille: 10,
        proof_loss_permille: 200,
        ..rough()
    };
    let mut draw = Rng::new(seed ^ 0xfa);
    let busy = |draw: &mut Rng| Busy {
        peers: NODES,
        rng: Rng::new(draw.next_u64()),
        due: Instant(0),
        layout: layout(),
    };
    let mut world = World::new(layout(), network, seed);
    for n in 0..NODES {
        world.add(busy(&mut draw), Clock::new(Instant(0), i64::from(n) * 10_000), 3);
    }
    let (mut fault, mut steps) = (100_000, 0u64);
    while world.now() < 20 * MILLI {
        if world.now() >= fault {
            fault = world.now() + draw.below(200_000);
            let (a, b) = (draw.below(6) as u32, draw.below(6) as u32);
            match draw.below(9) {
                0 => world.kill(a),
                1 | 2 => world.restart(a, busy(&mut draw), draw.coin()),
                3 => world.freeze(a),
                4 => world.thaw(a),
                5 => world.partition(a, b),
                _ => world.heal(a, b),
            }
        }
        let Some(info) = world.step() else { break };
        assert!(info.prev_time <= info.time);
        steps += 1;
    }
    (0..NODES).for_each(|node| world.kill(node));
    while world.step().is_some() {}
    assert_eq!(world.core.ops.used(), 0, "every operation was freed");
    assert_eq!(world.core.messages.used() + world.core.payloads.used(), 0, "every datagram was freed");
    (world.hash(), steps)
}

#[test]
fn a_seed_decides_a_run() {
    for seed in 10..40 {
        run_all_faults(seed);
    }
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let (hash, steps) = run_all_faults(seed);
        assert_eq!((hash, steps), run_all_faults(seed));
        assert!(steps > 10_000, "{steps}");
        hashes.insert(hash);
    }
    assert_eq!(hashes.len(), 10, "another seed is another run");
}

/// A machine that answers every completion with another READ.
struct Player;

impl Machine for Player {
    fn start<F: Fabric>(&mut self, _now: Instant, fabric: &mut F) {
        let peer = 1 - fabric.address().region;
        fabric.read(at(peer, 512), 8, Token(0));
    }
    fn handle<F: Fabric>(&mut self, _now: Instant, event: Event<'_>, fabric: &mut F) {
        match event {
            Event::Completion { .. } => fabric.send(Address::region(1 - fabric.address().region), &[0; 16]),
            _ => fabric.read(at(1 - fabric.address().region, 512), 8, Token(0)),
        }
    }
}

/// `cargo test --release -p obol-fabric how_fast -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, for a quiet machine"]
fn how_fast() {
    let mut world = World::new(layout(), Network::default(), 1);
    world.add(Player, Clock::new(Instant(0), 100), 3);
    world.add(Player, Clock::new(Instant(0), -100), 3);
    let began = std::time::Instant::now();
    for _ in 0..10_000_000 {
        world.step().expect("the ball never rests");
    }
    println!("{:.1} million events a second", 10.0 / began.elapsed().as_secs_f64());
    let began = std::time::Instant::now();
    let (steps, seeds) =
        (0..20).map(run_all_faults).fold((0, 0), |(n, seeds), (_, steps)| (n + steps, seeds + 1));
    println!("{seeds} runs: {:.1} million a second", steps as f64 / 1e6 / began.elapsed().as_secs_f64());
    let began = std::time::Instant::now();
    for seed in 0..1_000 {
        std::hint::black_box(super::world(10, Network::default(), seed));
    }
    println!("a world of ten nodes in {:.1} us", began.elapsed().as_secs_f64() * 1e3);
}
