//! Limits on letters with links. An administrator of a member, and everybody who asks for a new password, decide that the exchange
//! writes to an address: nobody fills the mailbox of somebody else in the exchange's name.
//!
//! ```text
//!   letters in an hour                   limit
//!   to one address                           6
//!   to the people of one account            60
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use millrace_ix_model::AccountId;
use millrace_types::Time;
use parking_lot::Mutex;

/// The time for which a letter counts.
const WINDOW: Duration = Duration::from_secs(3600);
/// The largest number of letters to one address in the window.
const TO_ADDRESS: usize = 6;
/// The largest number of letters to the people of one account in the window.
const OF_ACCOUNT: usize = 60;
/// The number of letters that are remembered, for 300 accounts at their limit. The oldest ones are forgotten first.
const REMEMBERED: usize = 20_000;

/// The letters with links of the last hour, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<VecDeque<Written>>);

#[derive(Debug)]
struct Written {
    at: Time,
    address: String,
    account: AccountId,
}

impl Pace {
    /// Counts a letter to a person of an account, of whom the last letter must be `gap` old.
    ///
    /// # Errors
    /// The time until the letter is within the limits; it then does not count.
    pub(crate) fn admit(
        &self,
        address: &str,
        account: AccountId,
        gap: Duration,
        now: Time,
    ) -> Result<(), Duration> {
        let address = address.to_lowercase();
        let mut written = self.0.lock();
        while written.front().is_some_and(|old| now.since(old.at) >= WINDOW) {
            written.pop_front();
        }
        let to_address = written.iter().filter(|old| old.address == address);
        let to_address: Vec<Time> = to_address.map(|old| old.at).collect();
        let of_account = written.iter().filter(|old| old.account == account);
        let of_account: Vec<Time> = of_account.map(|old| old.at).collect();
        // The letter whose end in the window makes room, or the newest one, whose gap must pass.
        let room = |times: &[Time], max: usize| {
            let at = times.len().checked_sub(max)?;
            Some(*times.get(at)? + WINDOW)
        };
        let next = [
            room(&to_address, TO_ADDRESS),
            room(&of_account, OF_ACCOUNT),
            to_address.last().map(|last| *last + gap),
        ];
        if let Some(next) = next.into_iter().flatten().max().filter(|next| *next > now) {
            return Err(next.since(now));
        }
        if written.len() >= REMEMBERED {
            written.pop_front();
        }
        written.push_back(Written {
            at: now,
            address,
            account,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(minutes: u32) -> Time {
        Time::ZERO + MINUTE * minutes
    }

    #[test]
    fn an_address_gets_six_letters_in_an_hour_whoever_asks_for_them() {
        let pace = Pace::default();
        for number in 0..6 {
            let account = AccountId(u32::from(number % 2 == 0));
            assert_eq!(
                pace.admit("Ann@aoba.example", account, Duration::ZERO, at(number)),
                Ok(())
            );
        }
        let seventh = |minute| pace.admit("ann@AOBA.example", AccountId(7), Duration::ZERO, at(minute));
        assert_eq!(seventh(10), Err(MINUTE * 50));
        assert_eq!(seventh(60), Ok(()));
        assert_eq!(
            seventh(60),
            Err(MINUTE),
            "the second letter leaves the window a minute later"
        );
        assert_eq!(
            pace.admit("bob@aoba.example", AccountId(7), Duration::ZERO, at(60)),
            Ok(())
        );
    }

    #[test]
    fn an_account_sends_sixty_letters_in_an_hour_and_does_not_delay_another_one() {
        let pace = Pace::default();
        let to = |number: u32, account| {
            pace.admit(
                &format!("{number}@aoba.example"),
                AccountId(account),
                Duration::ZERO,
                at(0),
            )
        };
        for number in 0..60 {
            assert_eq!(to(number, 1), Ok(()));
        }
        assert_eq!(to(60, 1), Err(WINDOW));
        assert_eq!(to(60, 2), Ok(()));
    }

    #[test]
    fn a_gap_is_kept_after_the_last_letter_and_a_refused_letter_does_not_count() {
        let pace = Pace::default();
        let ask = |minute| pace.admit("ann@aoba.example", AccountId(1), MINUTE * 10, at(minute));
        assert_eq!(ask(0), Ok(()));
        assert_eq!(ask(4), Err(MINUTE * 6));
        assert_eq!(ask(9), Err(MINUTE));
        assert_eq!(ask(10), Ok(()));
    }
}
