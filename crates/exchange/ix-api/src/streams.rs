//! Limits on open event streams: 1,024 in total, and 64 for one person, so that one member cannot use up the
//! streams of all others.

use std::collections::HashMap;
use std::sync::Arc;

use millrace_ix_model::UserId;
use parking_lot::Mutex;

/// The largest number of event streams.
const STREAMS_MAX: usize = 1024;
/// The largest number of event streams of a person. The page needs one for each browser.
const STREAMS_OF_PERSON_MAX: usize = 64;

/// Too many streams are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyStreams {
    #[error("{STREAMS_MAX} event streams are open: expected no more")]
    OfAll,
    #[error("you have {STREAMS_OF_PERSON_MAX} open event streams: close one first")]
    OfPerson,
}

/// The number of open streams of each person.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<HashMap<UserId, usize>>);

/// An open stream; it counts until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream {
    streams: Arc<Streams>,
    user: UserId,
}

impl Streams {
    /// Counts a stream of a person.
    ///
    /// # Errors
    /// [`TooManyStreams`] if a limit is reached; the stream then does not count.
    pub(crate) fn begin(self: &Arc<Self>, user: UserId) -> Result<OpenStream, TooManyStreams> {
        let mut open = self.0.lock();
        if open.values().sum::<usize>() >= STREAMS_MAX {
            return Err(TooManyStreams::OfAll);
        }
        let own = open.entry(user).or_default();
        if *own >= STREAMS_OF_PERSON_MAX {
            return Err(TooManyStreams::OfPerson);
        }
        *own += 1;
        Ok(OpenStream {
            streams: Arc::clone(self),
            user,
        })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(own) = open.get_mut(&self.user) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_cannot_take_the_streams_of_others() {
        let streams = Arc::new(Streams::default());
        let own: Vec<_> = (0..STREAMS_OF_PERSON_MAX)
            .map(|_| streams.begin(UserId(1)).unwrap())
            .collect();
        assert_eq!(streams.begin(UserId(1)).unwrap_err(), TooManyStreams::OfPerson);
        let other = streams.begin(UserId(2)).unwrap();
        drop(own);
        drop(other);
        assert!(streams.0.lock().is_empty(), "closed streams do not count");
        let all: Vec<_> = (0..STREAMS_MAX)
            .map(|number| streams.begin(UserId(u32::try_from(number).unwrap() / 8)).unwrap())
            .collect();
        assert_eq!(streams.begin(UserId(9999)).unwrap_err(), TooManyStreams::OfAll);
        drop(all);
        assert!(streams.begin(UserId(9999)).is_ok());
    }
}
