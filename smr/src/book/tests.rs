//! The book against a model that looks at every order each time.

use super::*;
use obol_rng::Rng;

/// All orders that rest, in the order in which they came.
#[derive(Default)]
struct Model {
    resting: Vec<(u64, Side, u64, u64)>,
    newest: u64,
}

impl Model {
    fn best(&self, side: Side, limit: Option<u64>) -> Option<usize> {
        let meets = |price: u64| match (side, limit) {
            (_, None) => true,
            (Side::Buy, Some(limit)) => price <= limit,
            (Side::Sell, Some(limit)) => price >= limit,
        };
        let others = self.resting.iter().enumerate();
        let others = others.filter(|(_, order)| order.1 != side && meets(order.2));
        // Of equal prices, the first is the oldest.
        others
            .min_by_key(|(_, order)| if side == Side::Buy { order.2 } else { u64::MAX - order.2 })
            .map(|(at, _)| at)
    }

    fn execute(&mut self, order: Order) -> Executed {
        let (side, limit, quantity) = match order {
            Order::Limit { side, price, quantity } => (side, Some(price), quantity),
            Order::Market { side, quantity } => (side, None, quantity),
            Order::Cancel { order } => {
                return match self.resting.iter().position(|one| one.0 == order) {
                    Some(at) => {
                        let left = self.resting.remove(at).3;
                        Executed { left, ..Executed::refused(Verdict::Done, order) }
                    }
                    None => Executed::refused(Verdict::NoOrder, order),
                };
            }
        };
        self.newest += 1;
        let mut left = quantity;
        let mut executed = Executed::refused(Verdict::Done, self.newest);
        while let Some(at) = self.best(side, limit).filter(|_| left > 0) {
            let (order, _, price, there) = self.resting[at];
            let traded = left.min(there);
            left -= traded;
            self.resting[at].3 -= traded;
            if traded == there {
                self.resting.remove(at);
            }
            executed.filled += traded;
            executed.count += 1;
            executed.fills.push(Fill { order, price, quantity: traded });
        }
        executed.fills.truncate(FILLS_MAX);
        if let Some(price) = limit.filter(|_| left > 0) {
            executed.left = left;
            self.resting.push((self.newest, side, price, left));
        }
        executed
    }

    fn depth(&self, levels: u8) -> Depth {
        let side = |side: Side| {
            let mut prices: Vec<u64> =
                self.resting.iter().filter(|order| order.1 == side).map(|order| order.2).collect();
            prices.sort_unstable();
            prices.dedup();
            if side == Side::Buy {
                prices.reverse();
            }
            prices.truncate(usize::from(levels.min(LEVELS_MAX)));
            let at = |price| {
                let there = self.resting.iter().filter(|order| (order.1, order.2) == (side, price));
                Level { price, quantity: there.map(|order| order.3).sum() }
            };
            prices.into_iter().map(at).collect()
        };
        Depth { bids: side(Side::Buy), asks: side(Side::Sell) }
    }
}

fn apply(book: &mut OrderBook, order: Order) -> Executed {
    let mut reply = Vec::new();
    book.apply(&order.encode(), &mut reply);
    assert!(reply.len() <= PAYLOAD_BYTES_MAX);
    Executed::decode(&reply).expect("valid")
}

fn saved(book: &OrderBook) -> Vec<u8> {
    let mut bytes = Vec::new();
    book.save(&mut bytes);
    bytes
}

/// Prices within a few units of each other, so that most orders meet others.
fn any_order(rng: &mut Rng, newest: u64, is_deep: bool) -> Order {
    let side = if rng.coin() { Side::Buy } else { Side::Sell };
    let most = if is_deep { 3 } else { 40 };
    match rng.below(10) {
        0..=6 => Order::Limit { side, price: 100 + rng.below(12), quantity: 1 + rng.below(most) },
        7 => Order::Market { side, quantity: 1 + rng.below(120) },
        _ => Order::Cancel { order: rng.below(newest + 2) },
    }
}

#[test]
fn a_book_trades_as_a_model_does_that_looks_at_every_order() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let (mut book, mut model) = (OrderBook::default(), Model::default());
        for step in 0..400 {
            let order = any_order(&mut rng, model.newest, seed % 2 == 0);
            let (ours, theirs) = (apply(&mut book, order), model.execute(order));
            assert_eq!(ours, theirs, "seed {seed}, step {step}: {order:?}");
            assert_eq!(book.len(), model.resting.len(), "seed {seed}, step {step}");
            let levels = rng.below(256) as u8;
            let mut reply = Vec::new();
            book.read(&Depth::query(levels), &mut reply);
            assert_eq!(Depth::decode(&reply), Ok(model.depth(levels)), "seed {seed}, step {step}");
        }
    }
}

