//! Site directories, signed and read.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use gambeson_proto::directory::{Directory, DirectoryError, Expected, compose, enclose, message, transport_name};
use serde_json::{Value, json};

use super::{array, hex, number, refused, text};

pub(super) fn sign(given: &Value) -> Value {
    let key = Ed25519KeyPair::from_seed_unchecked(&array::<32>(given, "site_seed")).expect("32 bytes");
    let composed = compose(text(given, "text"), number(given, "issued"), number(given, "expires"));
    let signature = key.sign(&message(composed.as_bytes()));
    let signed = enclose(&composed, signature.as_ref().try_into().expect("64 bytes"));
    json!({ "site_key": hex(key.public_key().as_ref()), "directory": signed })
}

pub(super) fn verify(given: &Value) -> Value {
    let (signed, now, seen) = (text(given, "directory"), number(given, "now"), number(given, "seen"));
    let directory = match Directory::verify(signed.as_bytes(), &array(given, "site_key"), now, seen) {
        Ok(directory) => directory,
        Err(DirectoryError::Unsigned) => return refused("Unsigned"),
        Err(DirectoryError::Forged) => return refused("Forged"),
        Err(DirectoryError::Senseless(..)) => return refused("Senseless"),
        Err(DirectoryError::Early { .. }) => return refused("Early"),
        Err(DirectoryError::Stale { .. }) => return refused("Stale"),
        Err(DirectoryError::RolledBack { .. }) => return refused("RolledBack"),
        Err(other) => panic!("no vector expects {other:?}"),
    };
    let hosts = directory.hosts.iter().map(|host| {
        json!({
            "name": host.name,
            "addresses": host.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "transports": host.transports.iter().map(|&transport| transport_name(transport)).collect::<Vec<_>>(),
            "authentication": host.authentication.iter().map(|way| way.name()).collect::<Vec<_>>(),
            "attach": host.attach.as_ref().map(|attach| {
                let addresses: Vec<_> = attach.addresses.iter().map(ToString::to_string).collect();
                match &attach.expected {
                    Expected::Role(role) => json!({ "addresses": addresses, "role": role }),
                    Expected::Key(key) => json!({ "addresses": addresses, "key": hex(key) }),
                }
            }),
        })
    });
    let networks = directory.networks.iter().map(|network| json!([network.subnet(), network.protection.name()]));
    json!({
        "issued": directory.issued,
        "expires": directory.expires,
        "hosts": hosts.collect::<Vec<_>>(),
        "networks": networks.collect::<Vec<_>>(),
    })
}
