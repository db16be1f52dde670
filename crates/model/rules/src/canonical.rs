//! The parts of the canonical form that a table of options cannot express: defaults that are always
//! written or never, and requirements.

use crate::hash_rate::BYTES;
use crate::spec::Kind;
use crate::tree::{Family, Hook, Item, Value};

/// The last second of a 32-bit clock: the end of a time match without end.
const LAST_DATE: u64 = 0x7fff_ffff;

/// Completes the options of a match or target after its head, and orders them.
///
/// # Errors
///
/// A missing or contradicting option, with a remedy.
pub fn complete(kind: Kind, family: Family, items: &mut Vec<Item>) -> Result<(), String> {
    let has = |items: &[Item], name: &str| items.iter().any(|item| is(item, kind, name));
    match kind {
        Kind::Tcp | Kind::Udp | Kind::Sctp | Kind::Dccp => {
            // Any port: the option vanishes. A negated one never matches, and stays.
            items
                .retain(|item| item.not || item.value != Value::Pair(0, 65_535) || item.option > 1);
            items.retain(|item| !is(item, kind, "--tcp-flags") || item.value != Value::Pair(0, 0));
        }
        Kind::Frag if has(items, "--fragmore") && has(items, "--fraglast") => {
            return Err("--fragmore and --fraglast exclude each other".into());
        }
        Kind::Addrtype if !has(items, "--src-type") && !has(items, "--dst-type") => {
            return Err("addrtype needs --src-type or --dst-type".into());
        }
        Kind::Connlimit => {
            if !has(items, "--connlimit-upto") && !has(items, "--connlimit-above") {
                return Err("connlimit needs --connlimit-upto or --connlimit-above".into());
            }
            // A negated limit is written as its opposite.
            for item in items.iter_mut() {
                if item.not {
                    item.not = false;
                    item.option ^= 1;
                }
            }
            let whole = if family == Family::Ipv6 { 128 } else { 32 };
            default(items, kind, "--connlimit-mask", Value::Number(whole));
            if !has(items, "--connlimit-daddr") {
                default(items, kind, "--connlimit-saddr", Value::None);
            }
        }
        Kind::Dscp | Kind::TargetDscp | Kind::Mark | Kind::Connmark | Kind::Length
            if items.is_empty() =>
        {
            return Err(needs_option(kind));
        }
        Kind::Hashlimit => {
            let rate = items
                .iter()
                .find(|item| item.option < 2)
                .map(|item| item.value.clone())
                .ok_or("hashlimit needs --hashlimit-upto or --hashlimit-above")?;
            if !has(items, "--hashlimit-name") {
                return Err("hashlimit needs --hashlimit-name".into());
            }
            if matches!(rate, Value::Number(rate) if rate & BYTES == 0) {
                let burst = Value::Text(Box::new(b"5"[..].into()));
                default(items, kind, "--hashlimit-burst", burst);
            }
            items.retain(|item| {
                !(is(item, kind, "--hashlimit-mode") && item.value == Value::Number(0))
            });
        }
        Kind::Limit | Kind::BridgeLimit => {
            default(items, kind, "--limit", Value::Number(10_000 * 3_600 / 3));
            if family == Family::Bridge {
                default(items, kind, "--limit-burst", Value::Number(5));
            } else {
                let burst = Value::Number(5);
                items.retain(|item| !is(item, kind, "--limit-burst") || item.value != burst);
            }
        }
        Kind::Multiport if items.len() != 1 => {
            return Err("multiport needs one of --sports, --dports and --ports".into());
        }
        Kind::Recent => {
            let count = items.iter().filter(|item| item.option < 4).count();
            if count != 1 {
                return Err("recent needs one of --set, --rcheck, --update and --remove".into());
            }
            let whole = match family {
                Family::Ipv6 => Value::Ipv6(Box::new([u128::MAX, u128::MAX])),
                _ => Value::Pair(u32::MAX, u32::MAX),
            };
            let limited = ["--seconds", "--hitcount", "--rttl", "--reap"];
            if has(items, "--set") && limited.iter().any(|name| has(items, name)) {
                return Err("recent --set takes no --seconds, --hitcount, --rttl or --reap".into());
            }
            let name = Value::Text(Box::new(b"DEFAULT"[..].into()));
            default(items, kind, "--name", name);
            default(items, kind, "--mask", whole);
            if !has(items, "--rdest") {
                default(items, kind, "--rsource", Value::None);
            }
        }
        Kind::Statistic => {
            let nth = match items.iter().find(|item| is(item, kind, "--mode")) {
                Some(item) => item.value == Value::Number(1),
                None => return Err("statistic needs --mode random or --mode nth".into()),
            };
            if nth != has(items, "--every") || nth != has(items, "--packet") {
                return Err("statistic --mode nth needs --every and --packet".into());
            }
            if nth == has(items, "--probability") {
                return Err("statistic --mode random needs --probability".into());
            }
            let number = |name| {
                items
                    .iter()
                    .find(|item| is(item, kind, name))
                    .map(|item| match item.value {
                        Value::Number(number) => number,
                        _ => 0,
                    })
            };
            if let (Some(every), Some(packet)) = (number("--every"), number("--packet")) {
                if every == 0 {
                    return Err("--every must be at least 1".into());
                }
                if packet >= every {
                    return Err("--packet must be less than --every".into());
                }
            }
        }
        Kind::Time => {
            if has(items, "--timestart") && !has(items, "--timestop") {
                default(items, kind, "--timestop", Value::Number(86_399));
            }
            if has(items, "--timestop") && !has(items, "--timestart") {
                default(items, kind, "--timestart", Value::Number(0));
            }
            let start = Value::Number(0);
            items.retain(|item| !is(item, kind, "--datestart") || item.value != start);
            default(items, kind, "--datestop", Value::Number(LAST_DATE));
            items.retain(|item| !is(item, kind, "--utc"));
            for item in items.iter_mut() {
                if is(item, kind, "--localtz") {
                    item.option = kind
                        .spec()
                        .option_index("--kerneltz")
                        .unwrap_or(item.option);
                }
            }
        }
        Kind::Ttl | Kind::Hl if items.len() != 1 => {
            let name = if kind == Kind::Ttl { "ttl" } else { "hl" };
            return Err(format!(
                "{name} needs one of --{name}-eq, --{name}-lt and --{name}-gt"
            ));
        }
        Kind::TargetReject => {
            let port = if family == Family::Ipv6 { 19 } else { 3 };
            default(items, kind, "--reject-with", Value::Number(port));
        }
        Kind::TargetLog | Kind::BridgeLog => {
            if family == Family::Bridge {
                default(items, kind, "--log-level", Value::Number(6));
            } else {
                let usual = Value::Number(4);
                items.retain(|item| !is(item, kind, "--log-level") || item.value != usual);
            }
            let empty = Value::Text(Box::new([][..].into()));
            items.retain(|item| !is(item, kind, "--log-prefix") || item.value != empty);
        }
        Kind::TargetNflog | Kind::BridgeNflog => {
            let usual = |item: &Item| {
                is(item, kind, "--nflog-group") && item.value == Value::Number(0)
                    || is(item, kind, "--nflog-threshold") && item.value == Value::Number(0)
            };
            items.retain(|item| !usual(item));
        }
        Kind::TargetConnmark => {
            let full = Value::Number(u64::from(u32::MAX));
            let mask = items
                .iter()
                .find(|item| is(item, kind, "--mask"))
                .map_or(full, |item| item.value.clone());
            items.retain(|item| !is(item, kind, "--mask"));
            let moves = has(items, "--save-mark") || has(items, "--restore-mark");
            if moves == has(items, "--set-xmark") {
                return Err(
                    "CONNMARK needs one of --set-mark, --save-mark and --restore-mark".into(),
                );
            }
            if moves {
                default(items, kind, "--nfmask", mask.clone());
                default(items, kind, "--ctmask", mask);
            }
        }
        Kind::TargetMark | Kind::TargetTos | Kind::TargetClassify if items.len() != 1 => {
            return Err(needs_option(kind));
        }
        Kind::TargetTtl | Kind::TargetHl | Kind::TargetTcpmss if items.len() != 1 => {
            return Err(needs_option(kind));
        }
        Kind::TargetDnat | Kind::TargetSnat | Kind::TargetNetmap if items.is_empty() => {
            return Err(needs_option(kind));
        }
        Kind::TargetTproxy => {
            let any = if family == Family::Ipv6 {
                "::"
            } else {
                "0.0.0.0"
            };
            let address = Value::Text(Box::new(any.as_bytes().into()));
            if !has(items, "--on-port") {
                return Err("TPROXY needs --on-port".into());
            }
            default(items, kind, "--on-ip", address);
            default(items, kind, "--tproxy-mark", Value::Pair(0, 0));
        }
        Kind::TargetNfqueue if !has(items, "--queue-balance") => {
            default(items, kind, "--queue-num", Value::Number(0));
        }
        Kind::BridgeArpreply => {
            default(items, kind, "--arpreply-target", Value::Number(1));
            if has_value(items, kind, "--arpreply-target", 1) {
                items.retain(|item| !is(item, kind, "--arpreply-target"));
            }
        }
        Kind::ArpMangle => {
            items.retain(|item| {
                !is(item, kind, "--mangle-target") || item.value != Value::Number(0)
            });
        }
        _ => {}
    }
    items.sort_by_key(|item| item.option);
    Ok(())
}

