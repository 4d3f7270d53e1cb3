//! Tasks for the control thread of a bridge.

use std::sync::{Arc, mpsc};
use std::thread::Thread;

use millrace_datapath::io::Backend;
use thiserror::Error;
use tokio::sync::oneshot;

use super::bridge::BridgeControl;
use super::hops::{HopProblem, HopProblems};

/// The maximum number of queued tasks of a control thread.
pub(super) const TASKS_LEN: usize = 4096;

/// A task for a control thread.
pub(super) type Task<B> = Box<dyn FnOnce(&mut BridgeControl<B>) + Send>;

/// The reason why a task did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TaskError {
    /// The control thread is behind; the caller tries again later.
    #[error("the bridge is busy: its queue of {TASKS_LEN} tasks is full; try again")]
    Full,
    /// The bridge was removed.
    #[error("the bridge was removed")]
    Removed,
}

/// A handle to the control thread of a bridge.
pub struct BridgeHandle<B: Backend> {
    pub(super) tasks: mpsc::SyncSender<Task<B>>,
    pub(super) thread: Thread,
    pub(super) hops: Arc<HopProblems>,
}

impl<B: Backend> Clone for BridgeHandle<B> {
    fn clone(&self) -> Self {
        BridgeHandle {
            tasks: self.tasks.clone(),
            thread: self.thread.clone(),
            hops: Arc::clone(&self.hops),
        }
    }
}

impl<B: Backend> BridgeHandle<B> {
    /// Returns the hops of chains that do not work. Does not wait for the control thread.
    pub fn hop_problems(&self) -> Vec<HopProblem> {
        self.hops.read()
    }

    /// Queues a task, which runs after all tasks that were queued before. Never waits.
    ///
    /// # Errors
    /// [`TaskError`]; the task does not run.
    pub fn send(&self, task: impl FnOnce(&mut BridgeControl<B>) + Send + 'static) -> Result<(), TaskError> {
        self.post(Box::new(task)).map_err(|(error, _)| error)
    }

    /// Runs `task` on the control thread and waits for its result, without blocking the runtime.
    ///
    /// # Errors
    /// [`TaskError::Removed`].
    pub async fn call<R: Send + 'static>(
        &self,
        task: impl FnOnce(&mut BridgeControl<B>) -> R + Send + 'static,
    ) -> Result<R, TaskError> {
        let (sender, result) = oneshot::channel();
        let mut task: Task<B> = Box::new(move |bridge| {
            // The caller may have been aborted.
            let _dropped = sender.send(task(bridge));
        });
        loop {
            match self.post(task) {
                Ok(()) => break,
                Err((TaskError::Removed, _)) => return Err(TaskError::Removed),
                Err((TaskError::Full, back)) => task = back,
            }
            tokio::time::sleep(core::time::Duration::from_millis(1)).await;
        }
        result.await.map_err(|_| TaskError::Removed)
    }

    /// Runs `task` on the control thread and blocks until its result arrives. Must not be called from an async task.
    ///
    /// # Errors
    /// [`TaskError::Removed`].
    pub fn call_blocking<R: Send + 'static>(
        &self,
        task: impl FnOnce(&mut BridgeControl<B>) -> R + Send + 'static,
    ) -> Result<R, TaskError> {
        let (sender, result) = mpsc::sync_channel(1);
        let task: Task<B> = Box::new(move |bridge| {
            // Sending cannot fail, because the receiver waits below.
            let _sent = sender.send(task(bridge));
        });
        self.tasks.send(task).map_err(|_| TaskError::Removed)?;
        self.thread.unpark();
        result.recv().map_err(|_| TaskError::Removed)
    }

    /// Queues a task. Returns the task with the error if it cannot be queued.
    fn post(&self, task: Task<B>) -> Result<(), (TaskError, Task<B>)> {
        match self.tasks.try_send(task) {
            Ok(()) => {
                self.thread.unpark();
                Ok(())
            }
            Err(mpsc::TrySendError::Full(task)) => Err((TaskError::Full, task)),
            Err(mpsc::TrySendError::Disconnected(task)) => Err((TaskError::Removed, task)),
        }
    }
}
