use libbpf_rs::skel::{OpenSkel, SkelBuilder};
fn main() {
    let mut obj = std::mem::MaybeUninit::uninit();
    let mut b = fairpath_bpf::rtt::RttSkelBuilder::default();
    b.obj_builder.debug(std::env::args().nth(1).is_some());
    let mut open = b.open(&mut obj).unwrap();
    open.maps.arena.set_max_entries(1024).unwrap();
    let skel = open.load().unwrap();
    let _ = skel;
    println!("loaded");
}