#[test]
fn the_best_price_trades_first_and_at_one_price_the_oldest_order() {
    let mut book = OrderBook::default();
    let sell = |price, quantity| Order::Limit { side: Side::Sell, price, quantity };
    for (price, quantity) in [(11, 5), (10, 3), (10, 4)] {
        assert_eq!(apply(&mut book, sell(price, quantity)).left, quantity);
    }
    let bought = apply(&mut book, Order::Limit { side: Side::Buy, price: 11, quantity: 9 });
    let fill = |order, price, quantity| Fill { order, price, quantity };
    assert_eq!(bought.fills, [fill(2, 10, 3), fill(3, 10, 4), fill(1, 11, 2)]);
    assert_eq!((bought.order, bought.filled, bought.left, bought.count), (4, 9, 0, 3));
    assert_eq!(book.depth(9), Depth { bids: vec![], asks: vec![Level { price: 11, quantity: 3 }] });
    let dropped = apply(&mut book, Order::Market { side: Side::Buy, quantity: 8 });
    assert_eq!((dropped.filled, dropped.left), (3, 0));
    assert!(book.is_empty());
    assert_eq!(apply(&mut book, Order::Cancel { order: 1 }).verdict, Verdict::NoOrder);
}

#[test]
fn a_reply_lists_the_first_trades_and_counts_all() {
    let mut book = OrderBook::default();
    let count = FILLS_MAX as u64 + 5;
    for _ in 0..count {
        apply(&mut book, Order::Limit { side: Side::Buy, price: 7, quantity: 2 });
    }
    let sold = apply(&mut book, Order::Market { side: Side::Sell, quantity: u64::MAX });
    assert_eq!((sold.count, sold.filled, sold.fills.len()), (count, 2 * count, FILLS_MAX));
}

#[test]
fn what_is_no_command_changes_nothing() {
    let mut book = OrderBook::default();
    apply(&mut book, Order::Limit { side: Side::Buy, price: 7, quantity: 2 });
    let before = book.clone();
    let limit = Order::Limit { side: Side::Sell, price: 5, quantity: 1 }.encode();
    let with = |at: usize, value: u8| {
        let mut bytes = limit.to_vec();
        bytes[at] = value;
        bytes
    };
    let long = [&limit[..], &[0]].concat();
    let invalid = [vec![], vec![9], with(1, 3), with(2, 0), with(10, 0), limit[..17].to_vec(), long];
    for bytes in invalid {
        let mut reply = Vec::new();
        book.apply(&bytes, &mut reply);
        let verdict = Executed::decode(&reply).map(|executed| executed.verdict);
        assert_eq!((verdict, &book), (Ok(Verdict::Invalid), &before), "{bytes:?}");
    }
    let mut reply = Vec::new();
    book.read(&limit, &mut reply);
    assert_eq!(Depth::decode(&reply), Err(LoadError), "a command is not a query");
}

#[test]
fn a_saved_book_continues_as_the_first_one_and_a_damaged_one_is_refused() {
    let mut rng = Rng::new(5);
    let mut book = OrderBook::default();
    for _ in 0..200 {
        let order = any_order(&mut rng, book.newest, true);
        apply(&mut book, order);
    }
    let bytes = saved(&book);
    let mut other = OrderBook::default();
    assert_eq!(other.load(&bytes), Ok(()));
    assert_eq!(other, book);
    for _ in 0..200 {
        let order = any_order(&mut rng, book.newest, true);
        assert_eq!(apply(&mut other, order), apply(&mut book, order));
    }
    let refused = |bytes: &[u8]| assert_eq!(OrderBook::default().load(bytes), Err(LoadError), "{bytes:?}");
    refused(b"");
    refused(&bytes[..bytes.len() - 1]);
    let one = |side: u64, price: u64, order: u64| [side, price, order, 1].map(u64::to_le_bytes).concat();
    let of = |orders: &[Vec<u8>]| [9u64.to_le_bytes().to_vec(), orders.concat()].concat();
    assert_eq!(OrderBook::default().load(&of(&[one(1, 4, 1), one(2, 5, 2)])), Ok(()));
    refused(&of(&[one(1, 5, 1), one(2, 5, 2)]));
    refused(&of(&[one(1, 4, 1), one(2, 5, 1)]));
    refused(&of(&[one(1, 4, 10)]));
    refused(&of(&[one(3, 4, 1)]));
    refused(&of(&[one(1, 0, 1)]));
    refused(&u64::MAX.to_le_bytes());
}

