//! Operations and outcomes as text, one line each.

use fairpath_core::sched::{COST_ONE, Meta, NEVER, Op, OpKind, Outcome, OutcomeKind};

/// The rank of a flow that already waits: `KEEP` of `bpf/core/sched/policy.h`.
const KEEP: u64 = NEVER - 1;

/// The rank of a leaf, or "kept" for a packet behind others of its flow.
#[must_use]
pub fn rank(rank: u64) -> String {
    match rank {
        KEEP => "kept".into(),
        NEVER => "never".into(),
        rank => rank.to_string(),
    }
}

/// A number that may be "never".
fn or_never(value: u64) -> String {
    if value == NEVER {
        "never".into()
    } else {
        value.to_string()
    }
}

/// A packet's ends: "udp 10.0.0.1:5 > 10.0.0.2:80".
#[must_use]
pub fn flow(meta: &Meta) -> String {
    let protocol = match meta.protocol {
        6 => "tcp".into(),
        17 => "udp".into(),
        other => format!("protocol {other}"),
    };
    let (source, destination) = (meta.source_ip(), meta.destination_ip());
    let (from, to) = (meta.source_port, meta.destination_port);
    let end = |ip: std::net::IpAddr, port| std::net::SocketAddr::new(ip, port).to_string();
    format!(
        "{protocol} {} > {}",
        end(source, from),
        end(destination, to)
    )
}

/// An operation: its time in ns, and what happens.
#[must_use]
pub fn op(op: &Op) -> String {
    let now = op.now;
    match op.kind {
        OpKind::Enqueue => {
            let meta = &op.meta;
            let mut text = format!("{now} ns enqueue {}: {} bytes", op.handle, meta.bytes);
            let extras = [
                ("hint", meta.hint),
                ("class", meta.class_id.into()),
                ("mark", meta.mark.into()),
                ("dscp", meta.dscp.into()),
                ("ecn", meta.ecn.into()),
                ("segments", meta.segments.into()),
                ("ack", meta.ack.into()),
            ];
            for (name, value) in extras.into_iter().filter(|(_, value)| *value != 0) {
                text += &format!(", {name} {value}");
            }
            text + &format!(", {}", flow(meta))
        }
        OpKind::Dequeue => match (op.count, op.value) {
            (count, 0) => format!("{now} ns dequeue up to {count}"),
            (count, bytes) => format!("{now} ns dequeue up to {count} or {bytes} bytes"),
        },
        OpKind::Param => {
            format!(
                "{now} ns parameter {} of node {} = {}",
                op.count, op.node, op.value
            )
        }
        OpKind::Weight => format!(
            "{now} ns weight of flow {:08x} at node {}: cost {} of {COST_ONE}",
            op.handle, op.node, op.value
        ),
        OpKind::Remove => format!("{now} ns remove {}", op.handle),
        OpKind::Impair => format!(
            "{now} ns word {} of impairment {} = {}",
            op.count, op.node, op.value
        ),
        OpKind::Node => {
            let what = match op.count {
                0 => "cost",
                1 => "floor",
                2 => "ceiling",
                3 => "burst",
                _ => "unknown setting",
            };
            format!("{now} ns {what} of node {} = {}", op.node, op.value)
        }
    }
}

/// An outcome of a packet.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    let Outcome {
        handle,
        node,
        rank,
        at,
        ..
    } = *outcome;
    let rank = self::rank(rank);
    match outcome.kind {
        OutcomeKind::Queued => match at {
            0 => format!("queued {handle} at node {node}, rank {rank}"),
            at => format!(
                "queued {handle} at node {node}, rank {rank}, send time {}",
                or_never(at)
            ),
        },
        OutcomeKind::Sent => {
            let mark = if outcome.marked() { ", CE set" } else { "" };
            let twice = if outcome.copied() { ", duplicated" } else { "" };
            let bit = outcome.corrupted_bit();
            let bit = bit.map_or(String::new(), |bit| format!(", bit {bit} inverted"));
            format!("sent {handle} from node {node}, rank {rank}, after {at} ns{mark}{twice}{bit}")
        }
        OutcomeKind::Dropped => {
            let reason = outcome.drop().map_or("?", |reason| reason.name());
            format!("dropped {handle} at node {node}: {reason}")
        }
        OutcomeKind::Nothing if at == NEVER => "no packet: empty".into(),
        OutcomeKind::Nothing => format!("no packet before {at} ns"),
        OutcomeKind::Done => "done".into(),
        OutcomeKind::Failed => "failed: the node, parameter, flow or packet does not exist".into(),
    }
}

/// Outcomes of one operation, in one line.
#[must_use]
pub fn outcomes(all: &[Outcome]) -> String {
    match all {
        [] => "no outcome".into(),
        all => all.iter().map(outcome).collect::<Vec<_>>().join("; "),
    }
}
