//! The parts of the canonical form that a table of options cannot express: defaults that are always
//! written or never, and requirements.

use crate::hash_rate::{self, BYTES};
use crate::spec::Kind;
use crate::tree::{Family, Hook, Item, Value, tables_of};

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
            // Any port: the option disappears. A negated one never matches, and stays.
            items.retain(|item| {
                matches!(kind, Kind::Sctp | Kind::Dccp)
                    || item.not
                    || item.value != Value::Pair(0, 65_535)
                    || item.option > 1
            });
            if kind == Kind::Dccp && has_value(items, kind, "--dccp-option", 0) {
                return Err("--dccp-option must be at least 1".into());
            }
            items.retain(|item| {
                item.not || !is(item, kind, "--tcp-flags") || item.value != Value::Pair(0, 0)
            });
            if has_value(items, kind, "--tcp-option", 0) {
                return Err("--tcp-option must be at least 1".into());
            }
        }
        Kind::Ah | Kind::Ah6 | Kind::Esp => {
            drop_any(items);
            items.retain(|item| {
                item.not || !(is(item, kind, "--ahlen") && item.value == Value::Number(0))
            });
        }
        Kind::Addrtype if has(items, "--limit-iface-in") && has(items, "--limit-iface-out") => {
            return Err("addrtype takes one of --limit-iface-in and --limit-iface-out".into());
        }
        Kind::Set if !has(items, "--match-set") => return Err(needs_option(kind)),
        Kind::TargetSet if !has(items, "--add-set") && !has(items, "--del-set") => {
            return Err("SET needs --add-set or --del-set".into());
        }
        Kind::TargetDnat if !has(items, "--to-destination") => return Err(needs_option(kind)),
        Kind::TargetSnat if !has(items, "--to-source") => return Err(needs_option(kind)),
        Kind::Ipv6Header if !has(items, "--header") => return Err(needs_option(kind)),
        Kind::Frag => {
            if has(items, "--fragmore") && has(items, "--fraglast") {
                return Err("--fragmore and --fraglast exclude each other".into());
            }
            drop_any(items);
        }
        Kind::Addrtype if !has(items, "--src-type") && !has(items, "--dst-type") => {
            return Err("addrtype needs --src-type or --dst-type".into());
        }
        Kind::Connlimit => {
            if !has(items, "--connlimit-upto") && !has(items, "--connlimit-above") {
                return Err("connlimit needs --connlimit-upto or --connlimit-above".into());
            }
            if has(items, "--connlimit-saddr") && has(items, "--connlimit-daddr") {
                return Err(
                    "connlimit takes one of --connlimit-saddr and --connlimit-daddr".into(),
                );
            }
            if has(items, "--connlimit-upto") && has(items, "--connlimit-above") {
                return Err("connlimit takes one of --connlimit-upto and --connlimit-above".into());
            }
            // A negated limit is written as its opposite.
            for item in items.iter_mut() {
                if item.not {
                    item.not = false;
                    item.option ^= 1;
                }
            }
            let whole = if family == Family::Ipv6 { 128 } else { 32 };
            for item in items.iter_mut() {
                if is(item, kind, "--connlimit-mask")
                    && matches!(item.value, Value::Number(length) if length > whole)
                {
                    item.value = Value::Number(whole);
                }
            }
            default(items, kind, "--connlimit-mask", Value::Number(whole));
            if !has(items, "--connlimit-daddr") {
                default(items, kind, "--connlimit-saddr", Value::None);
            }
        }
        Kind::Dscp
        | Kind::TargetDscp
        | Kind::Mark
        | Kind::Connmark
        | Kind::Length
        | Kind::Conntrack
        | Kind::Icmp
        | Kind::Icmp6
        | Kind::Iprange
        | Kind::Mac
        | Kind::Physdev
        | Kind::State
        | Kind::Tos
        | Kind::U32
        | Kind::Comment
        | Kind::Pkttype
        | Kind::Quota
        | Kind::Tcpmss
        | Kind::Set
        | Kind::Ecn
        | Kind::Owner
        | Kind::Ipv6Header
            if items.is_empty() =>
        {
            return Err(needs_option(kind));
        }
        Kind::Hashlimit => complete_hashlimit(items, family)?,
        Kind::Limit | Kind::BridgeLimit => {
            if has_value(items, kind, "--limit-burst", 0) {
                if family != Family::Bridge {
                    return Err("--limit-burst must be at least 1".into());
                }
                items.retain(|item| !is(item, kind, "--limit-burst"));
            }
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
            if has_value(items, kind, "--seconds", 0) {
                return Err("recent --seconds must be at least 1".into());
            }
            if has(items, "--rttl") && has(items, "--remove") {
                return Err("recent --remove takes no --rttl".into());
            }
            if items.iter().any(|item| {
                is(item, kind, "--hitcount") && matches!(item.value, Value::Number(65_536..))
            }) {
                return Err("--hitcount is more than 65535".into());
            }
            if has(items, "--reap") && !has(items, "--seconds") {
                return Err("recent --reap needs --seconds".into());
            }
            items.retain(|item| !(is(item, kind, "--hitcount") && item.value == Value::Number(0)));
            // The last one of both counts.
            let side = |item: &Item| matches!(item.name(), "--rsource" | "--rdest");
            if let Some(last) = items
                .iter()
                .rfind(|item| side(item))
                .map(|item| item.option)
            {
                items.retain(|item| !side(item) || item.option == last);
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
        Kind::Tcpmss if items.iter().any(is_inverted) => {
            return Err("the first number of --mss is larger than the last".into());
        }
        Kind::Rt => {
            drop_any(items);
            let type_0 = items.iter().any(|item| {
                is(item, kind, "--rt-type") && item.value == Value::Number(0) && !item.not
            });
            if has(items, "--rt-0-not-strict") && !has(items, "--rt-0-addrs") {
                return Err("--rt-0-not-strict needs --rt-0-addrs".into());
            }
            if !type_0 && items.iter().any(|item| item.name().starts_with("--rt-0-")) {
                return Err(
                    "--rt-0-res, --rt-0-addrs and --rt-0-not-strict need --rt-type 0".into(),
                );
            }
        }
        Kind::Time => {
            if has(items, "--timestart") && !has(items, "--timestop") {
                default(items, kind, "--timestop", Value::Number(86_399));
            }
            if has(items, "--timestop") && !has(items, "--timestart") {
                default(items, kind, "--timestart", Value::Number(0));
            }
            let of_day = |name| {
                let item = items.iter().find(|item| is(item, kind, name))?;
                match item.value {
                    Value::Number(seconds) => Some(seconds),
                    _ => None,
                }
            };
            if has(items, "--contiguous") && of_day("--timestop") >= of_day("--timestart") {
                return Err("time --contiguous needs a --timestop before --timestart".into());
            }
            // A whole day is not written.
            if (of_day("--timestart"), of_day("--timestop")) == (Some(0), Some(86_399)) {
                items.retain(|item| !matches!(item.name(), "--timestart" | "--timestop"));
            }
            days(items, kind, "--monthdays", 0xffff_fffe);
            days(items, kind, "--weekdays", 0xfe);
            let start = Value::Number(0);
            items.retain(|item| !is(item, kind, "--datestart") || item.value != start);
            default(items, kind, "--datestop", Value::Number(LAST_DATE));
            let local = has(items, "--kerneltz") || has(items, "--localtz");
            if has(items, "--utc") && local {
                return Err("time takes one of --utc and --kerneltz".into());
            }
            items.retain(|item| !is(item, kind, "--utc"));
            if has(items, "--kerneltz") {
                items.retain(|item| !is(item, kind, "--localtz"));
            }
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
            if kind == Kind::BridgeLog {
                default(items, kind, "--log-level", Value::Number(5));
                items.retain(|item| !is(item, kind, "--log"));
            } else {
                let usual = Value::Number(4);
                items.retain(|item| !is(item, kind, "--log-level") || item.value != usual);
            }
            let empty = Value::Text(Box::new([][..].into()));
            items.retain(|item| !is(item, kind, "--log-prefix") || item.value != empty);
        }
        Kind::BridgeNflog => {
            let zero = items
                .iter()
                .find(|item| item.value == Value::Number(0) && item.name() != "--nflog-prefix");
            if let Some(item) = zero {
                return Err(format!("{} must be at least 1", item.name()));
            }
            default(items, kind, "--nflog-group", Value::Number(1));
            let empty = Value::Text(Box::new([][..].into()));
            items.retain(|item| {
                let usual = is(item, kind, "--nflog-threshold") && item.value == Value::Number(1);
                !usual && !is(item, kind, "--nflog") && item.value != empty
            });
        }
        Kind::TargetNflog => {
            if has(items, "--nflog-range") && has(items, "--nflog-size") {
                return Err("NFLOG takes one of --nflog-range and --nflog-size".into());
            }
            items.retain(|item| {
                !(is(item, kind, "--nflog-range") && item.value == Value::Number(0))
            });
            let usual = |item: &Item| {
                is(item, kind, "--nflog-group") && item.value == Value::Number(0)
                    || is(item, kind, "--nflog-threshold") && item.value == Value::Number(0)
            };
            items.retain(|item| !usual(item));
        }
        Kind::TargetConnmark => complete_connmark(items)?,
        Kind::TargetMark | Kind::TargetTos | Kind::TargetClassify if items.len() != 1 => {
            return Err(needs_option(kind));
        }
        Kind::TargetTtl | Kind::TargetHl | Kind::TargetTcpmss if items.len() != 1 => {
            return Err(needs_option(kind));
        }
        // The length of the headers of IPv6 is 20 more.
        Kind::TargetTcpmss
            if family == Family::Ipv6 && matches!(items[0].value, Value::Number(65_496..)) =>
        {
            return Err("--set-mss is more than 65495".into());
        }
        Kind::TargetTtl | Kind::TargetHl
            if items[0].option > 0 && items[0].value == Value::Number(0) =>
        {
            return Err(format!("{} must be at least 1", items[0].name()));
        }
        Kind::TargetCt => {
            for item in items.iter_mut() {
                let name = item.name();
                if let (true, Value::Text(text)) = (name.starts_with("--zone"), &mut item.value)
                    && ***text != *b"mark"
                {
                    let number = std::str::from_utf8(text)
                        .ok()
                        .and_then(crate::value::any_number)
                        .filter(|zone| *zone < 65_536)
                        .ok_or_else(|| format!("{name} needs mark or a number up to 65535"))?;
                    **text = number.to_string().into_bytes().into();
                }
            }
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
            let bad = items.iter().any(|item| match &item.value {
                Value::Text(text) => {
                    let text = String::from_utf8_lossy(text);
                    match family {
                        Family::Ipv6 => text.parse::<std::net::Ipv6Addr>().is_err(),
                        _ => text.parse::<std::net::Ipv4Addr>().is_err(),
                    }
                }
                _ => false,
            });
            if bad {
                return Err("--on-ip must be an address".into());
            }
            default(items, kind, "--on-ip", address);
            default(items, kind, "--tproxy-mark", Value::Pair(0, 0));
        }
        Kind::TargetNfqueue if items.iter().any(is_inverted) => {
            return Err("the first queue of --queue-balance is larger than the last".into());
        }
        Kind::TargetNfqueue if has(items, "--queue-balance") => {
            if items
                .iter()
                .any(|item| matches!(item.value, Value::Pair(first, last) if first == last))
            {
                return Err("--queue-balance needs two queues such as 0:3".into());
            }
            if has(items, "--queue-num") {
                return Err("NFQUEUE takes one of --queue-num and --queue-balance".into());
            }
        }
        Kind::TargetNfqueue => {
            if has(items, "--queue-cpu-fanout") {
                return Err("--queue-cpu-fanout needs --queue-balance".into());
            }
            default(items, kind, "--queue-num", Value::Number(0));
        }
        Kind::BridgeIp | Kind::BridgeIp6 => crate::bridge::check_inner_protocol(kind, items)?,
        Kind::Vlan => {
            let short = |item: &Item| {
                is(item, kind, "--vlan-encap") && matches!(item.value, Value::Number(0..60))
            };
            if items.iter().any(short) {
                return Err("--vlan-encap must be at least 0x3c, the shortest frame".into());
            }
            // The kernel ignores the priority if an identifier is given.
            let id = items
                .iter()
                .find(|item| is(item, kind, "--vlan-id"))
                .map(|item| item.value.clone());
            if id.is_some_and(|id| id != Value::Number(0)) {
                items.retain(|item| !is(item, kind, "--vlan-prio"));
            }
        }
        Kind::BridgeDnat | Kind::BridgeSnat => {
            if items.is_empty() {
                return Err(needs_option(kind));
            }
            let (mac, verdict) = match kind {
                Kind::BridgeDnat => ("--to-dst", "--dnat-target"),
                _ => ("--to-src", "--snat-target"),
            };
            default(items, kind, mac, Value::Number(0));
            default(items, kind, verdict, Value::Number(0));
        }
        Kind::BridgeMarkTarget => {
            if items.is_empty() {
                return Err(needs_option(kind));
            }
            let target = kind.spec().option_index("--mark-target");
            let changes = items.iter().filter(|item| Some(item.option) != target);
            match changes.count() {
                0 => default(items, kind, "--mark-set", Value::Number(0)),
                1 => {}
                _ => return Err("mark takes one of --mark-set, -or, -and and -xor".into()),
            }
            default(items, kind, "--mark-target", Value::Number(0));
        }
        Kind::BridgeRedirect => {
            items.retain(|item| item.value != Value::Number(0));
        }
        Kind::BridgeArpreply => {
            default(items, kind, "--arpreply-mac", Value::Number(0));
            default(items, kind, "--arpreply-target", Value::Number(1));
            if has_value(items, kind, "--arpreply-target", 1) {
                items.retain(|item| !is(item, kind, "--arpreply-target"));
            }
        }
        Kind::ArpMangle => {
            if items
                .iter()
                .any(|item| matches!(item.value, Value::Pair(_, mask) if mask != u32::MAX))
            {
                return Err("mangle takes an address without a mask".into());
            }
            if !items.iter().any(|item| item.option < 4) {
                return Err(
                    "mangle needs an address: --mangle-ip-s, -ip-d, -mac-s or -mac-d".into(),
                );
            }
            items.retain(|item| {
                !is(item, kind, "--mangle-target") || item.value != Value::Number(0)
            });
        }
        _ => {}
    }
    items.sort_by_key(|item| item.option);
    Ok(())
}

