//! Netlink messages of the kernel, and sessions of zebra by FPM.

use core::convert::Infallible;

use millrace_netlink::fpm::{Frames, read_frame};
use millrace_netlink::translate::{Origin, Translator};
use millrace_netlink::wire::{Content, Messages};
use millrace_rib::event::{Change, Hops, Object};

/// Decodes the bytes after the first as a datagram of the kernel; the first byte tells notifications from dumps.
///
/// Properties: a message has no more next hops and members than there is room for in its bytes, and a route with several is
/// translated with as many; a message that is translated is one that is decoded.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((flags, bytes)) = bytes.split_first() else {
        return;
    };
    let origin = if flags & 1 == 0 {
        Origin::Notification
    } else {
        Origin::Dump
    };
    let mut translator = Translator::default();
    for message in Messages::new(bytes) {
        let Ok(message) = message else {
            break;
        };
        let content = message.content();
        let room = message.body.len() / 8;
        let mut several = None;
        match &content {
            Ok(Content::Route(_, route)) => {
                let hops = route.hops();
                if hops.is_multipath() {
                    let count = hops.clone().count();
                    assert!(count <= room);
                    several = hops.clone().all(|hop| hop.encapsulation == 0).then_some(count);
                }
                assert!(hops.into_iter().all(|hop| (1..=256).contains(&hop.weight)));
            }
            Ok(Content::NextHop(_, nexthop)) => {
                let members = nexthop.group.iter().map(|group| group.members().len());
                assert!(members.sum::<usize>() <= room);
            }
            Ok(_) => {}
            Err(error) => {
                let _text = error.to_string();
            }
        }
        let malformed = translator.ignored.malformed;
        let change = translator.change(&message, origin);
        assert_eq!(change.is_err(), content.is_err());
        assert!(translator.ignored.malformed == malformed || change.is_err());
        if let Ok(Some(Change::There(Object::Route(route)))) = change
            && let (Hops::Many(hops), Some(count)) = (&route.hops, several)
        {
            assert_eq!(hops.len(), count);
        }
    }
}

/// Feeds a session of FPM twice: in one piece after another, as the first byte cuts them, and byte by byte.
///
/// Properties: the changes are the same, and so is the end.
pub(crate) fn fpm(bytes: &[u8]) {
    let Some((cut, bytes)) = bytes.split_first() else {
        return;
    };
    assert_eq!(session(bytes, usize::from(*cut) + 2), session(bytes, 1));
}

/// Returns the changes of a session, and the violation that ended it.
fn session(bytes: &[u8], cut: usize) -> (Vec<Change>, Option<String>) {
    let mut frames = Frames::default();
    let mut translator = Translator::default();
    let mut changes = Vec::new();
    for part in bytes.chunks(cut) {
        frames.room()[..part.len()].copy_from_slice(part);
        frames.fill(part.len());
        while let Some(payload) = frames.next() {
            match payload {
                Ok(payload) => {
                    let pushed = read_frame(payload, &mut translator, |change| {
                        changes.push(change);
                        Ok::<(), Infallible>(())
                    });
                    let _count = pushed.unwrap();
                }
                Err(violation) => return (changes, Some(violation.to_string())),
            }
        }
    }
    (changes, None)
}
