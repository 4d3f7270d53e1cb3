//! A rate limit of answers: a token bucket that holds the tokens of one second.

use millrace_types::Time;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A token bucket. Its state is the time at which it would be full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    nanos_per_token: u64,
    /// The time at which the bucket would be full.
    full_at: Time,
}

impl TokenBucket {
    /// Returns a full bucket. `rate`: tokens a second, at least one.
    pub(crate) fn new(rate: u32) -> TokenBucket {
        TokenBucket {
            nanos_per_token: NANOS_PER_SECOND / u64::from(rate.max(1)),
            full_at: Time::ZERO,
        }
    }

    /// Takes a token; returns false if there is none.
    pub(crate) fn take(&mut self, now: Time) -> bool {
        let full_at = self.full_at.max(now).nanos().saturating_add(self.nanos_per_token);
        if full_at > now.nanos().saturating_add(NANOS_PER_SECOND) {
            return false;
        }
        self.full_at = Time::from_nanos(full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_tokens_can_be_taken_at_once_and_the_rate_holds_afterwards() {
        let mut bucket = TokenBucket::new(10);
        let take = |bucket: &mut TokenBucket, at: u64| {
            (0..100).filter(|_| bucket.take(Time::from_millis(at))).count()
        };
        assert_eq!(take(&mut bucket, 0), 10);
        assert_eq!(take(&mut bucket, 99), 0);
        assert_eq!(take(&mut bucket, 350), 3);
        assert_eq!(take(&mut bucket, 100_000), 10, "no more is saved up");
    }
}
