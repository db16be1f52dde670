//! Loads every object; prints `loaded` or what the verifier says.

fn main() {
    for object in fairpath_bpf::load_all() {
        object
            .result
            .unwrap_or_else(|error| panic!("{}: {error:?}", object.name));
    }
    println!("loaded");
}