fn needs_option(kind: Kind) -> String {
    let spec = kind.spec();
    let names: Vec<&str> = spec.options.iter().map(|option| option.names[0]).collect();
    format!("{} needs {}", spec.name, names.join(" or "))
}

fn is(item: &Item, kind: Kind, name: &str) -> bool {
    item.kind == kind && Some(item.option) == kind.spec().option_index(name)
}

fn has_value(items: &[Item], kind: Kind, name: &str, number: u64) -> bool {
    items
        .iter()
        .any(|item| is(item, kind, name) && item.value == Value::Number(number))
}

/// Adds an option, unless it is there.
fn default(items: &mut Vec<Item>, kind: Kind, name: &str, value: Value) {
    if items.iter().any(|item| is(item, kind, name)) {
        return;
    }
    let option = kind
        .spec()
        .option_index(name)
        .expect("the table has every option that has a default");
    items.push(Item {
        kind,
        option,
        not: false,
        value,
    });
}

/// Checks where a target may be used: its table, its hook and its protocol.
///
/// # Errors
///
/// The place at which it is permitted.
pub fn check_target(
    kind: Kind,
    table: &str,
    hook: Option<Hook>,
    protocol: Option<(u8, bool)>,
    items: &[Item],
) -> Result<(), String> {
    let name = kind.spec().name;
    let tables: &[&str] = match kind {
        Kind::TargetReject => &["filter"],
        Kind::TargetDnat
        | Kind::TargetSnat
        | Kind::TargetMasquerade
        | Kind::TargetRedirect
        | Kind::TargetNetmap => &["nat"],
        Kind::TargetNotrack | Kind::TargetCt | Kind::TargetTrace => &["raw"],
        Kind::TargetTtl
        | Kind::TargetHl
        | Kind::TargetDscp
        | Kind::TargetTos
        | Kind::TargetTproxy => &["mangle"],
        _ => &[],
    };
    if !tables.is_empty() && !tables.contains(&table) {
        return Err(format!(
            "target {name} is permitted in table {} only",
            tables[0]
        ));
    }
    let hooks: &[Hook] = match kind {
        Kind::TargetDnat | Kind::TargetRedirect => &[Hook::Prerouting, Hook::Output],
        Kind::TargetSnat => &[Hook::Postrouting, Hook::Input],
        Kind::TargetMasquerade => &[Hook::Postrouting],
        Kind::TargetClassify => &[Hook::Postrouting, Hook::Forward, Hook::Output],
        Kind::TargetTproxy => &[Hook::Prerouting],
        _ => &[],
    };
    if let Some(hook) = hook
        && !hooks.is_empty()
        && !hooks.contains(&hook)
    {
        return Err(format!(
            "target {name} is not permitted in {}",
            hook.chain()
        ));
    }
    let tcp = protocol == Some((6, false));
    if kind == Kind::TargetReject && has_value(items, kind, "--reject-with", 6) && !tcp {
        return Err("--reject-with tcp-reset needs -p tcp".into());
    }
    if kind == Kind::TargetTcpmss && !tcp {
        return Err("target TCPMSS needs -p tcp".into());
    }
    Ok(())
}
