//! The chains of the fake switch.

use crate::view::{Chain, ChainHop, FunctionCounter, FunctionLimit, SharedState};

/// Returns a chain with one hop that is up and one that is down, and a chain that does not run.
pub(super) fn chains() -> Vec<Chain> {
    let firewall = ChainHop {
        name: "fw".to_owned(),
        function: "firewall".to_owned(),
        class: "inline".to_owned(),
        state: "up".to_owned(),
        parallel: None,
        instances: 1,
        restarts: 0,
        failure: String::new(),
        limits: Vec::new(),
        shared: Some(SharedState {
            state: "loaded".to_owned(),
            summary: "3 rules".to_owned(),
            failure: String::new(),
            loads: 1,
        }),
        packets: 1_000_000,
        bytes: 640_000_000,
        next: 999_958,
        skipped: 0,
        dropped: 42,
        to_port: 0,
        passed: 0,
        lost: 0,
        depth: 0,
        shunned_flows: 3,
        shunned_passed: 40,
        shunned_dropped: 2,
        sent: 5,
        not_sent: 1,
        nanos_per_packet: Some(61.5),
        latency_nanos: Some(1_968.0),
        counters: vec![FunctionCounter {
            name: "denied".to_owned(),
            value: 42,
        }],
        report: Vec::new(),
    };
    let monitor = ChainHop {
        name: "watch".to_owned(),
        function: "monitor".to_owned(),
        class: "isolated".to_owned(),
        state: "down".to_owned(),
        restarts: 3,
        failure: "its process ended: signal: 11 (SIGSEGV)".to_owned(),
        limits: vec![
            limit("processes", 1, "cgroup", ""),
            limit(
                "cpu_percent",
                50,
                "nothing",
                "/sys/fs/cgroup/cpu: Read-only file system (os error 30)",
            ),
        ],
        shared: None,
        packets: 900_000,
        next: 899_000,
        dropped: 0,
        lost: 958,
        depth: 17,
        shunned_flows: 0,
        shunned_passed: 0,
        shunned_dropped: 0,
        sent: 0,
        not_sent: 0,
        nanos_per_packet: None,
        latency_nanos: Some(21_000.0),
        counters: Vec::new(),
        report: vec!["10.0.0.1 64000".to_owned()],
        ..firewall.clone()
    };
    let module = ChainHop {
        name: "module".to_owned(),
        function: "wasm:/nonexistent.wasm".to_owned(),
        class: "inline".to_owned(),
        state: "down".to_owned(),
        ..ChainHop::default()
    };
    let edge = Chain {
        name: "edge".to_owned(),
        near: 100,
        far: 101,
        lanes: 1,
        state: "up".to_owned(),
        problem: String::new(),
        hops: vec![firewall, monitor],
    };
    let rim = Chain {
        name: "rim".to_owned(),
        near: 200,
        far: 200,
        lanes: 0,
        state: "down".to_owned(),
        problem: "hop module: function wasm:/nonexistent.wasm: No such file or directory".to_owned(),
        hops: vec![module],
    };
    vec![edge, rim]
}

fn limit(name: &str, value: u64, by: &str, problem: &str) -> FunctionLimit {
    FunctionLimit {
        name: name.to_owned(),
        value,
        by: by.to_owned(),
        problem: problem.to_owned(),
    }
}
