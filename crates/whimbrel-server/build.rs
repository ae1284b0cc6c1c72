//! Sees that a file that is new in `console/` is embedded: cargo looks at those only that it knows.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../console");
}
