//! Addresses and ports of the targets that translate.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Context, any_number, port, show};
use crate::tree::Family;

/// `ADDRESS[-ADDRESS][:PORTS]`, with brackets before ports in IPv6.
pub(super) fn nat_address(text: &str, context: Context) -> Result<Box<[u8]>, String> {
    let v6 = context.family == Family::Ipv6;
    let (addresses, ports) = if let Some(inner) = text.strip_prefix('[').filter(|_| v6) {
        let (inner, after) = inner
            .split_once(']')
            .ok_or("the bracket has no end: add ]")?;
        match (after.strip_prefix(':'), after) {
            (Some(ports), _) => (inner, Some(ports)),
            (None, "") => (inner, None),
            _ => return Err(format!("\"{}\" has words after ]", show(text.as_bytes()))),
        }
    } else if v6 {
        (text, None)
    } else {
        match text.split_once(':') {
            Some((address, ports)) => (address, Some(ports)),
            None => (text, None),
        }
    };
    let valid = |address: &str| match v6 {
        true => address.parse::<Ipv6Addr>().is_ok(),
        false => address.parse::<Ipv4Addr>().is_ok(),
    };
    let empty = addresses.is_empty() && ports.is_some();
    if !empty && !addresses.split('-').all(valid) || addresses.split('-').count() > 2 {
        return Err(format!(
            "\"{}\" is not an address or a range of them",
            show(addresses.as_bytes())
        ));
    }
    let addresses = match addresses.split_once('-') {
        Some((first, last)) if first == last => first,
        _ => addresses,
    };
    Ok(match ports {
        None => addresses.as_bytes().into(),
        Some(ports) => {
            // A base after a slash shifts the range.
            let (range, base) = match ports.split_once('/') {
                Some((range, base)) => (range, Some(base)),
                None => (ports, None),
            };
            let mut out = nat_ports(range, context)?;
            if let Some(base) = base {
                let base = port(base.as_bytes(), any_number, context)?;
                out = format!("{out}/{base}");
            }
            match v6 {
                true => format!("[{addresses}]:{out}").into_bytes().into(),
                false => format!("{addresses}:{out}").into_bytes().into(),
            }
        }
    })
}

/// `PORT[-PORT]`, as numbers.
pub(super) fn nat_ports(text: &str, context: Context) -> Result<String, String> {
    let number = |text: &str| port(text.as_bytes(), any_number, context);
    // The name of a service may have a hyphen.
    if let Ok(port) = number(text) {
        return Ok(port.to_string());
    }
    let (first, last) = text
        .split_once('-')
        .ok_or_else(|| format!("\"{}\" is not a port", show(text.as_bytes())))?;
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!(
            "the first port of \"{}\" is larger than the last: exchange them",
            show(text.as_bytes())
        ));
    }
    Ok(if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    })
}
