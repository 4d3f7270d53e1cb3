//! The files in which a switch keeps flow entries over a restart.

use millrace_agent::keep::{FileError, count_items};

/// Bytes of a record besides its message, and the smallest message.
const RECORD_SIZE_MIN: usize = 34 + 8;

/// Reads a file: the bytes after the first one, or, if that one is odd, a file of this body with the right size and
/// checksum.
///
/// Properties: the items take no more memory than their bytes suggest, and a file with a changed byte or a byte more is
/// refused.
pub(crate) fn flows(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else {
        return;
    };
    let mut file = match first % 2 {
        0 => rest.to_vec(),
        _ => with_body(rest),
    };
    let Ok(counts) = count_items(&file) else { return };
    let items = counts.flows + counts.groups + counts.meters;
    assert!(items * RECORD_SIZE_MIN <= file.len(), "{counts:?}");
    let last = file.len() - 1;
    file[last] ^= 1;
    assert!(matches!(count_items(&file), Err(FileError::Damaged(_))));
    file[last] ^= 1;
    file.push(0);
    assert!(matches!(count_items(&file), Err(FileError::Damaged(_))));
}

fn with_body(body: &[u8]) -> Vec<u8> {
    let mut file = b"MLRFLOWS\0\0\0\x01".to_vec();
    file.extend((body.len() as u64).to_be_bytes());
    file.extend(body);
    file.extend(crc32c::crc32c(body).to_be_bytes());
    file
}

#[cfg(test)]
mod tests {
    use millrace_transport::random::Random;

    use super::*;

    #[test]
    fn the_valid_inputs_of_the_corpus_are_read_and_changed_ones_cause_no_panic() {
        let file = include_bytes!("../corpus/kept_flows/file");
        let body = include_bytes!("../corpus/kept_flows/body");
        let counts = count_items(&file[1..]).unwrap();
        assert_eq!((counts.flows, counts.groups, counts.meters), (3, 2, 1));
        assert_eq!(count_items(&with_body(&body[1..])), Ok(counts));
        let mut random = Random::new(1);
        for _ in 0..10_000 {
            let mut changed = body.to_vec();
            for _ in 0..=random.below(3) {
                let at = 1 + random.below(body.len() as u64 - 1) as usize;
                changed[at] = random.below(256) as u8;
            }
            changed.truncate(body.len() - random.below(2) as usize * random.below(64) as usize);
            flows(&changed);
        }
    }
}
