//! An order book: a matching engine with price-time priority, as a service.
//!
//! ```text
//! command   limit    1, side (1 byte), price (8), quantity (8)
//!           market   2, side, quantity
//!           cancel   3, order (8)
//! query     depth    4, levels (1)
//! reply     of a command: outcome (1), order (8), filled (8), left (8), number of fills (8), the first
//!           fills: order (8), price (8), quantity (8)
//!           of a query: outcome, levels of bids (1), levels of asks (1), each: price (8), quantity (8)
//! ```
//!
//! Prices and quantities are integers, in units that the users agree on. An order is executed at the
//! prices of the orders that it meets: the best price first, and at one price the oldest order first.
//! What is left of a limit order rests in the book; what is left of a market order is dropped. The
//! book numbers the orders, so their numbers are their order in time.

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::service::{LoadError, Service};
use core::cmp::Reverse;
use core::ops::Bound;
use obol_fabric::sealed::word;
use std::collections::BTreeMap;
use strum::FromRepr;

mod aside;

use aside::{Aside, Former, Image, Rest};

const REPLY_HEAD_BYTES: usize = 1 + 4 * 8;
const FILL_BYTES: usize = 3 * 8;
/// Fills that a reply lists; the others are counted.
pub const FILLS_MAX: usize = (PAYLOAD_BYTES_MAX - REPLY_HEAD_BYTES) / FILL_BYTES;
/// Levels of each side that a query returns at most.
pub const LEVELS_MAX: u8 = ((PAYLOAD_BYTES_MAX - 3) / (2 * 16)) as u8;
/// Bytes of an order in a snapshot, and of what precedes all orders.
const SAVED_BYTES: usize = 4 * 8;
const NEWEST_BYTES: usize = 8;
/// The highest number of an order that may be loaded, so that counting on never overflows.
const NEWEST_MAX: u64 = u64::MAX / 2;
/// Orders of a part of a snapshot.
const PART_ORDERS: usize = 32;

const LIMIT: u8 = 1;
const MARKET: u8 = 2;
const CANCEL: u8 = 3;
const DEPTH: u8 = 4;

/// Whether an order buys or sells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, FromRepr)]
#[repr(u8)]
pub enum Side {
    /// At this price or below.
    Buy = 1,
    /// At this price or above.
    Sell = 2,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Trade at this price or a better one; what is left rests in the book.
    Limit {
        /// Buy or sell.
        side: Side,
        /// At least 1.
        price: u64,
        /// At least 1.
        quantity: u64,
    },
    /// Trade at the prices that there are; what is left is dropped.
    Market {
        /// Buy or sell.
        side: Side,
        /// At least 1.
        quantity: u64,
    },
    /// Take what is left of an order out of the book.
    Cancel { order: u64 },
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub enum Verdict {
    /// It was executed.
    Done = 1,
    /// The book does not have this order: it was filled or cancelled, or never was.
    NoOrder = 2,
    /// It is not a command: a price or quantity is zero, or the bytes are not understood.
    Invalid = 3,
}

/// A trade with an order in the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fill {
    /// The order that was in the book.
    pub order: u64,
    pub price: u64,
    /// How much was traded.
    pub quantity: u64,
}

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// How it ended.
    pub verdict: Verdict,
    /// The number of the order.
    pub order: u64,
    /// How much of it was traded.
    pub filled: u64,
    /// How much of it rests in the book; of a cancellation, how much it took out.
    pub left: u64,
    /// How many trades there were.
    pub count: u64,
    /// The first [`FILLS_MAX`] of them.
    pub fills: Vec<Fill>,
}

/// A price with all that rests at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    pub price: u64,
    /// The sum of the quantities.
    pub quantity: u64,
}

/// The best prices of a book, the best one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Of orders that buy.
    pub bids: Vec<Level>,
    /// Of orders that sell.
    pub asks: Vec<Level>,
}

impl Order {
    /// As the payload of a command.
    pub fn encode(self) -> Box<[u8]> {
        let mut out = Vec::new();
        match self {
            Self::Limit { side, price, quantity } => {
                out.extend_from_slice(&[LIMIT, side as u8]);
                out.extend_from_slice(&price.to_le_bytes());
                out.extend_from_slice(&quantity.to_le_bytes());
            }
            Self::Market { side, quantity } => {
                out.extend_from_slice(&[MARKET, side as u8]);
                out.extend_from_slice(&quantity.to_le_bytes());
            }
            Self::Cancel { order } => {
                out.push(CANCEL);
                out.extend_from_slice(&order.to_le_bytes());
            }
        }
        out.into()
    }

