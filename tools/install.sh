#!/usr/bin/env bash
# install.sh RELEASE PREFIX [FINAL]: bin/gambeson, lib/gambeson/*.so, man pages, completions and systemd units; for programs
# in C lib/libgambeson-link.so, its header and its pkg-config file. FINAL is where PREFIX will be in the end, where that is
# another place (DESTDIR). Called by make install.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
release=$1 prefix=$2
install -d "$prefix/bin" "$prefix/lib/gambeson"
install -m 755 "$release/gambeson" "$prefix/bin/gambeson"
install -m 755 "$release/gambeson-fabric-info" "$prefix/lib/gambeson/gambeson-fabric-info"
install -m 755 "$release/libgambeson_fi.so" "$prefix/lib/gambeson/libgambeson-fi.so"
install -m 755 "$release/libgambeson_guard.so" "$prefix/lib/gambeson/libgambeson-guard.so"
install -m 755 "$release/libgambeson_mpi.so" "$prefix/lib/gambeson/libgambeson-mpi.so"
install -m 755 "$release/libgambeson_link_c.so" "$prefix/lib/libgambeson-link.so.0"
ln -sfn libgambeson-link.so.0 "$prefix/lib/libgambeson-link.so"
install -d "$prefix/include/gambeson" "$prefix/lib/pkgconfig"
install -m 644 "$source/crates/gambeson-link-c/include/gambeson/link.h" "$prefix/include/gambeson/link.h"
install -m 644 "$source/crates/gambeson-mpi/include/gambeson_mpi.h" "$prefix/include/gambeson/gambeson_mpi.h"
install -m 644 "$source/crates/gambeson-mpi/include/gambeson_mpi.f90" "$source/crates/gambeson-mpi/include/gambeson_mpi_f08.f90" "$prefix/include/gambeson/"
install -m 644 "$source/crates/gambeson-link-c/gambeson-link.pc" "$prefix/lib/pkgconfig/gambeson-link.pc"
install -d "$prefix/share/man/man1"
"$release/gambeson" manual "$prefix/share/man/man1"
place() { # SHELL FOLDER NAME
  install -d "$prefix/share/$2"
  "$release/gambeson" completion "$1" >"$prefix/share/$2/$3"
}
place bash bash-completion/completions gambeson
place zsh zsh/site-functions _gambeson
place fish fish/vendor_completions.d gambeson.fish
unit() { # FOLDER FILE NAME FINAL: the unit, for what is installed here
  install -d "$prefix/lib/systemd/$1"
  sed "s|@PREFIX@|${4%/}|" "$source/packaging/systemd/$2" >"$prefix/lib/systemd/$1/$3"
}
# Where it will be run from: without DESTDIR.
final=${3:-$prefix}
unit system gambesond.service gambesond.service "$final"
unit user gambesond-user.service gambesond.service "$final"
unit system gambeson-keyd.service gambeson-keyd.service "$final"
echo "installed below $prefix; try: $prefix/bin/gambeson doctor -- mpiexec -n 2 true"
