//! Mutexes whose holders may have panicked: the values stay usable, since each change of them is complete.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, whether a holder has panicked or not.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