/// A move has both masks; a mark has one, which a mask after it replaces. Only the last shift counts, and
/// none by 0 bits is written.
fn complete_connmark(items: &mut Vec<Item>) -> Result<(), String> {
    let kind = Kind::TargetConnmark;
    let has = |name: &str| items.iter().any(|item| is(item, kind, name));
    if has("--save-mark") && has("--restore-mark") {
        return Err("CONNMARK takes one of --save-mark and --restore-mark".into());
    }
    if has("--mask") && (has("--nfmask") || has("--ctmask")) {
        return Err("CONNMARK takes --mask, or --nfmask and --ctmask".into());
    }
    let moves = has("--save-mark") || has("--restore-mark");
    let set = items
        .iter()
        .position(|item| is(item, kind, "--set-xmark"))
        .filter(|_| !moves);
    if moves == has("--set-xmark") {
        return Err("CONNMARK needs one of --set-mark, --save-mark and --restore-mark".into());
    }
    let is_mask = |item: &Item| is(item, kind, "--mask");
    let is_shift =
        |item: &Item| is(item, kind, "--left-shift-mark") || is(item, kind, "--right-shift-mark");
    let shift = items.iter().rfind(|item| is_shift(item)).cloned();
    let shift = shift.filter(|item| item.value != Value::Number(0));
    let Some(set) = set else {
        let full = Value::Number(u64::from(u32::MAX));
        let given = items.iter().find(|item| is_mask(item));
        let mask = given.map_or(full, |item| item.value.clone());
        items.retain(|item| !is_mask(item) && !is_shift(item));
        default(items, kind, "--nfmask", mask.clone());
        default(items, kind, "--ctmask", mask);
        items.extend(shift);
        return Ok(());
    };
    let after = items[set..]
        .iter()
        .find(|item| is_mask(item) || is(item, kind, "--ctmask"));
    if let Some(Value::Number(mask)) = after.map(|item| item.value.clone())
        && let Value::Pair(_, bits) = &mut items[set].value
    {
        *bits = mask as u32;
    }
    items.retain(|item| is(item, kind, "--set-xmark"));
    items.extend(shift);
    Ok(())
}

