//! Matches of IPv6 extension headers.

use super::context::Context;
use super::transport::in_range;
use super::view::{
    AUTH, Answer, DESTINATION, ESP, FRAGMENT, HOP_BY_HOP, HOT_DROP, IPV6_HEADER, NO_NEXT, ROUTING,
    Stop, Walked, extension_length, is_extension,
};
use crate::spec::Kind;
use crate::tree::{Group, Value};

/// The place of an extension header; a broken chain is a reason to drop.
fn find(context: &Context, header: u8) -> Result<Option<usize>, Stop> {
    match context.view.find_header(Some(header))? {
        Walked::Found { place, .. } => Ok(Some(place.offset)),
        Walked::Absent => Ok(None),
        Walked::Broken => Err(HOT_DROP),
    }
}

/// True if the option is absent, or names this number (not, if negated).
fn equals(group: &Group, name: &str, number: u64) -> bool {
    group
        .number(name)
        .is_none_or(|(wanted, not)| (wanted == number) != not)
}

/// `-m ah` (ip6t_ah). A length of 0 means any.
pub(super) fn ah(group: &Group, context: &Context) -> Answer {
    let Some(at) = find(context, AUTH)? else {
        return Ok(false);
    };
    let header: [u8; 12] = context.view.header(at)?;
    let spi = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let length = extension_length(AUTH, header[1]);
    if context.view.length - at < length {
        return Err(Stop::HotDrop { matched: false });
    }
    let length = length as u64;
    let any_length = matches!(group.number("--ahlen"), Some((0, _)));
    Ok(in_range(group, "--ahspi", spi)
        && (any_length || equals(group, "--ahlen", length))
        && !(group.has("--ahres") && header[2..4] != [0, 0]))
}

/// `-m frag` (ip6t_frag). The kernel does not compare `--fraglen`.
pub(super) fn frag(group: &Group, context: &Context) -> Answer {
    let Some(at) = find(context, FRAGMENT)? else {
        return Ok(false);
    };
    let header: [u8; 8] = context.view.header(at)?;
    let field = u16::from_be_bytes([header[2], header[3]]);
    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let more = field & 1 != 0;
    Ok(in_range(group, "--fragid", id)
        && !(group.has("--fragres") && (header[1] != 0 || field & 6 != 0))
        && !(group.has("--fragfirst") && field & !7 != 0)
        && (!group.has("--fragmore") || more)
        && !(group.has("--fraglast") && more))
}

/// An extension header with its length, if the packet has as many bytes.
fn whole(context: &Context, header: u8) -> Result<Option<(usize, usize)>, Stop> {
    let Some(at) = find(context, header)? else {
        return Ok(None);
    };
    let length = extension_length(header, context.view.header::<2>(at)?[1]);
    if context.view.length - at < length {
        return Err(Stop::HotDrop { matched: false });
    }
    Ok(Some((at, length)))
}

/// `-m hbh` and `-m dst` (ip6t_hbh): options in strict order from the first on.
pub(super) fn options(group: &Group, context: &Context) -> Answer {
    let (header, length_name, list_name) = match group.kind {
        Kind::Hbh => (HOP_BY_HOP, "--hbh-len", "--hbh-opts"),
        _ => (DESTINATION, "--dst-len", "--dst-opts"),
    };
    let Some((start, length)) = whole(context, header)? else {
        return Ok(false);
    };
    let length_fits = equals(group, length_name, length as u64);
    let Some(Value::Numbers(list)) = group.get(list_name).map(|item| &item.value) else {
        return Ok(length_fits);
    };
    let mut at = start + 2;
    let end = start + length;
    for (place, entry) in list.iter().enumerate() {
        let Some(size) = option_size(context, *entry, at, end)? else {
            return Ok(false);
        };
        let is_last = place + 1 == list.len();
        if at + size > end.min(context.view.length) && !is_last {
            return Ok(false);
        }
        at += size;
    }
    Ok(length_fits)
}

