//! `obol smr book`: orders on a book that replicas keep.

use super::{ClientOptions, one};
use clap::{Args, Subcommand};
use obol_node::Site;
use obol_smr::{Depth, Executed, LEVELS_MAX, Level, Operation, Order, Side, Verdict};
use obol_term::output::{self, Failure};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum Book {
    /// Buy: at a price or below, or at whatever price there is
    Buy(Trade),
    /// Sell: at a price or above, or at whatever price there is
    Sell(Trade),
    /// Take what is left of an order out of the book
    Cancel {
        /// Its number, as `buy` or `sell` printed it
        order: u64,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        client: ClientOptions,
    },
    /// Show the best prices and what rests at them
    Depth {
        /// Prices of each side
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=LEVELS_MAX as i64))]
        levels: u8,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        client: ClientOptions,
    },
}

/// An order.
#[derive(Debug, Args)]
pub(crate) struct Trade {
    /// How much
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    quantity: u64,
    /// The worst price; what does not trade rests in the book. Without it, what
    /// does not trade is dropped
    #[arg(long, value_name = "PRICE", value_parser = clap::value_parser!(u64).range(1..))]
    at: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    client: ClientOptions,
}

#[derive(Serialize)]
struct FillJson {
    order: u64,
    price: u64,
    quantity: u64,
}

#[derive(Serialize)]
struct ExecutedJson {
    order: u64,
    filled: u64,
    left: u64,
    /// Trades; the first of them follow.
    trades: u64,
    fills: Vec<FillJson>,
}

#[derive(Serialize)]
struct LevelJson {
    price: u64,
    quantity: u64,
}

#[derive(Serialize)]
struct DepthJson {
    bids: Vec<LevelJson>,
    asks: Vec<LevelJson>,
}

/// The replicas keep something else, or are of another release.
fn not_a_book<E>(_: E) -> Failure {
    Failure::Failed(
        "the replicas of this cluster keep no order book; start them with `obol smr server --service orderbook`".to_owned(),
    )
}

fn execute(site: &Site, client: &ClientOptions, order: Order) -> Result<Executed, Failure> {
    let done = one(site, client, Operation::Propose(order.encode()))?;
    let executed = Executed::decode(&done.reply).map_err(not_a_book)?;
    match executed.verdict {
        Verdict::Done => Ok(executed),
        Verdict::NoOrder => Err(Failure::Failed(format!(
            "the book does not have order {}: it was filled or cancelled, or never was",
            executed.order
        ))),
        Verdict::Invalid => Err(not_a_book(())),
    }
}

fn print_json(executed: &Executed) -> Result<(), Failure> {
    let Executed { order, filled, left, count, ref fills, .. } = *executed;
    let fill =
        |fill: &obol_smr::Fill| FillJson { order: fill.order, price: fill.price, quantity: fill.quantity };
    output::json(&ExecutedJson {
        order,
        filled,
        left,
        trades: count,
        fills: fills.iter().map(fill).collect(),
    })?;
    Ok(())
}

fn trade(site: &Site, side: Side, options: &Trade) -> Result<ExitCode, Failure> {
    let &Trade { quantity, at, json, ref client } = options;
    let order = match at {
        Some(price) => Order::Limit { side, price, quantity },
        None => Order::Market { side, quantity },
    };
    let executed = execute(site, client, order)?;
    if json {
        print_json(&executed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Executed { order, filled, left, count, fills, .. } = executed;
    for fill in &fills {
        output::line(format_args!("traded {} at {} with order {}", fill.quantity, fill.price, fill.order))?;
    }
    let more = count - fills.len() as u64;
    if more > 0 {
        output::line(format_args!("and {more} more trades"))?;
    }
    let rest = if at.is_some() { left } else { quantity - filled };
    let what = if at.is_some() { "rests in the book" } else { "was dropped" };
    output::line(format_args!("order {order}: {filled} of {quantity} traded, {rest} {what}"))?;
    Ok(ExitCode::SUCCESS)
}

fn depth(site: &Site, client: &ClientOptions, levels: u8, json: bool) -> Result<ExitCode, Failure> {
    let done = one(site, client, Operation::Query(Depth::query(levels)))?;
    let Depth { bids, asks } = Depth::decode(&done.reply).map_err(not_a_book)?;
    if json {
        let all = |levels: &[Level]| {
            levels.iter().map(|&Level { price, quantity }| LevelJson { price, quantity }).collect()
        };
        output::json(&DepthJson { bids: all(&bids), asks: all(&asks) })?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{:>20} {:>20} | {:<20} {:<20}", "QUANTITY", "BID", "ASK", "QUANTITY"))?;
    for at in 0..bids.len().max(asks.len()) {
        let shown = |level: Option<&Level>| {
            level.map_or_else(Default::default, |level| (level.price.to_string(), level.quantity.to_string()))
        };
        let ((bid, bought), (ask, sold)) = (shown(bids.get(at)), shown(asks.get(at)));
        let line = format!("{bought:>20} {bid:>20} | {ask:<20} {sold:<20}");
        output::line(line.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(site: &Site, book: &Book) -> Result<ExitCode, Failure> {
    match book {
        Book::Buy(options) => trade(site, Side::Buy, options),
        Book::Sell(options) => trade(site, Side::Sell, options),
        Book::Cancel { order, json, client } => {
            let executed = execute(site, client, Order::Cancel { order: *order })?;
            if *json {
                print_json(&executed)?;
            } else {
                output::line(format_args!("order {order}: {} taken out", executed.left))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Book::Depth { levels, json, client } => depth(site, client, *levels, *json),
    }
}
