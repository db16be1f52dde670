//! Policies that rank by the `hint` of a packet: bytes left, slack, a deadline.

mod policies;

use fairpath_core::sched::{Meta, Over};
use policies::{Watched, node, packet, plan, with_param};
use proptest::prelude::*;

/// Bytes left, deadline, or slack.
fn hinting(flow: u32, hint: u64) -> Meta {
    Meta {
        hint,
        ..packet(flow, 1000)
    }
}

mod srpt {
    use super::*;

    #[test]
    fn fewest_bytes_left_go_first_then_by_arrival() {
        let mut runtime = Watched::natively(&plan(vec![node(0, "srpt", Over::Packets)], vec![1]));
        for (handle, left) in [(1, 9000), (2, 3000), (3, 3000), (4, 1), (5, 1 << 40)] {
            runtime.enqueue(handle, hinting(handle, left));
        }
        assert_eq!(runtime.dequeue_many(9), [4, 2, 3, 1, 5]);
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        /// Section 2.13 of the notes: shortest first starves by design; the guard bounds it.
        #[test]
        fn no_packet_passes_after_patience(
            patience in prop_oneof![Just(1_000_000u64), Just(1_000_000_000)],
            packets in prop::collection::vec((0u64..400_000, 0u64..u64::MAX), 2..60),
        ) {
            let leaf = with_param(node(0, "srpt", Over::Packets), "srpt", "patience", patience);
            let mut runtime = Watched::natively(&plan(vec![leaf], vec![1]));
            let mut arrived = vec![0];
            let mut now = 1 << 60;
            for (handle, (gap, left)) in packets.iter().enumerate() {
                now += gap;
                arrived.push(now);
                runtime.at(now).enqueue(handle as u32 + 1, hinting(1, *left));
            }
            let order = runtime.dequeue_many(100);
            for (place, handle) in order.iter().enumerate() {
                for later in &order[place + 1..] {
                    let by = arrived[*handle as usize].saturating_sub(arrived[*later as usize]);
                    prop_assert!(by <= patience, "{handle} goes before {later}, {by} ns older");
                }
            }
        }

        /// Of all orders, shortest first has the least mean completion time of flows that are there.
        #[test]
        fn srpt_minimizes_mean_completion_time(
            sizes in prop::collection::vec(1u64..6, 2..6),
        ) {
            let mut runtime = Watched::natively(&plan(vec![node(0, "srpt", Over::Packets)], vec![1]));
            let mut flow_of = vec![0];
            for (flow, size) in sizes.iter().enumerate() {
                for left in (1..=*size).rev() {
                    flow_of.push(flow);
                    runtime.enqueue(flow_of.len() as u32 - 1, hinting(flow as u32, left * 1000));
                }
            }
            let mut ends = vec![0; sizes.len()];
            for (time, handle) in runtime.dequeue_many(100).into_iter().enumerate() {
                ends[flow_of[handle as usize]] = time as u64 + 1;
            }
            let mut shortest = sizes.clone();
            shortest.sort_unstable();
            let min = shortest.iter().scan(0, |end, size| { *end += size; Some(*end) }).sum();
            // Packets of flows interleave where they have as much left; the sum may not suffer much:
            // a flow is passed only by those that have as few bytes left or fewer.
            let sum: u64 = ends.iter().sum();
            let ties: u64 = sizes.iter().sum::<u64>() * sizes.len() as u64;
            prop_assert!(sum >= min && sum <= min + ties, "{sum} for {min}");
        }
    }
}

mod pfabric {
    use super::*;

    /// Section 2.6 of the notes: what a PIFO, or a tree of them, cannot do.
    #[test]
    fn older_packets_leave_with_an_ending_flow() {
        let mut runtime = Watched::natively(&plan(vec![node(0, "pfabric", Over::Flows)], vec![1]));
        let arrived = [(1, 0, 7), (2, 1, 9), (3, 1, 8)];
        for (handle, flow, left) in arrived {
            runtime.enqueue(handle, hinting(flow, left));
        }
        assert_eq!(runtime.dequeue_many(9), [1, 2, 3]);
        for (handle, flow, left) in arrived.into_iter().chain([(4, 1, 6)]) {
            runtime.enqueue(handle, hinting(flow, left));
        }
        assert_eq!(runtime.dequeue_many(9), [2, 3, 4, 1]);
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        #[test]
        fn the_flow_closest_to_its_end_sends_first(
            ops in prop::collection::vec((0u32..6, 1u64..9, any::<bool>()), 1..100),
        ) {
            let mut runtime = Watched::natively(&plan(vec![node(0, "pfabric", Over::Flows)], vec![1]));
            let mut left = [1000u64; 6];
            let mut queues: [Vec<(u32, u64)>; 6] = Default::default();
            for (handle, (flow, less, leave)) in ops.iter().enumerate() {
                let (handle, at) = (handle as u32 + 1, *flow as usize);
                left[at] -= less;
                queues[at].push((handle, left[at]));
                runtime.enqueue(handle, hinting(*flow, left[at]));
                if !leave {
                    continue;
                }
                let sent = runtime.dequeue().unwrap();
                let min = |queue: &[(u32, u64)]| queue.iter().map(|packet| packet.1).min();
                let best = queues.iter().filter_map(|queue| min(queue)).min();
                let from = queues.iter_mut().find(|queue| queue.first().is_some_and(|first| first.0 == sent));
                let from = from.expect("the oldest packet of some flow");
                prop_assert_eq!(min(from), best);
                from.remove(0);
            }
        }
    }
}