    /// `None` if the bytes are not a valid command.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.split_first()?;
        let side = || Side::from_repr(*rest.first()?);
        let positive = |at: usize| word(rest.get(at..)?, 0).filter(|number| *number > 0);
        let (order, len) = match kind {
            LIMIT => (Self::Limit { side: side()?, price: positive(1)?, quantity: positive(9)? }, 17),
            MARKET => (Self::Market { side: side()?, quantity: positive(1)? }, 9),
            CANCEL => (Self::Cancel { order: word(rest, 0)? }, 8),
            _ => return None,
        };
        (rest.len() == len).then_some(order)
    }
}

impl Executed {
    const fn refused(verdict: Verdict, order: u64) -> Self {
        Self { verdict, order, filled: 0, left: 0, count: 0, fills: Vec::new() }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.verdict as u8);
        for number in [self.order, self.filled, self.left, self.count] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for fill in &self.fills {
            for number in [fill.order, fill.price, fill.quantity] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
    }

    /// What the reply to a command says.
    pub fn decode(reply: &[u8]) -> Result<Self, LoadError> {
        let (verdict, rest) = reply.split_first().ok_or(LoadError)?;
        let verdict = Verdict::from_repr(*verdict).ok_or(LoadError)?;
        let number = |n| word(rest, n).ok_or(LoadError);
        let [order, filled, left, count] = [number(0)?, number(1)?, number(2)?, number(3)?];
        let (fills, cut) = rest[4 * 8..].as_chunks::<FILL_BYTES>();
        if !cut.is_empty() {
            return Err(LoadError);
        }
        let fill = |fill: &[u8; FILL_BYTES]| {
            let number = |n| word(fill, n).ok_or(LoadError);
            Ok(Fill { order: number(0)?, price: number(1)?, quantity: number(2)? })
        };
        let fills = fills.iter().map(fill).collect::<Result<_, _>>()?;
        Ok(Self { verdict, order, filled, left, count, fills })
    }
}

impl Depth {
    /// A query for the best levels of each side, at most [`LEVELS_MAX`].
    pub fn query(levels: u8) -> Box<[u8]> {
        Box::new([DEPTH, levels])
    }

    /// What the reply to such a query says.
    pub fn decode(reply: &[u8]) -> Result<Self, LoadError> {
        let (&[done, bids, asks], rest) = reply.split_first_chunk::<3>().ok_or(LoadError)?;
        let (levels, cut) = rest.as_chunks::<16>();
        let count = usize::from(bids) + usize::from(asks);
        if done != Verdict::Done as u8 || !cut.is_empty() || levels.len() != count {
            return Err(LoadError);
        }
        let level = |bytes: &[u8; 16]| {
            let number = |n| word(bytes, n).ok_or(LoadError);
            Ok(Level { price: number(0)?, quantity: number(1)? })
        };
        let all: Vec<Level> = levels.iter().map(level).collect::<Result<_, _>>()?;
        let (bids, asks) = all.split_at(usize::from(bids));
        Ok(Self { bids: bids.to_vec(), asks: asks.to_vec() })
    }
}

/// Quantities, the highest price first, then the oldest order.
type Bids = BTreeMap<(Reverse<u64>, u64), u64>;
/// Quantities, the lowest price first, then the oldest order.
type Asks = BTreeMap<(u64, u64), u64>;
/// Sides and prices.
type Orders = BTreeMap<u64, (Side, u64)>;

/// The book: what rests in it, in the order in which it is traded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OrderBook {
    bids: Bids,
    asks: Asks,
    /// How much rests at each price.
    bid_levels: BTreeMap<Reverse<u64>, u128>,
    ask_levels: BTreeMap<u64, u128>,
    /// Where the orders are.
    orders: Orders,
    /// The number of the newest order.
    newest: u64,
    aside: Aside,
}

impl OrderBook {
    /// How many orders rest in it.
    pub fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// The best levels of each side.
    pub fn depth(&self, levels: u8) -> Depth {
        let most = usize::from(levels.min(LEVELS_MAX));
        let level =
            |(price, sum): (u64, &u128)| Level { price, quantity: u64::try_from(*sum).unwrap_or(u64::MAX) };
        let bids = self.bid_levels.iter().map(|(Reverse(price), sum)| level((*price, sum)));
        let asks = self.ask_levels.iter().map(|(price, sum)| level((*price, sum)));
        Depth { bids: bids.take(most).collect(), asks: asks.take(most).collect() }
    }

