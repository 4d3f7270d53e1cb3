//! Interfaces that are absent, go down, are removed and return.

use millrace_af_packet::{OpenError, open};
use millrace_wire::Frame;

use crate::test_bed::{
    ACCEPTED, Burst, MTU, frame, in_own_namespace, ip, make_veth, one, pool, receive, send, wait_for,
};

#[test]
fn what_is_no_interface_is_refused_by_name() {
    if !in_own_namespace() {
        return;
    }
    for name in ["nowhere", "", "a-name-with-16-ch", "a\0b"] {
        let expected = OpenError::Missing {
            interface: name.to_owned(),
        };
        assert_eq!(open(name, 1).unwrap_err(), expected);
    }
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    if !in_own_namespace() {
        return;
    }
    ip("tuntap add t0 mode tun");
    assert!(matches!(
        open("t0", 1).unwrap_err(),
        OpenError::NotEthernet { kind: 0xfffe, .. }
    ));
}

#[test]
fn an_interface_that_was_down_goes_on_when_it_is_up() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _), pool) = (one("v0"), one("v1"), pool());
    let bytes = frame(&[], 17, 1, &[1; 60]);
    for _ in 0..2 {
        ip("link set v0 down");
        let mut burst: Burst = [Frame::new(&bytes)].into_iter().collect();
        assert!(sender.send(&mut burst, MTU).is_down);
        assert_eq!(burst.len(), 1);
        ip("link set v0 up");
        wait_for("it takes frames", || {
            sender.send(&mut burst, MTU);
            burst.is_empty()
        });
        receive(&mut receiver, &pool, 1);
    }
}

#[test]
fn an_interface_that_is_deleted_under_traffic_leaves_its_queues_harmless() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (mut receiver, _), pool) = (one("v0"), one("v1"), pool());
    let long = crate::test_bed::long(&frame(&[], 6, 1, &[7; 9000]), 1448);
    send(&mut sender, (0..20).map(|_| long.clone()));
    ip("link del v0");
    // Frames that arrived before are still in the ring.
    assert_eq!(receive(&mut receiver, &pool, 20).len(), 20);
    let mut burst: Burst = [long.clone()].into_iter().collect();
    assert!(sender.send(&mut burst, MTU).is_down);
    let received = receiver.receive(&mut Burst::new(), &ACCEPTED, |_, _: &mut Burst| {});
    assert_eq!((received.frames, received.dropped), (0, 0));
    make_veth();
    let ((_, mut sender), (mut receiver, _)) = (one("v0"), one("v1"));
    send(&mut sender, [long]);
    receive(&mut receiver, &pool, 1);
}

#[test]
fn packets_for_which_there_is_no_slot_are_counted_by_the_kernel() {
    if !in_own_namespace() {
        return;
    }
    let ((_, mut sender), (receiver, _)) = (one("v0"), one("v1"));
    let bytes = frame(&[], 17, 1, &[1; 60]);
    for _ in 0..80 {
        send(&mut sender, (0..64).map(|_| Frame::new(&bytes)));
    }
    let mut drops = 0;
    wait_for("they are counted", || {
        drops += receiver.state().take_drops();
        drops == 80 * 64 - 4096
    });
}
