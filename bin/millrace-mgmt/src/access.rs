//! Users of this machine and of certificates, and their roles.

use std::collections::BTreeMap;
use std::ffi::CString;

use millrace_yang::datastore::{Client, Role};
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use crate::settings::{Access, RoleWord};

/// The roles, the highest first.
const ROLES: [Role; 3] = [Role::Admin, Role::Write, Role::Read];

/// Returns the user with this id, with the highest role of its groups; `None` for a user without a role. root is an
/// administrator.
pub(crate) fn of_user(uid: u32, access: &Access) -> Option<Client> {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let name = user
        .as_ref()
        .map_or_else(|| format!("uid {uid}"), |user| user.name.clone());
    if uid == 0 {
        let role = Role::Admin;
        return Some(Client { name, role });
    }
    let user = user?;
    let groups = groups_of(&user);
    let has = |role: &Role| access.of(*role).iter().any(|group| is_member(group, &groups));
    let role = ROLES.into_iter().find(has)?;
    Some(Client { name, role })
}

fn groups_of(user: &User) -> Vec<Gid> {
    let listed = CString::new(user.name.as_str())
        .ok()
        .and_then(|name| getgrouplist(&name, user.gid).ok());
    listed.unwrap_or_else(|| vec![user.gid])
}

fn is_member(group: &str, groups: &[Gid]) -> bool {
    let found = Group::from_name(group).ok().flatten();
    found.is_some_and(|group| groups.contains(&group.gid))
}

/// Returns the client whose certificate has these names, if one of them has a role.
pub(crate) fn of_names(names: &[String], clients: &BTreeMap<String, RoleWord>) -> Option<Client> {
    names.iter().find_map(|name| {
        let role = (*clients.get(name)?).into();
        let name = name.clone();
        Some(Client { name, role })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_an_administrator_and_a_user_without_a_group_is_nobody() {
        let access = Access::default();
        assert_eq!(of_user(0, &access).map(|client| client.role), Some(Role::Admin));
        assert_eq!(of_user(65534, &access), None);
        assert_eq!(of_user(4_000_000_001, &access), None);
        // The user nobody is in the group nogroup.
        let open = Access {
            read: vec!["nogroup".to_owned()],
            ..access
        };
        assert_eq!(of_user(65534, &open).map(|client| client.role), Some(Role::Read));
    }

    #[test]
    fn a_certificate_has_the_role_of_the_first_name_that_the_settings_have() {
        let clients = BTreeMap::from([("alice".to_owned(), RoleWord::Write)]);
        let found = of_names(&["x".to_owned(), "alice".to_owned()], &clients).unwrap();
        assert_eq!((found.name.as_str(), found.role), ("alice", Role::Write));
        assert_eq!(of_names(&["bob".to_owned()], &clients), None);
    }
}
