//! Core and reference limit the MSS by the MTU of the path as each other, with odd options, and say unknown
//! without that fact.

use fairpath_core::rules::CounterMode;
use fairpath_rules::image::{Lookups, build};
use fairpath_rules::{Core, Family, Hook, MssLimit, Reference, Unknown, Verdict};

use super::packets::{Frame, v4, v6};
use super::ruleset::ruleset;

/// A SYN with these options.
fn syn(family: Family, options: &[u8], data: &[u8]) -> Frame {
    let words = (20 + options.len()).div_ceil(4) as u8;
    let mut tcp = vec![0; 20];
    tcp[3] = 80;
    (tcp[12], tcp[13]) = (words << 4, 2);
    tcp.extend(options);
    tcp.resize(usize::from(words) * 4, 0);
    tcp.extend(data);
    match family {
        Family::Ipv4 => v4(6, &tcp),
        _ => v6(6, &tcp),
    }
}

const CLAMP: &str =
    "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu\n";

/// The verdict and the limit, which core and reference agree about.
fn answer(frame: &Frame, rules: &str) -> (Verdict, Option<MssLimit>) {
    let text = format!("*mangle\n{rules}COMMIT\n");
    let set = ruleset(frame.family, &text);
    let packet = frame.packet();
    let reference = Reference::new(&set, None).evaluate(Hook::Forward, &packet);
    let built = build(&set, None, Lookups::default()).unwrap();
    let mut core = Core::new(&built, CounterMode::Exact).unwrap();
    let outcome = core.evaluate(Hook::Forward, &packet).unwrap();
    assert_eq!(
        (&outcome.verdict, outcome.changes.mss),
        (&reference.verdict, reference.changes.mss),
        "{frame:?}"
    );
    (outcome.verdict, outcome.changes.mss)
}

#[test]
fn limit_is_the_path_without_headers() {
    let mss = [2, 4, 0xff, 0xff];
    for (family, headers) in [(Family::Ipv4, 40), (Family::Ipv6, 60)] {
        for (mtu, limit) in [
            (1500, Some(1500 - headers)),
            (headers + 1, Some(1)),
            (headers, None),
            (1, None),
            (65_575, Some((65_575 - headers).min(65_535))),
        ] {
            let frame = syn(family, &mss, &[]).facts(|facts| facts.path_mtu = Some(mtu));
            let read =
                |mss: u32| format!("{CLAMP}-A FORWARD -p tcp -m tcpmss --mss {mss} -j DROP\n");
            match limit {
                Some(limit) => {
                    let (verdict, changed) = answer(&frame, &read(limit));
                    assert_eq!(verdict, Verdict::Drop, "{mtu}");
                    assert_eq!(changed, Some(MssLimit::Bytes(limit as u16)));
                    let other = if limit == 9 { 10 } else { 9 };
                    assert_eq!(answer(&frame, &read(other)).0, Verdict::Accept);
                }
                None => assert_eq!(answer(&frame, CLAMP), (Verdict::Drop, None), "{mtu}"),
            }
        }
    }
}

#[test]
fn unknown_path_is_not_guessed() {
    let frame = syn(Family::Ipv4, &[2, 4, 5, 0xb4], &[]);
    assert_eq!(
        answer(&frame, CLAMP),
        (Verdict::Accept, Some(MssLimit::Path))
    );
    for read in ["-m tcpmss --mss 1:65535", "-m u32 --u32 \"0=0\""] {
        let rules = format!("{CLAMP}-A FORWARD -p tcp {read} -j DROP\n");
        let unknown = Verdict::Unknown(Unknown::OpaqueTarget);
        assert_eq!(answer(&frame, &rules).0, unknown, "{read}");
    }
    // An option of this length is there in any case.
    let rules = format!("{CLAMP}-A FORWARD -p tcp -m length --length 44 -j DROP\n");
    let none = syn(Family::Ipv4, &[], &[]);
    assert_eq!(answer(&none, &rules).0, Verdict::Drop);
}

#[test]
fn zero_bytes_are_not_the_path() {
    let frame = syn(Family::Ipv4, &[2, 4, 5, 0xb4], &[]).facts(|facts| facts.path_mtu = Some(1500));
    let rules = "-A FORWARD -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --set-mss 0\n\
         -A FORWARD -p tcp -m tcpmss --mss 0 -j DROP\n";
    assert_eq!(
        answer(&frame, rules),
        (Verdict::Drop, Some(MssLimit::Bytes(0)))
    );
}

#[test]
fn odd_options_are_limited_alike() {
    let all: [&[u8]; 10] = [
        &[],
        &[1, 2, 4, 5, 0xb4, 0, 0, 0],
        &[2, 4, 5, 0xb4, 2, 4, 9, 9],
        &[2, 3, 9, 2, 4, 9, 9, 0],
        &[9, 0, 2, 4, 9, 9, 0, 0],
        &[1, 1, 2, 4],
        &[1, 2, 4, 5],
        &[30, 40, 2, 4, 9, 9, 0, 0],
        &[0, 2, 4, 9, 9, 0, 0, 0],
        &[1; 40],
    ];
    for family in [Family::Ipv4, Family::Ipv6] {
        for options in all {
            for data in [&[][..], &[7]] {
                for (mtu, mss) in [
                    (600, 560),
                    (600, 540),
                    (600, 536),
                    (9000, 1220),
                    (9000, 0x909),
                ] {
                    let frame = syn(family, options, data);
                    let frame = frame.facts(|facts| facts.path_mtu = Some(mtu));
                    for read in [
                        format!("-m tcpmss --mss {mss}"),
                        "-m length --length 44:64".to_owned(),
                        "-m tcp --tcp-option 2".to_owned(),
                    ] {
                        let rules = format!("{CLAMP}-A FORWARD -p tcp {read} -j DROP\n");
                        answer(&frame, &rules);
                        for length in [41, 59, 63, 79] {
                            answer(&frame.clone().shorter(length), &rules);
                            answer(&frame.clone().captured(length), &rules);
                        }
                    }
                }
            }
        }
    }
}
