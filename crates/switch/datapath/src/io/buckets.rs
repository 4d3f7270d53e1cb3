//! The table of a device that dispatches: the queue of each bucket.

/// The table from buckets to queues, for the thread of the device and its receive queues. The switch asks for moves.
pub trait BucketTable: core::fmt::Debug + Send + Sync {
    /// Sets the function that wakes the thread of the device after a request.
    fn set_waker(&self, waker: Box<dyn Fn() + Send + Sync>);

    /// Notes that the device has this many queues, and gives buckets of others to those that are there. No packet of the device
    /// is on its way.
    fn set_queues(&self, queues: usize);

    /// Returns the queue of each bucket.
    fn queues(&self) -> Vec<u8>;

    /// Returns the queue of each bucket after the request that waits, if one does.
    fn wanted_queues(&self) -> Option<Vec<u8>>;

    /// Completes the request that waits: the buckets have these queues, or stay where they were.
    fn complete(&self, queues: Option<&[u8]>);

    /// Counts a packet of a bucket; called by the worker that receives it.
    fn count(&self, bucket: u16);
}
