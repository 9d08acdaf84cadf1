//! Accounts of this host: who a process is to be, and becoming that.

use nix::unistd::{Gid, Uid, User, getgrouplist, setgroups, setresgid, setresuid};
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::path::PathBuf;

use crate::wire::{Text, Variable};

/// What the system says of an account.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) uid: u32,
    gid: u32,
    groups: Vec<u32>,
    home: PathBuf,
    shell: PathBuf,
}

impl Account {
    /// The account of this name or number.
    ///
    /// # Errors
    /// A sentence: there is none.
    pub(crate) fn find(name: &str) -> Result<Self, String> {
        let by_number = name.parse().ok().map(Uid::from_raw);
        let found = by_number.map_or_else(|| User::from_name(name), User::from_uid);
        let user = found.map_err(|cause| format!("the account {name} cannot be looked up here ({cause})"))?;
        let user = user.ok_or_else(|| format!("there is no account {name} here"))?;
        let known = CString::new(user.name.as_str()).map_err(|_| format!("{name} is no account's name"))?;
        let groups = getgrouplist(&known, user.gid);
        let groups = groups.map_err(|cause| format!("the groups of {name} cannot be looked up ({cause})"))?;
        Ok(Account {
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
            name: user.name,
            home: user.dir,
            shell: user.shell,
        })
    }

    /// The account that this process runs as.
    ///
    /// # Errors
    /// As [`Account::find`].
    pub(crate) fn own() -> Result<Self, String> {
        Self::find(&Uid::effective().to_string())
    }

    /// Becomes it, for good.
    ///
    /// # Errors
    /// A sentence: this process is not root and somebody else.
    pub(crate) fn assume(&self) -> Result<(), String> {
        let cannot =
            |cause| format!("the daemon cannot become the account {} ({cause}); it would have to be root", self.name);
        if Uid::effective().is_root() {
            let groups: Vec<_> = self.groups.iter().copied().map(Gid::from_raw).collect();
            let gid = Gid::from_raw(self.gid);
            setgroups(&groups).and_then(|()| setresgid(gid, gid, gid)).map_err(cannot)?;
        }
        let uid = Uid::from_raw(self.uid);
        setresuid(uid, uid, uid).map_err(cannot)
    }

    /// Where it starts unless it is told otherwise.
    pub(crate) fn home(&self) -> &std::path::Path {
        &self.home
    }

    /// What every process of it finds, as after a login.
    pub(crate) fn variables(&self) -> [Variable; 5] {
        let path = if self.uid == 0 { ROOTS_PATH } else { PATH };
        [
            ("HOME".into(), Text::from(self.home.clone())),
            ("USER".into(), self.name.clone().into()),
            ("LOGNAME".into(), self.name.clone().into()),
            ("SHELL".into(), Text::from(self.shell.clone())),
            ("PATH".into(), path.into()),
        ]
    }
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
const ROOTS_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
