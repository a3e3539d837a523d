//! The user as whom a session runs.

use super::Peer;
use crate::names::getent;
use lads_sys::become_user;
use rustix::process::geteuid;

/// A user of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Account {
    /// Looks up the user of a peer. `None`: the one that this process is.
    ///
    /// # Errors
    /// If the configuration names none although the daemon is root's, or one that does not exist,
    /// or that this process cannot become.
    pub(super) fn of(peer: &Peer) -> Result<Option<Self>, String> {
        let is_root = geteuid().is_root();
        let Some(user) = &peer.user else {
            return match is_root {
                true => Err("sessions of a daemon of root need a user".to_owned()),
                false => Ok(None),
            };
        };
        let account = Self::named(user).ok_or_else(|| format!("there is no user {user:?}"))?;
        if account.uid == geteuid().as_raw() && !is_root {
            return Ok(None);
        }
        match (is_root, account.uid) {
            (true, 0) => Err("sessions do not run as root".to_owned()),
            (true, _) => Ok(Some(account)),
            (false, _) => Err(format!("only a daemon of root can run sessions as {user:?}")),
        }
    }

    fn named(user: &str) -> Option<Self> {
        let passwd = printed("passwd", user)?;
        let mut fields = passwd.lines().next()?.split(':');
        let name = fields.next()?;
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        let groups = printed("initgroups", name).unwrap_or_default();
        let groups = groups.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let mut groups: Vec<u32> = groups.filter_map(|it| it.parse().ok()).collect();
        if !groups.contains(&gid) {
            groups.insert(0, gid);
        }
        Some(Self { uid, gid, groups })
    }

    /// Makes this process one of the user, for good.
    ///
    /// # Errors
    /// If that fails; then the process must not go on.
    pub(super) fn become_it(&self) -> Result<(), String> {
        become_user(self.uid, self.gid, &self.groups).map_err(|error| error.to_string())
    }
}

fn printed(database: &str, key: &str) -> Option<String> {
    let text = String::from_utf8(getent(database, [key]).ok()?).ok()?;
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_with_all_their_groups() {
        let root = Account::named("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        let nobody = Account::named("nobody").unwrap();
        assert!(nobody.groups.contains(&nobody.gid), "{nobody:?}");
        assert_eq!(Account::named("there is no such user"), None);
    }
}
