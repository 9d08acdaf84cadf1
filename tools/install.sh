#!/usr/bin/env bash
# install.sh RELEASE PREFIX: bin/gambeson, lib/gambeson/*.so, man pages and completions. Called by make install.
set -euo pipefail
release=$1 prefix=$2
install -d "$prefix/bin" "$prefix/lib/gambeson"
install -m 755 "$release/gambeson" "$prefix/bin/gambeson"
install -m 755 "$release/gambeson-fabric-info" "$prefix/lib/gambeson/gambeson-fabric-info"
install -m 755 "$release/libgambeson_fi.so" "$prefix/lib/gambeson/libgambeson-fi.so"
install -m 755 "$release/libgambeson_guard.so" "$prefix/lib/gambeson/libgambeson-guard.so"
install -d "$prefix/share/man/man1"
"$release/gambeson" manual "$prefix/share/man/man1"
place() { # SHELL FOLDER NAME
  install -d "$prefix/share/$2"
  "$release/gambeson" completion "$1" >"$prefix/share/$2/$3"
}
place bash bash-completion/completions gambeson
place zsh zsh/site-functions _gambeson
place fish fish/vendor_completions.d gambeson.fish
echo "installed below $prefix; try: $prefix/bin/gambeson doctor -- mpiexec -n 2 true"
