//! The tables: rows of the exact table as the memory has them, rules of the ternary table, and both copies of the bucket
//! table.

use millrace_nic::bits::BitField;
use millrace_nic::hash::rows;
use millrace_nic::key::{Key, TERNARY_WORDS};
use millrace_nic::row::{FIELDS, WIDTH};
use millrace_nic::{Action, BUCKETS, Capabilities, HashKeys, WAYS};

/// Position of the key in a row in bits.
const KEY_LSB: usize = FIELDS[3].lsb;
const ROW_SIZE: usize = WIDTH / 8;

/// A row as 576 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row([u8; ROW_SIZE]);

impl Row {
    pub(crate) const EMPTY: Row = Row([0; ROW_SIZE]);

    pub(crate) fn new(form: u8, key: &Key, action: &Action) -> Row {
        let mut row = Row::EMPTY;
        let [
            valid,
            parity,
            form_field,
            _key,
            mark,
            queue,
            is_override,
            drop,
            class,
        ] = FIELDS;
        valid.write(&mut row.0, 1);
        form_field.write(&mut row.0, form.into());
        for (at, word) in key.0.iter().enumerate() {
            key_word(at).write(&mut row.0, *word);
        }
        mark.write(&mut row.0, action.mark.into());
        queue.write(&mut row.0, action.queue.unwrap_or_default().into());
        is_override.write(&mut row.0, action.queue.is_some().into());
        drop.write(&mut row.0, action.drop.into());
        class.write(&mut row.0, action.class.into());
        let odd = row.is_odd();
        parity.write(&mut row.0, odd.into());
        row
    }

    fn is_odd(&self) -> bool {
        self.0.iter().fold(0, |sum, byte| sum ^ byte).count_ones() % 2 == 1
    }

    fn key(&self) -> Key {
        Key(core::array::from_fn(|at| key_word(at).read(&self.0)))
    }

    fn action(&self) -> Action {
        let [.., mark, queue, is_override, drop, class] = FIELDS.map(|field| field.read(&self.0));
        Action {
            mark: mark as u32,
            queue: (is_override == 1).then_some(queue as u8),
            drop: drop == 1,
            class: class as u8,
        }
    }
}

fn key_word(at: usize) -> BitField {
    BitField {
        lsb: KEY_LSB + 64 * at,
        width: 64,
        ..FIELDS[3]
    }
}

/// The exact table.
#[derive(Clone, Debug)]
pub(crate) struct Exact {
    row_bits: u32,
    ways: [Vec<Row>; WAYS],
}

impl Exact {
    pub(crate) fn new(capabilities: &Capabilities) -> Exact {
        let len = if capabilities.has_rows {
            1 << capabilities.row_bits
        } else {
            0
        };
        Exact {
            row_bits: capabilities.row_bits.into(),
            ways: core::array::from_fn(|_| vec![Row::EMPTY; len]),
        }
    }

    pub(crate) fn row(&mut self, way: u8, row: u32) -> Option<&mut Row> {
        self.ways.get_mut(usize::from(way))?.get_mut(row as usize)
    }

    pub(crate) fn flip(&mut self, way: u8, row: u32, bit: u16) {
        if let Some(row) = self.row(way, row)
            && let Some(byte) = row.0.get_mut(usize::from(bit / 8))
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Returns the action of the row with a masked key and form, and the number of rows that were read with wrong parity.
    pub(crate) fn find(&self, masked: &Key, form: u8, keys: &HashKeys) -> (Option<Action>, u64) {
        let places = rows(keys.table(masked), self.row_bits);
        let read = self
            .ways
            .iter()
            .zip(places)
            .filter_map(|(way, place)| way.get(place));
        let mut action = None;
        let mut wrong = 0;
        for row in read {
            if row.is_odd() {
                wrong += 1;
                continue;
            }
            let [valid, _, row_form, ..] = FIELDS.map(|field| field.read(&row.0));
            if valid == 1 && row_form == u64::from(form) && action.is_none() && row.key() == *masked {
                action = Some(row.action());
            }
        }
        (action, wrong)
    }
}

/// A rule of the ternary table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) value: [u64; TERNARY_WORDS],
    pub(crate) mask: [u64; TERNARY_WORDS],
    pub(crate) action: Action,
}

impl Rule {
    pub(crate) fn matches(&self, key: &[u64; TERNARY_WORDS]) -> bool {
        let words = key.iter().zip(&self.value).zip(&self.mask);
        words.fold(0, |difference, ((key, value), mask)| {
            difference | (key ^ value) & mask
        }) == 0
    }
}

/// Both copies of the bucket table.
#[derive(Clone, Debug)]
pub(crate) struct Buckets {
    copies: [Box<[u8; BUCKETS]>; 2],
    active: usize,
}

impl Buckets {
    pub(crate) fn new() -> Buckets {
        Buckets {
            copies: [Box::new([0; BUCKETS]), Box::new([0; BUCKETS])],
            active: 0,
        }
    }

    pub(crate) fn queue(&self, bucket: usize) -> u8 {
        self.copies[self.active][bucket % BUCKETS]
    }

    pub(crate) fn shadow(&mut self) -> &mut [u8; BUCKETS] {
        &mut self.copies[1 - self.active]
    }

    pub(crate) fn commit(&mut self) {
        self.active = 1 - self.active;
    }
}
