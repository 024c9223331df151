//! Delays packets between hosts, without touching the queueing disciplines of the host's interfaces:
//! filters redirect the packets to a device of the kind `ifb` with the queueing discipline netem,
//! from which they continue where they were.

use super::iproute2::shown;
use obol_fabric::Nanos;

/// The most packets that wait in the device at a time. Netem's own limit, 1000, would lose some.
const WAITING_MAX: u32 = 100_000;

/// The device of a host's delayed packets. It exists as long as this.
#[derive(Debug)]
pub(super) struct Device {
    name: String,
}

/// Its name for a host of the cluster; a machine may be several.
pub(super) fn name(host: u8) -> String {
    format!("obol-late{host}")
}

/// Removes a device by its name. Idempotent.
pub(super) fn remove(name: &str) -> Result<(), String> {
    if !exists(name)? {
        return Ok(());
    }
    shown("ip", &format!("link del dev {name}")).map(drop)
}

fn exists(name: &str) -> Result<bool, String> {
    // `ip link show dev` fails for several reasons.
    let all = shown("ip", "-oneline link show")?;
    Ok(all.lines().filter_map(|line| line.split(": ").nth(1)).any(|found| found == name))
}

impl Device {
    /// Makes it. Nothing is delayed before filters redirect packets to it. One that is left of a fault
    /// agent that ended before it had filters is replaced.
    pub(super) fn make(name: String, by: Nanos) -> Result<Self, String> {
        remove(&name)?;
        shown("ip", &format!("link add name {name} type ifb")).map_err(|error| {
            format!("delays between hosts need the kernel's device ifb (module ifb), and {error}")
        })?;
        let made = Self { name };
        let name = &made.name;
        shown("ip", &format!("link set dev {name} up"))?;
        let micros = by.0.div_ceil(1000);
        shown("tc", &format!("qdisc add dev {name} root netem limit {WAITING_MAX} delay {micros}us"))
            .map_err(|error| {
                format!("delays between hosts need the kernel's netem (module sch_netem), and {error}")
            })?;
        Ok(made)
    }

    /// Removes it, with the packets that wait in it.
    pub(super) fn remove(&self) -> Result<(), String> {
        remove(&self.name)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // If that fails, the undo record still names it.
        let _ = self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_an_interface() {
        // IFNAMSIZ, without the byte at its end.
        assert!(name(u8::MAX).len() <= 15);
    }
}
