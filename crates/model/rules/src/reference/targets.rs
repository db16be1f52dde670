//! Targets: verdicts, and changes of the packet.

use super::RuleAt;
use super::context::Context;
use super::state::State;
use super::view::{Stop, Transport};
use crate::packet::{MssLimit, Unknown, Verdict};
use crate::spec::Kind;
use crate::tree::{ChainId, Family, Group, Rule, Target, Value};

/// Offset in a TCP header.
const TCP_CHECKSUM: usize = 16;
const TCP_HEADER: usize = 20;
/// Largest TCP header: 15 words.
const MAX_TCP_HEADER: usize = 60;
/// Bytes of the MSS option.
const MSS_OPTION: u8 = 4;
/// The most that TCPMSS adds, which a host has to expect without the option (RFC 1122, RFC 2460).
const MSS_IPV4: u16 = 536;
const MSS_IPV6: u16 = 1220;
/// Headers without options, which TCPMSS subtracts from the MTU of the path.
const HEADERS_IPV4: u32 = 40;
const HEADERS_IPV6: u32 = 60;

/// The step after a rule that matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Next,
    Return,
    Jump(ChainId),
    Goto(ChainId),
    Verdict(Verdict),
}

fn unknown(reason: Unknown) -> Action {
    Action::Verdict(Verdict::Unknown(reason))
}

/// Applies the target of a rule.
pub(super) fn apply(
    rule: &Rule,
    at: RuleAt,
    context: &mut Context,
    place: Result<Transport, Stop>,
    state: &mut State,
) -> Action {
    count_watchers(rule, context);
    match rule.target {
        Target::None | Target::Continue => Action::Next,
        Target::Accept => Action::Verdict(Verdict::Accept),
        Target::Drop => Action::Verdict(Verdict::Drop),
        Target::Queue => Action::Verdict(Verdict::Queue),
        Target::Return => Action::Return,
        Target::Jump(chain) => Action::Jump(chain),
        Target::Goto(chain) => Action::Goto(chain),
        Target::Extension(kind) => extension(&options(rule, kind), at, context, place, state),
    }
}

/// ebtables: log and nflog next to another target.
fn count_watchers(rule: &Rule, context: &mut Context) {
    let watchers = rule.items.iter().filter(|item| {
        let is_watcher = matches!(item.kind, Kind::BridgeLog | Kind::BridgeNflog);
        is_watcher && item.is_head() && rule.target != Target::Extension(item.kind)
    });
    context.changes.logged += watchers.count() as u32;
}

/// The options of an extension, without those of watchers before it.
fn options(rule: &Rule, kind: Kind) -> Group<'_> {
    let start = rule.items.iter().rposition(|item| item.kind != kind);
    Group {
        kind,
        items: &rule.items[start.map_or(0, |at| at + 1)..],
    }
}

fn extension(
    group: &Group,
    at: RuleAt,
    context: &mut Context,
    place: Result<Transport, Stop>,
    state: &mut State,
) -> Action {
    match group.kind {
        Kind::TargetReject => {
            let with = group.number("--reject-with").map_or(3, |(with, _)| with);
            return Action::Verdict(Verdict::Reject(with as u8));
        }
        Kind::TargetNfqueue => return Action::Verdict(Verdict::Queue),
        Kind::TargetDnat
        | Kind::TargetSnat
        | Kind::TargetMasquerade
        | Kind::TargetNetmap
        | Kind::TargetRedirect
        | Kind::BridgeDnat
        | Kind::BridgeSnat
        | Kind::BridgeRedirect => return unknown(Unknown::Translation),
        Kind::TargetTos | Kind::TargetDscp | Kind::TargetTtl | Kind::TargetHl => {
            return match rewrite(group, context) {
                Ok(()) => Action::Next,
                Err(_) => unknown(Unknown::CutBytes),
            };
        }
        Kind::TargetTcpmss => return tcpmss(group, context, place),
        Kind::BridgeMarkTarget => return bridge_mark(group, context),
        Kind::TargetLog
        | Kind::TargetNflog
        | Kind::TargetTrace
        | Kind::BridgeLog
        | Kind::BridgeNflog => context.changes.logged += 1,
        Kind::TargetMark => {
            if let Some((value, mask, _)) = group.pair("--set-xmark") {
                context.set_mark(context.mark & !mask ^ value);
            }
        }
        Kind::TargetConnmark if group.shifts_mark() => return unknown(Unknown::OpaqueTarget),
        Kind::TargetConnmark => return connmark(group, context, state),
        Kind::TargetClassify => {
            if let Some((major, minor, _)) = group.pair("--set-class") {
                context.changes.priority = Some(major << 16 | minor);
            }
        }
        Kind::TargetNotrack => return next_or_unknown(context.untrack()),
        Kind::TargetCt if group.has("--notrack") => return next_or_unknown(context.untrack()),
        Kind::TargetCt => return next_or_unknown(context.add_template(at, state)),
        Kind::TargetSet => {
            for name in ["--add-set", "--del-set"] {
                if let Some(Value::Set(set)) = group.get(name).map(|item| &item.value) {
                    state.changed_sets.insert(set.name.clone());
                }
            }
        }
        _ => return unknown(Unknown::OpaqueTarget),
    }
    Action::Next
}

