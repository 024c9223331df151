//! What a host has of RDMA, which device would be used, and what is missing.

use super::VerbsError;
use super::arena::{HostMemory, host_memory};
use super::cm::EventChannel;
use super::device::{Choice, Device, DeviceSelector, choose, survey};
use super::interfaces::interfaces;
use std::net::IpAddr;

/// What this host has of RDMA.
pub struct Found {
    pub devices: Vec<Device>,
    /// The one that would be used, if any can be.
    pub chosen: Option<Choice>,
    /// What memory can be registered.
    pub memory: HostMemory,
    /// What is missing, each with how to get it.
    pub missing: Vec<String>,
}

impl Found {
    /// Looks at this host, for the device of an own address if one is given.
    pub fn look(address: Option<IpAddr>) -> Self {
        let mut missing = Vec::new();
        let devices = survey().unwrap_or_else(|error| {
            missing.push(error.to_string());
            Vec::new()
        });
        let selector = DeviceSelector { address, ..DeviceSelector::default() };
        let chosen = if devices.is_empty() {
            None
        } else {
            interfaces()
                .and_then(|interfaces| choose(&devices, &interfaces, &selector))
                .map_err(|error| missing.push(error.to_string()))
                .ok()
        };
        match EventChannel::new() {
            // Without a device the kernel has no use for it, either.
            Err(VerbsError::Failed { .. }) if devices.is_empty() => {}
            Err(error) => missing.push(error.to_string()),
            Ok(_) => {}
        }
        if let Some(chosen) = chosen.as_ref().filter(|chosen| chosen.facts.groups == 0) {
            missing.push(format!(
                "{} knows no multicast: deaths are then found by heartbeats alone; choose another device",
                chosen.device
            ));
        }
        Self { devices, chosen, memory: host_memory(), missing }
    }
}
