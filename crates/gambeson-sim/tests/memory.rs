//! What a network takes of memory before anything is sent: alone in its process, so that nothing else is counted.
#![cfg(target_os = "linux")]

use gambeson_sim::fabric::{Fabric, FabricConfig};
use gambeson_sim::filter::{FilterConfig, Scheme};
use gambeson_sim::routing::Routing;
use gambeson_sim::security::{CacheConfig, SecurityConfig};
use gambeson_sim::topology::{Topology, TopologyConfig};

/// Resident bytes of this process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says it");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB");
    kib << 10
}

#[test]
fn an_idle_port_takes_less_than_4_kib() {
    let config = TopologyConfig::Mesh { dims: vec![256, 256], hosts: 1 };
    let security = SecurityConfig { cache: Some(CacheConfig::of_entries(1024)), ..SecurityConfig::skc_paper() };
    let filter = FilterConfig { scheme: Scheme::DuplicateTable, ..FilterConfig::default() };
    let lanes = FabricConfig { classes: 4, ..FabricConfig::default() };
    let before = resident();
    let topology = Topology::new(&config).expect("a mesh");
    let fabric = Fabric::new(topology, &lanes, Routing::Adaptive, &security, &filter, 2048).expect("a fabric");
    let each = (resident() - before) / u64::from(fabric.topology().ports());
    // What is not resident was not measured: a port has two lines of memory at the least.
    assert!((128..4096).contains(&each), "{each} bytes a port");
}
