//! Filters of measured packets.

use std::net::IpAddr;

use fairpath_core::{Filter, Prefix};

/// Reads `192.0.2.0/24`, `port 443` or `192.0.2.0/24 port 443`. `except` excludes matching packets.
///
/// # Errors
/// The text is not a filter.
pub fn read_filter(text: &str, except: bool) -> Result<Filter, String> {
    let wrong = || {
        format!(
            "filter {text:?} is invalid: write \"192.0.2.0/24\", \"port 443\" or \"192.0.2.0/24 port 443\""
        )
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let (prefix, port) = match words[..] {
        ["port", port] => (None, Some(port)),
        [prefix] => (Some(prefix), None),
        [prefix, "port", port] => (Some(prefix), Some(port)),
        _ => return Err(wrong()),
    };
    let port = port.map(str::parse).transpose().map_err(|_| wrong())?;
    let prefix = prefix
        .map(|text| read_prefix(text).ok_or_else(wrong))
        .transpose()?;
    Ok(Filter {
        except,
        prefix,
        port,
    })
}

fn read_prefix(text: &str) -> Option<Prefix> {
    let (address, len) = match text.split_once('/') {
        Some((address, len)) => (address, Some(len)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let len = len.map_or(Ok(longest), str::parse).ok()?;
    (len <= longest).then(|| Prefix::new(address, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_a_prefix_a_port_or_both() {
        let read = |text: &str| {
            let filter = read_filter(text, true)?;
            assert!(filter.except);
            Ok::<_, String>((filter.prefix.map(|p| p.to_string()), filter.port))
        };
        assert_eq!(
            read("192.0.2.7/24"),
            Ok((Some("192.0.2.0/24".into()), None))
        );
        assert_eq!(
            read("2001:db8::1"),
            Ok((Some("2001:db8::1/128".into()), None))
        );
        assert_eq!(read("port 53"), Ok((None, Some(53))));
        let both = (Some("10.0.0.0/8".into()), Some(443));
        assert_eq!(read("10.0.0.0/8 port 443"), Ok(both));
        for bad in [
            "",
            "port",
            "port 65536",
            "10.0.0.0/33",
            "host 10.0.0.1",
            "443",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
