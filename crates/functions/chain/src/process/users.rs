//! A separate user for each process of a function.
//!
//! Processes of one user can send each other signals, change each other's limits and trace each other. So a switch
//! that runs as root gives every process a user id that no other process has, from a range without accounts, and the
//! group id of the same number. An id returns to the range when its process has ended and was waited for.
//!
//! The default range is part of 60578 to 61183, which systemd leaves unused (systemd.io/UIDS-GIDS), and is below 65536,
//! so that containers map it, too.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use nix::unistd::Uid;
use parking_lot::Mutex;

/// A range of user ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserIds {
    /// The first id of the range.
    pub first: u32,
    /// The number of ids.
    pub len: u32,
}

impl UserIds {
    /// The default range.
    pub const DEFAULT: UserIds = UserIds {
        first: 60_800,
        len: 384,
    };

    fn last(self) -> u32 {
        self.first.saturating_add(self.len.saturating_sub(1))
    }
}

/// The range, the ids in use, and the next id to be tried.
struct Pool {
    range: UserIds,
    held: BTreeSet<u32>,
    next: u32,
}

static POOL: Mutex<Pool> = Mutex::new(Pool::new(UserIds::DEFAULT));

/// Sets the range of user ids for processes of functions that start from now on.
pub fn use_user_ids(range: UserIds) {
    let mut pool = POOL.lock();
    pool.range = range;
    pool.next = range.first;
}

/// A user id that no other process of a function has while this value lives.
#[derive(Debug)]
pub(super) struct UserId(u32);

impl UserId {
    pub(super) fn raw(&self) -> u32 {
        self.0
    }
}

impl Drop for UserId {
    fn drop(&mut self) {
        POOL.lock().held.remove(&self.0);
    }
}

/// Takes a user id out of the range. Returns `None` if this process may not change users; functions then run as the
/// user of this process.
///
/// # Errors
/// A message, if all ids of the range are in use or the user namespace lacks them.
pub(super) fn allocate() -> io::Result<Option<UserId>> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    let mut pool = POOL.lock();
    let range = pool.range;
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    if !is_mapped(&map, range) {
        return Err(io::Error::other(format!(
            "user ids {} to {} do not exist in this user namespace (/proc/self/uid_map): set system.function_uid_base to the \
             first of {} that do",
            range.first,
            range.last(),
            range.len
        )));
    }
    let others = users_of_processes();
    match pool.take(&others) {
        Some(id) => Ok(Some(UserId(id))),
        None => Err(io::Error::other(format!(
            "all user ids from {} to {} are in use, one by each process of a function: use fewer instances or lanes, or set \
             system.function_uid_base to another range if other programs have them",
            range.first,
            range.last()
        ))),
    }
}

impl Pool {
    const fn new(range: UserIds) -> Pool {
        Pool {
            range,
            held: BTreeSet::new(),
            next: range.first,
        }
    }

    /// Takes the next id that neither this switch nor another program uses.
    fn take(&mut self, others: &BTreeSet<u32>) -> Option<u32> {
        for _ in 0..self.range.len {
            let id = self.next;
            self.next = match id < self.range.last() {
                true => id + 1,
                false => self.range.first,
            };
            if !others.contains(&id) && self.held.insert(id) {
                return Some(id);
            }
        }
        None
    }
}

/// Returns the users of the processes on this machine: another switch may use the same range.
fn users_of_processes() -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    processes
        .filter_map(|entry| Some(entry.metadata().ok()?.uid()))
        .collect()
}

/// Returns whether a user namespace has all ids of a range. `map` has lines `INSIDE OUTSIDE LENGTH`
/// (user_namespaces(7)).
fn is_mapped(map: &str, range: UserIds) -> bool {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (inside, _, len) = (
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        );
        Some(inside..inside + len)
    });
    let lines: Vec<_> = lines.collect();
    let mut next = u64::from(range.first);
    while next <= u64::from(range.last()) {
        match lines.iter().find(|ids| ids.contains(&next)) {
            Some(ids) => next = ids.end,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: UserIds = UserIds { first: 100, len: 3 };

    #[test]
    fn no_id_is_given_twice_at_a_time_and_none_that_another_program_has() {
        let mut pool = Pool::new(FEW);
        let others = BTreeSet::from([101]);
        assert_eq!([pool.take(&others), pool.take(&others)], [Some(100), Some(102)]);
        assert_eq!(pool.take(&others), None);
        pool.held.remove(&100);
        assert_eq!(pool.take(&others), Some(100));
        assert_eq!(pool.take(&BTreeSet::new()), Some(101));
    }

    #[test]
    fn a_freed_id_is_the_last_to_be_used_again() {
        let mut pool = Pool::new(FEW);
        let none = BTreeSet::new();
        assert_eq!(pool.take(&none), Some(100));
        pool.held.remove(&100);
        assert_eq!(
            [pool.take(&none), pool.take(&none), pool.take(&none)],
            [Some(101), Some(102), Some(100)]
        );
    }

    #[test]
    fn ids_beyond_the_user_namespace_are_known() {
        assert!(is_mapped("         0          0 4294967295\n", UserIds::DEFAULT));
        assert!(is_mapped("0 100000 65536\n", UserIds::DEFAULT));
        assert!(!is_mapped("0 1000 1\n1 100000 60900\n", UserIds::DEFAULT));
        assert!(!is_mapped("", UserIds::DEFAULT));
        assert!(is_mapped("102 0 1\n0 1000 102\n", FEW));
        assert!(!is_mapped("0 1000 101\n102 2000 10\n", FEW), "a gap");
    }
}
