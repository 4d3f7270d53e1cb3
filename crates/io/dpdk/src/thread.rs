//! Worker threads: `std` threads, each on a core of its own and registered as a DPDK lcore, so that it has mempool
//! caches.

use std::marker::PhantomData;
use std::thread::JoinHandle;

use millrace_dpdk_sys as sys;

pub use crate::affinity::{CoreId, ThreadError, allowed_cores, pin};
use crate::{Eal, Errno};

/// The registration of the calling thread as an lcore; dropping it ends the registration.
#[derive(Debug)]
pub struct Registration {
    /// Makes the type neither Send nor Sync: a registration belongs to the thread that made it.
    here: PhantomData<*const ()>,
}

/// Registers the calling thread as an lcore, which gives it a cache in every mempool.
///
/// DPDK allows this only while no secondary process is attached, and none can attach afterwards.
///
/// # Errors
/// [`ThreadError::Register`] if no lcore is free, or a secondary process is attached.
pub fn register(_eal: Eal) -> Result<Registration, ThreadError> {
    // SAFETY: the token proves that EAL is up; DPDK itself rejects a thread that cannot be registered.
    let code = unsafe { sys::rte_thread_register() };
    if code < 0 {
        Err(ThreadError::Register { errno: Errno::last() })
    } else {
        Ok(Registration { here: PhantomData })
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: the thread is registered, and is this one, since Registration is not Send.
        unsafe { sys::rte_thread_unregister() };
    }
}

/// A thread that [`spawn`] started.
#[derive(Debug)]
pub struct Worker<T> {
    thread: JoinHandle<Option<T>>,
}

impl<T> Worker<T> {
    /// Waits for the thread to end.
    ///
    /// # Errors
    /// The value of the thread's panic.
    pub fn join(self) -> std::thread::Result<T> {
        match self.thread.join()? {
            Some(result) => Ok(result),
            // `spawn` returns a Worker only after the registration.
            None => Err(Box::new("the thread was not registered")),
        }
    }

    /// Returns true if the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts `work` on a new thread, pinned to `core` and registered as an lcore. Returns when the thread is
/// pinned and registered.
///
/// # Errors
/// [`ThreadError`]; `work` was then not started.
pub fn spawn<T, F>(eal: Eal, name: &str, core: CoreId, work: F) -> Result<Worker<T>, ThreadError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The receiver waits below for one of these two messages, so sending cannot fail.
        match pin(&[core]).and_then(|()| register(eal)) {
            Ok(_registration) => {
                let _ = ready.send(Ok(()));
                Some(work())
            }
            Err(error) => {
                let _ = ready.send(Err(error));
                None
            }
        }
    });
    let thread = thread.map_err(ThreadError::Spawn)?;
    match started.recv() {
        Ok(Err(error)) => Err(error),
        // The thread is ready, or it panicked before it could report; `join` then returns the panic.
        Ok(Ok(())) | Err(_) => Ok(Worker { thread }),
    }
}
