//! Policies that share by weight: what their papers prove, their worked examples, what their predecessors did wrong.

mod policies;

use fairpath_core::sched::{COST_ONE, Meta, NodeConfig, Op, Over, Scheduler};
use policies::{Watched, node, packet, plan, weighing, with_param};
use proptest::prelude::*;

fn of_class(class_id: u32, flow: u32, bytes: u32) -> Meta {
    Meta {
        class_id,
        ..packet(flow, bytes)
    }
}

mod drr {
    use super::*;
    use std::collections::{BTreeMap, VecDeque};

    /// The paper's algorithm as it is printed: a list of active flows, and a loop over it.
    #[derive(Default)]
    struct Paper {
        queues: BTreeMap<u32, VecDeque<(u32, u64)>>,
        active: VecDeque<u32>,
        deficits: BTreeMap<u32, u64>,
        /// The flow whose turn has begun.
        serving: Option<u32>,
    }

    impl Paper {
        fn enqueue(&mut self, flow: u32, handle: u32, bytes: u64) {
            let queue = self.queues.entry(flow).or_default();
            if queue.is_empty() {
                self.active.push_back(flow);
                self.deficits.insert(flow, 0);
            }
            queue.push_back((handle, bytes));
        }

        fn dequeue(&mut self, quantum: impl Fn(u32) -> u64) -> Option<u32> {
            loop {
                let flow = *self.active.front()?;
                let deficit = self.deficits.get_mut(&flow).unwrap();
                let queue = self.queues.get_mut(&flow).unwrap();
                if self.serving != Some(flow) {
                    *deficit += quantum(flow);
                    self.serving = Some(flow);
                }
                let (handle, bytes) = queue[0];
                let sends = bytes <= *deficit;
                if sends {
                    *deficit -= bytes;
                    queue.pop_front();
                }
                if queue.front().is_none_or(|next| next.1 > *deficit) {
                    self.serving = None;
                    self.active.pop_front();
                    if !queue.is_empty() {
                        self.active.push_back(flow);
                    }
                }
                if sends {
                    return Some(handle);
                }
            }
        }
    }

