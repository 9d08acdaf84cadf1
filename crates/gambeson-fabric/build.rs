//! Linker settings of the provider.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The watchdog thread and the exit handler must never find their code unmapped, and libfabric
    // closes its providers while the process may still run them.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
