//! Policies that share by weight: what their papers prove, their worked examples, what their predecessors did wrong.

mod policies;

use fairpath_core::sched::{COST_ONE, Meta, Op, Over, Scheduler};
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
    fn the_papers_example_keeps_480_bytes_and_sends_750_in_the_second_round() {
        let leaf = with_param(node(0, "drr", Over::Flows), "drr", "quantum", 500);
        let mut home = Watched::natively(&plan(vec![leaf], vec![1]));
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
                home.enqueue(handle, packet(flow as u32, *bytes));
            }
        }
        // Round 1: 20 | 500 | 200 | 50. Round 2: 750, 200 | 500 | 600, 100 | 700, 180.
        let order = home.dequeue_many(100);
        assert_eq!(order, [1, 4, 6, 9, 2, 3, 5, 7, 8, 10, 11]);
    }

    proptest! {
        #[test]
        fn packets_leave_as_the_papers_algorithm_sends_them(
            quantum in prop_oneof![Just(64u64), Just(500), Just(1514), Just(9000)],
            weights in prop::collection::vec(1u32..8, 5),
            ops in prop::collection::vec((0u32..5, 1u32..1515, 0u32..3), 1..120),
        ) {
            let leaf = with_param(node(0, "drr", Over::Flows), "drr", "quantum", quantum);
            let mut home = Watched::natively(&plan(vec![leaf], vec![1]));
            for (flow, weight) in weights.iter().enumerate() {
                home.run(&[Op::weight(0, 1, flow as u32, COST_ONE / weight)]);
            }
            let of = |flow: u32| (quantum << 14) / u64::from(COST_ONE / weights[flow as usize]);
            let mut paper = Paper::default();
            for (handle, (flow, bytes, leave)) in ops.iter().enumerate() {
                let handle = handle as u32 + 1;
                home.enqueue(handle, packet(*flow, *bytes));
                paper.enqueue(*flow, handle, (*bytes).into());
                for _ in 0..leave.saturating_sub(1) {
                    prop_assert_eq!(home.dequeue(), paper.dequeue(of));
                }
            }
            while let Some(handle) = paper.dequeue(of) {
                prop_assert_eq!(home.dequeue(), Some(handle));
            }
        }

        /// Theorem 2 of the paper: over any time in which both wait, two flows' bytes differ by less
        /// than twice the longest packet and a quantum. Children may overdraw by a packet more.
        #[test]
        fn two_that_wait_never_differ_by_more_than_the_papers_bound(
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
            let mut home = Watched::natively(&plan(nodes, classes));
            let mut bytes = vec![0];
            for (a, b) in sizes {
                for (class, size) in [(1, a), (2, b)] {
                    bytes.push(size);
                    home.enqueue(bytes.len() as u32 - 1, of_class(class, class, size));
                }
            }
            let mut sent = [0i64; 2];
            let (mut least, mut most) = (0, 0);
            // Stop while both are waiting.
            for handle in home.dequeue_many(count.min(bytes.len() as u32 / 6)) {
                sent[(handle as usize + 1) % 2] += i64::from(bytes[handle as usize]);
                (least, most) = (least.min(sent[0] - sent[1]), most.max(sent[0] - sent[1]));
            }
            let overdrawn = if over == Over::Children { 1514 } else { 0 };
            prop_assert!(most - least <= 2 * 1514 + quantum as i64 + overdrawn, "{}", most - least);
        }
    }

    /// A child with one packet at a time is charged for what it overdrew, as one that always waits is.
    #[test]
    fn a_child_that_keeps_one_packet_queued_gets_no_more_than_its_share() {
        let root = with_param(node(0, "drr", Over::Children), "drr", "quantum", 300);
        let nodes = vec![
            root,
            node(1, "fifo", Over::Packets),
            node(1, "fifo", Over::Packets),
        ];
        let mut home = Watched::natively(&plan(nodes, vec![0, 2, 3]));
        for handle in 2..500 {
            home.enqueue(handle, of_class(2, 2, 300));
        }
        let (mut seldom, mut always) = (0, 0);
        home.enqueue(1, of_class(1, 1, 1500));
        for _ in 0..400 {
            if home.dequeue() == Some(1) {
                seldom += 1500;
                home.enqueue(1, of_class(1, 1, 1500));
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

mod stfq {
    use super::*;

    /// Bytes of each of two flows in the next `count` packets; each flow's handles are odd or even.
    fn shares(home: &mut Watched<Scheduler>, count: u32, again: impl Fn(u32) -> Meta) -> [u32; 2] {
        let mut sent = [0; 2];
        for _ in 0..count {
            let handle = home.dequeue().unwrap();
            sent[handle as usize % 2] += again(handle).bytes;
            home.enqueue(handle, again(handle));
        }
        sent
    }

    /// Section 2.4 of the notes: a flow's state must outlive its queue.
    #[test]
    fn defect_a_flow_with_one_packet_queued_does_not_regain_virtual_time() {
        for over in [Over::Packets, Over::Flows] {
            let mut home = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            // The even flow always has two waiting; the odd one has one, three times as long.
            let again = |handle: u32| packet(handle % 2, if handle % 2 == 1 { 1500 } else { 500 });
            for handle in [1, 2, 4] {
                home.enqueue(handle, again(handle));
            }
            let [even, odd] = shares(&mut home, 4000, again);
            assert!(even.abs_diff(odd) <= 2 * 1500, "{over:?}: {even} and {odd}");
        }
    }

    /// Likewise: ranks of 32 bits wrapped after seconds.
    #[test]
    fn defect_virtual_time_beyond_32_bits_keeps_order() {
        let mut home = Watched::natively(&plan(vec![node(0, "stfq", Over::Packets)], vec![1]));
        let again = |handle: u32| packet(handle % 2, 1_000_000);
        for handle in [1, 2, 3, 4] {
            home.enqueue(handle, again(handle));
        }
        // 1 MB at cost 16384 is 2^34 of virtual time a packet: beyond 2^32 at once.
        let [even, odd] = shares(&mut home, 3000, again);
        assert!(even.abs_diff(odd) <= 2_000_000, "{even} and {odd}");
    }

    /// Likewise: the larger the weight, the more it gets.
    #[test]
    fn defect_weights_are_not_inverted() {
        for over in [Over::Packets, Over::Flows] {
            let mut home = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            home.run(&[Op::weight(0, 1, 1, COST_ONE / 4)]);
            let again = |handle: u32| packet(handle % 2, 1000);
            for handle in 1..41 {
                home.enqueue(handle, again(handle));
            }
            let [even, odd] = shares(&mut home, 5000, again);
            assert!(
                odd.abs_diff(4 * even) <= 8 * 1000,
                "{over:?}: {even} and {odd}"
            );
        }
    }

    proptest! {
        /// Theorem 1 of the paper: two flows that wait differ by less than a packet of each.
        #[test]
        fn two_flows_that_wait_never_differ_by_more_than_the_papers_bound(
            over in prop_oneof![Just(Over::Packets), Just(Over::Flows)],
            sizes in prop::collection::vec((64u32..1515, 64u32..1515), 80..120),
            weight in 1u32..8,
        ) {
            let mut home = Watched::natively(&plan(vec![node(0, "stfq", over)], vec![1]));
            let cost = COST_ONE / weight;
            home.run(&[Op::weight(0, 1, 0, cost)]);
            let mut bytes = vec![0, 0];
            for (a, b) in sizes {
                for size in [a, b] {
                    let handle = bytes.len() as u32;
                    home.enqueue(handle, packet(handle % 2, size));
                    bytes.push(size);
                }
            }
            let mut work = [0i64; 2];
            let (mut least, mut most) = (0, 0);
            for handle in home.dequeue_many(80) {
                let each = if handle % 2 == 0 { cost } else { COST_ONE };
                work[handle as usize % 2] += i64::from(bytes[handle as usize]) * i64::from(each);
                let apart = work[0] - work[1];
                (least, most) = (least.min(apart), most.max(apart));
            }
            prop_assert!(most - least <= 2 * 1514 * i64::from(cost + COST_ONE), "{}", most - least);
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
    fn the_papers_tree_shares_as_the_paper_says() {
        for (inner, over) in [("hpfq", Over::References), ("stfq", Over::Children)] {
            let mut home = figure(inner, over);
            for handle in 1..=200 {
                home.enqueue(handle, of_class(handle % 4 + 1, handle % 8, 1000));
            }
            let mut sent = [0u32; 4];
            for _ in 0..10_000 {
                let handle = home.dequeue().unwrap();
                sent[handle as usize % 4] += 1;
                home.enqueue(handle, of_class(handle % 4 + 1, handle % 8, 1000));
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
        let mut home = figure("hpfq", Over::References);
        for handle in 1..=200 {
            home.enqueue(handle, of_class([1, 3, 4][handle as usize % 3], 1, 1000));
        }
        let mut sent = [0u32; 3];
        for _ in 0..3000 {
            let handle = home.dequeue().unwrap();
            sent[handle as usize % 3] += 1;
            home.enqueue(handle, of_class([1, 3, 4][handle as usize % 3], 1, 1000));
        }
        for (sent, share) in sent.into_iter().zip([300u32, 1080, 1620]) {
            assert!(
                sent.abs_diff(share) <= share / 100 + 2,
                "{sent}, not {share}"
            );
        }
    }

    /// Section 2.4 of the notes: the predecessor kept one root rank a flow, which later packets of it
    /// overwrote, so that a newcomer started far ahead of the packets served.
    #[test]
    fn defect_root_virtual_time_is_that_of_the_packet_served() {
        let nodes = vec![
            node(0, "hpfq", Over::References),
            node(1, "stfq", Over::Packets),
            node(1, "stfq", Over::Packets),
        ];
        let mut home = Watched::natively(&plan(nodes, vec![0, 2, 3]));
        for handle in 1..=20 {
            home.enqueue(handle, of_class(1, 1, 1000));
        }
        assert_eq!(home.dequeue_many(2), [1, 2]);
        // Virtual time is that of packet 2: the newcomer starts there, before packet 3.
        home.enqueue(21, of_class(2, 2, 1000));
        home.enqueue(22, of_class(2, 2, 1000));
        assert_eq!(home.dequeue_many(5), [21, 3, 22, 4, 5]);
    }
}
