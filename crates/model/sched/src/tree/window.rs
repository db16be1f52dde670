//! Windows of queues that the ranks of their policy would exceed.
//!
//! A window clamps ranks beyond it: entries leave early, and light ones get more than their share. So a
//! window that is too small for a policy is refused. Ranks that come with packets (`hint`, deadlines) have
//! no bound: there `below` and `beyond` decide.

use fairpath_core::sched::{COST_ONE, NodeConfig, Over, Plan};

use super::queue;

/// The bytes of the longest GSO packet.
const LONGEST: u64 = 65_536;

/// The ranks that the entries of a queue can have at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    /// Below this rank, always.
    Fixed(u64),
    /// The number of them, and the lowest rank grows.
    Moving(u64),
    /// The reason why there is no number.
    Unbounded(&'static str),
    /// They come with packets.
    Unknown,
}

/// Virtual time of `bytes`, as in `bpf/core/sched/policy.h`.
fn virtual_time(bytes: u64, cost: u64) -> u64 {
    bytes.saturating_mul(cost) >> 8
}

/// The span of a node. `lightest` is the cost of its lightest child, or of a flow of weight 1. `limit` is
/// the maximum of bytes that wait.
fn span(policy: &str, node: &NodeConfig, lightest: u64, limit: u64) -> Span {
    let params = &node.params;
    let one = u64::from(COST_ONE);
    // The quantum is the first parameter, of a child or flow of the cost `one`.
    let rounds = || LONGEST.saturating_mul(lightest) / (params[0] * one).max(1);
    let is_queued_once = matches!(node.over, Over::Flows | Over::Children);
    match (policy, node.over) {
        ("drr", Over::Children) => Span::Moving(rounds() + 2),
        // 128 turns are taken one by one (drr_skip()).
        ("drr", _) => Span::Moving(rounds().saturating_sub(128) + 2),
        ("stfq", _) if is_queued_once => Span::Moving(virtual_time(LONGEST, lightest)),
        // Each waiting packet has a rank.
        ("stfq" | "hpfq", _) => Span::Moving(virtual_time(limit, lightest)),
        ("sp_pifo", _) if params[0] == 1 => Span::Moving(virtual_time(limit, lightest)),
        // Floors are remembered for two of the longest packets (CLASS_TREE_LEAD).
        ("class_tree", _) => Span::Moving(virtual_time(2 * LONGEST, lightest)),
        ("hclock", _) => Span::Unbounded("floors have no maximum lead over shares"),
        ("qfq", _) => Span::Unbounded("ranks begin again at 0 when nothing waits"),
        // Ranks of its standard queue (FQ_CODEL_AHEAD).
        ("fq_codel", _) => Span::Moving(2 * 31 + 2),
        // The weight is the rank.
        ("priority", Over::Children) => Span::Fixed(lightest + 1),
        ("tins", _) => Span::Fixed((1 << 26) + 1),
        _ => Span::Unknown,
    }
}

/// Nodes whose queue would clamp ranks of their policy, as indices with texts. O(nodes).
pub(super) fn clamped<'a>(
    plan: &Plan,
    policy_of: impl Fn(usize) -> Option<&'a str>,
) -> Vec<(usize, String)> {
    let mut lightest = vec![u64::from(COST_ONE); plan.nodes.len() + 1];
    for node in &plan.nodes {
        let cost = &mut lightest[node.parent as usize];
        *cost = (*cost).max(node.cost.into());
    }
    let config = &plan.config;
    let by_packets = u64::from(config.limit_packets) * LONGEST;
    let limit = match config.limit_bytes {
        0 => by_packets,
        bytes => by_packets.min(bytes.into()),
    };
    let mut found = Vec::new();
    for (at, node) in plan.nodes.iter().enumerate() {
        let Some(policy) = policy_of(at).filter(|_| queue::has_window(node.queue)) else {
            continue;
        };
        let ranks = u64::from(node.queue_buckets).saturating_mul(1 << node.queue_shift.min(63));
        let what = match node.over {
            Over::Children | Over::References => "its lightest child",
            _ => "a flow of weight 1",
        };
        let wrong = match span(policy, node, lightest[at + 1], limit) {
            Span::Moving(_) if queue::is_fixed(node.queue) => {
                format!(
                    "ranks of {policy} grow, and bands do not move: omit queue, or write kind = \"cffs\""
                )
            }
            Span::Moving(needs) | Span::Fixed(needs) if needs > ranks => format!(
                "{what} needs {needs} ranks, and the queue has {ranks}: omit queue ({policy} has one that fits), \
                 or increase buckets or granularity"
            ),
            Span::Unbounded(why) => {
                format!(
                    "no window fits ranks of {policy}: {why}: omit queue, or write kind = \"heap\""
                )
            }
            _ => continue,
        };
        found.push((at, wrong));
    }
    found
}