fn next_or_unknown(done: Result<(), Stop>) -> Action {
    match done {
        Ok(()) => Action::Next,
        Err(Stop::Unknown(reason)) => unknown(reason),
        Err(Stop::HotDrop { .. }) => unknown(Unknown::Connection),
    }
}

/// TOS, DSCP, TTL and HL. A byte that stays the same is no change.
fn rewrite(group: &Group, context: &mut Context) -> Result<(), Stop> {
    let view = &mut context.view;
    let (tos, ttl) = (view.tos()?, view.ttl()?);
    for item in group.items {
        let number = match item.value {
            Value::Number(number) => number.min(255) as u8,
            _ => 0,
        };
        let (new_tos, new_ttl) = match (item.name(), &item.value) {
            ("--set-tos", Value::Pair(value, mask)) => (tos & !(*mask as u8) ^ *value as u8, ttl),
            ("--set-dscp", _) => (tos & 3 | number << 2, ttl),
            ("--ttl-set" | "--hl-set", _) => (tos, number),
            ("--ttl-inc" | "--hl-inc", _) => (tos, ttl.saturating_add(number)),
            ("--ttl-dec" | "--hl-dec", _) => (tos, ttl.saturating_sub(number)),
            _ => (tos, ttl),
        };
        if new_tos != tos {
            view.set_tos(new_tos);
            context.changes.tos = Some(new_tos);
        }
        if new_ttl != ttl {
            view.set_ttl(new_ttl);
            context.changes.ttl = Some(new_ttl);
        }
    }
    Ok(())
}

/// CONNMARK, which has no effect without an entry.
fn connmark(group: &Group, context: &mut Context, state: &mut State) -> Action {
    let entry = match context.entry() {
        Ok(Some(entry)) => entry,
        Ok(None) => return Action::Next,
        Err(stop) => return next_or_unknown(Err(stop)),
    };
    let Some(entry_mark) = entry.mark else {
        return unknown(Unknown::Connection);
    };
    let mask = |name: &str| group.number(name).map_or(u32::MAX, |(mask, _)| mask as u32);
    let (packet_mask, connection_mask) = (mask("--nfmask"), mask("--ctmask"));
    if let Some((value, mask, _)) = group.pair("--set-xmark") {
        context.set_connection_mark(entry_mark & !mask ^ value, state);
    } else if group.has("--save-mark") {
        let saved = context.mark & packet_mask;
        context.set_connection_mark(entry_mark & !connection_mask ^ saved, state);
    } else if group.has("--restore-mark") {
        let restored = entry_mark & connection_mask;
        context.set_mark(context.mark & !packet_mask ^ restored);
    }
    Action::Next
}