/// The kernel stores days without negation, and all days as no test. No day at all has no other form
/// than the negation of all.
fn days(items: &mut Vec<Item>, kind: Kind, name: &str, all: u64) {
    for item in items.iter_mut().filter(|item| is(item, kind, name)) {
        if let Value::Number(days) = item.value
            && item.not
            && days != all
        {
            item.value = Value::Number(all & !days);
            item.not = false;
        }
    }
    items.retain(|item| !is(item, kind, name) || item.not || item.value != Value::Number(all));
}

/// Removes the ranges of all 32-bit numbers, which the original tools do not write.
fn drop_any(items: &mut Vec<Item>) {
    items.retain(|item| item.not || item.value != Value::Pair(0, u32::MAX));
}

fn is_inverted(item: &Item) -> bool {
    matches!(item.value, Value::Pair(first, last) if first > last)
}

/// True for an option of NAT that has ports.
fn has_ports(item: &Item) -> bool {
    let Value::Text(text) = &item.value else {
        return false;
    };
    match item.name() {
        "--to-ports" => true,
        "--to-destination" | "--to-source" => match text.first() {
            Some(b'[') => text.windows(2).any(|pair| pair == b"]:"),
            _ => text.contains(&b'.') && text.contains(&b':') || text.first() == Some(&b':'),
        },
        _ => false,
    }
}

