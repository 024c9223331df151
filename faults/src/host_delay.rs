//! Delays packets between hosts, or loses them in bursts, without touching the queueing disciplines of
//! the host's interfaces: filters redirect the packets to a device of the kind `ifb` with the queueing
//! discipline netem, from which they continue where they were.

use super::iproute2::shown;

/// The most packets that wait in the device at a time. Netem's own limit, 1000, would lose some.
const WAITING_MAX: u32 = 100_000;

/// The device of a host's redirected packets. It exists as long as this.
#[derive(Debug)]
pub(crate) struct Device {
    name: String,
}

/// Its name for what netem does to the packets of a host of the cluster; a machine may be several.
pub(crate) fn name(what: &str, host: u8) -> String {
    format!("obol-{what}{host}")
}

/// Removes a device by its name. Idempotent.
pub(crate) fn remove(name: &str) -> Result<(), String> {
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
    /// Makes it, with what netem does there. Nothing is hit before filters redirect packets to it. One that is left of a fault
    /// agent that ended before it had filters is replaced.
    pub(crate) fn make(name: String, does: &str) -> Result<Self, String> {
        remove(&name)?;
        shown("ip", &format!("link add name {name} type ifb")).map_err(|error| {
            format!("delays and bursts between hosts need the kernel's device ifb (module ifb), and {error}")
        })?;
        let made = Self { name };
        let name = &made.name;
        shown("ip", &format!("link set dev {name} up"))?;
        shown("tc", &format!("qdisc add dev {name} root netem limit {WAITING_MAX} {does}")).map_err(
            |error| {
                format!(
                    "delays and bursts between hosts need the kernel's netem (module sch_netem), and {error}"
                )
            },
        )?;
        Ok(made)
    }

    /// Removes it, with the packets that wait in it.
    pub(crate) fn remove(&self) -> Result<(), String> {
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
        assert!(["late", "burst"].iter().all(|what| name(what, u8::MAX).len() <= 15));
    }
}
