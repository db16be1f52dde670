//! Every shipped policy, as if an author had written it: the machine that interprets its instructions
//! and the C compiler give the same outcomes, operation by operation.

use fairpath_core::sched::{
    COST_ONE, Home, Meta, NodeConfig, Op, Outcome, OutcomeKind, Over, Plan, Policy, SchedConfig,
    Scheduler, policies,
};
use fairpath_sched::author::Author;

use super::{read, shipped};

const OPERATIONS: usize = 100_000;
const HANDLES: u32 = 256;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn packet(&mut self, now: u64) -> Meta {
        Meta {
            arrival: now,
            hint: self.below(1 << 20),
            bytes: 60 + self.below(1455) as u32,
            flow_hash: flow_hash(self.below(24)),
            class_id: self.below(4) as u32,
            mark: self.below(4) as u32,
            dscp: self.below(64) as u8,
            ecn: self.below(4) as u8,
            source: [self.below(3) as u8; 16],
            destination: [self.below(3) as u8; 16],
            ..Meta::default()
        }
    }

    fn operation(&mut self, now: u64, policy: &Policy, node: u32) -> Op {
        let handle = 1 + self.below(HANDLES.into()) as u32;
        match self.below(100) {
            0..50 => Op::enqueue(now, handle, self.packet(now)),
            50..97 => Op::dequeue(now, 1 + self.below(3) as u32),
            97 => Op::remove(now, handle),
            98 => Op::weight(now, 1, flow_hash(self.below(24)), COST_ONE / 2),
            _ if policy.params.is_empty() => Op::dequeue(now, 1),
            _ => {
                let index = self.below(policy.params.len() as u64) as usize;
                let param = &policy.params[index];
                // Near the standard value, and inside.
                let value = param.standard / 2 + self.below(param.standard.max(2));
                let value = param.encode(value.clamp(param.least, param.most));
                Op::param(now, node, index as u32, value)
            }
        }
    }
}

fn flow_hash(flow: u64) -> u32 {
    (flow as u32).wrapping_mul(0x9e37_79b1)
}

/// A tree whose node 1 has the policy: alone, or above two leaves of first in, first out.
fn plan(policy: &Policy, over: Over) -> Plan {
    let fifo = policies()
        .iter()
        .find(|policy| policy.name == "fifo")
        .expect("shipped");
    let node = |parent, policy: &Policy, over| NodeConfig {
        parent,
        policy: policy.id,
        over,
        queue: 1,
        cost: COST_ONE,
        params: policy.standards(),
        ..NodeConfig::default()
    };
    let mut nodes = vec![node(0, policy, over)];
    let mut class_table = vec![1];
    if matches!(over, Over::Children | Over::References) {
        nodes.push(node(1, fifo, Over::Packets));
        // References are to packets, not to flows.
        let second = match over {
            Over::Children => Over::Flows,
            _ => Over::Packets,
        };
        nodes.push(node(1, fifo, second));
        nodes[2].cost = COST_ONE / 3;
        for leaf in &mut nodes[1..] {
            (leaf.ceil, leaf.floor, leaf.burst) = (8 << 20, 80 << 20, 20_000);
        }
        class_table = vec![2, 3, 2, 3];
    }
    let config = SchedConfig {
        packets: HANDLES,
        limit_packets: HANDLES - 56,
        flows: 64,
        hosts: 16,
        references: 4 * HANDLES,
        ..SchedConfig::default()
    };
    Plan {
        config,
        nodes,
        class_table,
        splits: vec![],
    }
}

fn outcomes(scheduler: &mut Scheduler, ops: &[Op]) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    scheduler.run(ops, &mut outcomes).expect("native");
    scheduler.audit().expect("in order");
    outcomes
}

fn agree(author: &Author, compiled: &Policy, over: Over, seed: u64) {
    let name = &compiled.name;
    let mut native = Scheduler::new(&plan(compiled, over)).expect("laid out");
    let machine = author.machine();
    let watch = machine.watch();
    let custom = Scheduler::with_custom(
        &plan(&author.policy, over),
        &author.policy,
        Box::new(machine),
    );
    let mut custom = custom.expect("laid out");
    let (mut random, mut now) = (Random(seed), 1_000_000);
    let ops: Vec<Op> = (0..OPERATIONS)
        .map(|_| {
            now += random.below(20_000);
            random.operation(now, compiled, 1)
        })
        .collect();
    let (wanted, got) = (outcomes(&mut native, &ops), outcomes(&mut custom, &ops));
    assert_eq!(watch.fault(), None, "{name} over {over:?}, seed {seed}");
    let differs = wanted.iter().zip(&got).find(|(wanted, got)| wanted != got);
    assert_eq!(differs, None, "{name} over {over:?}, seed {seed}");
    assert_eq!(wanted.len(), got.len());
    let sent = wanted
        .iter()
        .filter(|outcome| outcome.kind == OutcomeKind::Sent)
        .count();
    assert!(
        sent > OPERATIONS / 50,
        "{name} over {over:?}: only {sent} packets were sent"
    );
}

#[test]
fn the_machine_and_the_c_compiler_agree_on_every_shipped_policy() {
    let mut tried = 0;
    for file in shipped() {
        let author = read(&file).unwrap_or_else(|told| panic!("{}: {told}", file.display()));
        let compiled = policies()
            .iter()
            .find(|policy| policy.name == author.policy.name);
        let compiled = compiled.unwrap_or_else(|| panic!("{} is compiled in", file.display()));
        let same = Policy {
            id: compiled.id,
            ..author.policy.clone()
        };
        assert_eq!(&same, compiled, "what the file says of itself");
        for over in &compiled.over {
            let seed = 20_261_121 + tried;
            println!("{} over {over:?}: seed {seed}", compiled.name);
            agree(&author, compiled, *over, seed);
            tried += 1;
        }
    }
    assert!(tried >= policies().len() as u64);
}
