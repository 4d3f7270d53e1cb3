//! Tests of the watch, with interfaces of the kernel where they need root; without it they print a message and are skipped.

use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use nix::sched::{CloneFlags, unshare};

use super::*;

/// The longest wait for a call.
const BOUND: Duration = Duration::from_secs(60);

/// A message of `kind` about an interface, with its attributes.
fn message(kind: u16, index: u32, flags: u32, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend([0; 4]);
    for (kind, value) in attributes {
        body.extend((value.len() as u16 + 4).to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    let mut message = (body.len() as u32 + 16).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend([0; 10]);
    message.extend(body);
    message
}

#[test]
fn events_have_the_index_the_flags_and_the_name_and_no_bytes_are_too_odd() {
    let mut bytes = message(NEW_LINK, 7, 0x1_0043, &[(13, &[1, 2, 3]), (NAME, b"eth0\0")]);
    bytes.extend(message(NEW_LINK + 4, 9, 0, &[]));
    bytes.extend(message(DEL_LINK, 8, 2, &[]));
    let event = |is_gone, index, flags, name| Event {
        is_gone,
        index,
        flags,
        name,
    };
    let expected = [
        event(false, 7, 0x1_0043, Some(&b"eth0"[..])),
        event(true, 8, 2, None),
    ];
    assert_eq!(events_of(&bytes), expected);
    for end in 0..bytes.len() {
        assert!(events_of(&bytes[..end]).len() <= 2);
    }
    for at in 0..bytes.len() {
        let mut odd = bytes.clone();
        odd[at] ^= 0xff;
        let _any = events_of(&odd);
    }
}

#[test]
fn links_change_when_a_carrier_does_and_not_with_other_events() {
    let mut carriers = Carriers::default();
    let mut note = |is_gone, flags| {
        carriers.note(&Event {
            is_gone,
            index: 3,
            flags,
            name: None,
        })
    };
    assert!(note(false, 0x1_0043));
    assert!(!note(false, 0x1_0143), "promiscuous mode is no link");
    assert!(note(false, 0x3));
    assert!(note(true, 0x2) && !note(true, 0x2));
}

fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip {words}");
}

fn in_own_namespace() -> bool {
    match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => true,
        Err(errno) => {
            eprintln!("SKIPPED: a network namespace needs root ({errno})");
            false
        }
    }
}

fn watch(name: &str) -> (LinkWatch, Receiver<()>) {
    let (sender, calls) = channel();
    let tell = move || {
        // The test may have ended.
        let _gone = sender.send(());
    };
    let watch = LinkWatch::start(name, tell).unwrap();
    (watch, calls)
}

/// Waits for a call after which `is_so` holds.
fn wait_for(calls: &Receiver<()>, is_so: impl Fn() -> bool) {
    let end = Instant::now() + BOUND;
    while !is_so() {
        calls
            .recv_timeout(end.saturating_duration_since(Instant::now()))
            .unwrap();
    }
}

#[test]
fn each_change_of_an_interface_is_told_to_its_devices_and_to_no_others() {
    if !in_own_namespace() {
        return;
    }
    let (late, of_late) = watch("v0");
    ip("link add v0 type veth peer name v1");
    of_late.recv_timeout(BOUND).unwrap();
    ip("link set v0 up");
    ip("link set v1 up");
    let is_running = |name: &'static str| move || kernel::state(name).is_ok_and(|state| state.is_running);
    let (other, of_other) = watch("lo");
    let (near, of_near) = watch("v0");
    assert!(Arc::ptr_eq(&other.monitor, &near.monitor), "one thread for all");
    wait_for(&of_late, is_running("v0"));
    ip("link set v1 down");
    wait_for(&of_near, || !is_running("v0")());
    ip("link set v0 name w0");
    wait_for(&of_near, || kernel::state("v0").is_err());
    ip("link set w0 name v0");
    wait_for(&of_near, || kernel::state("v0").is_ok());
    ip("link del v0");
    wait_for(&of_near, || kernel::state("v0").is_err());
    assert!(of_other.try_recv().is_err(), "lo did not change");
    let weak = Arc::downgrade(&other.monitor);
    drop((other, near, late));
    assert!(weak.upgrade().is_none(), "the thread ended");
}

#[test]
fn a_change_without_an_event_is_found_by_the_look_at_all_interfaces() {
    if !in_own_namespace() {
        return;
    }
    ip("link add v0 type veth peer name v1");
    ip("link set v0 up");
    ip("link set v1 up");
    let (watch, calls) = watch("v0");
    let requests = kernel::socket_for_requests().unwrap();
    let shared = &watch.monitor.shared;
    // The state is another one than the thread knew, as after a lost event.
    let forget = || {
        for watched in shared.watched.lock().values_mut() {
            (watched.state, watched.has_carrier) = (None, false);
        }
    };
    let number = watch.number;
    for look in [
        |shared: &Shared, requests: &OwnedFd, number| {
            assert_eq!(shared.look_at_carriers(requests, number - 1, 1), number);
            assert_eq!(
                shared.look_at_carriers(requests, number, 1),
                0,
                "the next round begins"
            );
        },
        |shared: &Shared, requests: &OwnedFd, _| shared.look(requests),
        |shared: &Shared, _: &OwnedFd, _| shared.tell_all(),
    ] {
        while calls.try_recv().is_ok() {}
        forget();
        look(shared, &requests, number);
        calls.recv_timeout(BOUND).unwrap();
    }
}
