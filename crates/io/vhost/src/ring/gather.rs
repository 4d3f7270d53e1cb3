//! Collects the chains of a burst, before the first of them is used.

use arrayvec::ArrayVec;

use super::Queue;
use super::chain::{BufferAccess, Chain};
use crate::ProtocolViolation;
use crate::memory::{GuestSlice, View};

/// A chain of one buffer that holds the virtio-net header, or has room for it.
pub(super) struct PlainChain<'a> {
    pub(super) chain: Chain,
    pub(super) slice: GuestSlice<'a>,
}

/// The outcome of taking one chain.
enum Next<'a> {
    Plain(PlainChain<'a>),
    /// Several buffers, an indirect table, or a buffer too short for the header.
    Other(Chain),
    None,
}

/// The direction of a queue, and the size of the virtio-net header in bytes.
#[derive(Clone, Copy)]
pub(super) struct Gather {
    pub(super) use_of: BufferAccess,
    pub(super) header: usize,
}

impl Gather {
    /// Takes at most `len` chains of one buffer each, up to the first chain of another form, which is taken and
    /// returned.
    #[inline(always)]
    pub(super) fn gather<'a, Q: Queue, const N: usize>(
        self,
        queue: &mut Q,
        view: &'a View,
        len: usize,
        found: &mut ArrayVec<PlainChain<'a>, N>,
    ) -> Result<Option<Chain>, ProtocolViolation> {
        queue.poll_index(len)?;
        let mut end = Ok(None);
        // An iterator, because a loop with `push` compiles to a call for each element.
        let plain = core::iter::from_fn(|| match self.next(queue, view) {
            Ok(Next::Plain(found)) => Some(found),
            Ok(Next::Other(chain)) => {
                end = Ok(Some(chain));
                None
            }
            Ok(Next::None) => None,
            Err(violation) => {
                end = Err(violation);
                None
            }
        });
        found.extend(plain.take(len.min(N)));
        end
    }

    #[inline(always)]
    fn next<'a, Q: Queue>(self, queue: &mut Q, view: &'a View) -> Result<Next<'a>, ProtocolViolation> {
        let Some(chain) = queue.take()? else {
            return Ok(Next::None);
        };
        if !chain.first.is_alone(self.use_of) {
            return Ok(Next::Other(chain));
        }
        let slice = view.slice(chain.first.guest, chain.first.size)?;
        if slice.size() < self.header || slice.size() < chain.first.size as usize {
            return Ok(Next::Other(chain));
        }
        match self.use_of {
            BufferAccess::Read => {
                slice.prefetch(0);
                slice.prefetch(self.header);
            }
            BufferAccess::Write => {
                if slice.is_apart(self.header) {
                    // The buffer may already hold the right header: prefetch the line for reading only.
                    slice.prefetch(0);
                }
                slice.prefetch_to_write(self.header);
            }
        }
        Ok(Next::Plain(PlainChain { chain, slice }))
    }
}