/// The mark target of ebtables, with its own verdict.
fn bridge_mark(group: &Group, context: &mut Context) -> Action {
    let number = |name: &str| group.number(name).map(|(number, _)| number as u32);
    if let Some(mark) = number("--mark-set") {
        context.set_mark(mark);
    } else if let Some(mark) = number("--mark-or") {
        context.set_mark(context.mark | mark);
    } else if let Some(mark) = number("--mark-and") {
        context.set_mark(context.mark & mark);
    } else if let Some(mark) = number("--mark-xor") {
        context.set_mark(context.mark ^ mark);
    }
    match number("--mark-target").unwrap_or(0) {
        0 => Action::Verdict(Verdict::Accept),
        1 => Action::Verdict(Verdict::Drop),
        2 => Action::Next,
        _ => Action::Return,
    }
}

/// TCPMSS drops broken TCP headers, and lowers the MSS, but does not raise it.
fn tcpmss(group: &Group, context: &mut Context, place: Result<Transport, Stop>) -> Action {
    match lower_mss(group, context, place) {
        Ok(true) => Action::Next,
        Ok(false) => Action::Verdict(Verdict::Drop),
        Err(_) => unknown(Unknown::CutBytes),
    }
}

fn lower_mss(
    group: &Group,
    context: &mut Context,
    place: Result<Transport, Stop>,
) -> Result<bool, Stop> {
    let Transport { offset, fragment } = place?;
    if fragment != 0 {
        return Ok(true);
    }
    let Some(header) = context.view.array::<TCP_HEADER>(offset)? else {
        return Ok(false);
    };
    let size = usize::from(header[12] >> 4) * 4;
    if size < TCP_HEADER {
        return Ok(false);
    }
    let Some(bytes) = context.view.get(offset, size)? else {
        return Ok(false);
    };
    let option = mss_option(bytes);
    let limit = match group.number("--set-mss") {
        Some((limit, _)) => MssLimit::Bytes(limit as u16),
        None => match limit_of_path(context) {
            Some(limit) => limit,
            None => return Ok(false),
        },
    };
    context.changes.mss = Some(limit);
    context.mss_unknown |= limit == MssLimit::Path;
    let limit = match limit {
        MssLimit::Bytes(bytes) => bytes,
        MssLimit::Path => 0,
    };
    match option {
        Some((at, mss)) => {
            if mss > limit {
                context.view.write(offset + at, &limit.to_be_bytes());
                context.checksum_unknown = Some(offset + TCP_CHECKSUM);
            }
        }
        None if context.view.length - offset > size || size >= MAX_TCP_HEADER => {}
        None => {
            let most = match context.family {
                Family::Ipv6 => MSS_IPV6,
                _ => MSS_IPV4,
            };
            let [high, low] = limit.min(most).to_be_bytes();
            context.checksum_unknown = Some(offset + TCP_CHECKSUM);
            context
                .view
                .write(offset + 12, &[header[12] + (MSS_OPTION << 2)]);
            let at = offset + TCP_HEADER;
            context.view.insert(at, [2, MSS_OPTION, high, low]);
        }
    }
    Ok(true)
}

/// The MTU of the path without headers. `None`: nothing is left.
fn limit_of_path(context: &Context) -> Option<MssLimit> {
    let Some(mtu) = context.facts.path_mtu else {
        return Some(MssLimit::Path);
    };
    let headers = match context.family {
        Family::Ipv6 => HEADERS_IPV6,
        _ => HEADERS_IPV4,
    };
    let left = mtu.checked_sub(headers).filter(|left| *left > 0)?;
    Some(MssLimit::Bytes(u16::try_from(left).unwrap_or(u16::MAX)))
}

/// Place and value of the MSS option in a TCP header.
fn mss_option(header: &[u8]) -> Option<(usize, u16)> {
    let mut at = TCP_HEADER;
    while at + 4 <= header.len() {
        if header[at] == 2 && header[at + 1] == 4 {
            let value = u16::from_be_bytes([header[at + 2], header[at + 3]]);
            return Some((at + 2, value));
        }
        at += match header[at] {
            0 | 1 => 1,
            _ => usize::from(header[at + 1].max(1)),
        };
    }
    None
}
