//! Tests of the engine, in one program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod allocator;
mod anomalies;
mod bed;
mod captures;
mod case_kinds;
mod checksums;
mod config_rules;
mod conversation;
mod countries;
mod default_deny;
mod detection;
mod documented_forms;
mod early_responses;
mod encrypted;
mod ended_flows;
mod evasions_ip;
mod evasions_tcp;
mod event_names;
mod evidence;
mod exhaustion;
mod exhaustion_memory;
mod fields;
mod file_transfers;
mod fragment_headers;
mod frames;
mod http_framing;
mod http_readings;
mod icmp;
mod legacy_options;
mod long_connections;
mod lost_bytes;
mod mails;
mod many_messages;
mod nested_fragments;
mod protocols;
mod ranges;
mod rates;
mod records;
mod repetition;
mod segmentation;
mod stored;
mod stream_events;
mod synthesis;
mod tunnels;
mod two_protocols;
mod urgent;
mod windows;
