//! The two function types by which devices get packet buffers.

use std::sync::Arc;

use super::Burst;

/// Returns a packet with these bytes, or `None` if no buffer is free.
pub(crate) type Allocate<P> = Arc<dyn Fn(&[u8]) -> Option<P> + Send + Sync>;

/// Appends at most this many empty packets to a burst, fewer if buffers are short. Workers may call it, too.
pub(crate) type Empty<P> = Arc<dyn Fn(usize, &mut Burst<P>) + Send + Sync>;
