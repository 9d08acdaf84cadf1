#!/usr/bin/env bash
# install.sh RELEASE PREFIX: bin/gambeson, lib/gambeson/*.so, man pages and completions. Called by make install.
set -euo pipefail
release=$1 prefix=$2
root=$(cd "$(dirname "$0")/.." && pwd)
install -d "$prefix/bin" "$prefix/lib/gambeson"
install -m 755 "$release/gambeson" "$prefix/bin/gambeson"
install -m 755 "$release/libgambeson_fi.so" "$prefix/lib/gambeson/libgambeson-fi.so"
install -m 755 "$release/libgambeson_guard.so" "$prefix/lib/gambeson/libgambeson-guard.so"
install -m 755 "$release/gambeson-fabric-info" "$prefix/lib/gambeson/gambeson-fabric-info"
install -d "$prefix/share/man/man1"
"$release/gambeson" manual "$prefix/share/man/man1"
for page in "$root"/docs/man/*.[1-9]; do
  [[ -f $page ]] || continue
  install -d "$prefix/share/man/man${page##*.}"
  install -m 644 "$page" "$prefix/share/man/man${page##*.}/"
done
place() { # SHELL FOLDER NAME: only what the program can write
  local text
  text=$("$release/gambeson" completion "$1" 2>/dev/null) && [[ -n $text ]] || return 0
  install -d "$prefix/share/$2"
  printf '%s\n' "$text" >"$prefix/share/$2/$3"
}
place bash bash-completion/completions gambeson
place zsh zsh/site-functions _gambeson
place fish fish/vendor_completions.d gambeson.fish
echo "installed below $prefix; try: $prefix/bin/gambeson doctor -- mpiexec -n 2 true"
