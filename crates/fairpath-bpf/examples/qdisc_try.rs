//! Registers a qdisc and prints what it does.
use fairpath_core::sched::policies;
fn main() {
    if std::env::var_os("QUIET").is_some() { fairpath_bpf::quiet_libbpf(); }
    let name = std::env::args().nth(1).unwrap_or("fq_codel".into());
    let tree = fairpath_sched_plan(&name);
    let q = fairpath_bpf::BpfQdisc::register(&tree, "fairpath").expect("registered");
    println!("registered");
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
        println!("{:?}", q.stats());
        if std::env::args().nth(2).is_some() { break; }
    }
}
fn fairpath_sched_plan(name: &str) -> fairpath_core::sched::Plan {
    use fairpath_core::sched::{NodeConfig, SchedConfig, Plan, COST_ONE};
    let policy = policies().iter().find(|p| p.name == name).unwrap();
    let mut params = policy.standards();
    for (i, p) in policy.params.iter().enumerate() { if p.name == "ecn" { params[i] = 0; } if p.name == "rate" { params[i] = 8000 << 20 >> 3; } }
    Plan {
        config: SchedConfig { packets: 2048, limit_packets: 2000, flows: 256, hosts: 256, ..Default::default() },
        nodes: vec![NodeConfig { parent: 0, policy: policy.id, over: policy.usual, queue: 1, cost: COST_ONE, params, ..Default::default() }],
        class_table: vec![1],
        splits: vec![],
    }
}