    /// Executes a command.
    fn execute(&mut self, order: Order) -> Executed {
        match order {
            Order::Limit { side, price, quantity } => {
                let mut executed = self.trade(side, Some(price), quantity);
                executed.left = quantity - executed.filled;
                if executed.left > 0 {
                    self.rest(side, price, executed.order, executed.left);
                }
                executed
            }
            Order::Market { side, quantity } => self.trade(side, None, quantity),
            Order::Cancel { order } => match self.take_out(order) {
                Some(left) => Executed { left, ..Executed::refused(Verdict::Done, order) },
                None => Executed::refused(Verdict::NoOrder, order),
            },
        }
    }

    /// A new order meets those of the other side, as far as its price allows.
    fn trade(&mut self, side: Side, limit: Option<u64>, quantity: u64) -> Executed {
        self.newest += 1;
        let mut executed = Executed::refused(Verdict::Done, self.newest);
        while executed.filled < quantity {
            let Some((order, price, there)) = self.best(side) else { break };
            let is_good = limit.is_none_or(|limit| match side {
                Side::Buy => price <= limit,
                Side::Sell => price >= limit,
            });
            if !is_good {
                break;
            }
            let traded = there.min(quantity - executed.filled);
            if traded == there {
                self.take_out(order);
            } else {
                self.rest(side.other(), price, order, there - traded);
            }
            executed.filled += traded;
            executed.count += 1;
            if executed.fills.len() < FILLS_MAX {
                executed.fills.push(Fill { order, price, quantity: traded });
            }
        }
        executed
    }

    /// The order that one of a side meets first, with its price and quantity.
    fn best(&self, side: Side) -> Option<(u64, u64, u64)> {
        match side {
            Side::Buy => self.asks.first_key_value().map(|(&(price, order), &there)| (order, price, there)),
            Side::Sell => {
                let best = self.bids.first_key_value();
                best.map(|(&(Reverse(price), order), &there)| (order, price, there))
            }
        }
    }

    /// So much of an order rests at its price.
    fn rest(&mut self, side: Side, price: u64, order: u64, quantity: u64) {
        self.keep(order);
        self.orders.insert(order, (side, price));
        let before = match side {
            Side::Buy => self.bids.insert((Reverse(price), order), quantity),
            Side::Sell => self.asks.insert((price, order), quantity),
        };
        self.count(side, price, before.unwrap_or(0), quantity);
    }

    /// Takes an order out; returns what was left of it.
    fn take_out(&mut self, order: u64) -> Option<u64> {
        self.keep(order);
        let (side, price) = self.orders.remove(&order)?;
        let left = match side {
            Side::Buy => self.bids.remove(&(Reverse(price), order)),
            Side::Sell => self.asks.remove(&(price, order)),
        }?;
        self.count(side, price, left, 0);
        Some(left)
    }

    /// An order at this price has another quantity.
    fn count(&mut self, side: Side, price: u64, before: u64, now: u64) {
        match side {
            Side::Buy => aside::count(&mut self.bid_levels, Reverse(price), before, now),
            Side::Sell => aside::count(&mut self.ask_levels, price, before, now),
        }
    }

    /// An order, if it rests.
    fn image(&self, order: u64) -> Option<Image> {
        let &(side, price) = self.orders.get(&order)?;
        let quantity = match side {
            Side::Buy => self.bids.get(&(Reverse(price), order)),
            Side::Sell => self.asks.get(&(price, order)),
        };
        Some(Image { side, price, quantity: *quantity? })
    }

    /// An order is about to change: a save that has not written it needs it as it is.
    fn keep(&mut self, order: u64) {
        if self.aside.needs(order)
            && let Some(image) = self.image(order)
        {
            self.aside.keep(order, image);
        }
    }

    /// Loads an order of a saved book.
    fn load_one(&mut self, bytes: &[u8; SAVED_BYTES]) -> Option<()> {
        let [side, price, order, quantity] =
            [word(bytes, 0)?, word(bytes, 1)?, word(bytes, 2)?, word(bytes, 3)?];
        let side = Side::from_repr(u8::try_from(side).ok()?)?;
        let is_known = order == 0 || order > self.newest || self.orders.contains_key(&order);
        if is_known || price == 0 || quantity == 0 {
            return None;
        }
        self.rest(side, price, order, quantity);
        Some(())
    }

    /// Whether orders could trade, which never rest.
    fn is_crossed(&self) -> bool {
        match (self.best(Side::Sell), self.best(Side::Buy)) {
            (Some((_, bid, _)), Some((_, ask, _))) => bid >= ask,
            _ => false,
        }
    }
}

impl Side {
    /// The side that it trades with.
    const fn other(self) -> Self {
        match self {
            Self::Buy => Self::Sell,
            Self::Sell => Self::Buy,
        }
    }
}

