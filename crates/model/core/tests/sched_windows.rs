//! Queues with a window below nodes that serve by peeking.

mod policies;

use fairpath_core::sched::{Meta, Over};
use policies::{Watched, node, packet, plan};

fn of_class(class_id: u32, flow: u32, bytes: u32) -> Meta {
    Meta {
        class_id,
        ..packet(flow, bytes)
    }
}

const CFFS: u32 = 3;

/// A queue that is served by peeking and moving must advance its window. A regression: the window stayed,
/// and all ranks above it were equal.
#[test]
fn moving_windows_and_heaps_give_the_same_order() {
    for over in [Over::Flows, Over::Children, Over::References] {
        let [heap, window] = [1, CFFS].map(|queue| {
            let mut nodes = vec![node(0, "stfq", over)];
            if over != Over::Flows {
                nodes.extend([
                    node(1, "fifo", Over::Packets),
                    node(1, "fifo", Over::Packets),
                ]);
            }
            for node in &mut nodes {
                node.queue = queue;
                node.queue_buckets = if queue == CFFS { 8 } else { 0 };
                node.queue_shift = if queue == CFFS { 17 } else { 0 };
            }
            let classes = if over == Over::Flows {
                vec![1]
            } else {
                vec![0, 2, 3]
            };
            let mut runtime = Watched::natively(&plan(nodes, classes));
            let of = |handle: u32| of_class(handle % 2 + 1, handle % 2, 256 << (handle % 2 * 2));
            for handle in 1..=30 {
                runtime.enqueue(handle, of(handle));
            }
            let sent = (0..1000).map(|_| {
                let handle = runtime.dequeue().unwrap();
                runtime.enqueue(handle, of(handle));
                handle
            });
            let mut bytes = [0; 2];
            sent.for_each(|handle| bytes[handle as usize % 2] += of(handle).bytes);
            bytes
        });
        for (a, b) in heap.into_iter().zip(window) {
            assert!(a.abs_diff(b) <= 8192, "{over:?}: {heap:?} and {window:?}");
        }
    }
}
