//! Gives the shared library its soname. Programs that were linked with one version run with all later
//! ones of the same major version (docs/upgrade.md).

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libobol.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    println!("cargo::rerun-if-changed=build.rs");
}