    /// Figure 1 and 2 of the paper: quantum 500; the first flow has 20, 750, 200, of which the first
    /// round sends the 20 and keeps 480.
    #[test]
    fn drr_follows_the_example_of_the_paper() {
        let leaf = with_param(node(0, "drr", Over::Flows), "drr", "quantum", 500);
        let mut runtime = Watched::natively(&plan(vec![leaf], vec![1]));
        let flows: [&[u32]; 4] = [
            &[20, 750, 200],
            &[500, 500],
            &[200, 600, 100],
            &[50, 700, 180],
        ];
        let mut handle = 0;
        for (flow, sizes) in flows.iter().enumerate() {
            for bytes in *sizes {
                handle += 1;
                runtime.enqueue(handle, packet(flow as u32, *bytes));
            }
        }
        // Round 1: 20 | 500 | 200 | 50. Round 2: 750, 200 | 500 | 600, 100 | 700, 180.
        let order = runtime.dequeue_many(100);
        assert_eq!(order, [1, 4, 6, 9, 2, 3, 5, 7, 8, 10, 11]);
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        #[test]
        fn packets_leave_as_the_papers_algorithm_sends_them(
            quantum in prop_oneof![Just(64u64), Just(500), Just(1514), Just(9000)],
            weights in prop::collection::vec(1u32..8, 5),
            ops in prop::collection::vec((0u32..5, 1u32..1515, 0u32..3), 1..120),
        ) {
            let leaf = with_param(node(0, "drr", Over::Flows), "drr", "quantum", quantum);
            let mut runtime = Watched::natively(&plan(vec![leaf], vec![1]));
            for (flow, weight) in weights.iter().enumerate() {
                runtime.run(&[Op::weight(0, 1, flow as u32, COST_ONE / weight)]);
            }
            // In parts of a byte, as the policy counts.
            let of = |flow: u32| (quantum << 28) / u64::from(COST_ONE / weights[flow as usize]);
            let mut paper = Paper::default();
            for (handle, (flow, bytes, leave)) in ops.iter().enumerate() {
                let handle = handle as u32 + 1;
                runtime.enqueue(handle, packet(*flow, *bytes));
                paper.enqueue(*flow, handle, u64::from(*bytes) << 14);
                for _ in 0..leave.saturating_sub(1) {
                    prop_assert_eq!(runtime.dequeue(), paper.dequeue(of));
                }
            }
            while let Some(handle) = paper.dequeue(of) {
                prop_assert_eq!(runtime.dequeue(), Some(handle));
            }
        }

        /// Theorem 2 of the paper: over any time in which both wait, two flows' bytes differ by less
        /// than twice the longest packet and a quantum. Children may overdraw by a packet more.
        #[test]
        fn two_waiting_children_differ_within_the_papers_bound(
            over in prop_oneof![Just(Over::Flows), Just(Over::Children)],
            quantum in prop_oneof![Just(300u64), Just(1514), Just(5000)],
            sizes in prop::collection::vec((64u32..1515, 64u32..1515), 60..100),
            count in 20u32..100,
        ) {
            let root = with_param(node(0, "drr", over), "drr", "quantum", quantum);
            let mut nodes = vec![root];
            let mut classes = vec![1];
            if over == Over::Children {
                nodes.extend([node(1, "fifo", Over::Packets), node(1, "fifo", Over::Packets)]);
                classes = vec![0, 2, 3];
            }
            let mut runtime = Watched::natively(&plan(nodes, classes));
            let mut bytes = vec![0];
            for (a, b) in sizes {
                for (class, size) in [(1, a), (2, b)] {
                    bytes.push(size);
                    runtime.enqueue(bytes.len() as u32 - 1, of_class(class, class, size));
                }
            }
            let mut sent = [0i64; 2];
            let (mut min, mut most) = (0, 0);
            // Stop while both are waiting.
            for handle in runtime.dequeue_many(count.min(bytes.len() as u32 / 6)) {
                sent[(handle as usize + 1) % 2] += i64::from(bytes[handle as usize]);
                (min, most) = (min.min(sent[0] - sent[1]), most.max(sent[0] - sent[1]));
            }
            let overdrawn = if over == Over::Children { 1514 } else { 0 };
            prop_assert!(most - min <= 2 * 1514 + quantum as i64 + overdrawn, "{}", most - min);
        }
    }

    /// A child with one packet at a time is charged for what it overdrew, as one that always waits is.
    #[test]
    fn a_child_with_one_packet_keeps_its_share() {
        let root = with_param(node(0, "drr", Over::Children), "drr", "quantum", 300);
        let nodes = vec![
            root,
            node(1, "fifo", Over::Packets),
            node(1, "fifo", Over::Packets),
        ];
        let mut runtime = Watched::natively(&plan(nodes, vec![0, 2, 3]));
        for handle in 2..500 {
            runtime.enqueue(handle, of_class(2, 2, 300));
        }
        let (mut seldom, mut always) = (0, 0);
        runtime.enqueue(1, of_class(1, 1, 1500));
        for _ in 0..400 {
            if runtime.dequeue() == Some(1) {
                seldom += 1500;
                runtime.enqueue(1, of_class(1, 1, 1500));
            } else {
                always += 300;
            }
        }
        let difference: i32 = seldom - always;
        assert!(
            difference.abs() <= 2 * 1500 + 300 + 1500,
            "{seldom} and {always}"
        );
    }
}

mod weights {
    use super::*;

    /// Policies over children that share by weight.
    const POLICIES: [(&str, Over); 6] = [
        ("drr", Over::Children),
        ("stfq", Over::Children),
        ("hpfq", Over::References),
        ("qfq", Over::Children),
        ("class_tree", Over::Children),
        ("hclock", Over::Children),
    ];

