//! Tells the sources that the model checker looks at them.

fn main() {
    println!("cargo:rustc-cfg=loom");
}
