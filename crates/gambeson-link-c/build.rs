//! Linker settings of the library.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgambeson-link.so.0");
    // Domains have threads, which must never find their code unmapped.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