fn save_one(order: u64, image: Image, to: &mut Vec<u8>) {
    for number in [image.side as u64, image.price, order, image.quantity] {
        to.extend_from_slice(&number.to_le_bytes());
    }
}

impl Service for OrderBook {
    const KIND: u8 = 2;

    fn apply(&mut self, command: &[u8], reply: &mut Vec<u8>) {
        let executed = match Order::decode(command) {
            Some(order) => self.execute(order),
            None => Executed::refused(Verdict::Invalid, 0),
        };
        executed.encode(reply);
    }

    fn read(&self, query: &[u8], reply: &mut Vec<u8>) {
        let &[DEPTH, levels] = query else { return reply.push(Verdict::Invalid as u8) };
        let Depth { bids, asks } = self.depth(levels);
        reply.extend_from_slice(&[Verdict::Done as u8, bids.len() as u8, asks.len() as u8]);
        for level in bids.iter().chain(&asks) {
            reply.extend_from_slice(&level.price.to_le_bytes());
            reply.extend_from_slice(&level.quantity.to_le_bytes());
        }
    }

    fn save(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.newest.to_le_bytes());
        for &order in self.orders.keys() {
            self.image(order).into_iter().for_each(|image| save_one(order, image, to));
        }
    }

    fn load(&mut self, from: &[u8]) -> Result<(), LoadError> {
        let (mut book, mut from) = (self.begin_load(), from.to_vec());
        book.load_part(&mut from)?;
        book.end_load(&from)?;
        *self = book;
        Ok(())
    }

    fn begin_save(&mut self) -> Option<u64> {
        self.aside.begin_save(self.newest);
        Some((NEWEST_BYTES + SAVED_BYTES * self.len()) as u64)
    }

    fn save_part(&mut self, to: &mut Vec<u8>) -> Option<bool> {
        let Former { newest, mut upto, is_begun } = self.aside.former()?;
        if !is_begun {
            to.extend_from_slice(&newest.to_le_bytes());
        }
        // Of those that rest, and those that are kept as they were, the first ones.
        let not_written = (Bound::Excluded(upto), Bound::Included(newest));
        let mut rest = self.orders.range(not_written).map(|(order, _)| *order).peekable();
        for _ in 0..PART_ORDERS {
            let kept = self.aside.first_kept();
            let order = match (rest.peek().copied(), kept) {
                (Some(order), Some(kept)) => order.min(kept),
                (Some(order), None) | (None, Some(order)) => order,
                (None, None) => return Some(self.aside.saved(None)),
            };
            rest.next_if_eq(&order);
            let image = if kept == Some(order) { self.aside.take_kept() } else { self.image(order) };
            image.into_iter().for_each(|image| save_one(order, image, to));
            upto = order;
        }
        Some(self.aside.saved(Some(upto)))
    }

    fn end_save(&mut self) {
        self.aside.end_save();
    }

    fn begin_load(&self) -> Self {
        Self { aside: Aside::blank(), ..Self::default() }
    }

    fn load_part(&mut self, from: &mut Vec<u8>) -> Result<(), LoadError> {
        let mut rest = &from[..];
        if self.aside.is_blank()
            && let Some((newest, after)) = rest.split_first_chunk::<NEWEST_BYTES>()
        {
            self.newest = Some(u64::from_le_bytes(*newest)).filter(|n| *n <= NEWEST_MAX).ok_or(LoadError)?;
            self.aside.set_loaded();
            rest = after;
        }
        if !self.aside.is_blank() {
            let (orders, after) = rest.as_chunks::<SAVED_BYTES>();
            orders.iter().try_for_each(|bytes| self.load_one(bytes)).ok_or(LoadError)?;
            rest = after;
        }
        let loaded = from.len() - rest.len();
        from.drain(..loaded);
        Ok(())
    }

    fn end_load(&mut self, rest: &[u8]) -> Result<(), LoadError> {
        let is_whole = rest.is_empty() && !self.aside.is_blank() && !self.is_crossed();
        if is_whole { Ok(()) } else { Err(LoadError) }
    }

    fn work(&mut self) -> bool {
        self.aside.work()
    }

    fn discard(&mut self, other: Self) {
        let Self { bids, asks, bid_levels, ask_levels, orders, newest: _, aside } = other;
        self.aside.discard(Rest { bids, asks, bid_levels, ask_levels, orders }, aside);
    }

    #[cfg(feature = "mutants")]
    fn plant(&mut self, mutant: crate::Mutant) {
        if mutant == crate::Mutant::SaveLate {
            self.aside.save_late();
        }
    }
}

#[cfg(test)]
mod tests;
