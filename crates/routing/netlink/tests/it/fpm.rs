//! The FPM listener, with connections of the test in the place of zebra's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use millrace_netlink::{Fpm, Namespace, NamespaceError};
use millrace_rib::event::{Change, Hops, NextHopObjectKind, Object, RouteMode};

use crate::bed::{BOUND, Consumer, NETNS, prefix, wait_for};

/// Frames of zebra 8.4.4: a nexthop object, a route by it, and the replacement of the route.
const NEXTHOP: &str =
    "6800010500000000aaa0a6f902000b00000000000800010018000000080006000a0000040800050003000000";
const ROUTE: &str = "1800010500000000aaa0a6f902180000fec400010000000008000100c00002000800060014000000\
                     08001e0018000000";
const REMOVAL: &str = "1900010400000000aaa0a6f902180000fec400000000000008000100c00002000800060014000000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let body = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap());
    let body: Vec<u8> = body.collect();
    [&(body.len() as u32 + 4).to_ne_bytes()[..], &body].concat()
}

fn frame(messages: &[&str]) -> Vec<u8> {
    let payload: Vec<u8> = messages.iter().flat_map(|hex| bytes(hex)).collect();
    [&[1, 1], &(payload.len() as u16 + 4).to_be_bytes()[..], &payload].concat()
}

fn open(consumer: &Consumer) -> Fpm {
    Fpm::open(
        NETNS,
        &Namespace::Own,
        "127.0.0.1:0".parse().unwrap(),
        consumer.sender.clone(),
    )
    .unwrap()
}

#[test]
fn a_replaced_route_is_never_gone_in_between() {
    let mut consumer = Consumer::new(10);
    let fpm = open(&consumer);
    let mut zebra = TcpStream::connect(fpm.local()).unwrap();
    let frames = [
        frame(&[NEXTHOP]),
        frame(&[ROUTE]),
        frame(&[REMOVAL, ROUTE]),
        frame(&[REMOVAL]),
    ]
    .concat();
    for byte in frames {
        zebra.write_all(&[byte]).unwrap();
    }
    consumer.until_change("the route is gone", |change| matches!(change, Change::Gone(_)));
    let changes = consumer.take();
    assert_eq!(changes.len(), 5, "{changes:?}");
    assert_eq!(changes[0], Change::Opened);
    assert!(matches!(&changes[1], Change::There(Object::NextHop(object))
        if object.id == 24 && matches!(object.kind, NextHopObjectKind::Hop(hop) if hop.ifindex == 3)));
    for change in &changes[2..4] {
        let Change::There(Object::Route(route)) = change else {
            panic!("{change:?}");
        };
        assert_eq!(
            (route.prefix, &route.hops, route.mode),
            (prefix("192.0.2.0/24"), &Hops::Object(24), RouteMode::Replace)
        );
    }
    drop(zebra);
    consumer.until_change("the session ended", |change| *change == Change::Closed);
    assert_eq!((fpm.status().sessions, fpm.status().messages), (1, 5));
}

#[test]
fn a_new_connection_replaces_the_old_one() {
    let mut consumer = Consumer::new(10);
    let fpm = open(&consumer);
    let mut first = TcpStream::connect(fpm.local()).unwrap();
    consumer.until_change("the first is open", |change| *change == Change::Opened);
    // Half a frame, which must not be taken for a part of the next session.
    first.write_all(&frame(&[ROUTE])[..20]).unwrap();
    let mut second = TcpStream::connect(fpm.local()).unwrap();
    second.write_all(&frame(&[NEXTHOP])).unwrap();
    consumer.until("the second has sent its object", |consumer| {
        consumer.nexthops.contains_key(&24)
    });
    let order: Vec<Change> = consumer.take().into_iter().take(3).collect();
    assert_eq!(order, [Change::Opened, Change::Closed, Change::Opened]);
    first.set_read_timeout(Some(BOUND)).unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
    assert_eq!(fpm.status().sessions, 2);
}

#[test]
fn a_peer_that_is_not_zebra_is_disconnected_with_the_reason() {
    let mut consumer = Consumer::new(10);
    let fpm = open(&consumer);
    let mut peer = TcpStream::connect(fpm.local()).unwrap();
    peer.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    consumer.until_change("the session ended", |change| *change == Change::Closed);
    assert!(
        fpm.status().last_error.contains("FPM version 71"),
        "{}",
        fpm.status().last_error
    );
}

#[test]
fn zebra_waits_for_a_consumer_that_pauses() {
    let mut consumer = Consumer::new(1);
    let fpm = open(&consumer);
    let mut zebra = TcpStream::connect(fpm.local()).unwrap();
    zebra.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let frames = frame(&[ROUTE]).repeat(1000);
    let mut sent = 0;
    // The kernel's buffers take some megabytes, and then the connection is full.
    while let Ok(size) = zebra.write(&frames[sent % frames.len()..]) {
        sent += size;
        assert!(sent < 1 << 30, "the listener reads without a consumer");
    }
    zebra.set_write_timeout(None).unwrap();
    drop(zebra);
    consumer.until_change("the session ended", |change| *change == Change::Closed);
    let routes = consumer
        .take()
        .iter()
        .filter(|change| matches!(change, Change::There(_)))
        .count();
    assert_eq!(routes, sent / (frames.len() / 1000));
}

#[test]
fn an_address_that_is_taken_is_named_and_a_closed_listener_leaves_it() {
    let consumer = Consumer::new(10);
    let fpm = open(&consumer);
    let address = fpm.local();
    let again = || Fpm::open(NETNS, &Namespace::Own, address, consumer.sender.clone());
    let error = again().err().unwrap();
    assert!(matches!(error, NamespaceError::Failed { .. }));
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    drop(fpm);
    wait_for("the address is free", || again().is_ok());
}