/// The size of the option at a place, if it is the wanted one. Entry: type | (length + 1) << 8.
fn option_size(
    context: &Context,
    entry: u128,
    at: usize,
    end: usize,
) -> Result<Option<usize>, Stop> {
    let Some([ty]) = context.view.array(at)?.filter(|_| at < end) else {
        return Ok(None);
    };
    if ty != entry as u8 {
        return Ok(None);
    }
    if ty == 0 {
        return Ok(Some(1));
    }
    let Some([length]) = context.view.array(at + 1)?.filter(|_| at + 1 < end) else {
        return Ok(None);
    };
    // Length 255 means any in the kernel.
    let fits = match entry >> 8 {
        0 | 256 => true,
        wanted => wanted - 1 == u128::from(length),
    };
    Ok(fits.then_some(usize::from(length) + 2))
}

/// `-m rt` (ip6t_rt).
pub(super) fn rt(group: &Group, context: &Context) -> Answer {
    let Some(at) = find(context, ROUTING)? else {
        return Ok(false);
    };
    let header: [u8; 4] = context.view.header(at)?;
    let length = extension_length(ROUTING, header[1]);
    if context.view.length - at < length {
        return Err(Stop::HotDrop { matched: false });
    }
    let fits = in_range(group, "--rt-segsleft", u32::from(header[3]))
        && equals(group, "--rt-len", length as u64)
        && equals(group, "--rt-type", u64::from(header[2]));
    if fits && group.has("--rt-0-res") && context.view.header::<4>(at + 4)? != [0; 4] {
        return Ok(false);
    }
    match group.get("--rt-0-addrs").map(|item| &item.value) {
        Some(Value::Numbers(wanted)) => {
            let strict = !group.has("--rt-0-not-strict");
            Ok(fits && route_has(wanted, context, at + 8, (length - 8) / 16, strict)?)
        }
        _ => Ok(fits),
    }
}

/// Compares the addresses of a routing header: all of them, or a part in this order.
fn route_has(
    wanted: &[u128],
    context: &Context,
    start: usize,
    count: usize,
    strict: bool,
) -> Answer {
    if wanted.len() > count || strict && wanted.len() != count {
        return Ok(false);
    }
    let mut found = 0;
    for at in 0..count {
        if found == wanted.len() {
            break;
        }
        let address = u128::from_be_bytes(context.view.header(start + at * 16)?);
        if address == wanted[found] {
            found += 1;
        } else if strict {
            return Ok(false);
        }
    }
    Ok(found == wanted.len())
}

/// `-m ipv6header` (ip6t_ipv6header). It walks over fragment headers as over others.
pub(super) fn ipv6_header(group: &Group, context: &Context) -> Answer {
    let Some(present) = headers(context)? else {
        return Ok(false);
    };
    let (wanted, not) = group.number("--header").unwrap_or((0, false));
    if group.has("--soft") {
        let chosen = present & wanted;
        return Ok(if not { chosen == 0 } else { chosen == wanted });
    }
    Ok((present == wanted) != not)
}

/// The headers of a packet as bits of `--header`; `None` if they end too early.
fn headers(context: &Context) -> Result<Option<u64>, Stop> {
    let mut header = context.view.byte(6)?;
    let mut at = IPV6_HEADER;
    let mut present = 0;
    while is_extension(header) || header == ESP {
        if header == NO_NEXT {
            present |= 2;
            break;
        }
        let Some([next, length]) = context.view.array(at)? else {
            // The kernel reads the two bytes of ESP only to see that they exist.
            return Ok(None);
        };
        if header == ESP {
            present |= 4;
            break;
        }
        present |= match header {
            HOP_BY_HOP => 128,
            DESTINATION => 64,
            ROUTING => 32,
            FRAGMENT => 16,
            _ => 8,
        };
        at += extension_length(header, length);
        header = next;
        if at > context.view.length {
            break;
        }
    }
    if header != NO_NEXT && header != ESP {
        present |= 1;
    }
    Ok(Some(present))
}
