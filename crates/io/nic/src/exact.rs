//! The driver's copy of the exact table: places entries by cuckoo hashing (Pagh and Rodler, "Cuckoo Hashing", ESA 2001).
//!
//! An entry may be in one row of each way. If all four are taken, entries move to other rows of theirs until a free one is
//! found. The writes are ordered from the free row backwards: each copies an entry to its new row, and the write that follows
//! replaces the old one. So an entry is in the device at every moment.

use std::collections::{BTreeMap, VecDeque};

use crate::WAYS;
use crate::hash::{HashKeys, rows};
use crate::key::Key;

/// The most rows that a search for a free one looks at.
const SEARCHED_MAX: usize = 500;

/// A row: way, and number in the way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    pub way: u8,
    pub row: u32,
}

/// An entry: a masked key and the mark of packets that equal it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub key: Key,
    pub mark: u32,
}

/// The table has no row for an entry, however others move.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the exact table has no free row for the entry")]
pub struct Full;

/// The exact table of a device.
#[derive(Debug)]
pub struct ExactTable {
    keys: HashKeys,
    row_bits: u32,
    rows: Vec<Option<Entry>>,
    places: BTreeMap<u32, Place>,
}

impl ExactTable {
    /// Returns an empty table with 2 to the power of `row_bits` rows in each way.
    #[must_use]
    pub fn new(keys: HashKeys, row_bits: u32) -> ExactTable {
        let row_bits = row_bits.min(16);
        ExactTable {
            keys,
            row_bits,
            rows: vec![None; WAYS << row_bits],
            places: BTreeMap::new(),
        }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the places with entries.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.places.values().copied()
    }

    /// Returns the place and the entry with a mark.
    #[must_use]
    pub fn find(&self, mark: u32) -> Option<(Place, Entry)> {
        let place = *self.places.get(&mark)?;
        self.row(place).map(|entry| (place, *entry))
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.rows.fill(None);
        self.places.clear();
    }

    /// Adds an entry. Returns the rows to write, in order. The caller must not add a mark or a key that the table has.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn insert(&mut self, entry: Entry) -> Result<Vec<(Place, Entry)>, Full> {
        let path = self.path_to_free(&entry.key).ok_or(Full)?;
        let mut writes = Vec::with_capacity(path.len());
        // From the free row to the first: each row gets the entry of the one before it.
        for pair in path.windows(2).rev() {
            let [from, to] = [pair[0], pair[1]];
            if let Some(moved) = self.row(from).copied() {
                writes.push((to, moved));
                self.set(to, moved);
            }
        }
        if let Some(first) = path.first() {
            writes.push((*first, entry));
            self.set(*first, entry);
        }
        Ok(writes)
    }

    /// Removes the entry with a mark. Returns the row to clear.
    pub fn remove(&mut self, mark: u32) -> Option<Place> {
        let place = self.places.remove(&mark)?;
        let at = self.index(place);
        if let Some(row) = self.rows.get_mut(at) {
            *row = None;
        }
        Some(place)
    }

    fn index(&self, place: Place) -> usize {
        (usize::from(place.way) << self.row_bits) + place.row as usize
    }

    fn row(&self, place: Place) -> Option<&Entry> {
        self.rows.get(self.index(place))?.as_ref()
    }

    fn set(&mut self, place: Place, entry: Entry) {
        let at = self.index(place);
        if let Some(row) = self.rows.get_mut(at) {
            *row = Some(entry);
            self.places.insert(entry.mark, place);
        }
    }

    fn places_of(&self, key: &Key) -> [Place; WAYS] {
        let rows = rows(self.keys.table(key), self.row_bits);
        core::array::from_fn(|way| Place {
            way: way as u8,
            row: rows[way] as u32,
        })
    }

    /// Returns rows from one of the key to a free one, each of which may take the entry of the one before it. The search goes
    /// in breadth, so that the path is short.
    fn path_to_free(&self, key: &Key) -> Option<Vec<Place>> {
        let mut queue: VecDeque<Place> = VecDeque::new();
        let mut before: BTreeMap<Place, Option<Place>> = BTreeMap::new();
        for place in self.places_of(key) {
            before.insert(place, None);
            queue.push_back(place);
        }
        while let Some(place) = queue.pop_front() {
            let Some(entry) = self.row(place) else {
                let mut path = vec![place];
                let mut at = place;
                while let Some(Some(previous)) = before.get(&at) {
                    path.push(*previous);
                    at = *previous;
                }
                path.reverse();
                return Some(path);
            };
            for next in self.places_of(&entry.key) {
                if before.len() < SEARCHED_MAX && !before.contains_key(&next) {
                    before.insert(next, Some(place));
                    queue.push_back(next);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u32) -> Entry {
        let mut state = number.into();
        Entry {
            key: Key(core::array::from_fn(|_| {
                millrace_types::split_mix::next(&mut state)
            })),
            mark: number + 1,
        }
    }

    /// Returns the rows that hold a key, of a device that made the writes.
    fn found(device: &BTreeMap<Place, Entry>, table: &ExactTable, key: &Key) -> Option<u32> {
        let places = table.places_of(key);
        let hit = places
            .iter()
            .find_map(|place| device.get(place).filter(|entry| entry.key == *key));
        hit.map(|entry| entry.mark)
    }

    #[test]
    fn ninety_per_cent_of_the_rows_are_filled_and_no_entry_is_missing_at_any_moment() {
        let mut table = ExactTable::new(HashKeys::new(3), 7);
        let mut device: BTreeMap<Place, Entry> = BTreeMap::new();
        let wanted = 512 * 9 / 10;
        let mut moves = 0;
        for number in 0..wanted {
            let writes = table.insert(entry(number)).unwrap();
            moves += writes.len() - 1;
            for (place, written) in writes {
                device.insert(place, written);
                for known in (0..number).step_by(7) {
                    let mark = found(&device, &table, &entry(known).key);
                    assert_eq!(mark, Some(known + 1), "while entry {number} is added");
                }
            }
        }
        assert!(moves > 0, "some entries must have moved");
        for number in 0..wanted {
            let (found_at, held) = table.find(number + 1).unwrap();
            assert_eq!((device.get(&found_at), held), (Some(&held), entry(number)));
            let place = table.remove(number + 1).unwrap();
            assert_eq!(device.remove(&place).map(|entry| entry.mark), Some(number + 1));
        }
        assert!(table.is_empty() && device.is_empty());
        assert_eq!(table.remove(1), None);
    }

    #[test]
    fn a_table_without_a_free_row_says_so_and_stays_as_it_is() {
        let mut table = ExactTable::new(HashKeys::new(3), 1);
        let mut added = 0;
        while table.insert(entry(added)).is_ok() {
            added += 1;
        }
        assert!((4..=8).contains(&added), "{added}");
        let places: Vec<_> = table.places().collect();
        assert_eq!(table.insert(entry(added)), Err(Full));
        assert_eq!(table.places().collect::<Vec<_>>(), places);
        table.remove(1).unwrap();
        assert_eq!(table.len() as u32, added - 1);
    }
}