#[cfg(test)]
mod tests {
    use fairpath_core::sched::policies;

    use super::super::{Known, Tree};

    /// Two children of these weights, or one leaf for a policy over flows or packets.
    fn tree(root: &str, weights: Option<[u32; 2]>) -> Result<Tree, String> {
        let children = weights.map_or(String::new(), |[a, b]| {
            format!(
                "[[node]]\nname = \"a\"\nparent = \"root\"\npolicy = \"fifo\"\nweight = {a}\nmatch = {{ class = [1] }}\n\
                 [[node]]\nname = \"b\"\nparent = \"root\"\npolicy = \"fifo\"\nweight = {b}\nmatch = {{ class = [\"*\"] }}\n"
            )
        });
        let text = format!("[[node]]\nname = \"root\"\n{root}\n{children}");
        let known = Known {
            policies: policies(),
            classes: &[],
        };
        Tree::read("t", &text, known).map_err(|bad| bad.to_string())
    }

    fn windowed(policy: &str, queue: &str, weights: Option<[u32; 2]>) -> Result<Tree, String> {
        tree(
            &format!("policy = \"{policy}\"\nqueue = {{ {queue} }}"),
            weights,
        )
    }

    const SMALL: &str = "kind = \"cffs\", buckets = 64";
    /// 2^36 ranks.
    const LARGE: &str = "kind = \"cffs\", buckets = 1048576, granularity = 65536";

    #[test]
    fn windows_that_would_clamp_shares_are_refused() {
        for policy in ["drr", "stfq", "hpfq", "class_tree", "tins", "priority"] {
            let refused = windowed(policy, SMALL, Some([10_000, 1])).unwrap_err();
            assert!(
                refused.contains("node \"root\": queue: its lightest child needs ")
                    && refused.contains(" ranks, and the queue has 64: omit queue"),
                "{policy}: {refused}"
            );
            windowed(policy, "kind = \"heap\"", Some([10_000, 1])).unwrap();
        }
        for policy in ["drr", "stfq", "class_tree", "tins", "priority"] {
            windowed(policy, LARGE, Some([100, 1])).unwrap();
        }
        for policy in ["qfq", "hclock"] {
            for queue in [SMALL, LARGE] {
                let refused = windowed(policy, queue, Some([1, 1])).unwrap_err();
                assert!(
                    refused.contains(&format!("no window fits ranks of {policy}: ")),
                    "{refused}"
                );
            }
        }
        windowed("drr", SMALL, Some([1, 1])).unwrap();
    }

    #[test]
    fn windows_that_would_clamp_flows_are_refused() {
        let small = "over = \"flows\"\nparams = { quantum = 64 }\nqueue = { kind = \"cffs\", buckets = 64 }";
        for (text, has, needs) in [
            (format!("policy = \"drr\"\n{small}"), 64, 898),
            (
                "policy = \"stfq\"\nover = \"flows\"\nqueue = { kind = \"cffs\", buckets = 64 }"
                    .to_owned(),
                64,
                1 << 22,
            ),
            (
                "policy = \"fq_codel\"\nqueue = { kind = \"cffs\", buckets = 63 }".to_owned(),
                63,
                64,
            ),
        ] {
            let refused = tree(&text, None).unwrap_err();
            let expected = format!(
                "a flow of weight 1 needs {needs} ranks, and the queue has {has}: omit queue"
            );
            assert!(refused.contains(&expected), "{text}: {refused}");
        }
        tree(
            "policy = \"drr\"\nover = \"flows\"\nqueue = { kind = \"cffs\", buckets = 64 }",
            None,
        )
        .unwrap();
        let refused = windowed("stfq", SMALL, None).unwrap_err();
        assert!(refused.contains("ranks, and the queue has 64"), "{refused}");
    }

    #[test]
    fn bands_are_refused_for_ranks_that_grow() {
        let refused = windowed("drr", "kind = \"bands\", buckets = 64", Some([1, 1])).unwrap_err();
        assert!(
            refused.contains("ranks of drr grow, and bands do not move"),
            "{refused}"
        );
        windowed("fifo", "kind = \"bands\", buckets = 1", None).unwrap();
    }

    #[test]
    fn a_parameter_that_would_clamp_is_refused() {
        let mut tree = windowed("drr", SMALL, Some([1, 1])).unwrap();
        let refused = tree.set("quantum=64").unwrap_err().to_string();
        assert!(refused.contains("needs 1026 ranks"), "{refused}");
        tree.set("quantum=3000").unwrap();
    }
}
