//! Waits of synchronous code for the engine's thread, and for locks that are held during such a wait. A worker
//! of a multi-thread runtime gives its tasks to another thread before it waits.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a job that may wait.
pub(crate) fn wait<T>(job: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(job),
        Ok(_) | Err(_) => job(),
    }
}

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(error)) => error.into_inner(),
        Err(TryLockError::WouldBlock) => wait(|| mutex.lock().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Locks for reading.
pub(crate) fn read<T>(shared: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    match shared.try_read() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(error)) => error.into_inner(),
        Err(TryLockError::WouldBlock) => wait(|| shared.read().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Locks for writing.
pub(crate) fn write<T>(shared: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    match shared.try_write() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(error)) => error.into_inner(),
        Err(TryLockError::WouldBlock) => wait(|| shared.write().unwrap_or_else(PoisonError::into_inner)),
    }
}
