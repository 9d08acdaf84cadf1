//! `gambeson init`: a site begins, with its authority, this host and whoever makes it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use clap::Args;
use gambeson_launch::authority::{Authority, Identities, Kind, Newcomer, PORT, Settings, Site, Subject};
use gambeson_launch::identities::Mechanism;
use gambeson_pkcs11::Uri;
use gambeson_proto::directory::date;
use serde_json::json;

use crate::failure::{Failure, STATUSES};
use crate::machine;

/// Makes a site: its authority, the certificate of this host, and yours
///
///   gambeson init                     on one host; as root for all its users, else for yourself
///   gambeson enroll h2                for each of the others
///
/// A site's hosts and people know each other by certificates of its authority, whose key stays on
/// this host, in a folder that only you can read. They are for a few days, and renew themselves.
/// The files are in /etc/gambeson for root, and in ~/.config/gambeson for others:
///
///   host.pem        this host's key and certificate    authority.pem   whose certificates are accepted
///   authority/      the authority's own                site.toml       where certificates are renewed
///
/// A key can be in a TPM or another token instead, which it never leaves: --host-key and --authority-key
/// name it by a PKCS #11 URI (RFC 7512), and it is made there if there is none of that name:
///
///   pkcs11:token=LABEL;object=NAME?module-path=/usr/lib/...so&pin-source=file:/etc/gambeson/pin
///
/// Your own identity is identity.pem in ~/.config/gambeson. Who has another authority already appends
/// its certificate to authority.pem, and has it certify hosts by `gambeson:role:host` in a URI.
#[derive(Args)]
#[command(verbatim_doc_comment, after_long_help = STATUSES)]
pub(crate) struct Arguments {
    /// What to call the site; without it, as this host
    #[arg(long)]
    name: Option<String>,
    /// For how many days hosts and people are certified
    #[arg(long, default_value_t = 7.0)]
    days: f64,
    /// Another name by which this host is known; once for each
    #[arg(long = "alias", value_name = "NAME")]
    aliases: Vec<String>,
    /// What you are called; without it, your login name
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Where others renew their certificates; without it, this host and port 7200
    #[arg(long, value_name = "HOST:PORT")]
    address: Option<String>,
    /// Certify people by what they have anyway, too: munge or kerberos, or both with a comma between them
    #[arg(long, value_name = "MECHANISMS", value_delimiter = ',')]
    identities: Vec<Mechanism>,
    /// This host's key, in a token
    #[arg(long, value_name = "URI")]
    host_key: Option<Uri>,
    /// The authority's key, in a token
    #[arg(long, value_name = "URI")]
    authority_key: Option<Uri>,
    /// Where to put all files, instead
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    machine::close_to_others()?;
    let own = machine::host_name();
    let names = std::iter::once(own.as_str()).chain(arguments.aliases.iter().map(String::as_str));
    let host = Subject::host(names)?.authority();
    let login = arguments.user.clone().or_else(|| env::var("LOGNAME").or_else(|_| env::var("USER")).ok());
    let login = login.ok_or_else(|| Failure::usage("nothing here says what you are called; say --user NAME"))?;
    let user = Subject::user(&login)?;
    let name = arguments.name.clone().unwrap_or_else(|| own.clone());
    let identities = Identities { mechanisms: arguments.identities.clone(), ..Identities::default() };
    let settings = Settings { name: name.clone(), days: arguments.days, identities };
    let authority = arguments.address.clone().unwrap_or(format!("{own}:{PORT}"));
    let site = Site { name: name.clone(), authority, identities: arguments.identities.clone(), keys: None };
    let folder = |kind: Kind| arguments.folder.clone().unwrap_or_else(|| kind.folder());
    // Whatever is in the way shows before anything is made.
    Authority::none_in(&folder(Kind::Host))?;
    let host = (Newcomer::new(&folder(Kind::Host), Kind::Host, false, arguments.host_key.as_ref())?, host);
    let user = (Newcomer::new(&folder(Kind::User), Kind::User, false, None)?, user);
    let folder = folder(Kind::Host);
    let authority = Authority::create(&folder, &settings, &site, arguments.authority_key.as_ref())?;
    let mut made = Vec::new();
    for (newcomer, subject) in [host, user] {
        let certified = authority.certify(&newcomer.request()?, &subject);
        let installed = certified.and_then(|certified| Ok((newcomer.install(&certified)?, certified)));
        made.push(installed.inspect_err(|_| {
            made.iter().for_each(|(path, _): &(PathBuf, _)| drop(fs::remove_file(path)));
            Authority::remove(&folder);
        })?);
    }
    if arguments.json {
        let certified = made.iter().map(|(path, certified)| {
            json!({ "file": path, "name": certified.subject.name(), "roles": certified.subject.roles,
                    "until": date(certified.until) })
        });
        let report = json!({ "site": name, "folder": folder, "authority": site.authority,
                             "certified": certified.collect::<Vec<_>>() });
        println!("{report:#}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("site       {name}, in {}; its authority's key stays in {}", folder.display(), authority.key_place());
    for (path, certified) in &made {
        println!("certified  {} until {}: {}", certified.subject.name(), date(certified.until), path.display());
    }
    println!("next       gambeson enroll HOST          for each other host, over your ssh");
    println!("           gambeson enroll --token HOST  where you have no ssh to it");
    println!("           gambeson site show            whom the site has certified");
    Ok(ExitCode::SUCCESS)
}
