//! The certificate that browsers see, and that it is always a good one.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gambeson_launch::authority;
use gambeson_site::directory::now;
use pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// What new connections are shown; nothing, as long as there is none.
#[derive(Debug, Default)]
pub(super) struct Shown(RwLock<Option<(Arc<CertifiedKey>, u64)>>);

impl Shown {
    /// Until when it is good, in seconds since 1970.
    pub(super) fn until(&self) -> Option<u64> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(_, until)| *until)
    }

    fn show(&self, page: &authority::Page) -> Result<(), String> {
        let chain = page.identity.certificates().map(|der| CertificateDer::from(der.to_vec())).collect();
        let key = page.identity.private_key().ok_or("its key is in a token")?;
        let key = any_supported_type(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)))
            .map_err(|cause| cause.to_string())?;
        let certified = CertifiedKey::new(chain, key);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some((Arc::new(certified), page.validity.until));
        Ok(())
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(certified, _)| certified.clone())
    }
}

/// Has it, and renews it when two thirds of its time are over, until it is told to stop. Whoever was told that there is none
/// yet is told when the page, at this address, has one.
pub(super) fn keep(
    shown: &Shown,
    folder: &Path,
    address: &str,
    stop: &Receiver<()>,
    say: &(dyn Fn(&str) + Send + Sync),
) {
    let mut failures = 0;
    loop {
        let lacked = failures > 0 && shown.until().is_none();
        let had = authority::Page::of(folder, None, |why| say(why)).map_err(|cause| cause.to_string());
        let due = had.and_then(|page| shown.show(&page).map(|()| page.validity.due()));
        if lacked && due.is_ok() {
            say(&format!("the officers' page has its certificate, and is at {address}"));
        }
        let wait = match due {
            Ok(due) if due > now() => {
                failures = 0;
                // A clock that was set shows within the hour.
                (due - now()).min(3_600)
            }
            Ok(_) => wait_again(&mut failures),
            Err(cause) => {
                say(&format!("the officers' page has no certificate yet, and asks again: {cause}"));
                wait_again(&mut failures)
            }
        };
        match stop.recv_timeout(Duration::from_secs(wait.max(1))) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// Twice as long every time, an hour at most.
fn wait_again(failures: &mut u32) -> u64 {
    *failures += 1;
    (2_u64 << (*failures).min(11)).min(3_600)
}