fn needs_option(kind: Kind) -> String {
    let spec = kind.spec();
    let names: Vec<&str> = spec.options.iter().map(|option| option.names[0]).collect();
    format!("{} needs {}", spec.name, names.join(" or "))
}

/// The options of `hashlimit` as the tool prints them: those that have the value of their absence
/// disappear.
fn complete_hashlimit(items: &mut Vec<Item>, family: Family) -> Result<(), String> {
    let kind = Kind::Hashlimit;
    let at = |items: &[Item], name| items.iter().position(|item| is(item, kind, name));
    let has = |items: &[Item], name| at(items, name).is_some();
    let by_interval = has(items, "--hashlimit-rate-match");
    let item = items.iter_mut().find(|item| item.option < 2);
    let Some(Value::Number(rate)) = item.map(|item| &mut item.value) else {
        return Err("hashlimit needs --hashlimit-upto or --hashlimit-above".into());
    };
    let unit = hash_rate::take_unit(rate);
    if let (true, Some(seconds)) = (by_interval, unit) {
        // The rate is that of an interval, whose default is the written unit.
        *rate /= seconds;
    }
    let rate = *rate;
    if has(items, "--hashlimit-upto") && has(items, "--hashlimit-above") {
        return Err("hashlimit takes one of --hashlimit-upto and --hashlimit-above".into());
    }
    // A negated limit is written as its opposite.
    for item in items.iter_mut().filter(|item| item.not) {
        item.not = false;
        item.option ^= 1;
    }
    if !has(items, "--hashlimit-name") {
        return Err("hashlimit needs --hashlimit-name".into());
    }
    for name in [
        "--hashlimit-htable-gcinterval",
        "--hashlimit-htable-expire",
        "--hashlimit-rate-interval",
    ] {
        if has_value(items, kind, name, 0) {
            return Err(format!("{name} must be at least 1"));
        }
    }
    if let Some(at) = at(items, "--hashlimit-burst")
        && let Value::Number(burst) = items[at].value
    {
        items[at].value = Value::Number(hash_rate::burst(rate, burst)?);
    } else if rate & BYTES == 0 {
        default(items, kind, "--hashlimit-burst", Value::Number(5));
    }
    if let Some(seconds) = unit {
        let expiry = Value::Number(seconds * 1000);
        default(items, kind, "--hashlimit-htable-expire", expiry);
        default(
            items,
            kind,
            "--hashlimit-rate-interval",
            Value::Number(seconds),
        );
    }
    let expiry = hash_rate::expiry(rate, has(items, "--hashlimit-burst"));
    let whole = if family == Family::Ipv6 { 128 } else { 32 };
    items.retain(|item| {
        let usual = match item.name() {
            "--hashlimit-mode" | "--hashlimit-htable-size" | "--hashlimit-htable-max" => 0,
            "--hashlimit-htable-gcinterval" => 1000,
            "--hashlimit-htable-expire" => expiry,
            "--hashlimit-srcmask" | "--hashlimit-dstmask" => whole,
            "--hashlimit-rate-interval" if by_interval => 1,
            "--hashlimit-rate-interval" => return false,
            _ => return true,
        };
        item.value != Value::Number(usual)
    });
    Ok(())
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

/// Checks the protocol that options of a match need.
///
/// # Errors
///
/// The protocol that is missing.
pub fn check_match(kind: Kind, protocol: Option<(u8, bool)>, items: &[Item]) -> Result<(), String> {
    let flags = |item: &Item| item.name().starts_with("--ecn-tcp-");
    if kind == Kind::Ecn && protocol != Some((6, false)) && items.iter().any(flags) {
        return Err("--ecn-tcp-ece and --ecn-tcp-cwr need -p tcp".into());
    }
    Ok(())
}

/// True for a match of TCP that only segments with SYN pass.
pub fn needs_syn(item: &Item) -> bool {
    is(item, Kind::Tcp, "--tcp-flags")
        && !item.not
        && matches!(item.value, Value::Pair(_, set) if set & 2 != 0)
}

/// Tables that a target of iptables is limited to; none: any.
fn tables_of_target(kind: Kind) -> &'static [&'static str] {
    match kind {
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
    }
}

