//! The master election: the part of controller roles that is common to all connections (OpenFlow 1.3.5, section 6.3.4).
//!
//! At most one controller is master. A request to become master or slave carries a generation_id. A
//! generation_id that is older than the latest one, in the circular order of 64-bit numbers, belongs to an
//! earlier election, and the request is refused.

use crate::codes::wire_enum;
use crate::role::{RequestedRole, RoleMessage};

wire_enum! {
    /// The role of a controller.
    Role(u32) {
        /// Full access, shared with other controllers; the role of a new connection.
        Equal = 1 "equal",
        /// Full access; no other controller is master.
        Master = 2 "master",
        /// Read-only access.
        Slave = 3 "slave",
    }
}

impl Role {
    const fn requested(self) -> RequestedRole {
        match self {
            Role::Equal => RequestedRole::Equal,
            Role::Master => RequestedRole::Master,
            Role::Slave => RequestedRole::Slave,
        }
    }
}

/// `OFPRRFC_STALE`: the generation_id is older than the latest seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("generation_id {offered:#x} is stale: the latest is {latest:#x}")]
pub struct StaleGeneration {
    /// The generation_id in the request.
    pub offered: u64,
    /// The latest generation_id of all controllers.
    pub latest: u64,
}

/// The outcome of a role request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleChange<C> {
    /// The role of the connection that asked.
    pub role: Role,
    /// The connection that was master and is a slave now.
    pub demoted: Option<C>,
    pub reply: RoleMessage,
}

/// Decides role requests of all connections of one bridge. `C` identifies a connection.
#[derive(Clone, Debug)]
pub struct RoleArbiter<C> {
    master: Option<C>,
    generation: Option<u64>,
}

impl<C> Default for RoleArbiter<C> {
    fn default() -> Self {
        RoleArbiter {
            master: None,
            generation: None,
        }
    }
}

impl<C: Copy + Eq> RoleArbiter<C> {
    /// Decides one request of `connection`, whose role is `current`.
    ///
    /// # Errors
    /// [`StaleGeneration`] if the request for the role master or slave has an outdated generation_id.
    pub fn request(
        &mut self,
        connection: C,
        current: Role,
        request: RoleMessage,
    ) -> Result<RoleChange<C>, StaleGeneration> {
        let role = match request.role {
            RequestedRole::NoChange => current,
            RequestedRole::Equal => Role::Equal,
            RequestedRole::Master => Role::Master,
            RequestedRole::Slave => Role::Slave,
        };
        if matches!(request.role, RequestedRole::Master | RequestedRole::Slave) {
            self.admit(request.generation_id)?;
        }
        let former = self.master.filter(|master| *master != connection);
        let demoted = if request.role == RequestedRole::Master {
            former
        } else {
            None
        };
        if role == Role::Master {
            self.master = Some(connection);
        } else if self.master == Some(connection) {
            self.master = None;
        }
        let reply = RoleMessage {
            role: role.requested(),
            generation_id: self.generation.unwrap_or(u64::MAX),
        };
        Ok(RoleChange { role, demoted, reply })
    }

    fn admit(&mut self, offered: u64) -> Result<(), StaleGeneration> {
        if let Some(latest) = self.generation
            && offered.wrapping_sub(latest).cast_signed() < 0
        {
            return Err(StaleGeneration { offered, latest });
        }
        self.generation = Some(offered);
        Ok(())
    }

    /// Removes a connection that is closed.
    pub fn disconnected(&mut self, connection: C) {
        if self.master == Some(connection) {
            self.master = None;
        }
    }

    /// Returns the master, if there is one.
    pub const fn master(&self) -> Option<C> {
        self.master
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        arbiter: &mut RoleArbiter<u32>,
        connection: u32,
        role: RequestedRole,
        generation_id: u64,
    ) -> Result<RoleChange<u32>, StaleGeneration> {
        arbiter.request(connection, Role::Equal, RoleMessage { role, generation_id })
    }

    #[test]
    fn a_new_master_demotes_the_old_one() {
        let mut arbiter = RoleArbiter::default();
        assert_eq!(
            ask(&mut arbiter, 1, RequestedRole::Master, 5).unwrap().demoted,
            None
        );
        let change = ask(&mut arbiter, 2, RequestedRole::Master, 5).unwrap();
        assert_eq!((change.role, change.demoted), (Role::Master, Some(1)));
        assert_eq!(arbiter.master(), Some(2));
    }

    #[test]
    fn older_generations_are_stale_also_across_the_wrap() {
        let mut arbiter = RoleArbiter::default();
        ask(&mut arbiter, 1, RequestedRole::Slave, u64::MAX).unwrap();
        ask(&mut arbiter, 1, RequestedRole::Master, 3).unwrap();
        assert!(ask(&mut arbiter, 2, RequestedRole::Master, 2).is_err());
        assert!(ask(&mut arbiter, 2, RequestedRole::Slave, u64::MAX).is_err());
        assert_eq!(arbiter.master(), Some(1));
    }

    #[test]
    fn equal_and_nochange_need_no_generation() {
        let mut arbiter = RoleArbiter::default();
        ask(&mut arbiter, 1, RequestedRole::Master, 9).unwrap();
        assert_eq!(
            ask(&mut arbiter, 2, RequestedRole::Equal, 1).unwrap().role,
            Role::Equal
        );
        let asked = arbiter.request(
            1,
            Role::Master,
            RoleMessage {
                role: RequestedRole::NoChange,
                generation_id: 0,
            },
        );
        let change = asked.unwrap();
        assert_eq!((change.role, change.reply.generation_id), (Role::Master, 9));
        assert_eq!(arbiter.master(), Some(1));
    }

    #[test]
    fn a_master_that_leaves_or_steps_down_leaves_no_master() {
        let mut arbiter = RoleArbiter::default();
        ask(&mut arbiter, 1, RequestedRole::Master, 1).unwrap();
        arbiter.disconnected(1);
        assert_eq!(arbiter.master(), None);
        ask(&mut arbiter, 2, RequestedRole::Master, 2).unwrap();
        ask(&mut arbiter, 2, RequestedRole::Equal, 0).unwrap();
        assert_eq!(arbiter.master(), None);
    }
}
