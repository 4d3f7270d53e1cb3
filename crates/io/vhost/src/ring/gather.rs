//! The chains of a burst, looked at before any of them is used.

use arrayvec::ArrayVec;

use super::Queue;
use super::chain::{Chain, Use};
use crate::Lie;
use crate::memory::{Place, View};

/// A chain of one buffer, with a header in it or room for one.
pub(super) struct Found<'a> {
    pub(super) chain: Chain,
    pub(super) place: Place<'a>,
}

/// The next chain.
enum Next<'a> {
    Plain(Found<'a>),
    /// Anything else than one buffer for a header and more.
    Odd(Chain),
    None,
}

/// What a queue is for, and bytes of a header.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) use_of: Use,
    pub(super) header: usize,
}

impl Wanted {
    /// Takes at most `len` chains of one buffer each, up to the first that is not, which is returned: it is taken, too.
    #[inline(always)]
    pub(super) fn gather<'a, Q: Queue, const N: usize>(
        self,
        queue: &mut Q,
        view: &'a View,
        len: usize,
        found: &mut ArrayVec<Found<'a>, N>,
    ) -> Result<Option<Chain>, Lie> {
        queue.look(len)?;
        let mut end = Ok(None);
        // As an iterator: a loop that pushes makes a call for each of them.
        let plain = core::iter::from_fn(|| match self.next(queue, view) {
            Ok(Next::Plain(found)) => Some(found),
            Ok(Next::Odd(chain)) => {
                end = Ok(Some(chain));
                None
            }
            Ok(Next::None) => None,
            Err(lie) => {
                end = Err(lie);
                None
            }
        });
        found.extend(plain.take(len.min(N)));
        end
    }

    #[inline(always)]
    fn next<'a, Q: Queue>(self, queue: &mut Q, view: &'a View) -> Result<Next<'a>, Lie> {
        let Some(chain) = queue.take()? else {
            return Ok(Next::None);
        };
        if !chain.first.is_alone(self.use_of) {
            return Ok(Next::Odd(chain));
        }
        let place = view.place(chain.first.guest, chain.first.size)?;
        if place.size() < self.header || place.size() < chain.first.size as usize {
            return Ok(Next::Odd(chain));
        }
        match self.use_of {
            Use::Read => {
                place.prefetch(0);
                place.prefetch(self.header);
            }
            Use::Write => {
                if place.is_apart(self.header) {
                    // The header may be there already.
                    place.prefetch(0);
                }
                place.prefetch_to_write(self.header);
            }
        }
        Ok(Next::Plain(Found { chain, place }))
    }
}
