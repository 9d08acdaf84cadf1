//! `gambeson key grant|revoke`: who may use a label of a key service.

use clap::Args;
use gambeson_keyd::Rights;
use gambeson_keyd::rules::check_role;

use super::{future, lifetime, service};
use crate::failure::{Failure, STATUSES};
use crate::keys::Access;

/// Lets somebody use a label of a key service
///
/// The rights, and until when, take the place of what they were granted before. To administer is to rotate, expire, grant,
/// revoke and delete: it is no right to read. To write is to read as well. Officers, whom the service's keyd.toml names, may
/// revoke and end lifetimes without a grant; they grant nothing.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Grant {
    /// Which label
    label: String,
    /// To whom: ann or user:ann for a person, dns:h1 for a host, user:* for everybody of the site
    #[arg(required = true, value_name = "WHO", value_parser = role)]
    who: Vec<String>,
    /// To open files
    #[arg(long)]
    read: bool,
    /// To make and change files, too
    #[arg(long)]
    write: bool,
    /// To rotate, expire, grant, revoke and delete
    #[arg(long)]
    administer: bool,
    /// Until when: 2027-06-30 is until the end of that day (UTC)
    #[arg(long, value_name = "DATE", value_parser = future)]
    until: Option<u64>,
    #[command(flatten)]
    access: Access,
}

/// Takes away what somebody may do with a label of a key service
///
/// From all of them, or from none if one has no grant. They get no key of it from then on, unless by another grant, as one to
/// user:*, which is said. What they could read before, they can have kept: `gambeson key rotate` gives new
/// files another key, and `gambeson file rekey` old ones.
#[derive(Args)]
#[command(after_long_help = STATUSES)]
pub(super) struct Revoke {
    /// Which label
    label: String,
    /// Whose: as with `grant`
    #[arg(required = true, value_name = "WHO", value_parser = role)]
    who: Vec<String>,
    #[command(flatten)]
    access: Access,
}

/// A role; a name alone is a person's.
pub(crate) fn role(text: &str) -> Result<String, String> {
    let role = if text.contains(':') { text.to_owned() } else { format!("user:{text}") };
    check_role(&role).map(|()| role)
}

impl Grant {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let rights = Rights { read: self.read || self.write, write: self.write, administer: self.administer };
        if rights == Rights::default() {
            return Err(Failure::usage("say what they may: --read, --write or --administer"));
        }
        let service = self.access.service("`gambeson key grant`")?;
        for who in &self.who {
            let grant = gambeson_keyd::Grant { who: who.clone(), rights, until: self.until };
            service.grant(&self.label, grant)?;
            let may = service::rights(rights);
            println!("{who} may {may} label \"{}\", {}", self.label, lifetime(self.until));
        }
        Ok(())
    }
}

impl Revoke {
    pub(super) fn execute(&self) -> Result<(), Failure> {
        let service = self.access.service("`gambeson key revoke`")?;
        for (who, remaining) in service.revoke(&self.label, &self.who)? {
            println!("{}", said(&self.label, &who, &remaining));
        }
        println!("`gambeson key rotate {}` gives new files another key", self.label);
        Ok(())
    }
}

/// What a revocation has come to.
fn said(label: &str, who: &str, remaining: &[gambeson_keyd::Grant]) -> String {
    if remaining.is_empty() {
        return format!(
            "{who} gets nothing of label \"{label}\" any more; what they have unwrapped they may have kept"
        );
    }
    let each = |grant: &gambeson_keyd::Grant| {
        let may = service::rights(grant.rights);
        format!("{may} by the grant to {}, {}", grant.who, lifetime(grant.until))
    };
    let remaining: Vec<String> = remaining.iter().map(each).collect();
    let whose = if who.ends_with('*') { "but some of them still may" } else { "but they still may" };
    format!("the grant of label \"{label}\" to {who} is gone, {whose} {}", remaining.join("; "))
}