/// Hooks that a target of iptables is limited to, in addition to those of its tables; none: any.
fn hooks_of_target(kind: Kind) -> &'static [Hook] {
    match kind {
        Kind::TargetDnat | Kind::TargetRedirect => &[Hook::Prerouting, Hook::Output],
        Kind::TargetSnat => &[Hook::Postrouting, Hook::Input],
        Kind::TargetMasquerade => &[Hook::Postrouting],
        Kind::TargetClassify => &[Hook::Postrouting, Hook::Forward, Hook::Output],
        Kind::TargetTproxy => &[Hook::Prerouting],
        _ => &[],
    }
}

/// True if iptables permits a target at a hook, in some table.
pub fn permits_target(kind: Kind, hook: Hook) -> bool {
    let hooks = hooks_of_target(kind);
    let tables = tables_of_target(kind);
    let known = tables_of(Family::Ipv4).iter();
    let mut tables = known.filter(|(name, _)| tables.is_empty() || tables.contains(name));
    let is_of_table = tables.any(|(_, hooks)| hooks.contains(&hook));
    is_of_table && (hooks.is_empty() || hooks.contains(&hook))
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
    let tables = tables_of_target(kind);
    let places = crate::bridge::places(kind);
    let fits = |(name, hooks): &(&str, &[Hook])| {
        *name == table && hook.is_none_or(|hook| hooks.contains(&hook))
    };
    if !places.is_empty() && !places.iter().any(fits) {
        let (table, hooks) = places[0];
        let chains: Vec<&str> = hooks.iter().map(|hook| hook.chain()).collect();
        return Err(format!(
            "target {name} is permitted in table {table}, {} only",
            chains.join(" and ")
        ));
    }
    if !tables.is_empty() && !tables.contains(&table) {
        return Err(format!(
            "target {name} is permitted in table {} only",
            tables[0]
        ));
    }
    let hooks = hooks_of_target(kind);
    if let Some(hook) = hook
        && !hooks.is_empty()
        && !hooks.contains(&hook)
    {
        return Err(format!(
            "target {name} is not permitted in {}",
            hook.chain()
        ));
    }
    let with_ports =
        matches!(protocol, Some((number, false)) if [6, 17, 33, 132].contains(&number));
    if !with_ports && items.iter().any(has_ports) {
        return Err(format!(
            "ports of {name} need -p tcp, -p udp, -p sctp or -p dccp"
        ));
    }
    let tcp = protocol == Some((6, false));
    if kind == Kind::TargetReject && has_value(items, kind, "--reject-with", 6) && !tcp {
        return Err("--reject-with tcp-reset needs -p tcp".into());
    }
    if kind == Kind::TargetTcpmss && !tcp {
        return Err("target TCPMSS needs -p tcp".into());
    }
    if kind == Kind::TargetTproxy && !matches!(protocol, Some((6 | 17, false))) {
        return Err("target TPROXY needs -p tcp or -p udp".into());
    }
    let clamps = items
        .iter()
        .any(|item| is(item, kind, "--clamp-mss-to-pmtu"));
    if let Some(hook) = hook.filter(|hook| matches!(hook, Hook::Prerouting | Hook::Input))
        && clamps
    {
        return Err(format!(
            "--clamp-mss-to-pmtu is not permitted in {}",
            hook.chain()
        ));
    }
    Ok(())
}
