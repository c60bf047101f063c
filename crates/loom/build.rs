//! Sets the configuration flag under which the included sources use loom.

fn main() {
    println!("cargo:rustc-cfg=loom");
}
