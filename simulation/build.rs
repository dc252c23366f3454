//! Lists the files that come with the harness, for `src/scenario/find.rs`: the scenarios of the
//! tree, their ring and routes files, and the kept seeds.
//!
//! It must not change a text.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let place = |name| env::var_os(name).map(PathBuf::from).ok_or(io::ErrorKind::NotFound);
    let (tree, mut names) = (place("CARGO_MANIFEST_DIR")?, Vec::new());
    for folder in ["kept", "scenarios", "scenarios/rings"] {
        println!("cargo::rerun-if-changed={folder}");
        for file in fs::read_dir(tree.join(folder))? {
            names.push(format!("{folder}/{}", file?.file_name().to_string_lossy()));
        }
    }
    names.retain(|name| name.ends_with(".toml"));
    names.sort();
    let file = |name: &String| format!("({name:?}, include_str!({:?})),\n", tree.join(name));
    let files: String = names.iter().map(file).collect();
    fs::write(place("OUT_DIR")?.join("shipped.rs"), format!("&[\n{files}]\n"))
}
