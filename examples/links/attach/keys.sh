#!/bin/sh
# An authority, and certificates with a role each for a model, a coupler and a visitor, in the present folder. A site has
# these from its own authority; programs of one `gambeson run` need none. Takes OpenSSL 3.
set -eu
umask 077
certificate() {
    who=$1
    shift
    openssl req -x509 -newkey ed25519 -noenc -days 30 -subj "/CN=$who" -keyout "$who.key" -out "$who.pem" "$@"
}
certificate authority -addext keyUsage=keyCertSign
for role in model coupler visitor; do
    certificate $role -CA authority.pem -CAkey authority.key -addext basicConstraints=critical,CA:FALSE \
        -addext "subjectAltName=DNS:$role.example,URI:gambeson:role:$role"
done