mod lstf {
    use super::*;

    proptest! {
        #![proptest_config(fairpath_units::property!(256))]

        #[test]
        fn least_slack_goes_first(
            ops in prop::collection::vec((0u64..1000, 0u64..5000, any::<bool>()), 1..100),
        ) {
            let mut runtime = Watched::natively(&plan(vec![node(0, "lstf", Over::Packets)], vec![1]));
            let (mut now, mut waiting) = (0, Vec::<(u32, i64, u64)>::new());
            for (handle, (gap, slack, leave)) in ops.iter().enumerate() {
                now += gap;
                waiting.push((handle as u32 + 1, *slack as i64, now));
                runtime.at(now).enqueue(handle as u32 + 1, hinting(1, *slack));
                if *leave {
                    let left = |packet: &(u32, i64, u64)| packet.1 - (now - packet.2) as i64;
                    let best = (0..waiting.len()).min_by_key(|at| left(&waiting[*at])).unwrap();
                    prop_assert_eq!(runtime.dequeue(), Some(waiting.remove(best).0));
                }
            }
        }
    }

    #[test]
    fn slack_beyond_all_time_does_not_wrap() {
        let mut runtime = Watched::natively(&plan(vec![node(0, "lstf", Over::Packets)], vec![1]));
        runtime.at(5).enqueue(1, hinting(1, u64::MAX));
        runtime.enqueue(2, hinting(1, u64::MAX - 100));
        assert_eq!(runtime.dequeue_many(9), [2, 1]);
    }
}

mod edf {
    use super::*;

    /// True if packets of one slot each, (arrival, deadline), can all be gone by their deadlines:
    /// in every span, no more want in than fit (Hall's condition).
    fn feasible(packets: &[(u64, u64)]) -> bool {
        (0..64).all(|from| {
            (from + 1..64).all(|to| {
                let inside = |packet: &&(u64, u64)| packet.0 >= from && packet.1 <= to;
                packets.iter().filter(inside).count() as u64 <= to - from
            })
        })
    }

    proptest! {
        #![proptest_config(fairpath_units::property!(256, max_global_rejects: 100_000))]
        #[test]
        fn feasible_deadlines_are_always_met(
            mut packets in prop::collection::vec((0u64..20, 1u64..12), 1..16),
        ) {
            for packet in &mut packets {
                packet.1 += packet.0;
            }
            prop_assume!(feasible(&packets));
            let mut runtime = Watched::natively(&plan(vec![node(0, "edf", Over::Packets)], vec![1]));
            for slot in 0..40 {
                for (index, packet) in packets.iter().enumerate() {
                    if packet.0 == slot {
                        runtime.at(slot).enqueue(index as u32 + 1, hinting(1, packet.1));
                    }
                }
                if let Some(handle) = runtime.at(slot).dequeue() {
                    prop_assert!(packets[handle as usize - 1].1 > slot, "{handle} at {slot}");
                }
            }
        }
    }

    #[test]
    fn packet_without_deadline_gets_that_of_its_dscp() {
        let leaf = with_param(node(0, "edf", Over::Packets), "edf", "cs2", 1);
        let mut runtime = Watched::natively(&plan(vec![leaf], vec![1]));
        for (handle, dscp) in [(1, 0), (2, 8), (3, 46), (4, 34), (5, 18)] {
            runtime.enqueue(
                handle,
                Meta {
                    dscp,
                    ..packet(1, 100)
                },
            );
        }
        assert_eq!(runtime.dequeue_many(9), [5, 3, 4, 1, 2]);
    }
}