/// Saves a book in parts while it goes on trading, loads the bytes in any pieces, and returns whether the
/// loaded book is the one of the begin. Every third save is begun again after some parts.
fn is_saved_as_it_was(seed: u64, mut book: OrderBook) -> bool {
    let mut rng = Rng::new(seed);
    let trade = |book: &mut OrderBook, rng: &mut Rng, count: u64| {
        for _ in 0..count {
            let order = any_order(rng, book.newest, true);
            apply(book, order);
        }
    };
    let count = rng.below(3000);
    trade(&mut book, &mut rng, count);
    let begin = |book: &mut OrderBook| {
        let whole = book.begin_save();
        assert_eq!(whole, Some((NEWEST_BYTES + SAVED_BYTES * book.len()) as u64));
        (book.clone(), saved(book))
    };
    let (mut then, mut then_bytes) = begin(&mut book);
    if seed.is_multiple_of(3) {
        let mut given_up = Vec::new();
        for _ in 0..rng.below(5) {
            trade(&mut book, &mut rng, 30);
            book.save_part(&mut given_up);
        }
        (then, then_bytes) = begin(&mut book);
    }
    let (mut bytes, mut loading, mut come) = (Vec::new(), OrderBook::default().begin_load(), Vec::new());
    let mut at = 0;
    let mut is_last = false;
    while !is_last {
        let count = rng.below(40);
        trade(&mut book, &mut rng, count);
        let before = bytes.len();
        is_last = book.save_part(&mut bytes).expect("a save is under way");
        assert!(bytes.len() - before <= NEWEST_BYTES + PART_ORDERS * SAVED_BYTES, "a step");
        while at < bytes.len() && (is_last || rng.coin()) {
            let end = at + 1 + rng.below((bytes.len() - at) as u64) as usize;
            come.extend_from_slice(&bytes[at..end]);
            at = end;
            if loading.load_part(&mut come).is_err() {
                return false;
            }
        }
    }
    assert_eq!(book.save_part(&mut bytes), None, "it has ended");
    let is_loaded = loading.end_load(&come).is_ok();
    is_loaded && loading == then && bytes == then_bytes
}

#[test]
fn a_save_in_parts_is_the_book_of_its_begin_whatever_is_traded_meanwhile() {
    for seed in 0..150 {
        assert!(is_saved_as_it_was(seed, OrderBook::default()), "seed {seed}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_save_that_sees_later_trades_is_caught() {
    let late = || {
        let mut book = OrderBook::default();
        book.plant(crate::Mutant::SaveLate);
        book
    };
    assert!((0..150).any(|seed| !is_saved_as_it_was(seed, late())));
}

#[test]
fn what_is_no_saved_book_is_refused_in_parts_too() {
    let mut rng = Rng::new(8);
    let mut book = OrderBook::default();
    for _ in 0..300 {
        let order = any_order(&mut rng, book.newest, true);
        apply(&mut book, order);
    }
    let bytes = saved(&book);
    let load = |bytes: &[u8]| {
        let (mut loading, mut from) = (book.begin_load(), bytes.to_vec());
        loading.load_part(&mut from)?;
        loading.end_load(&from)
    };
    assert_eq!(
        (load(&bytes), load(&bytes[..8])),
        (Ok(()), Ok(())),
        "that one is of orders that were all filled"
    );
    for cut in [0, 7, bytes.len() - 1] {
        assert_eq!(load(&bytes[..cut]), Err(LoadError), "{cut}");
    }
    let twice = [&bytes[..], &bytes[8..40]].concat();
    assert_eq!(load(&twice), Err(LoadError));
}

#[test]
fn a_book_is_dropped_in_steps() {
    let mut book = OrderBook::default();
    for n in 0..2000 {
        let side = if n % 2 == 0 { Side::Buy } else { Side::Sell };
        apply(
            &mut book,
            Order::Limit { side, price: if n % 2 == 0 { 1 + n } else { 10_000 + n }, quantity: 2 },
        );
    }
    book.begin_save();
    for order in 1..=600 {
        apply(&mut book, Order::Cancel { order });
    }
    book.end_save();
    let mut steps = 0;
    while book.work() {
        steps += 1;
    }
    assert!(steps >= 2, "600 former images: {steps}");
    let mut next = OrderBook::default();
    next.discard(book);
    let mut steps = 0;
    while next.work() {
        steps += 1;
    }
    // 1,400 orders, each in a side, in the index, and alone in a level.
    assert!(steps >= 3 * 1400 / 64 - 5, "{steps}");
    assert_eq!(next, OrderBook::default());
}
