//! DARE's throughput by the number of clients: a leader of one thread that serves all requests that
//! have arrived as one batch (3.3), with the durations of the model, and clients that each wait for
//! their reply.

use super::loggp::{Group, carry, log_update, terms, ud_cost};

/// Requests that are served before the rate is taken.
const REQUESTS: u32 = 20_000;
/// The bytes of a request for a read, and of the reply to a write: the short datagram of 3.3.3.
const SHORT_BYTES: u32 = 1;

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Read,
    Write,
}

/// Requests a second. An upper bound: the leader computes nothing.
pub(super) fn rate(group: Group, clients: u32, request: Request, bytes: u32) -> f64 {
    let (asked, replied) = match request {
        Request::Read => (SHORT_BYTES, bytes),
        Request::Write => (bytes, SHORT_BYTES),
    };
    let (in_cost, out_cost) = (ud_cost(asked), ud_cost(replied));
    // When each client's request is at the leader. Packets follow each other at the gap of their bytes.
    let mut port_in = 0.0_f64;
    let mut arrive = |leaves: f64| {
        port_in = port_in.max(leaves + in_cost.latency) + carry(in_cost, asked);
        port_in
    };
    let mut waiting: Vec<f64> = (0..clients).map(|_| arrive(0.0)).collect();
    let (mut now, mut port_out, mut served) = (0.0_f64, 0.0_f64, 0_u32);
    while served < REQUESTS {
        let next = waiting.iter().copied().fold(f64::INFINITY, f64::min);
        now = now.max(next);
        let (batch, later): (Vec<f64>, Vec<f64>) = waiting.iter().partition(|at| **at <= now);
        let count = batch.len() as u32;
        now += f64::from(count) * in_cost.overhead;
        now += match request {
            Request::Read => terms(group),
            Request::Write => log_update(count * bytes, group.quorum() - 1, group.faulty()),
        };
        waiting = later;
        for _ in 0..count {
            now += out_cost.overhead;
            port_out = port_out.max(now) + carry(out_cost, replied);
            let received = port_out + out_cost.latency + out_cost.overhead;
            waiting.push(arrive(received + in_cost.overhead));
        }
        served += count;
    }
    f64::from(served) / now * 1e6
}

#[cfg(test)]
mod tests {
    use super::super::loggp::{read_request, write_request};
    use super::*;

    const THREE: Group = Group { servers: 3 };

    #[test]
    fn one_client_is_served_at_the_bound_of_the_latency() {
        for (request, us) in
            [(Request::Read, read_request(THREE, 64)), (Request::Write, write_request(THREE, 64))]
        {
            let rate = rate(THREE, 1, request, 64);
            assert!((rate * us / 1e6 - 1.0).abs() < 0.01, "{request:?}: {rate} a second, {us} us each");
        }
    }

    #[test]
    fn the_rate_grows_with_the_clients_and_less_and_less() {
        for request in [Request::Read, Request::Write] {
            let rates: Vec<f64> = (1..=9).map(|clients| rate(THREE, clients, request, 64)).collect();
            assert!(rates.windows(2).all(|pair| pair[1] > pair[0] * 0.99), "{rates:?}");
            assert!(rates[8] > 2.0 * rates[0] && rates[8] < 6.0 * rates[0], "{rates:?}");
        }
    }

    #[test]
    fn writes_are_slower_than_reads_and_no_bound_is_below_what_was_measured() {
        let (reads, writes) = (rate(THREE, 9, Request::Read, 64), rate(THREE, 9, Request::Write, 64));
        assert!(reads > writes);
        assert!(reads > 720_000.0 && writes > 460_000.0, "{reads}, {writes}");
    }
}
