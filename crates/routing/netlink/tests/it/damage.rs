//! Messages of the kernel and of zebra (fuzz/corpus), cut and damaged.

use std::path::Path;

use millrace_netlink::fpm::read_frame;
use millrace_netlink::translate::{Origin, Translator};
use millrace_netlink::wire::{Content, HEADER_SIZE, Message, Messages, kind};

/// Returns the messages of a corpus, each with its header.
fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/corpus/netlink_messages");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let mut rest = &bytes[1..];
        for message in Messages::new(&bytes[1..]).flatten() {
            let size = HEADER_SIZE + message.body.len();
            found.push(rest[..size].to_vec());
            rest = &rest[size.next_multiple_of(4).min(rest.len())..];
        }
    }
    assert!(found.len() > 50, "the corpus has {} messages", found.len());
    found
}

fn only(bytes: &[u8]) -> Message<'_> {
    Messages::new(bytes).next().unwrap().unwrap()
}

/// Returns true if `size` bytes of a message end with its fixed part, or with an attribute and some of its padding.
fn is_boundary(bytes: &[u8], size: usize) -> bool {
    let fixed = match only(bytes).kind {
        kind::NEW_LINK | kind::DEL_LINK => 16,
        kind::NEW_ROUTE | kind::DEL_ROUTE | kind::NEW_NEIGH | kind::DEL_NEIGH => 12,
        kind::NEW_NETCONF => 4,
        _ => 8,
    };
    let mut at = HEADER_SIZE + fixed;
    while at < bytes.len() && at < size {
        let len = usize::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        if (at + len..=at + len.next_multiple_of(4)).contains(&size) {
            return true;
        }
        at += len.next_multiple_of(4);
    }
    at == size
}

#[test]
fn a_message_that_is_cut_is_refused_unless_it_ends_with_an_attribute() {
    let mut refused = 0;
    for bytes in corpus() {
        let kind = only(&bytes).kind;
        if matches!(only(&bytes).content(), Ok(Content::Done(_) | Content::Other(_))) {
            continue;
        }
        for size in 1..bytes.len() {
            assert!(Messages::new(&bytes[..size]).next().unwrap().is_err());
        }
        for size in HEADER_SIZE..bytes.len() {
            // The header tells the shorter length.
            let mut cut = bytes[..size].to_vec();
            cut[..4].copy_from_slice(&(size as u32).to_ne_bytes());
            if !is_boundary(&bytes, size) {
                let content = only(&cut).content();
                assert!(
                    content.is_err(),
                    "{size} bytes of a message of type {kind}: {content:?}"
                );
                refused += 1;
            }
        }
    }
    assert!(refused > 1000);
}

#[test]
fn a_message_with_any_damage_is_read_or_refused() {
    let corpus = corpus();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let mut translator = Translator::default();
    let (mut read, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let mut bytes = corpus[random(corpus.len())].clone();
        for _ in 0..=random(3) {
            let at = random(bytes.len());
            bytes[at] = match random(4) {
                0 => 0,
                1 => 0xff,
                2 => bytes[at] ^ (1 << random(8)),
                _ => random(256) as u8,
            };
        }
        for message in Messages::new(&bytes).flatten() {
            match translator.change(&message, Origin::Notification) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
        let _count = read_frame(&bytes, &mut translator, |_| Ok::<(), ()>(()));
    }
    assert!(
        read > 10_000 && refused > 10_000,
        "{read} read, {refused} refused"
    );
}