    /// Of two children that always wait, the light one gets its share within a packet and its quantum.
    #[test]
    fn weights_up_to_ten_thousand_are_exact() {
        let mut wrong = Vec::new();
        for (policy, over) in POLICIES {
            for weight in [1, 64, 65, 1_000, 10_000u32] {
                // With the third, a turn of weight 10,000 would be a million packets.
                let sizes = [(1_500, 1_500), (64, 1_500), (1_500, 64)];
                for sizes in &sizes[..if weight > 1_000 { 2 } else { 3 }] {
                    let [most, bound] = furthest(policy, over, weight, *sizes);
                    if most > bound {
                        wrong.push(format!("{policy} 1:{weight}, {sizes:?}: {most} of {bound}"));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// The largest difference of services by weight, in bytes of the heavy child, and its bound.
    fn furthest(policy: &str, over: Over, weight: u32, (light, heavy): (u32, u32)) -> [u64; 2] {
        let nodes = vec![
            node(0, policy, over),
            NodeConfig {
                cost: COST_ONE * weight,
                ..node(1, "fifo", Over::Packets)
            },
            node(1, "fifo", Over::Packets),
        ];
        let mut runtime = Watched::natively(&plan(nodes, vec![0, 2, 3]));
        let mut sent = [0u64; 2];
        for (handle, class, bytes) in [(1, 1, light), (2, 1, light), (3, 2, heavy), (4, 2, heavy)] {
            runtime.enqueue(handle, of_class(class, class, bytes));
        }
        let mut most = 0;
        // Each packet that leaves is replaced.
        let mut left = 2;
        while left > 0 {
            let handle = runtime.dequeue().unwrap();
            let class = handle.div_ceil(2);
            let bytes = [light, heavy][class as usize - 1];
            sent[class as usize - 1] += u64::from(bytes);
            left -= u32::from(class == 1);
            runtime.enqueue(handle, of_class(class, class, bytes));
            most = most.max((sent[0] * u64::from(weight)).abs_diff(sent[1]));
        }
        let (light, heavy, weight) = (u64::from(light), u64::from(heavy), u64::from(weight));
        // qfq rounds times to slots, the longest packet of the child rounded up to a power of two.
        let slot = if policy == "qfq" {
            (1514 * weight).next_power_of_two()
        } else {
            0
        };
        [most, weight * light + heavy + 1514 + slot]
    }
}

mod stfq {
    use super::*;

    /// Bytes of each of two flows in the next `count` packets; each flow's handles are odd or even.
    fn shares(
        runtime: &mut Watched<Scheduler>,
        count: u32,
        again: impl Fn(u32) -> Meta,
    ) -> [u32; 2] {
        let mut sent = [0; 2];
        for _ in 0..count {
            let handle = runtime.dequeue().unwrap();
            sent[handle as usize % 2] += again(handle).bytes;
            runtime.enqueue(handle, again(handle));
        }
        sent
    }

    /// Section 2.4 of the notes: a flow's state must outlive its queue.
    #[test]
    fn defect_one_queued_packet_regains_no_virtual_time() {
        for over in [Over::Packets, Over::Flows] {
            let mut runtime = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            // The even flow always has two waiting; the odd one has one, three times as long.
            let again = |handle: u32| packet(handle % 2, if handle % 2 == 1 { 1500 } else { 500 });
            for handle in [1, 2, 4] {
                runtime.enqueue(handle, again(handle));
            }
            let [even, odd] = shares(&mut runtime, 4000, again);
            assert!(even.abs_diff(odd) <= 2 * 1500, "{over:?}: {even} and {odd}");
        }
    }

    /// The same: ranks of 32 bits wrapped after seconds.
    #[test]
    fn defect_virtual_time_beyond_32_bits_keeps_order() {
        let mut runtime = Watched::natively(&plan(vec![node(0, "stfq", Over::Packets)], vec![1]));
        let again = |handle: u32| packet(handle % 2, 1_000_000);
        for handle in [1, 2, 3, 4] {
            runtime.enqueue(handle, again(handle));
        }
        // 1 MB at weight 1 is 2^26 of virtual time: beyond 2^32 after 64 packets of each.
        let [even, odd] = shares(&mut runtime, 3000, again);
        assert!(even.abs_diff(odd) <= 2_000_000, "{even} and {odd}");
    }

    /// The same: the larger the weight, the more it gets.
    #[test]
    fn defect_weights_are_not_inverted() {
        for over in [Over::Packets, Over::Flows] {
            let mut runtime = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            runtime.run(&[Op::weight(0, 1, 1, COST_ONE / 4)]);
            let again = |handle: u32| packet(handle % 2, 1000);
            for handle in 1..41 {
                runtime.enqueue(handle, again(handle));
            }
            let [even, odd] = shares(&mut runtime, 5000, again);
            assert!(
                odd.abs_diff(4 * even) <= 8 * 1000,
                "{over:?}: {even} and {odd}"
            );
        }
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        /// Theorem 1 of the paper: two flows that wait differ by less than a packet of each.
        #[test]
        fn two_waiting_flows_differ_within_the_papers_bound(
            over in prop_oneof![Just(Over::Packets), Just(Over::Flows)],
            sizes in prop::collection::vec((64u32..1515, 64u32..1515), 80..120),
            weight in 1u32..8,
        ) {
            let mut runtime = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            let cost = COST_ONE / weight;
            runtime.run(&[Op::weight(0, 1, 0, cost)]);
            let mut bytes = vec![0, 0];
            for (a, b) in sizes {
                for size in [a, b] {
                    let handle = bytes.len() as u32;
                    runtime.enqueue(handle, packet(handle % 2, size));
                    bytes.push(size);
                }
            }
            let mut work = [0i64; 2];
            let (mut min, mut most) = (0, 0);
            for handle in runtime.dequeue_many(80) {
                let each = if handle % 2 == 0 { cost } else { COST_ONE };
                work[handle as usize % 2] += i64::from(bytes[handle as usize]) * i64::from(each);
                let apart = work[0] - work[1];
                (min, most) = (min.min(apart), most.max(apart));
            }
            prop_assert!(most - min <= 2 * 1514 * i64::from(cost + COST_ONE), "{}", most - min);
        }
    }
}

mod hpfq {
    use super::*;

    /// Figure 3 of the PIFO paper: the root gives 1 : 9, the left one 3 : 7, the right one 4 : 6.
    fn figure(inner: &str, over: Over) -> Watched<Scheduler> {
        let heavy = |parent, weight| weighing(node(parent, "stfq", Over::Packets), weight);
        let nodes = vec![
            node(0, inner, over),
            weighing(node(1, inner, over), 1),
            weighing(node(1, inner, over), 9),
            heavy(2, 3),
            heavy(2, 7),
            heavy(3, 4),
            heavy(3, 6),
        ];
        Watched::natively(&plan(nodes, vec![0, 4, 5, 6, 7]))
    }

    #[test]
    fn hpfq_follows_the_tree_of_the_paper() {
        for (inner, over) in [("hpfq", Over::References), ("stfq", Over::Children)] {
            let mut runtime = figure(inner, over);
            for handle in 1..=200 {
                runtime.enqueue(handle, of_class(handle % 4 + 1, handle % 8, 1000));
            }
            let mut sent = [0u32; 4];
            for _ in 0..10_000 {
                let handle = runtime.dequeue().unwrap();
                sent[handle as usize % 4] += 1;
                runtime.enqueue(handle, of_class(handle % 4 + 1, handle % 8, 1000));
            }
            for (sent, share) in sent.into_iter().zip([300u32, 700, 3600, 5400]) {
                assert!(
                    sent.abs_diff(share) <= share / 100 + 2,
                    "{inner}: {sent}, not {share}"
                );
            }
        }
    }

    /// Section 2.2 of the paper: what one does not use stays within its parent.
    #[test]
    fn an_idle_siblings_share_stays_within_the_parent() {
        let mut runtime = figure("hpfq", Over::References);
        for handle in 1..=200 {
            runtime.enqueue(handle, of_class([1, 3, 4][handle as usize % 3], 1, 1000));
        }
        let mut sent = [0u32; 3];
        for _ in 0..3000 {
            let handle = runtime.dequeue().unwrap();
            sent[handle as usize % 3] += 1;
            runtime.enqueue(handle, of_class([1, 3, 4][handle as usize % 3], 1, 1000));
        }
        for (sent, share) in sent.into_iter().zip([300u32, 1080, 1620]) {
            assert!(
                sent.abs_diff(share) <= share / 100 + 2,
                "{sent}, not {share}"
            );
        }
    }

    /// Section 2.4 of the notes: the predecessor kept one root rank a flow, which later packets of it
    /// overwrote, so that a new flow started far ahead of the packets served.
    #[test]
    fn defect_root_virtual_time_is_the_served_packets() {
        let nodes = vec![
            node(0, "hpfq", Over::References),
            node(1, "stfq", Over::Packets),
            node(1, "stfq", Over::Packets),
        ];
        let mut runtime = Watched::natively(&plan(nodes, vec![0, 2, 3]));
        for handle in 1..=20 {
            runtime.enqueue(handle, of_class(1, 1, 1000));
        }
        assert_eq!(runtime.dequeue_many(2), [1, 2]);
        // Virtual time is that of packet 2: the new flow starts there, before packet 3.
        runtime.enqueue(21, of_class(2, 2, 1000));
        runtime.enqueue(22, of_class(2, 2, 1000));
        assert_eq!(runtime.dequeue_many(5), [21, 3, 22, 4, 5]);
    }
}

mod qfq {
    use super::*;
    use std::collections::VecDeque;

    /// The longest packet of these tests.
    const LONGEST: u32 = 1500;

    /// The paper's rules, and a search through all children instead of groups and bitmaps.
    struct Slow {
        children: Vec<Child>,
        costs: Vec<u64>,
        sum: u64,
        now: u64,
    }

    #[derive(Default)]
    struct Child {
        queue: VecDeque<(u32, u32)>,
        start: u64,
        weighed: bool,
    }

    impl Slow {
        fn new(weights: &[u32]) -> Slow {
            let costs = weights.iter().map(|weight| u64::from(COST_ONE / weight));
            Slow {
                children: weights.iter().map(|_| Child::default()).collect(),
                costs: costs.collect(),
                sum: 0,
                now: 0,
            }
        }

        fn cost(&self, child: usize) -> u64 {
            self.costs[child]
        }

        fn slot(&self, child: usize) -> u64 {
            ((u64::from(LONGEST) * self.cost(child)) >> 8)
                .next_power_of_two()
                .max(2)
        }

        /// When it is eligible, and its rank.
        fn stamps(&self, child: usize) -> (u64, u64) {
            let slot = self.slot(child);
            let start = self.children[child].start / slot * slot;
            (start, start + 2 * slot)
        }

        fn enqueue(&mut self, child: usize, handle: u32, bytes: u32) {
            // A busy period begins with no time stamps.
            if self.children.iter().all(|child| child.queue.is_empty()) {
                self.children.fill_with(Child::default);
                (self.now, self.sum) = (0, 0);
            }
            if self.children[child].queue.is_empty() {
                if !self.children[child].weighed {
                    self.children[child].weighed = true;
                    self.sum += (u64::from(COST_ONE) << 16) / self.cost(child);
                }
                self.children[child].start = self.children[child].start.max(self.now);
            }
            self.children[child].queue.push_back((handle, bytes));
        }

        /// The entries that may be sent, as bits: any of those of least rank.
        fn candidates(&mut self) -> Option<u32> {
            let waiting: Vec<usize> = (0..self.children.len())
                .filter(|child| !self.children[*child].queue.is_empty())
                .collect();
            let min = waiting.iter().map(|child| self.stamps(*child).0).min()?;
            self.now = self.now.max(min);
            let eligible = waiting
                .iter()
                .copied()
                .filter(|child| self.stamps(*child).0 <= self.now);
            let rank = eligible.clone().map(|child| self.stamps(child).1).min()?;
            let candidates: Vec<usize> = eligible
                .filter(|child| self.stamps(*child).1 == rank)
                .collect();
            Some(candidates.iter().fold(0, |set, child| set | 1 << child))
        }

        fn send(&mut self, child: usize) -> (u32, u32) {
            let (handle, bytes) = self.children[child].queue.pop_front().unwrap();
            self.now += ((u64::from(bytes) * u64::from(COST_ONE >> 8)) << 16) / self.sum;
            self.children[child].start += (u64::from(bytes) * self.cost(child)) >> 8;
            (handle, bytes)
        }
    }

    fn tree(weights: &[u32]) -> Watched<Scheduler> {
        let root = with_param(
            node(0, "qfq", Over::Children),
            "qfq",
            "longest",
            LONGEST.into(),
        );
        let leaf = |weight: &u32| weighing(node(1, "fifo", Over::Packets), *weight);
        let nodes = [root].into_iter().chain(weights.iter().map(leaf)).collect();
        let classes =
            (0..=weights.len() as u32).map(|class| if class == 0 { 0 } else { class + 1 });
        Watched::natively(&plan(nodes, classes.collect()))
    }

    /// Start and end of what child `k` has got, while it waits.
    #[derive(Default)]
    struct Service {
        own: Vec<u64>,
        all: Vec<u64>,
    }

    impl Service {
        /// The furthest that it fell behind its share since any moment of its waiting.
        fn behind(&self, share: f64) -> f64 {
            let lead = |at: usize| share * self.all[at] as f64 - self.own[at] as f64;
            let mut min = f64::MAX;
            let mut behind = 0.0_f64;
            for at in 0..self.own.len() {
                min = min.min(lead(at));
                behind = behind.max(lead(at) - min);
            }
            behind
        }
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        /// Section 3 and theorem 2 of the paper: who is sent, and B-WFI.
        #[test]
        fn qfq_lag_is_within_the_bwfi(
            weights in prop::collection::vec(1u32..33, 2..7),
            ops in prop::collection::vec((0usize..7, 40u32..=LONGEST, 0u32..3), 50..250),
        ) {
            let mut runtime = tree(&weights);
            let mut slow = Slow::new(&weights);
            let mut served: Vec<Service> = weights.iter().map(|_| Service::default()).collect();
            let (mut all, mut own) = (0u64, vec![0u64; weights.len()]);
            let sum: u32 = weights.iter().sum();
            let handles = ops.len() as u32;
            for (index, (child, bytes, leave)) in ops.into_iter().enumerate() {
                let (child, handle) = (child % weights.len(), index as u32 + 1);
                runtime.enqueue(handle, of_class(child as u32 + 1, 1, bytes));
                if slow.children[child].queue.is_empty() {
                    served[child] = Service { own: vec![own[child]], all: vec![all] };
                }
                slow.enqueue(child, handle, bytes);
                let count = if handle == handles { handles } else { leave.saturating_sub(1) };
                for _ in 0..count {
                    let Some(candidates) = slow.candidates() else { break };
                    let sent = runtime.dequeue().unwrap();
                    let from = slow.children.iter()
                        .position(|child| child.queue.front().is_some_and(|first| first.0 == sent));
                    let from = from.expect("the first packet of a child");
                    prop_assert!(candidates >> from & 1 == 1, "{from} of {candidates:b}");
                    let (_, bytes) = slow.send(from);
                    all += u64::from(bytes);
                    own[from] += u64::from(bytes);
                    for k in 0..weights.len() {
                        if !slow.children[k].queue.is_empty() || k == from {
                            served[k].own.push(own[k]);
                            served[k].all.push(all);
                        }
                        let share = f64::from(weights[k]) / f64::from(sum);
                        let slot = slow.slot(k) as f64 / f64::from(COST_ONE >> 8) * f64::from(sum);
                        let bound = share * (3.0 * slot + 2.0 * f64::from(LONGEST));
                        prop_assert!(served[k].behind(share) <= bound + 1.0,
                            "child {k}: {} bytes behind, {bound} allowed", served[k].behind(share));
                    }
                }
            }
        }
    }

    /// In contrast to stfq and drr, a child of half the weight does not send its half in one burst: a
    /// child of half the weight does not send its half in one burst.
    #[test]
    fn a_heavy_child_among_light_ones_never_bursts() {
        let weights: Vec<u32> = [10].into_iter().chain([1; 10]).collect();
        let mut runtime = tree(&weights);
        for handle in 1..=600 {
            let class = if handle % 2 == 1 {
                1
            } else {
                handle / 2 % 10 + 2
            };
            runtime.enqueue(handle, of_class(class, 1, LONGEST));
        }
        let order = runtime.dequeue_many(400);
        let heavy = order.iter().map(|handle| handle % 2 == 1);
        let runs = heavy.collect::<Vec<bool>>();
        let longest = runs.split(|heavy| !heavy).map(<[bool]>::len).max();
        assert!(longest <= Some(3), "{longest:?} in a row");
        let share = runs.iter().filter(|heavy| **heavy).count();
        assert!((195..=205).contains(&share), "{share} of 400");
    }

    #[test]
    fn shares_hold_within_one_percent_below_other_trees() {
        let nodes = vec![
            node(0, "stfq", Over::Children),
            node(1, "qfq", Over::Children),
            node(1, "qfq", Over::Children),
            weighing(node(2, "drr", Over::Flows), 1),
            weighing(node(2, "fifo", Over::Packets), 3),
            node(3, "fifo", Over::Packets),
        ];
        let mut runtime = Watched::natively(&plan(nodes, vec![0, 4, 5, 6]));
        let of = |handle: u32| of_class(handle % 3 + 1, handle % 7, 1000);
        for handle in 1..=90 {
            runtime.enqueue(handle, of(handle));
        }
        let mut sent = [0u32; 3];
        for _ in 0..8000 {
            let handle = runtime.dequeue().unwrap();
            sent[handle as usize % 3] += 1;
            runtime.enqueue(handle, of(handle));
        }
        for (sent, share) in sent.into_iter().zip([1000u32, 3000, 4000]) {
            assert!(
                sent.abs_diff(share) <= share / 100 + 2,
                "{sent}, not {share}"
            );
        }
    }
}

/// Debts end with the busy period (Goyal and others, section 2): a class that was alone owes nothing
/// to one that was silent, once nothing waits.
mod silence {
    use super::*;

    const HOUR: u64 = 3_600_000_000_000;
    /// 1,500 bytes at 1 Gbit/s.
    const PACKET_TIME: u64 = 12_000;

    /// Two leaves of weights 1 and `weight` below a root, or below a node below the root.
    fn siblings(name: &str, over: Over, depth: u32, weight: u32) -> Watched<Scheduler> {
        let mut nodes = vec![];
        for parent in 0..depth {
            nodes.push(node(parent, name, over));
        }
        // The heaviest child has COST_ONE.
        nodes.push(NodeConfig {
            cost: COST_ONE * weight,
            ..node(depth, "fifo", Over::Packets)
        });
        nodes.push(node(depth, "fifo", Over::Packets));
        Watched::natively(&plan(nodes, vec![0, depth + 1, depth + 2]))
    }

    #[test]
    fn silence_forgives_the_debts_of_a_light_class() {
        for (name, over) in [
            ("stfq", Over::Children),
            ("stfq", Over::References),
            ("hpfq", Over::References),
            ("class_tree", Over::Children),
            ("hclock", Over::Children),
        ] {
            for (depth, silence) in [(1, HOUR), (1, PACKET_TIME), (2, HOUR), (2, PACKET_TIME)] {
                let mut runtime = siblings(name, over, depth, 1000);
                // The light class is alone: after each packet, virtual time is 1,000 packets behind.
                for handle in 1..=10 {
                    runtime.enqueue(handle, of_class(1, 1, 1500));
                }
                assert_eq!(runtime.dequeue_many(10).len(), 10);
                runtime.at(silence);
                for handle in 1..=20 {
                    runtime.enqueue(100 + handle, of_class(2, 2, 1500));
                }
                runtime.enqueue(1, of_class(1, 1, 1500));
                let order = runtime.dequeue_many(20);
                assert!(
                    order.iter().take(2).any(|handle| *handle == 1),
                    "{name} over {over:?}, depth {depth}, {silence} ns: {order:?}"
                );
            }
        }
    }

    /// The same for flows of a leaf.
    #[test]
    fn silence_forgives_the_debts_of_a_light_flow() {
        for over in [Over::Packets, Over::Flows] {
            let mut runtime = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            runtime.run(&[Op::weight(0, 1, 2, COST_ONE / 1000)]);
            for handle in 1..=10 {
                runtime.enqueue(handle, packet(1, 1500));
            }
            assert_eq!(runtime.dequeue_many(10).len(), 10);
            runtime.at(HOUR);
            for handle in 1..=20 {
                runtime.enqueue(100 + handle, packet(2, 1500));
            }
            runtime.enqueue(1, packet(1, 1500));
            let order = runtime.dequeue_many(20);
            assert!(
                order.iter().take(2).any(|handle| *handle == 1),
                "{over:?}: {order:?}"
            );
        }
    }

    /// Packets 101 to 120 of the second class, and packet 1 of the first in their midst, leave.
    fn order_of_both(runtime: &mut Watched<Scheduler>, of: impl Fn(u32) -> Meta) -> Vec<u32> {
        for handle in 101..=110 {
            runtime.enqueue(handle, of(2));
        }
        runtime.enqueue(1, of(1));
        for handle in 111..=120 {
            runtime.enqueue(handle, of(2));
        }
        runtime.dequeue_many(30)
    }

    /// The first class is alone until it has debts, then nothing waits.
    fn alone(runtime: &mut Watched<Scheduler>, of: impl Fn(u32) -> Meta) {
        for handle in 1..=10 {
            runtime.enqueue(handle, of(1));
        }
        while runtime.dequeue().is_some() {}
    }

    #[test]
    fn after_silence_a_node_is_as_new() {
        let of = |class: u32| of_class(class, class, 1500);
        let mut wrong = Vec::new();
        for (name, over) in [
            ("drr", Over::Children),
            ("stfq", Over::Children),
            ("stfq", Over::References),
            ("hpfq", Over::References),
            ("qfq", Over::Children),
            ("tins", Over::Children),
            ("priority", Over::Children),
            ("class_tree", Over::Children),
            ("hclock", Over::Children),
        ] {
            for (depth, weight, silence) in [
                (1, 10, HOUR),
                (1, 1000, HOUR),
                (1, 1000, PACKET_TIME),
                (2, 10, PACKET_TIME),
                (2, 1000, HOUR),
            ] {
                let new = order_of_both(&mut siblings(name, over, depth, weight), of);
                let mut runtime = siblings(name, over, depth, weight);
                alone(&mut runtime, of);
                runtime.at(silence);
                let order = order_of_both(&mut runtime, of);
                if order != new {
                    wrong.push(format!(
                        "{name} over {over:?}, depth {depth}, 1:{weight}: {order:?}, not {new:?}"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn after_silence_a_leaf_is_as_new() {
        // A GSO packet is more than a flow of fq_codel may send in a turn.
        let of = |flow: u32| packet(flow, 60_000);
        let mut wrong = Vec::new();
        for (name, over) in [
            ("drr", Over::Flows),
            ("stfq", Over::Packets),
            ("stfq", Over::Flows),
            ("hpfq", Over::Packets),
            ("sp_pifo", Over::Packets),
            ("fq_codel", Over::Flows),
        ] {
            let mut leaf = node(0, name, over);
            if name == "sp_pifo" {
                leaf = with_param(leaf, name, "fair", 1);
                // Bounds of FP_SP_PIFO outlast a busy period.
                (leaf.queue, leaf.queue_buckets) = (policies::HEAP, 0);
            }
            let leaf = || {
                let mut runtime = Watched::natively(&plan(vec![leaf], vec![1]));
                runtime.run(&[Op::weight(0, 1, 2, COST_ONE / 1000)]);
                runtime
            };
            let new = order_of_both(&mut leaf(), of);
            let mut runtime = leaf();
            alone(&mut runtime, of);
            runtime.at(HOUR);
            let order = order_of_both(&mut runtime, of);
            if order != new {
                wrong.push(format!("{name} over {over:?}: {order:?}, not {new:?}"));
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// No silence, no forgiveness: while the heavy class waits, the light one pays.
    #[test]
    fn without_silence_a_light_class_pays() {
        for (name, over) in [
            ("drr", Over::Children),
            ("stfq", Over::Children),
            ("hpfq", Over::References),
            ("qfq", Over::Children),
            ("class_tree", Over::Children),
            ("hclock", Over::Children),
        ] {
            let mut runtime = siblings(name, over, 1, 1000);
            for handle in 1..=500 {
                runtime.enqueue(100 + handle, of_class(2, 2, 1500));
            }
            for handle in 1..=10 {
                runtime.enqueue(handle, of_class(1, 1, 1500));
            }
            let order = runtime.dequeue_many(400);
            let light = order.iter().filter(|handle| **handle <= 10).count();
            assert_eq!((order.len(), light), (400, 1), "{name}");
        }
    }
}
